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
from typing import TypeVar

import structlog

from actors.service import RequestKey, VerbRequest
from core.config import SessionsSection
from core.errors import CoreError
from core.sessions.errors import SessionBusy, StorageError
from core.sessions.loading import Loading, fail_request
from core.sessions.log import TurnLog
from core.sessions.storage import Storage
from core.sessions.store import Outcome, SessionState, StepCall, TurnState, UserStore, check_session_id
from core.sessions.turns import EphemeralSession, Session, StoredSession, message_bytes
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

_T = TypeVar("_T")

_OPEN_TIMEOUT_S = 15.0

Ended = Callable[[TurnEnd | Failure], None]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """What a TurnSpec needs: ``session`` for its session, ``log`` for its sink."""

    session: Session
    log: TurnLog


class SessionsService:
    """An :class:`actors.service.Service` for session.load, session.append, step.begin, step.end.

    Args:
        storage: the storage threads; stopped by whoever made them.
        config: the log's bounds.
    """

    def __init__(self, storage: Storage, config: SessionsSection) -> None:
        self._storage = storage
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
    ) -> OpenTurn:
        """Make what a turn works on; ``ended`` is called once, when its log is finished.

        Without a session id, ``messages`` are the whole history and kept for nobody. With one,
        they are added to the session's history (a fresh one where this user has none of that id)
        and journalled with the turn before this returns.

        Raises SessionNameError, SessionBusy, StorageError, SealError; ``ended`` isn't called then.
        """
        if session_id is None:
            log = self._log(1, None, ended)
            return OpenTurn(EphemeralSession(handle.user, turn, messages), log)
        self._occupy(handle.user, check_session_id(session_id), turn)
        try:
            state = await self._begin(handle, session_id, turn, messages)
        except BaseException:
            # cancelled or timed out, it may still be written: then the journal says how it ended
            self._end_in_journal(handle, turn, Failure("cancelled", "the turn was not started"))
            self._release(handle.user, session_id, turn)
            raise
        session = StoredSession(handle, session_id, turn)
        bounds = self._config
        writer = EventWriter(self._storage, handle, session_id, turn, int(bounds.log_bytes), bounds.log_age_s)

        def on_finish(outcome: TurnEnd | Failure) -> None:
            writer.flush()
            self._end_in_journal(handle, turn, outcome)
            self._release(handle.user, session_id, turn)
            ended(outcome)

        return OpenTurn(session, self._log(state.last_event + 1, writer, on_finish))

    @contextmanager
    def reserved(self, user: str, session_id: str) -> Iterator[None]:
        """No turn begins in a session meanwhile. Raises SessionBusy where one runs."""
        token = f"reserved_{secrets.token_hex(8)}"
        self._occupy(user, session_id, token)
        try:
            yield
        finally:
            self._release(user, session_id, token)

    async def _begin(
        self, handle: UserHandle, session_id: str, turn: str, messages: Sequence[Message]
    ) -> SessionState:
        title = messages[-1].text.partition("\n")[0] if messages else ""

        def work(store: UserStore) -> SessionState:
            now_s = int(time.time())
            state = store.ensure_session(session_id, title, now_s)
            store.append_messages(session_id, messages, now_s)
            store.begin_turn(turn, session_id, now_s)
            return state

        size = sum(message_bytes(message) for message in messages)
        return await ask_storage(self._storage, handle, work, size)

    def _log(self, first_id: int, writer: EventWriter | None, on_finish: Ended) -> TurnLog:
        loop = asyncio.get_running_loop()
        bounds = self._config
        return TurnLog(loop, first_id, int(bounds.log_bytes), bounds.log_age_s, writer, on_finish)

    def _occupy(self, user: str, session_id: str, turn: str) -> None:
        with self._lock:
            if (user, session_id) in self._busy:
                raise SessionBusy(session_id)
            self._busy[user, session_id] = turn

    def _release(self, user: str, session_id: str, turn: str) -> None:
        with self._lock:
            if self._busy.get((user, session_id)) == turn:
                del self._busy[user, session_id]

    def _end_in_journal(self, handle: UserHandle, turn: str, outcome: TurnEnd | Failure) -> None:
        state: TurnState = "ended"
        record = Outcome()
        if isinstance(outcome, Failure):
            state = "cancelled" if outcome.code == "cancelled" else "failed"
            record = Outcome(failure=outcome)
        else:
            record = Outcome(end=outcome)

        def work(store: UserStore) -> None:
            store.end_turn(turn, state, record, int(time.time()))

        def failed(error: CoreError) -> None:
            _log.error("turn_end_not_stored", turn=turn, error=str(error))

        self._storage.submit(handle, work, lambda _: None, failed)

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


async def ask_storage(
    storage: Storage, handle: UserHandle, work: Callable[[UserStore], _T], size_bytes: int = 0
) -> _T:
    """Have storage do ``work`` and wait for it on this loop; raises what ``failed`` would get."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_T] = loop.create_future()

    def settle(set_: Callable[[], None]) -> None:
        try:
            loop.call_soon_threadsafe(lambda: None if answer.done() else set_())
        except RuntimeError:
            _log.debug("storage_answer_came_after_loop")  # the loop closed: nobody waits

    def done(result: _T) -> None:
        settle(lambda: answer.set_result(result))

    def failed(error: CoreError) -> None:
        settle(lambda: answer.set_exception(error))

    storage.submit(handle, work, done, failed, size_bytes=size_bytes)
    try:
        async with asyncio.timeout(_OPEN_TIMEOUT_S):
            return await answer
    except TimeoutError:
        raise StorageError("unavailable", "storing took too long: try again later") from None
