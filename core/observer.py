"""What the middle floor reports, as log lines and metrics."""

from typing import Any

import structlog

from core.metrics import Metrics


class CoreObserver:
    """Implements actors.observer.Observer. Thread-safe."""

    def __init__(self, metrics: Metrics) -> None:
        self._log = structlog.get_logger()
        self.handled = metrics.handled
        self.jail_started = metrics.jail_started
        self.jail_ended = metrics.jail_ended
        self.peer_faulted = metrics.peer_faulted
        self.restarted = metrics.restarted

    def note(self, event: str, **values: Any) -> None:
        """An ordinary event."""
        self._log.info(event, **values)

    def warn(self, event: str, **values: Any) -> None:
        """An event an operator should know of."""
        self._log.warning(event, **values)
