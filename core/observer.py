"""What the middle floor reports, as log lines and metrics."""

from collections.abc import Callable
from typing import Any

import structlog

from core.metrics import Metrics


class CoreObserver:
    """Implements actors.observer.Observer. Thread-safe.

    Args:
        jail_killed: told the user, the reason and, in our words, the detail of a jail ended for a fault.
    """

    def __init__(self, metrics: Metrics, jail_killed: Callable[[str, str, str], None]) -> None:
        self._jail_killed = jail_killed
        self._log = structlog.get_logger()
        self.handled = metrics.handled
        self.frame = metrics.frame
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
        if event == "peer_faulted":
            self._jail_killed(values["user"], values["reason"], values["detail"])
