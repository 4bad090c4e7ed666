"""The sessions service: opens turns for the hub, and serves the jails' session and step verbs.

No thread of its own: what takes time is done by the storage threads, which call back.
"""

import asyncio
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from actors.service import RequestKey, VerbRequest
from core.acting import acting
from core.config import SessionsSection
from core.sessions.errors import SessionBusy, TurnExists
from core.sessions.feed import Feeds
from core.sessions.journal import Journal, TurnPlace
from core.sessions.loading import Loading, fail_request
from core.sessions.log import TurnLog
from core.sessions.storage import Storage
from core.sessions.store import StepCall, UserStore, check_session_id
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

_log = structlog.get_logger()


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
        self._busy: dict[tuple[str, str], str] = {}
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
    ) -> OpenTurn:
        """Make what a turn works on; ``ended`` is called once, when its log is finished.

        Without a session id, ``messages`` are the whole history and kept for nobody. With one,
        they are added to the session's history (a fresh one where this user has none of that id)
        and journalled with the turn before this returns. ``agent`` is named in its first event.
        Without a ``window`` the log's memory keeps nothing: who follows the turn watches its session.

        Raises SessionNameError, SessionBusy, StorageError, SealError, and TurnExists for a turn that
        was begun before; ``ended`` isn't called then.
        """
        if session_id is None:
            log = self._log(1, None, ended, window)
            return OpenTurn(EphemeralSession(handle.user, turn, messages), log, 0)
        place = TurnPlace(handle, check_session_id(session_id), turn)
        if not self._occupy(handle.user, session_id, turn):
            await self._journal.find(place)
            raise SessionBusy(session_id)
        try:
            began_at = await self._journal.begin(place, agent, messages)
        except TurnExists:
            self._release(handle.user, session_id, turn)
            raise
        except BaseException:
            # cancelled or timed out, it may still be written: then the journal says how it ended
            self._journal.end(place, Failure("cancelled", "the turn was not started"))
            self._release(handle.user, session_id, turn)
            raise
        session = StoredSession(handle, session_id, turn)
        bounds = self._config
        writer = EventWriter(self._storage, self.feeds, place, int(bounds.log_bytes), bounds.log_age_s)

        def on_finish(outcome: TurnEnd | Failure) -> None:
            writer.flush()
            self._journal.end(place, outcome, log.last_id)
            self._release(handle.user, session_id, turn)
            ended(outcome)

        log = self._log(began_at + 1, writer, on_finish, window)
        return OpenTurn(session, log, began_at)

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
        token = f"reserved_{secrets.token_hex(8)}"
        self._occupy(user, session_id, token)
        try:
            yield
        finally:
            self._release(user, session_id, token)

    def _log(self, first_id: int, writer: EventWriter | None, on_finish: Ended, window: bool) -> TurnLog:
        loop = asyncio.get_running_loop()
        bounds = self._config
        max_bytes = int(bounds.log_bytes) if window else 0
        return TurnLog(loop, first_id, max_bytes, bounds.log_age_s, writer, on_finish)

    def _occupy(self, user: str, session_id: str, turn: str) -> bool:
        """False where this very turn has it already; SessionBusy where another does."""
        with self._lock:
            busy = self._busy.get((user, session_id))
            if busy is None:
                self._busy[user, session_id] = turn
        if busy not in (None, turn):
            raise SessionBusy(session_id)
        return busy is None

    def _release(self, user: str, session_id: str, turn: str) -> None:
        with self._lock:
            if self._busy.get((user, session_id)) == turn:
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

        def work(store: UserStore) -> None:
            store.append_messages(name, messages, int(time.time()))

        self._store(request, session, work, size)

    def _begin_step(self, request: VerbRequest, session: Session, step: int, call: StepCall) -> None:
        size = len(call.arguments.encode())
        if not _allowed(request, session, size, 1):
            return
        if isinstance(session, EphemeralSession):
            request.reply.done(Done())
            return
        turn = session.turn

        def work(store: UserStore) -> None:
            store.begin_step(turn, step, call, int(time.time()))

        self._store(request, session, work, size)

    def _end_step(self, request: VerbRequest, session: Session, step: int, ok: bool) -> None:
        if isinstance(session, EphemeralSession):
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
