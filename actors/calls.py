"""Core's own requests of a jail beside turns: files, and what else is asked of a user's worker.

All access of core to a user's files goes this way (design.md 4), so a path in a request is only
ever resolved inside that user's jail. Pure; :mod:`actors.user_state` owns one.
"""

import itertools
from dataclasses import dataclass, field
from typing import Protocol

from actors.service import UserHandle
from jail.wire.schema import Body, Failure, ToJail


class CallSink(Protocol):
    """Where a call's answer goes. Called on the user actor's thread; must not block."""

    def item(self, body: Body) -> None:
        """One item of the answer's stream; ask for more with :class:`GrantCall`."""
        ...

    def finish(self, outcome: Body | Failure) -> None:
        """The reply, or why there is none; called exactly once, last."""
        ...


_names = itertools.count(1)


@dataclass(frozen=True, slots=True)
class CallSpec:
    """A request to make of a user's jail, which is started for it when it is cold.

    Args:
        handle: whose jail; checked against the actor's user.
        body: the request.
        sink: where the answer goes.
        timeout_s: from now to its last word; past it the call fails and is cancelled.
        request: the id of what asked for it, for logs.
    """

    handle: UserHandle
    body: ToJail
    sink: CallSink
    timeout_s: float
    request: str = ""
    name: int = field(default_factory=lambda: next(_names))


@dataclass(slots=True)
class Call:
    """A call that is not over; ``request`` is its id on the wire, None while it waits for a jail."""

    spec: CallSpec
    deadline_s: float
    request: int | None = None


class Calls:
    """The calls of one user that are not over."""

    def __init__(self) -> None:
        self._by_name: dict[int, Call] = {}
        self._by_request: dict[int, Call] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, spec: CallSpec, now_s: float) -> Call:
        """Take a call in."""
        call = Call(spec, now_s + spec.timeout_s)
        self._by_name[spec.name] = call
        return call

    def begun(self, call: Call, request: int) -> None:
        """It was sent to the jail as ``request``."""
        call.request = request
        self._by_request[request] = call

    def by_name(self, name: int) -> Call | None:
        """The call of a spec."""
        return self._by_name.get(name)

    def by_request(self, request: int) -> Call | None:
        """The call that a frame belongs to."""
        return self._by_request.get(request)

    def remove(self, call: Call) -> None:
        """It is over."""
        del self._by_name[call.spec.name]
        if call.request is not None:
            self._by_request.pop(call.request, None)

    def waiting(self) -> list[Call]:
        """Those that no jail has yet."""
        return [call for call in self._by_name.values() if call.request is None]

    def running(self) -> list[Call]:
        """Those that a jail has."""
        return [call for call in self._by_name.values() if call.request is not None]

    def late(self, now_s: float) -> list[Call]:
        """Those past their deadline."""
        return [call for call in self._by_name.values() if now_s >= call.deadline_s]

    def next_deadline_s(self) -> float | None:
        """When the next is late."""
        return min((call.deadline_s for call in self._by_name.values()), default=None)
