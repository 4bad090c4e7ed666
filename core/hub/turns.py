"""Starts turns for clients: admitted, journalled, handed to the user's actor, counted to their end."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import structlog
from msgspec.structs import replace as changed

from actors.service import TurnSpec
from actors.user_messages import CANCELLED
from core.acting import TRACE, Trace, acting, current_request, current_traceparent
from core.errors import CoreError, SealError
from core.hub.admission import Admission
from core.hub.errors import HubError, from_storage, invalid
from core.hub.tokens import invalid_token
from core.metrics import Metrics
from core.sessions import (
    INTERRUPTED,
    Asked,
    GoesOn,
    OpenTurn,
    SessionBusy,
    SessionNameError,
    SessionsService,
    StorageError,
    TurnLog,
)
from core.vault.handle import UserHandle
from jail.wire.schema import Agent, Failure, Message, Sampling, TurnEnd

SESSION_HEADER = "X-Certosa-Session"
GONE = "the user was disabled or deleted"

_log = structlog.get_logger()


class Turns(Protocol):
    """Tells the users' actors. Thread-safe; never blocks, never raises for what a client did."""

    def start(self, spec: TurnSpec) -> None:
        """Run a turn; it ends by ``spec.sink.finish``, whatever happens."""
        ...

    def cancel(self, user: str, turn: str, why: str = CANCELLED) -> None:
        """End a turn early; harmless when it has ended."""
        ...


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that was started; ``kept`` where it goes on without its client.

    ``began_at`` is its first event's id in a kept session.
    """

    spec: TurnSpec
    log: TurnLog
    kept: bool
    began_at: int

    @property
    def id(self) -> str:
        """The turn's."""
        return self.spec.turn

    @property
    def user(self) -> str:
        """Whose it is."""
        return self.spec.handle.user


class Starter:
    """Starts turns, and knows which of them run. Used on the hub's loop."""

    def __init__(
        self, turns: Turns, sessions: SessionsService, admission: Admission, metrics: Metrics
    ) -> None:
        self._turns = turns
        self._sessions = sessions
        self._admission = admission
        self._metrics = metrics
        self._running: dict[tuple[str, str], RunningTurn] = {}
        self._cancelled: dict[tuple[str, str], str] = {}
        """Why, of the running ones: one that is just being started anew is no actor's to cancel."""

    async def start(
        self,
        handle: UserHandle,
        agent: Agent,
        messages: list[Message],
        session_id: str | None,
        sampling: Sampling,
        asked_s: float,
        *,
        turn: str | None = None,
        window: bool = True,
    ) -> RunningTurn:
        """Start a turn; HubError where it cannot be, TurnExists where this one was begun before.

        Args:
            messages: the history, or with a session what is added to it.
            asked_s: when the request came (monotonic, in seconds).
            turn: its id; None: a fresh one.
            window: whether its log is read, and not only its session watched.
        """
        # the client may have taken a minute to send its body
        if not handle.standing.is_good():
            raise invalid_token()
        leave = self._admission.admit(handle.user)
        name = turn or f"turn_{secrets.token_hex(8)}"
        request, trace = current_request(), TRACE.get()
        ended = self._ended(handle.user, name, asked_s, leave, request, trace)
        # a client that reads the turn's own log has had a part of it, and cannot be told to forget that
        asked = (
            None
            if window or session_id is None
            else Asked(agent.name, sampling, agent.limits.wall_s, request)
        )
        try:
            opened = await self._sessions.open_turn(
                handle, name, session_id, messages, ended, agent=agent.name, window=window, asked=asked,
                restart=partial(self._restart, handle.user, name) if asked else None,
            )  # fmt: skip
        except CoreError as error:
            leave()
            raise self._refusal(error) from None
        except BaseException:
            leave()
            raise
        self._metrics.turn_started()  # from here on it ends by its log
        if not handle.standing.is_good():
            opened.log.finish(Failure("cancelled", GONE))
            raise invalid_token()
        # nothing waits between that look and this entry, by which cancel_all finds the turn
        spec = TurnSpec(
            name, handle, agent, opened.log, opened.session, sampling, request, current_traceparent()
        )
        return self._run(spec, opened, session_id is not None)

    def resume(self, handle: UserHandle, turn: GoesOn, find: Callable[[str, str], Agent]) -> None:
        """Go on with a turn that an earlier process left; ``find`` finds a user's agent by name."""
        try:
            if not handle.standing.is_good():
                raise invalid_token()
            agent = find(handle.user, turn.asked.agent)
            leave = self._admission.admit(handle.user)
        except CoreError as error:
            _log.warning("turn_not_resumed", user=handle.user, turn=turn.turn, error=type(error).__name__)
            text = f"{INTERRUPTED.message}, and it cannot go on: {error}"
            self._sessions.give_up(handle, turn, Failure(INTERRUPTED.code, text[:2_000]))
            return
        request = turn.asked.request  # of the one that asked for it, long ago
        ended = self._ended(handle.user, turn.turn, time.monotonic(), leave, request, None)
        opened = self._sessions.reopen(handle, turn, ended, partial(self._restart, handle.user, turn.turn))
        self._metrics.turn_started()
        spec = TurnSpec(turn.turn, handle, agent, opened.log, opened.session, turn.asked.sampling, request)
        _log.info("turn_resumed", user=handle.user, turn=turn.turn)
        self._run(_again(spec, turn.first_step, turn.wall_s), opened, True)

    def _run(self, spec: TurnSpec, opened: OpenTurn, kept: bool) -> RunningTurn:
        running = RunningTurn(spec, opened.log, kept, opened.began_at)
        self._running[running.user, running.id] = running
        self._start(spec)
        return running

    def _start(self, spec: TurnSpec) -> None:
        try:
            self._turns.start(spec)
        except Exception:  # noqa: BLE001 - whatever it was, the turn has to end
            _log.exception("turn_start_failed", user=spec.handle.user, turn=spec.turn)
            spec.sink.finish(Failure("internal", "the turn could not be started; it was logged"))

    def _restart(self, user: str, turn: str, first_step: int, wall_s: int) -> None:
        """Start a turn anew that lost its jail, and runs on; any thread."""
        self._start(_again(self._running[user, turn].spec, first_step, wall_s))
        if (why := self._cancelled.get((user, turn))) is not None:
            self._turns.cancel(user, turn, why)

    def _ended(
        self,
        user: str,
        turn: str,
        asked_s: float,
        leave: Callable[[], None],
        request: str,
        trace: Trace | None,
    ) -> Callable[[TurnEnd | Failure], None]:
        def ended(outcome: TurnEnd | Failure) -> None:
            self._running.pop((user, turn), None)
            self._cancelled.pop((user, turn), None)
            took_s = time.monotonic() - asked_s
            self._metrics.turn_ended(outcome, took_s, request)
            how = outcome.code if isinstance(outcome, Failure) else outcome.finish
            # whoever ends it may act for something else just now, or for nothing
            with acting(request, trace):
                _log.info("turn_ended", user=user, turn=turn, how=how, took_s=round(took_s, 4))
            leave()

        return ended

    def describe(self) -> list[dict[str, object]]:
        """Id, user and whether it is kept, of each turn that runs."""
        return [
            {"turn": turn.id, "user": turn.user, "kept": turn.kept} for turn in list(self._running.values())
        ]

    def find(self, user: str, turn: str) -> RunningTurn | None:
        """A running turn of this user's; another user's is as one that does not exist."""
        return self._running.get((user, turn))

    def cancel_by_id(self, user: str, turn: str) -> RunningTurn:
        """End a running turn of a user's early; HubError 404 for one that has ended, or is another's."""
        found = self.find(user, turn)
        if found is None:
            raise HubError(404, "you have no such turn running", "turn_not_found")
        self.cancel(found)
        return found

    def cancel(self, turn: RunningTurn, why: str = CANCELLED) -> None:
        """End a turn early, if it still runs."""
        if not turn.log.finished:
            key = turn.user, turn.id
            self._cancelled[key] = why  # first: a restart looks there once it has started it
            if key not in self._running:
                self._cancelled.pop(key, None)  # it has ended meanwhile
            self._turns.cancel(turn.user, turn.id, why)

    def cancel_all(self, why: str, user: str | None = None) -> int:
        """End every turn early, or every one of a user's, and say why; how many there were."""
        running = [turn for turn in list(self._running.values()) if user in (None, turn.user)]
        for turn in running:
            self.cancel(turn, why)
        return len(running)

    def _refusal(self, error: CoreError) -> CoreError:
        match error:
            case SessionNameError():
                return invalid(str(error), "invalid_session_id", SESSION_HEADER)
            case SessionBusy():
                self._metrics.turn_refused("session_busy")
                return HubError(409, str(error), "session_busy", param=SESSION_HEADER, retry_after_s=2)
            case StorageError() | SealError():
                return from_storage(error)
        return error


def _again(spec: TurnSpec, first_step: int, wall_s: int) -> TurnSpec:
    """A turn that goes on: its steps are numbered on, and its time is what is left of it."""
    limits = changed(spec.agent.limits, wall_s=min(wall_s, spec.agent.limits.wall_s))
    return replace(spec, agent=changed(spec.agent, limits=limits), first_step=first_step)
