"""Turns that the journal has as started and nobody runs: found, judged, closed or marked to go on.

Runs inside a transaction of the caller's.
"""

from typing import NamedTuple

import msgspec
import structlog

from core.errors import SealError
from core.sessions.approvals import ApprovalRecords
from core.sessions.eventlog import EventLog
from core.sessions.events import Accepted, LogItem, Resumed, decode_event, ending
from core.sessions.recovery import Asked, Close, LeftOpen, judge
from core.sessions.store import UserStore
from jail.wire.schema import Failure, Message, ToolEnded, ToolStarted

INTERRUPTED = Failure("internal", "interrupted: the server stopped while it ran")
_TAIL = 65  # a round's calls are bounded by the schema

_log = structlog.get_logger()

_encode = msgspec.msgpack.Encoder().encode
_decode_asked = msgspec.msgpack.Decoder(Asked).decode


class GoesOn(NamedTuple):
    """A turn to be started anew: ``first_step`` is its next step's number, ``after`` the last event
    that still counts, ``said_at`` the id of the event that says so (0: not written yet)."""

    turn: str
    session: str
    asked: Asked
    wall_s: int
    first_step: int
    after: int
    said_at: int


class OpenTurns:
    """Those of one store. Raises SealError, SessionsError, sqlite3.Error."""

    def __init__(self, store: UserStore) -> None:
        self._store = store
        self._log = EventLog(store)
        self._execute = store.connection.execute

    def remember(self, turn: str, asked: Asked) -> None:
        """Keep what a turn is started anew with."""
        sealed = self._store.handle.seal(f"turns/{turn}/asked", _encode(asked))
        self._execute("UPDATE turns SET asked = ? WHERE turn = ?", (sealed, turn))

    def keep_steps(self, turn: str) -> None:
        """The results of all steps that have ended are messages now."""
        self._execute("UPDATE steps SET kept = 1 WHERE turn = ? AND kept = 0 AND state != 'begun'", (turn,))

    def recover(self, now_s: float, may_go_on: bool) -> tuple[list[GoesOn], int]:
        """Deal with all that an earlier process left; those that go on, and how many were closed."""
        questions = ApprovalRecords(self._store).interrupt(int(now_s))
        found = self._execute("SELECT turn, session FROM turns WHERE state = 'started' ORDER BY started_s")
        going: list[GoesOn] = []
        closed = 0
        for turn, session in found.fetchall():
            fate = self._judge_left(turn, session, now_s, may_go_on)
            if isinstance(fate, GoesOn):
                # past all that a power cut may have taken
                items: tuple[LogItem, ...] = (*questions.get(turn, ()), Resumed(fate.after))
                said = self._log.interrupted(session, turn, items, int(now_s * 1_000))
                going.append(fate._replace(said_at=said))
            else:
                self._store.end_turn(turn, fate.outcome, int(now_s))
                items = (*questions.get(turn, ()), *ending(fate.outcome))
                self._log.interrupted(session, turn, items, int(now_s * 1_000))
                closed += 1
        return going, closed

    def _judge_left(self, turn: str, session: str, now_s: float, may_go_on: bool) -> GoesOn | Close:
        """As :meth:`judge`; a turn whose records don't open, or are another version's, just ends: all that is
        kept for its user would wait for it."""
        try:
            return self.judge(turn, session, INTERRUPTED, now_s, may_go_on)
        except (SealError, msgspec.DecodeError) as error:
            _log.error("turn_not_judged", user=self._store.handle.user, turn=turn, error=str(error))
            return Close(Failure(INTERRUPTED.code, f"{INTERRUPTED.message}; what it did cannot be read"), "")

    def judge(self, turn: str, session: str, why: Failure, now_s: float, again: bool) -> GoesOn | Close:
        """What becomes of a turn. One that goes on is counted; of another the session has what is to be
        said, and its end is the caller's to write."""
        sealed, started_s, resumes = self._execute(
            "SELECT asked, started_s, resumes FROM turns WHERE turn = ?", (turn,)
        ).fetchone()
        asked = _decode_asked(self._store.handle.open(f"turns/{turn}/asked", sealed)) if sealed else None
        steps = self._store.read_steps(turn)
        left = LeftOpen(asked, steps, self._tail(session), resumes, now_s - started_s)
        fate = judge(left, why, again)
        if isinstance(fate, Close):
            if fate.said:
                self._store.append_messages(session, [Message("assistant", fate.said)], int(now_s))
            return fate
        self._execute("UPDATE turns SET resumes = resumes + 1 WHERE turn = ?", (turn,))
        kept = max((step.step for step in steps if step.kept), default=0)
        after, last = self._shown(session, turn, kept)
        first = max(last, steps[-1].step if steps else 0) + 1
        return GoesOn(turn, session, fate.asked, fate.wall_s, first, after, 0)

    def _tail(self, session: str) -> list[Message]:
        """The session's last messages, from the last that no tool said."""
        last = self._store.last_seq(session)
        page = self._store.read_messages(session, last - _TAIL, last, 1 << 30, _TAIL)
        for number in range(len(page.messages) - 1, -1, -1):
            if page.messages[number].role != "tool":
                return list(page.messages[number:])
        return list(page.messages)

    def _shown(self, session: str, turn: str, kept: int) -> tuple[int, int]:
        """The last event of what is kept in messages, and the highest step that clients know of."""
        last_step, before = kept, self._log.last_id(session)
        for record in self._log.newest_first(session, turn):
            item = decode_event(record).item
            before = record.id - 1
            if isinstance(item, ToolStarted | ToolEnded):
                last_step = max(last_step, item.step)
            if isinstance(item, Accepted) or (isinstance(item, ToolEnded) and item.step <= kept):
                return record.id, last_step
        return before, last_step
