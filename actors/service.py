"""What the middle floor asks of the one above: services that serve verbs, and an observer.

Core injects implementations; nothing here imports it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from actors.asking import ApprovalResolved, ApprovalWanted, Resolution
from jail.wire.errors import CertosaError
from jail.wire.schema import Agent, Body, ErrorCode, Failure, Sampling, TurnEnd, TurnItem


class ActorsError(CertosaError):
    """The root of the middle floor's errors."""


Origin = Literal["agent"]
"""Who speaks on a connection. Skills' jails will add their own."""

Mode = Literal["off", "ask", "on"]


class Standing(Protocol):
    """Of a user who was let in."""

    def is_good(self) -> bool:
        """Whether they still are: somebody else may have the name by now."""
        ...


class UserHandle(Protocol):
    """Opaque here: minted by the vault, it carries the user's data key (design.md 6)."""

    @property
    def user(self) -> str:
        """The user's id."""
        ...

    @property
    def standing(self) -> Standing:
        """Whether the user may still begin something."""
        ...


SinkItem = TurnItem | ApprovalWanted | ApprovalResolved
"""What a turn's log takes: the worker's items, and core's own."""


class TurnSink(Protocol):
    """Where a turn's events go: the session's event log. Every method may be called by any thread."""

    def append(self, item: SinkItem, accepted: Callable[[], None]) -> None:
        """Take an event; call ``accepted`` once, when the log holds it (at once if in memory)."""
        ...

    def finish(self, outcome: TurnEnd | Failure) -> None:
        """The turn has ended; called exactly once, nothing is appended afterwards."""
        ...

    def lost(self, failure: Failure, again: bool) -> None:
        """The jail is gone from under the turn, in place of :meth:`finish`.

        Whoever made the sink ends the turn with a report, or, with ``again``, may start it anew.
        """
        ...


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """A turn to run. ``session`` is the session service's own and passes through untouched.

    ``request`` is the id of what asked for it, for logs and for the worker; ``traceparent`` goes to
    model servers (W3C Trace Context).
    ``first_step``: past 1 where the turn goes on after an interruption.
    """

    turn: str
    handle: UserHandle
    agent: Agent
    sink: TurnSink
    session: Any
    sampling: Sampling = field(default_factory=Sampling)
    request: str = ""
    traceparent: str = ""
    first_step: int = 1


class RequestKey(NamedTuple):
    """What names a jail's request across the whole server."""

    user: str
    life: int
    id: int


class Reply(Protocol):
    """How a service answers. Thread-safe; after done or fail nothing more is taken."""

    def item(self, body: Body) -> None:
        """One item of a stream; the service keeps within the credit it was given."""
        ...

    def done(self, body: Body) -> None:
        """Close the request with a result."""
        ...

    def fail(self, code: ErrorCode, message: str, retry_after_s: int | None = None) -> None:
        """Close the request with an error that says what to do."""
        ...


@dataclass(frozen=True, slots=True)
class VerbRequest:
    """A verb that was checked against the schema and allowed by the policy.

    ``handle``, ``life`` and ``origin`` come from the connection, ``turn`` is one that core started
    for this user; only ``body`` is the jail's.
    """

    handle: UserHandle
    life: int
    origin: Origin
    turn: TurnSpec
    id: int
    verb: str
    body: Any
    reply: Reply

    @property
    def key(self) -> RequestKey:
        """The request's name across the server."""
        return RequestKey(self.handle.user, self.life, self.id)


class Service(Protocol):
    """Serves some verbs. No method blocks or raises: each tells an actor or an event loop."""

    def serve(self, request: VerbRequest) -> None:
        """Take a request; answer through ``request.reply`` sooner or later, exactly once."""
        ...

    def credit(self, key: RequestKey, count: int) -> None:
        """That many more items may be sent. The first jail.wire.connection.STREAM_WINDOW are free."""
        ...

    def cancel(self, key: RequestKey) -> None:
        """No longer wanted: stop the work; answering is allowed and changes nothing."""
        ...


class ApprovalBook(Protocol):
    """Keeps questions to a person where their owner finds them. No method blocks or raises."""

    def keep(self, spec: TurnSpec, wanted: ApprovalWanted, done: Callable[[Failure | None], None]) -> None:
        """Write a question down; ``done`` is called once, from any thread, when it is durable or failed."""
        ...

    def settle(
        self, spec: TurnSpec, approval: str, outcome: Resolution, done: Callable[[Failure | None], None]
    ) -> None:
        """Write down how it was decided; ``done`` as above."""
        ...
