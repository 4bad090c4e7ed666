"""A supervisor: starts children in order, restarts them by policy, stops them in reverse."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pykka

from actors.base import Actor, Exited, Ref, tell, void
from actors.observer import Observer
from actors.restart import Escalate, Lifetime, Restart, RestartPolicy
from actors.service import ActorsError

_STOP_TIMEOUT_S = 20.0


class Escalated(ActorsError):
    """A child failed too often; the supervisor gives up."""


class Timers(Protocol):
    """Calls back later, on a thread of its own; see actors.edge."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` after ``delay_s`` seconds; it must not block."""
        ...


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child: ``start(name, parent)`` starts a new life of it and returns its reference."""

    name: str
    start: Callable[[str, Ref], Ref]
    lifetime: Lifetime = "permanent"


@dataclass(frozen=True, slots=True)
class StartChild:
    """Ask: start this child, or return the one that lives. Answers its reference."""

    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class FindChild:
    """Ask: the living child of this name, or None."""

    name: str


@dataclass(frozen=True, slots=True)
class ListChildren:
    """Ask: name and reference of every living child."""


@dataclass(frozen=True, slots=True)
class _Due:
    spec: ChildSpec


class Supervisor(Actor):
    """Supervises actors.

    Args:
        specs: children to start at once, in order; further ones come by StartChild.
        timers: for restarts that wait.
        policy: how often is too often; by default five restarts a minute.
    """

    def __init__(
        self,
        name: str,
        parent: Ref | None,
        observer: Observer,
        timers: Timers,
        specs: tuple[ChildSpec, ...] = (),
        policy: RestartPolicy | None = None,
    ) -> None:
        super().__init__(name, parent, observer)
        self._specs = specs
        self._timers = timers
        self._policy = policy or RestartPolicy()
        self._children: dict[str, tuple[ChildSpec, Ref]] = {}

    def setup(self) -> None:
        """Start the children that are always there."""
        for spec in self._specs:
            self._start(spec)

    def handle(self, message: Any) -> Any:
        """Requests for children, and their last words."""
        match message:
            case StartChild(spec):
                found = self._children.get(spec.name)
                return found[1] if found else self._start(spec)
            case FindChild(name):
                found = self._children.get(name)
                return found[1] if found else None
            case ListChildren():
                return [(name, ref) for name, (_, ref) in self._children.items()]
            case Exited():
                return self._on_exited(message)
            case _Due(spec):
                if spec.name not in self._children:
                    self._start(spec)
                return None
        raise TypeError(f"unknown message {type(message).__name__}")

    def teardown(self) -> None:
        """Stop the children, the last started first; each has a limit."""
        for _, ref in reversed(list(self._children.values())):
            stop_and_wait(ref, _STOP_TIMEOUT_S)
        self._children.clear()

    def _start(self, spec: ChildSpec) -> Ref:
        ref = spec.start(spec.name, self.actor_ref)
        self._children[spec.name] = (spec, ref)
        return ref

    def _on_exited(self, exited: Exited) -> None:
        found = self._children.get(exited.name)
        if found is None or found[1] != exited.ref:
            return
        spec, _ = self._children.pop(exited.name)
        failed = exited.error is not None
        match self._policy.decide(spec.name, spec.lifetime, failed, time.monotonic()):
            case Restart(delay_s):
                self.observer.restarted(spec.name)
                me = self.actor_ref
                self._timers.call_later(delay_s, lambda: void(tell(me, _Due(spec))))
            case Escalate(failures):
                raise Escalated(f"{spec.name} ended {failures} times in a minute: {exited.error!r}")


def stop_and_wait(ref: Ref, timeout_s: float) -> None:
    """Stop an actor and wait for its end. Raises ActorsError past the limit (it may still end)."""
    try:
        ref.stop(block=True, timeout=timeout_s)
    except pykka.Timeout:
        raise ActorsError(f"{ref.actor_class.__name__} did not stop in {timeout_s} s") from None
