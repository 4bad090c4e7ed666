"""User actors without jails: each turn is played by a script, on a thread of its own."""

import queue
import threading
from collections.abc import Callable

from actors.approvals import Answered
from actors.asking import ApprovalResolved, ApprovalWanted, Resolution
from actors.service import ApprovalBook, SinkItem, TurnSpec
from jail.wire.schema import Delta, Failure, ToolEnded, ToolStarted, TurnEnd, Usage

WAIT_S = 10.0


class PlayedTurn:
    """A turn under a script's hand; its end is reported once, whoever comes first."""

    def __init__(self, spec: TurnSpec) -> None:
        self.spec = spec
        self.cancelled = threading.Event()
        self.accepted = threading.Semaphore(0)
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def put(self, item: SinkItem) -> None:
        """Append any event; raises once the turn has ended."""
        with self._lock:
            assert not self.ended.is_set(), "the turn has ended"
            self.spec.sink.append(item, self.accepted.release)

    def say(self, *pieces: str) -> None:
        for piece in pieces:
            self.put(Delta(piece))

    def run_tool(self, step: int, name: str, result: str) -> None:
        self.put(ToolStarted(step, name, "{}"))
        self.put(ToolEnded(step, True, result))

    def end(self, outcome: TurnEnd | Failure | None = None) -> None:
        with self._lock:
            if not self.ended.is_set():
                self.ended.set()
                self.spec.sink.finish(outcome or TurnEnd("stop", Usage(3, 2)))

    def wait_cancelled(self) -> None:
        assert self.cancelled.wait(WAIT_S), "nobody cancelled the turn"


Script = Callable[[PlayedTurn], None]


def say_hello(turn: PlayedTurn) -> None:
    """The script that is played unless a test sets another."""
    turn.say("Hel", "lo ", turn.spec.handle.user)
    turn.end()


class ScriptedTurns:
    """Implements core.hub.turns.Turns."""

    def __init__(self) -> None:
        self.script: Script = say_hello
        self.started: queue.SimpleQueue[PlayedTurn] = queue.SimpleQueue()
        self.turns: dict[tuple[str, str], PlayedTurn] = {}
        self.errors: list[BaseException] = []
        self.book: ApprovalBook | None = None
        self.asked: dict[tuple[str, str], PlayedTurn] = {}
        self._threads: list[threading.Thread] = []

    def start(self, spec: TurnSpec) -> None:
        turn = PlayedTurn(spec)
        self.turns[spec.handle.user, spec.turn] = turn
        thread = threading.Thread(target=self._play, args=(turn, self.script))
        self._threads.append(thread)
        thread.start()
        self.started.put(turn)

    def cancel(self, user: str, turn: str, why: str = "the turn was cancelled") -> None:
        played = self.turns[user, turn]
        played.cancelled.set()
        played.end(Failure("cancelled", why))

    def answer_approval(self, user: str, approval: str, allow: bool, answered: Answered) -> None:
        """As the user's actor, whose only open questions are those in ``asked``."""
        turn = self.asked.pop((user, approval), None)
        if turn is None:
            answered(None, None)
            return
        outcome: Resolution = "allowed" if allow else "refused"

        def settled(failure: Failure | None) -> None:
            turn.put(ApprovalResolved(approval, outcome))
            answered(outcome, failure)

        assert self.book is not None
        self.book.settle(turn.spec, approval, outcome, settled)

    def next(self) -> PlayedTurn:
        """The next turn that was started."""
        return self.started.get(timeout=WAIT_S)

    def ask(self, turn: PlayedTurn, wanted: ApprovalWanted) -> None:
        """Ask a turn's user something, to the moment at which it is open."""
        assert self.book is not None
        kept: queue.SimpleQueue[Failure | None] = queue.SimpleQueue()
        self.book.keep(turn.spec, wanted, kept.put)
        assert kept.get(timeout=WAIT_S) is None
        self.asked[turn.spec.handle.user, wanted.approval] = turn
        turn.put(wanted)

    def close(self) -> None:
        """End what runs and join the threads; raises what a script raised."""
        for turn in self.turns.values():
            turn.cancelled.set()
            turn.end()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]

    def _play(self, turn: PlayedTurn, script: Script) -> None:
        try:
            script(turn)
        except BaseException as error:
            self.errors.append(error)
            turn.end(Failure("internal", "the script failed"))
