"""Core's end of the control pair: asks the spawner for jails and users' directories."""

import itertools
import os
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import user_messages as user
from actors.base import Actor, Ref, tell, void
from actors.edge import Edge
from actors.observer import Observer
from core.egress_link import LinkUp
from core.errors import CoreError, LinkError
from core.limits import told_of_limit
from core.promise import promised
from jail.host import messages as host
from jail.wire.schema import Failure

_ASK_TIMEOUT_S = 60.0
_RETRY_S = 0.01
# Requests that wait for the control socket; each jail asks twice in its life.
_MAX_QUEUED = 2_000


class HostRefused(CoreError):
    """The spawner could not do it; the message says why."""


@dataclass(frozen=True, slots=True)
class _Say:
    message: Any


@dataclass(frozen=True, slots=True)
class _Flush:
    pass


@dataclass(frozen=True, slots=True)
class Heard:
    """The loop read this from the control socket, with the descriptor that came along."""

    message: Any
    fd: int | None


class SpawnerActor(Actor):
    """Owns the control socket's sending side and says to whom each answer belongs.

    Args:
        sock: the control socket; the loop reads it and tells this actor :class:`Heard`.
        timers: for a second try when the socket is full.
        on_link: called with the new link when egress was restarted.
        on_started: called with the life of each jail that is built, and its first process.
        on_spawned: called with what its building took in seconds, and how it was started.
        on_ended: called with the life of each jail that is gone or could not be started, and how.
        on_measured: called with what jails use.
        on_home: called with what a home holds.
        on_limit: called for each jail that ended, with the limit that ended it or "".
        on_shutdown: called with the grace in seconds when the spawner says stop.
        on_reload: called with the descriptors, by flag, that are to be used from now on.
    """

    def __init__(
        self,
        name: str,
        parent: Ref | None,
        observer: Observer,
        *,
        sock: socket.socket,
        timers: Edge,
        on_link: Callable[[LinkUp], None],
        on_started: Callable[[int, int], None],
        on_spawned: Callable[[float, host.Start], None],
        on_ended: Callable[[int, str], None],
        on_measured: Callable[[tuple[host.JailUse, ...]], None],
        on_home: Callable[[host.HomeMeasured], None],
        on_limit: Callable[[host.LimitMet], None],
        on_shutdown: Callable[[float], None],
        on_reload: Callable[[dict[str, int]], None],
    ) -> None:
        super().__init__(name, parent, observer)
        self._sock = sock
        self._timers = timers
        self._on_link = on_link
        self._on_started = on_started
        self._on_spawned = on_spawned
        self._on_ended = on_ended
        self._on_measured = on_measured
        self._on_home = on_home
        self._on_limit = on_limit
        self._on_shutdown = on_shutdown
        self._on_reload = on_reload
        self._handed: dict[str, int] = {}
        self._queue: deque[Any] = deque()
        self._owners: dict[int, Ref] = {}
        self._waiting: dict[int, Callable[[Any], None]] = {}

    def handle(self, message: Any) -> None:
        """Requests to pass on, and answers to hand out."""
        match message:
            case Heard(heard, fd):
                self._on_heard(heard, fd)
            case Launch(life, user_id, host_uid, owner, request):
                self._owners[life] = owner
                self._say(host.StartJail(life, user_id, host_uid, request))
            case AskHost(request, on_answer):
                self._waiting[request.request] = on_answer
                self._say(request)
            case _Say(outgoing):
                self._say(outgoing)
            case _Flush():
                self._flush()
            case _:
                raise TypeError(f"unknown message {type(message).__name__}")

    def teardown(self) -> None:
        """What was handed over and never used is closed."""
        for fd in self._handed.values():
            os.close(fd)
        self._handed.clear()

    def _on_heard(self, heard: Any, fd: int | None) -> None:
        match heard:
            case host.JailStarted(life, spawn_s, pid, start) if fd is not None:
                self._on_spawned(spawn_s, start)
                sock = socket.socket(fileno=fd)
                owner = self._owners.get(life)
                if owner is None or not tell(owner, user.JailStarted(life, sock)):
                    sock.close()
                    self._say(host.KillJail(life))
                self._on_started(life, pid)
            case host.JailFailed(life, text):
                failure = Failure("unavailable", f"your jail could not be started: {text}"[:2_000])
                self._tell_last(life, user.JailFailed(life, failure), text)
            case host.JailExited(life, how, met, limit_bytes):
                self._on_limit(met)
                why = Failure("limit", told_of_limit(met, limit_bytes)) if met else None
                self._tell_last(life, user.JailExited(life, how, why), how)
            case host.HomeMeasured():
                self._on_home(heard)
            case host.JailsMeasured(jails):
                self._on_measured(jails)
            case host.UserReady(request, error):
                self._settle(request, error)
            case host.UseTold(request):
                self._settle(request, heard)
            case host.EgressLink() if fd is not None:
                self._on_link(LinkUp(socket.socket(fileno=fd)))
            case host.Ping():
                self._say(host.Pong())
            case host.Shutdown(grace_s):
                self._on_shutdown(grace_s)
            case host.Handed(name) if fd is not None:
                if (old := self._handed.pop(name, None)) is not None:
                    os.close(old)
                self._handed[name] = fd
            case host.Reload():
                handed, self._handed = self._handed, {}
                self._on_reload(handed)
            case _:
                raise CoreError(f"the spawner sent {type(heard).__name__} without what belongs to it")

    def _settle(self, request: int, answer: Any) -> None:
        if (on_answer := self._waiting.pop(request, None)) is not None:
            on_answer(answer)

    def _tell_last(self, life: int, message: Any, how: str) -> None:
        """What a jail's owner hears last of it."""
        self._on_ended(life, how)  # first: the owner may want another at once, and its place is free now
        if (owner := self._owners.pop(life, None)) is not None:
            tell(owner, message)

    def _say(self, message: Any) -> None:
        self._queue.append(message)
        if len(self._queue) > _MAX_QUEUED:
            raise CoreError("the spawner does not read its requests")
        self._flush()

    def _flush(self) -> None:
        me = self.actor_ref
        while self._queue:
            try:
                host.send_message(self._sock, self._queue[0])
            except BlockingIOError:
                self._timers.call_later(_RETRY_S, lambda: void(tell(me, _Flush())))
                return
            except OSError:
                # the spawner is gone; the loop sees the end of file and ends core
                self._queue.clear()
                return
            self._queue.popleft()


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a jail; ``owner`` is told how it went, and later of its end."""

    life: int
    user: str
    host_uid: int
    owner: Ref
    request: str = ""


@dataclass(frozen=True, slots=True)
class AskHost:
    """PrepareUser or RemoveUser; ``on_answer`` gets the error ("" when done), on this actor's thread.

    AskUse; ``on_answer`` gets UseTold.
    """

    request: host.PrepareUser | host.RemoveUser | host.AskUse
    on_answer: Callable[[Any], None]


class Host:
    """What others call: implements core.pool.actor.Builder. Thread-safe.

    Args:
        host_uid: the uid a user's jails run as (0 where the spawner is an ordinary user).
        timed_out: told "spawner" when it does not answer in time.
    """

    def __init__(
        self, host_uid: Callable[[str], int], timed_out: Callable[[str], None] = lambda _: None
    ) -> None:
        self._connected: Ref | None = None
        self._timed_out = timed_out
        self._host_uid = host_uid
        self._requests = itertools.count(1)

    def connect(self, spawner: Ref) -> None:
        """Use this :class:`SpawnerActor`."""
        self._connected = spawner

    @property
    def _spawner(self) -> Ref:
        if self._connected is None:
            raise LinkError("core is still starting; try again")
        return self._connected

    def hear(self, heard: "Heard") -> None:
        """Pass on what the loop read from the control socket."""
        if not tell(self._spawner, heard) and heard.fd is not None:
            os.close(heard.fd)

    def launch(self, life: int, user: str, owner: Ref, request: str) -> None:
        """Start a jail of ``user``'s."""
        tell(self._spawner, Launch(life, user, self._host_uid(user), owner, request))

    def kill(self, life: int) -> None:
        """End a jail."""
        tell(self._spawner, _Say(host.KillJail(life)))

    def measure(self, lives: tuple[int, ...]) -> None:
        """Have jails measured; ``on_measured`` is called."""
        tell(self._spawner, _Say(host.MeasureJails(lives)))

    def say_ready(self) -> None:
        """Tell the spawner that core serves."""
        tell(self._spawner, _Say(host.CoreReady()))

    async def prepare_user(self, user: str, host_uid: int) -> None:
        """Make a user's directories. Raises HostRefused, LinkError."""
        await self._ask(lambda i: host.PrepareUser(i, user, host_uid))

    async def remove_user(self, user: str, host_uid: int) -> None:
        """Delete a user's directories. Raises HostRefused, LinkError."""
        await self._ask(lambda i: host.RemoveUser(i, user, host_uid))

    async def use(self) -> host.UseTold:
        """What the spawner uses and has counted. Raises LinkError."""
        told: host.UseTold = await self._answer(host.AskUse(next(self._requests)))
        return told

    async def _ask(self, make: Callable[[int], host.PrepareUser | host.RemoveUser]) -> None:
        if error := await self._answer(make(next(self._requests))):
            raise HostRefused(error)

    async def _answer(self, request: host.PrepareUser | host.RemoveUser | host.AskUse) -> Any:
        def put(settle: Callable[[Any], None]) -> None:
            tell(self._spawner, AskHost(request, settle))

        return await promised(put, _ASK_TIMEOUT_S, "the spawner", lambda: self._timed_out("spawner"))
