"""Actors without a thread of their own: a host's thread handles their messages as they come.

Where many actors pass small messages on, most of what a thread each costs is handing the interpreter from
one to the next. It is Pykka's own loop that runs here, with an inbox that ends it instead of waiting, and
where others are to have their turn.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from actors.base import Actor, Ref
from actors.observer import Observer
from actors.service import ActorsError

_AT_ONCE = 16
"""Messages of one actor that the others on its host wait for; aside it is one, which may take long."""


class Host(Protocol):
    """Runs what it is given, from whatever thread; see actors.edge. Once stopped it runs nothing."""

    def soon(self, call: Callable[[], None]) -> None:
        """Run ``call`` on the host's thread, after what it was given before."""
        ...

    def aside(self, call: Callable[[], None]) -> None:
        """Run ``call`` on another thread, one call at a time: it may take long."""
        ...


class HostedActor(Actor):
    """An actor whose hooks run on a thread of its host's, never two at once. They must not wait.

    Args:
        host: it has to outlive the actor, whose messages nobody else handles.
    """

    actor_inbox: "_Inbox"

    def __init__(self, name: str, parent: Ref | None, observer: Observer | None, host: Host) -> None:
        super().__init__(name, parent, observer)
        self._host = host

    def takes_long(self, message: Any) -> bool:  # noqa: ARG002 - for those who know better
        """Whether a message is to be handled aside; those that came after it wait for that."""
        return False

    def on_receive(self, message: Any) -> Any:
        """Pykka's hook: what is no Exception, SystemExit say, is this actor's failure like any other.

        Pykka would stop all actors then, and wait for those that need the very thread it waits on.
        """
        try:
            return super().on_receive(message)
        except Exception:
            raise
        except BaseException as error:
            raise ActorsError(f"{self.name} ended on {error!r}") from error

    @staticmethod
    def _create_actor_inbox() -> "_Inbox":
        return _Inbox()

    def _start_actor_loop(self) -> None:
        """Pykka's hook for other kinds of actors."""
        self._host.soon(self._begin)

    def _begin(self) -> None:
        self._actor_loop_setup()
        self.actor_inbox.wake_by(lambda: self._host.soon(self._go_on))
        self._go_on()

    def _go_on(self) -> None:
        self._run(_AT_ONCE, self.takes_long)

    def _go_on_aside(self) -> None:
        self._run(1, None)

    def _run(self, most: int, leave: Callable[[Any], bool] | None) -> None:
        """Handle what waits, up to ``most``, and ``leave`` what is for the other thread."""
        inbox = self.actor_inbox
        inbox.most, inbox.leave = most, leave
        try:
            self._actor_loop_running()
        except _NothingWaits:
            return
        except _TakesLong:
            self._host.aside(self._go_on_aside)
            return
        except _OthersFirst:
            self._host.soon(self._go_on)
            return
        inbox.most = inbox.leave = None
        while inbox.awake():  # it has stopped; whoever asks it all the same is told so
            self._actor_loop_teardown()


class _NothingWaits(Exception):
    """The inbox is empty."""


class _TakesLong(Exception):
    """What waits is not for this thread."""


class _OthersFirst(Exception):
    """Enough was handled for now."""


class _Inbox:
    """Pykka's idea of an inbox, except that ``get`` does not wait."""

    def __init__(self) -> None:
        self._envelopes: deque[Any] = deque()
        self._lock = threading.Lock()
        self._awake = True
        self._wake: Callable[[], None] | None = None
        self.most: int | None = None
        """How many ``get`` may still give; None: all."""
        self.leave: Callable[[Any], bool] | None = None
        """Tells messages that ``get`` is to leave for another thread."""

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called for what is put in once nothing waited."""
        self._wake = wake

    def awake(self) -> bool:
        """Whether anything waits. If not, the next one to put something in wakes."""
        with self._lock:
            self._awake = bool(self._envelopes)
            return self._awake

    def put(self, envelope: Any) -> None:
        with self._lock:
            self._envelopes.append(envelope)
            asleep, self._awake = not self._awake, True
        if asleep and self._wake is not None:
            self._wake()

    def get(self) -> Any:
        if not self.awake():
            raise _NothingWaits
        if self.most is not None:
            if self.most <= 0:
                raise _OthersFirst
            self.most -= 1
        if self.leave is not None and self.leave(self._envelopes[0].message):
            raise _TakesLong
        return self._envelopes.popleft()  # nobody else takes any

    def empty(self) -> bool:
        return not self._envelopes

    def qsize(self) -> int:
        """How many wait."""
        return len(self._envelopes)
