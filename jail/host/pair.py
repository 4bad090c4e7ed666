"""Core and egress as the spawner keeps them: each with a link to the other, started again when it dies.

serving --core died--> recovering: what belongs to its life is ended --all gone, backoff--> serving
serving --egress died--> egress again with a fresh link, whose other end goes to core
any --five failures in a minute, or one with EX_CONFIG--> given up
"""

import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from jail.host.control import Control
from jail.host.egress_control import EgressControl
from jail.host.loop import Loop, Timer
from jail.host.messages import (
    AskMounts,
    EgressLink,
    FromCore,
    Handed,
    HostError,
    MountsGiven,
    MountsRefused,
    Ping,
    Reload,
    ToCore,
)
from jail.host.reloading import Fresh
from jail.host.services import ServiceProcess, ServiceSpec

Observe = Callable[[str, Mapping[str, Any]], None]


class Keeper(Protocol):
    """What the pair tells and asks its spawner."""

    @property
    def stopping(self) -> bool:
        """Whether all is to end: nothing is started again then."""
        ...

    def take(self, message: FromCore) -> None:
        """Core said something."""
        ...

    def answered(self, service: str) -> None:
        """One of both lives."""
        ...

    def mounts_answered(self, answer: MountsGiven | MountsRefused, fds: tuple[int, ...]) -> None:
        """Egress answered an AskMounts; the descriptors are taken over."""
        ...

    def egress_lost(self) -> None:
        """What egress was asked is answered no more."""
        ...

    def begin_life(self) -> None:
        """Core is about to start: what belongs to its life may begin."""
        ...

    def end_life(self) -> None:
        """Core has gone: whatever belonged to its life has to go too."""
        ...

    def life_is_over(self) -> bool:
        """Whether that has gone."""
        ...

    def on_service_end(self) -> None:
        """One of both has ended while all is to end."""
        ...

    def give_up(self) -> None:
        """One of both cannot be kept running: all is to end, now."""
        ...


class Pair:
    """Both. ``start`` once; every child that is waited for goes through ``reaped``.

    Args:
        watch: told of each one's pidfd.
        max_queued: messages that may wait to be read by core.
    """

    def __init__(
        self,
        loop: Loop,
        core: ServiceSpec,
        egress: ServiceSpec,
        keeper: Keeper,
        watch: Callable[[int], None],
        observe: Observe,
        max_queued: int,
    ) -> None:
        self._loop, self._keeper, self._observe, self._max_queued = loop, keeper, observe, max_queued
        self._core = ServiceProcess(loop, core, watch)
        self._egress = ServiceProcess(loop, egress, watch)
        self._control: Control | None = None
        self._egress_control: EgressControl | None = None
        self._restart: Timer | None = None
        self.recovering = False

    # ---- what there is ------------------------------------------------------------------------

    @property
    def core_is_gone(self) -> bool:
        """Whether no core runs."""
        return self._core.pid is None

    @property
    def is_gone(self) -> bool:
        """Whether neither runs."""
        return self._core.pid is None and self._egress.pid is None

    @property
    def hears(self) -> bool:
        """Whether core can be told anything."""
        return self._control is not None

    def pids(self) -> dict[str, int | None]:
        """By their names; None for one that does not run."""
        return {service.spec.name: service.pid for service in (self._core, self._egress)}

    def pidfds(self) -> list[int]:
        """Of those that run."""
        return [s.pidfd for s in (self._core, self._egress) if s.pidfd is not None]

    # ---- what the spawner has them do ----------------------------------------------------------

    def send(self, message: ToCore, fd: int | None = None) -> None:
        """Tell core; ``fd`` is taken over."""
        if self._control is not None:
            self._control.send(message, fd)
        elif fd is not None:
            os.close(fd)

    def ping(self) -> None:
        """Ask both whether they live."""
        self.send(Ping())
        if self._egress_control is not None:
            with suppress(OSError):  # the silence will tell
                self._egress_control.send(Ping())

    def ask_mounts(self, question: AskMounts) -> None:
        """Ask egress. Raises HostError where it isn't there, or does not read."""
        if self._egress_control is None or self._egress.pid is None:
            raise HostError("the egress process does not run")
        try:
            self._egress_control.send(question)
        except OSError as error:
            raise HostError(f"the egress process takes no question: {error.strerror}") from None

    def signal(self, number: int) -> None:
        """Send both a signal."""
        for service in (self._core, self._egress):
            service.signal(number)

    def use(self, fresh: Fresh) -> None:
        """Hand both what a reload brought, now and at every start from now on."""
        self._core.use(fresh.core, fresh.replaceable)
        self._egress.use(fresh.egress, fresh.replaceable)
        if self._control is not None and self._core.pid is not None:
            for name, fd in fresh.core.items():
                self.send(Handed(name), os.dup(fd))
            self.send(Reload())
        if self._egress_control is None or self._egress.pid is None:
            return
        try:
            for name, fd in fresh.egress.items():
                self._egress_control.send(Handed(name), fd)
            self._egress_control.send(Reload())
        except OSError as error:
            # it ended, or does not read; the next one starts with what is new
            self._observe("egress_reload_failed", {"message": str(error)})

    def end_core(self) -> None:
        """SIGTERM for core, and SIGKILL a little later."""
        self._core.end()

    def end_egress(self) -> bool:
        """The same for egress; whether that is new to it."""
        if self._egress.wanted_dead:
            return False
        self._egress.end()
        return True

    def start_no_more(self) -> None:
        """Forget a start that was to come."""
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None

    def close(self) -> None:
        """SIGKILL for both, and every descriptor given back; they are left to be reaped."""
        for service in (self._core, self._egress):
            service.end(0)
            service.forget()
        self._drop_egress_control()
        if self._control is not None:
            self._control.close()

    def reaped(self, pid: int, status: int) -> None:
        """A child was waited for, one of both or another."""
        for service in (self._core, self._egress):
            if service.reaped(pid):
                self._on_end(service, status)

    # ---- from start to end ---------------------------------------------------------------------

    def start(self) -> None:
        """Start both."""
        self.recovering, self._restart = False, None
        control, control_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link, link_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._keeper.begin_life()
        self._control = Control(self._loop, control, self._keeper.take, self._on_core_fault, self._max_queued)
        try:
            self._begin_egress(link_end)
            self._core.start({"control": control_end.fileno(), "egress": link.fileno()})
        except HostError as error:
            self._observe("service_start_failed", {"message": str(error)})
            self._recover(self._core)
            return
        finally:
            for sock in (control_end, link, link_end):
                sock.close()
        for service in (self._egress, self._core):
            self._observe("service_started", {"service": service.spec.name, "pid": service.pid})

    def start_if_over(self) -> None:
        """Start both anew once all that belonged to core's last life has gone."""
        over = self._keeper.life_is_over() and self.is_gone
        if self.recovering and over and self._restart is None and not self._keeper.stopping:
            self.start()

    def _start_egress(self) -> None:
        self._restart = None
        link, link_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with link, link_end:
            try:
                self._begin_egress(link_end)
            except HostError as error:
                self._observe("service_start_failed", {"message": str(error)})
                self._on_egress_end()
                return
            self.send(EgressLink(), os.dup(link.fileno()))
        self._observe("service_started", {"service": "egress", "pid": self._egress.pid})

    def _begin_egress(self, link_end: socket.socket) -> None:
        self._drop_egress_control()
        control = EgressControl(
            self._loop,
            lambda: self._keeper.answered("egress"),
            self._keeper.mounts_answered,
            self._on_egress_fault,
        )
        self._egress_control = control
        with control.theirs:
            self._egress.start({"core": link_end.fileno(), "spawner": control.theirs.fileno()})

    def _drop_egress_control(self) -> None:
        if self._egress_control is not None:
            self._egress_control.close()
            self._egress_control = None
            self._keeper.egress_lost()

    def _on_core_fault(self, why: str) -> None:
        """Core's control socket is of no more use, and closed: end core, its exit does the rest."""
        self._control = None
        if not self._keeper.stopping:
            self._observe("core_fault_seen", {"message": why})
            self._core.end(0)

    def _on_egress_fault(self, why: str) -> None:
        self._egress_control = None  # its end, or the lack of an answer, does the rest
        self._keeper.egress_lost()
        if why:
            self._observe("egress_fault_seen", {"message": why})

    def _on_end(self, service: ServiceProcess, status: int) -> None:
        code = os.waitstatus_to_exitcode(status)
        how = f"exit {code}" if code >= 0 else f"signal {-code}"
        self._observe("service_ended", {"service": service.spec.name, "how": how})
        if self._keeper.stopping:
            self._keeper.on_service_end()
        elif code == os.EX_CONFIG and not service.wanted_dead:
            self._give_up(service, "cannot run with this configuration")
        elif service is self._core:
            self._recover(service)
        elif service.wanted_dead or self.recovering:
            self.start_if_over()
        else:
            self._on_egress_end()

    def _on_egress_end(self) -> None:
        delay_s = self._egress.policy.failed(time.monotonic())
        if delay_s is None:
            self._give_up_restarting(self._egress)
        elif self._restart is None:
            self._restart = self._loop.later(delay_s, self._start_egress)

    def _recover(self, failed: ServiceProcess) -> None:
        """Core is gone: end what belongs to its life, then begin a new one."""
        if self._control is not None:
            self._control.close()
            self._control = None
        delay_s = failed.policy.failed(time.monotonic())
        if delay_s is None:
            self._give_up_restarting(failed)
            return
        self.recovering = True
        self._keeper.end_life()
        self._egress.end()
        if self._restart is not None:
            self._restart.cancel()
        self._restart = self._loop.later(delay_s, self._on_delay)

    def _on_delay(self) -> None:
        self._restart = None
        self.start_if_over()

    def _give_up_restarting(self, service: ServiceProcess) -> None:
        policy = service.policy
        self._give_up(service, f"failed {policy.max_failures} times within {policy.window_s:g} s")

    def _give_up(self, service: ServiceProcess, how: str) -> None:
        message = f"{service.spec.name} {how}; what it logged before says why"
        self._observe("service_gave_up", {"service": service.spec.name, "message": message})
        self._keeper.give_up()
