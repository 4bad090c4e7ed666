"""Keeps questions in memory: at once, or when told."""

import queue
from collections.abc import Callable

from actors.asking import ApprovalWanted, Resolution
from actors.service import TurnSpec
from jail.wire.schema import Failure

Done = Callable[[Failure | None], None]


class FakeBook:
    """Implements actors.service.ApprovalBook.

    Args:
        at_once: answers within the call; otherwise ``waiting`` has what is to be called.
        failure: what everything fails with.
    """

    def __init__(self, at_once: bool = True, failure: Failure | None = None) -> None:
        self.kept: queue.SimpleQueue[ApprovalWanted] = queue.SimpleQueue()
        self.settled: queue.SimpleQueue[tuple[str, Resolution]] = queue.SimpleQueue()
        self.waiting: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._at_once, self._failure = at_once, failure

    def keep(self, spec: TurnSpec, wanted: ApprovalWanted, done: Done) -> None:
        del spec
        self.kept.put(wanted)
        self._answer(done)

    def settle(self, spec: TurnSpec, approval: str, outcome: Resolution, done: Done) -> None:
        del spec
        self.settled.put((approval, outcome))
        self._answer(done)

    def _answer(self, done: Done) -> None:
        if self._at_once:
            done(self._failure)
        else:
            self.waiting.put(done)
