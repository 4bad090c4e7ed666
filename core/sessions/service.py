"""The sessions service: opens turns for the hub, and serves the jails' session and step verbs.

No thread of its own: what takes time is done by the storage threads, which call back.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from actors.service import RequestKey, VerbRequest
from core.acting import acting
from core.config import SessionsSection
from core.loop_calls import loop_calls
from core.sessions.errors import SessionBusy, TurnExists
from core.sessions.events import Resumed
from core.sessions.feed import Feeds
from core.sessions.journal import Journal, TurnPlace
from core.sessions.loading import Loading, fail_request
from core.sessions.log import TurnLog
from core.sessions.openturns import GoesOn, OpenTurns
from core.sessions.recovery import Asked, Close, StepCall, report
from core.sessions.storage import Resumer, Storage
from core.sessions.store import UserStore, check_session_id
from core.sessions.turns import EphemeralSession, Session, StoredSession, message_bytes
from core.sessions.watching import Lost, Watch
from core.sessions.writer import EventWriter
from core.vault.handle import UserHandle
from jail.wire.schema import (
    Done,
    Failure,
    Message,
    SessionAppend,
    SessionLoad,
    StepBegin,
    StepEnd,
    TurnEnd,
)

Ended = Callable[[TurnEnd | Failure], None]
Restart = Callable[[int, int], None]
"""Starts a turn anew, on any thread: its first step's number, and what is left of its time (in seconds)."""

_log = structlog.get_logger()


_RESUMED = object()
"""The token of every turn that an earlier process left: one a session."""
_CUT = Failure("worker", "your jail ended just before the turn did; its answer is whole in the session")


class _Occupied(NamedTuple):
    turn: str
    token: object


def _nothing() -> None:
    """An event of core's own needs no credit back."""


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """What a TurnSpec needs: ``session`` for its session, ``log`` for its sink.

    ``began_at`` is the id of its first event in a kept session, 0 otherwise.
    """

    session: Session
    log: TurnLog
    began_at: int


class SessionsService:
    """An :class:`actors.service.Service` for session.load, session.append, step.begin, step.end.

    Args:
        storage: the storage threads; stopped by whoever made them.
        config: the log's bounds.
    """

    def __init__(self, storage: Storage, config: SessionsSection) -> None:
        self.feeds = Feeds()
        self._storage = storage
        self._journal = Journal(storage, self.feeds)
        self._config = config
        self._lock = threading.Lock()
        self._busy: dict[tuple[str, str], _Occupied] = {}
        self._loads: dict[RequestKey, Loading] = {}

    # -- for the hub, on its loop -----------------------------------------------------------------

    async def open_turn(
        self,
        handle: UserHandle,
        turn: str,
        session_id: str | None,
        messages: Sequence[Message],
        ended: Ended,
        *,
        agent: str = "",
        window: bool = True,
        asked: Asked | None = None,
        restart: Restart | None = None,
    ) -> OpenTurn:
        """Make what a turn works on; ``ended`` is called once, when its log is finished.

        Without a session id, ``messages`` are the whole history and kept for nobody. With one,
        they are added to the session's history (a fresh one where this user has none of that id)
        and journalled with the turn before this returns. ``agent`` is named in its first event.
        Without a ``window`` the log's memory keeps nothing: who follows the turn watches its session.
        With ``asked`` a turn of a kept session whose jail or server is gone may go on, by ``restart``
        in this process.

        Raises SessionNameError, SessionBusy, StorageError, SealError, and TurnExists for a turn that
        was begun before; ``ended`` isn't called then.
        """
        if session_id is None:
            bare = EphemeralSession(handle.user, turn, messages)
            log = self._log(1, None, ended, window, lambda why, _: log.finish(report(bare.steps(), why)))
            return OpenTurn(bare, log, 0)
        place = TurnPlace(handle, check_session_id(session_id), turn)
        token = self._occupy(handle.user, session_id, turn)
        if token is None:
            await self._journal.find(place)
            raise SessionBusy(session_id)
        try:
            began_at = await self._journal.begin(
                place, agent, messages, asked, lambda: self._holds(place, token)
            )
        except (TurnExists, SessionBusy):
            self._release(place, token)
            raise
        except BaseException:
            # cancelled or timed out, it may still be written: then the journal says how it ended
            self._journal.end(place, Failure("cancelled", "the turn was not started"))
            self._release(place, token)
            raise
        return self._opened(place, token, began_at, ended, window, restart)

    def resume_by(self, start: Callable[[UserHandle, GoesOn], None]) -> None:
        """Have turns go on that an earlier process left, where they may.

        ``start`` is called on a storage thread; it is to end in :meth:`reopen` or :meth:`give_up`.
        """
        self._storage.resume_by(Resumer(self._claim, self._unclaim, start))

    def reopen(self, handle: UserHandle, turn: GoesOn, ended: Ended, restart: Restart) -> OpenTurn:
        """Go on with a turn that an earlier process left; on the hub's loop."""
        place = TurnPlace(handle, turn.session, turn.turn)
        return self._opened(place, _RESUMED, turn.said_at, ended, False, restart)

    def give_up(self, handle: UserHandle, turn: GoesOn, failure: Failure) -> None:
        """End a turn that an earlier process left and that cannot go on after all, with a report."""
        place = TurnPlace(handle, turn.session, turn.turn)
        self._journal.give_up(place, failure, turn.said_at)
        self._release(place, _RESUMED)

    def _opened(
        self,
        place: TurnPlace,
        token: object,
        last_id: int,
        ended: Ended,
        window: bool,
        restart: Restart | None,
    ) -> OpenTurn:
        bounds = self._config
        writer = EventWriter(self._storage, self.feeds, place, int(bounds.log_bytes), bounds.log_age_s)

        def on_finish(outcome: TurnEnd | Failure) -> None:
            writer.flush()
            self._journal.end(place, outcome, log.last_id)
            self._release(place, token)
            ended(outcome)

        def on_lost(why: Failure, again: bool) -> None:
            writer.flush()
            self._journal.lost(
                place, why, again and restart is not None, judged,
                lambda error: log.finish(Failure(why.code, f"{why.message} ({error})"[:2_000])),
            )  # fmt: skip

        def judged(fate: GoesOn | Close) -> None:
            if isinstance(fate, Close):
                cut = window and isinstance(fate.outcome, TurnEnd)  # its client has not had all of it
                log.finish(_CUT if cut else fate.outcome)
            elif restart is not None:
                _log.info("turn_resumed", user=place.handle.user, turn=place.turn)
                log.append(Resumed(fate.after), _nothing)
                restart(fate.first_step, fate.wall_s)

        log = self._log(last_id + 1, writer, on_finish, window, on_lost)
        return OpenTurn(StoredSession(place.handle, place.session, place.turn), log, last_id)

    async def watch(self, handle: UserHandle, session_id: str, after: int | None) -> Watch | Lost:
        """Watch a session's events past an id (None: what comes from now on); to be closed.

        NoSuchSession, StorageError, SealError; Lost where the place is none of the log's.
        """
        watch = Watch(self._storage, self.feeds, handle, session_id, after)
        try:
            lost = await watch.open()
        except BaseException:
            watch.close()
            raise
        if lost is not None:
            watch.close()
            return lost
        return watch

    @contextmanager
    def reserved(self, user: str, session_id: str) -> Iterator[None]:
        """No turn begins in a session meanwhile. Raises SessionBusy where one runs."""
        reserved = f"reserved_{secrets.token_hex(8)}"
        token = self._occupy(user, session_id, reserved)
        try:
            yield
        finally:
            self._release_session(user, session_id, token)

    def _log(
        self,
        first_id: int,
        writer: EventWriter | None,
        on_finish: Ended,
        window: bool,
        on_lost: Callable[[Failure, bool], None] | None,
    ) -> TurnLog:
        bounds = self._config
        max_bytes = int(bounds.log_bytes) if window else 0
        return TurnLog(loop_calls(), first_id, max_bytes, bounds.log_age_s, writer, on_finish, on_lost)

    def _occupy(self, user: str, session_id: str, turn: str) -> object | None:
        """A token to release it with; None where this very turn has it already; SessionBusy where
        another does."""
        with self._lock:
            busy = self._busy.get((user, session_id))
            if busy is None:
                token = object()
                self._busy[user, session_id] = _Occupied(turn, token)
                return token
        if busy.turn != turn:
            raise SessionBusy(session_id)
        return None

    def _claim(self, handle: UserHandle, turn: GoesOn) -> None:
        """A session is a found turn's, whoever was about to begin one in it."""
        with self._lock:
            self._busy[handle.user, turn.session] = _Occupied(turn.turn, _RESUMED)

    def _unclaim(self, handle: UserHandle, turn: GoesOn) -> None:
        self._release_session(handle.user, turn.session, _RESUMED)

    def _holds(self, place: TurnPlace, token: object) -> bool:
        with self._lock:
            busy = self._busy.get((place.handle.user, place.session))
            return busy is not None and busy.token is token

    def _release(self, place: TurnPlace, token: object) -> None:
        self._release_session(place.handle.user, place.session, token)

    def _release_session(self, user: str, session_id: str, token: object) -> None:
        with self._lock:
            busy = self._busy.get((user, session_id))
            if busy is not None and busy.token is token:
                del self._busy[user, session_id]

    # -- for the user actors, on any thread -------------------------------------------------------

    def serve(self, request: VerbRequest) -> None:
        """Take a session or step verb; answers from a storage thread, or at once."""
        session = request.turn.session
        user = request.handle.user
        if not (
            isinstance(session, StoredSession | EphemeralSession)
            and session.owner == user == request.turn.handle.user
            and session.turn == request.turn.turn
        ):
            # several ways to say whose this is, and they differ: a bug of ours, so nobody gets data
            _log.critical("session_owner_mismatch", user=user, turn=request.turn.turn)
            request.reply.fail("internal", "this session belongs to somebody else; it was logged")
            return
        with acting(request.turn.request):
            self._serve(request, session)

    def _serve(self, request: VerbRequest, session: Session) -> None:
        match request.body:
            case SessionLoad():
                self._load(request, session)
            case SessionAppend(messages=messages):
                self._append(request, session, messages)
            case StepBegin(step=step, tool=tool, arguments=arguments):
                self._begin_step(request, session, step, StepCall(tool, arguments))
            case StepEnd(step=step, ok=ok):
                self._end_step(request, session, step, ok)
            case _:
                request.reply.fail("unavailable", f"the sessions service serves no {request.verb}")

    def credit(self, key: RequestKey, count: int) -> None:
        """That many more pages of a session.load may be sent."""
        with self._lock:
            loading = self._loads.get(key)
        if loading is not None:
            loading.credit(count)

    def cancel(self, key: RequestKey) -> None:
        """Stop a session.load; the other verbs are done anyhow."""
        with self._lock:
            loading = self._loads.get(key)
        if loading is not None:
            loading.cancel()

    def _load(self, request: VerbRequest, session: Session) -> None:
        key = request.key

        def ended() -> None:
            with self._lock:
                self._loads.pop(key, None)

        loading = Loading(self._storage, request, session, ended)
        with self._lock:
            self._loads[key] = loading
        loading.start()

    def _append(self, request: VerbRequest, session: Session, messages: tuple[Message, ...]) -> None:
        size = sum(message_bytes(message) for message in messages)
        if not _allowed(request, session, size, len(messages)):
            return
        if isinstance(session, EphemeralSession):
            session.append(messages)
            request.reply.done(Done())
            return
        name = session.session_id

        turn = session.turn

        def work(store: UserStore) -> None:
            store.append_messages(name, messages, int(time.time()))
            OpenTurns(store).keep_steps(turn)

        self._store(request, session, work, size)

    def _begin_step(self, request: VerbRequest, session: Session, step: int, call: StepCall) -> None:
        size = len(call.arguments.encode())
        if not _allowed(request, session, size, 1):
            return
        if isinstance(session, EphemeralSession):
            session.begin_step(step, call)
            request.reply.done(Done())
            return
        turn = session.turn

        def work(store: UserStore) -> None:
            store.begin_step(turn, step, call, int(time.time()))

        self._store(request, session, work, size)

    def _end_step(self, request: VerbRequest, session: Session, step: int, ok: bool) -> None:
        if isinstance(session, EphemeralSession):
            session.end_step(step, ok)
            request.reply.done(Done())
            return
        turn = session.turn

        def work(store: UserStore) -> None:
            store.end_step(turn, step, ok, int(time.time()))

        self._store(request, session, work, 0)

    def _store(
        self,
        request: VerbRequest,
        session: StoredSession,
        work: Callable[[UserStore], None],
        size: int,
    ) -> None:
        self._storage.submit(
            session.handle,
            work,
            lambda _: request.reply.done(Done()),
            lambda error: fail_request(request, error),
            size_bytes=size,
        )


def _allowed(request: VerbRequest, session: Session, size_bytes: int, records: int) -> bool:
    if session.allowance.take(size_bytes, records):
        return True
    request.reply.fail("limit", "this turn has stored as much as one turn may: end it")
    return False
