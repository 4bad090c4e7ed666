"""What every actor of ours has on top of Pykka: three hooks, and one Exited a life.

Pykka ends an actor on an exception under ``tell`` and says so to nobody; it calls neither hook
when ``on_start`` raises. Here whatever ends an actor runs ``teardown`` and then tells the parent.
"""

import queue
import time
from typing import Any, NamedTuple

import pykka

from actors.observer import Observer, Silent

Ref = pykka.ActorRef[Any]


class Exited(NamedTuple):
    """A child's last word, told to its supervisor after teardown."""

    name: str
    ref: Ref
    error: BaseException | None


class Actor(pykka.ThreadingActor):
    """The base of all actors.

    Args:
        name: what its supervisor and the log call it.
        parent: told :class:`Exited` when this life ends; None for the root.
        observer: told how long each message took.

    Subclasses override :meth:`setup`, :meth:`handle` and :meth:`teardown`, all of which run on the
    actor's own thread.
    """

    def __init__(self, name: str, parent: Ref | None = None, observer: Observer | None = None) -> None:
        super().__init__()
        self.name = name
        self.observer: Observer = observer or Silent()
        self._parent = parent
        self._kind = type(self).__name__.removesuffix("Actor").lower()
        self._done = False

    @staticmethod
    def _create_actor_inbox() -> Any:
        """Pykka's hook for other kinds of inbox: this one wakes its reader with half the locking."""
        return queue.SimpleQueue()

    def setup(self) -> None:
        """Take what the actor needs; an exception ends it before any message."""

    def handle(self, message: Any) -> Any:
        """Deal with one message; what is returned answers an ``ask``."""
        raise NotImplementedError(f"{self._kind} takes no messages")

    def teardown(self) -> None:
        """Give everything back; runs once, also after a failed setup."""

    def on_start(self) -> None:
        """Pykka's hook: setup."""
        try:
            self.setup()
        except Exception as error:
            self._finish(error)
            raise

    def on_receive(self, message: Any) -> Any:
        """Pykka's hook: handle, timed."""
        started = time.perf_counter()
        try:
            return self.handle(message)
        finally:
            waiting = self.actor_inbox.qsize()  # type: ignore[attr-defined]
            self.observer.handled(self._kind, time.perf_counter() - started, waiting)

    def on_stop(self) -> None:
        """Pykka's hook: the ordinary end."""
        self._finish(None)

    def on_failure(self, exception_type: Any, exception_value: Any, traceback: Any) -> None:
        """Pykka's hook: the end by an exception under ``tell``."""
        del exception_type, traceback
        self._finish(exception_value)

    def _finish(self, error: BaseException | None) -> None:
        if self._done:
            return
        self._done = True
        try:
            self.teardown()
        except Exception as failed:  # noqa: BLE001 - the parent is told, and decides
            error = error or failed
        if error is not None:
            self.observer.warn("actor_failed", actor=self.name, error=repr(error))
        if self._parent is not None:
            tell(self._parent, Exited(self.name, self.actor_ref, error))


def tell(ref: Ref, message: Any) -> bool:
    """Tell an actor; False where it has already stopped, which the caller may take as it likes."""
    try:
        ref.tell(message)
    except pykka.ActorDeadError:
        return False
    return True


def ask(ref: Ref, message: Any, timeout_s: float) -> Any:
    """Ask an actor below and wait. Raises pykka.Timeout, pykka.ActorDeadError, what the actor raised."""
    return ref.ask(message, timeout=timeout_s)


def void(_: object) -> None:
    """Drop a result where a callback has to return None."""
