"""A turn's log that remembers, and accepts at once or when told."""

import threading
from collections.abc import Callable

from actors.service import SinkItem
from jail.wire.schema import Failure, TurnEnd


class FakeSink:
    """Implements actors.service.TurnSink; ``ended`` is set by finish."""

    def __init__(self, accept: bool = True) -> None:
        self.items: list[SinkItem] = []
        self.outcomes: list[TurnEnd | Failure] = []
        self.ended = threading.Event()
        self.waiting: list[Callable[[], None]] = []
        self._accept = accept
        self.again: list[bool] = []

    def append(self, item: SinkItem, accepted: Callable[[], None]) -> None:
        self.items.append(item)
        if self._accept:
            accepted()
        else:
            self.waiting.append(accepted)

    def finish(self, outcome: TurnEnd | Failure) -> None:
        self.outcomes.append(outcome)
        self.ended.set()

    def lost(self, failure: Failure, again: bool) -> None:
        self.again.append(again)
        self.finish(failure)

    @property
    def outcome(self) -> TurnEnd | Failure:
        """The only outcome there may be."""
        assert len(self.outcomes) == 1
        return self.outcomes[0]
