"""Measures jails in a child: a jail can make that slow on purpose, and the spawner serves everybody."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

import msgspec

from jail.host.loop import Loop, Timer
from jail.host.measure import measure
from jail.host.messages import JailsMeasured, JailUse
from jail.host.process import FIRST_FD, die_with_parent, fork_quietly

_LIMIT_S: Final = 30.0
_MAX_BYTES: Final = 64 << 10
_NICE: Final = 10
MEASURE_S: Final = 0.025
"""CPU time within which the last one of a round is begun: what jails make slow costs little all the same."""
_decode = msgspec.json.Decoder(JailUse).decode_lines


class ToMeasure(NamedTuple):
    """A jail, and the processes that all of its descend from."""

    life: int
    pids: tuple[int, ...]


class Measuring:
    """One round at a time; what is asked meanwhile is answered with nothing.

    Args:
        send: is given the answer to each round that was not dropped.
    """

    def __init__(self, loop: Loop, send: Callable[[JailsMeasured], None]) -> None:
        self._loop, self._send = loop, send
        self._pid = 0
        self._pipe = -1
        self._said = b""
        self._timer: Timer | None = None

    def begin(self, jails: Sequence[ToMeasure]) -> None:
        """Measure these; without what has ended, and what could not be measured in time."""
        if self._pipe >= 0 or not self._fork(jails):
            self._send(JailsMeasured(()))

    def give_up(self) -> None:
        """End the round; what was measured so far is the answer. There has to be one."""
        # reaped by the spawner with all its children, but not before its end of the pipe was read
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def drop(self) -> None:
        """Nobody wants an answer any more."""
        if self._pipe >= 0:
            self.give_up()
            self._end()

    def _fork(self, jails: Sequence[ToMeasure]) -> bool:
        try:
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        parent = os.getpid()
        try:
            self._pid = fork_quietly()
        except OSError:
            os.close(reading)
            os.close(writing)
            return False
        if self._pid == 0:
            _measure(jails, writing, parent)
        os.close(writing)
        self._pipe, self._said = reading, b""
        self._loop.watch(reading, self._on_words)
        self._timer = self._loop.later(_LIMIT_S, self.give_up)
        return True

    def _on_words(self) -> None:
        try:
            data = os.read(self._pipe, _MAX_BYTES)
        except BlockingIOError:
            return
        self._said += data
        if data:
            return
        said = self._end()
        # what was killed in the middle of a line did not measure that one
        whole = said[: said.rfind(b"\n") + 1]
        self._send(JailsMeasured(tuple(_decode(whole))))

    def _end(self) -> bytes:
        self._loop.forget(self._pipe)
        os.close(self._pipe)
        self._pipe = -1
        if self._timer is not None:
            self._timer.cancel()
        return self._said


def _measure(jails: Sequence[ToMeasure], writing: int, parent: int) -> NoReturn:
    """The child: never returns. A jail's figures are one write, so a line is whole or not there."""
    try:
        os.closerange(FIRST_FD, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        die_with_parent(parent)
        os.nice(_NICE)
        until_s = time.process_time() + MEASURE_S
        for number, jail in enumerate(jails):
            if number and time.process_time() >= until_s:
                break  # asked for again, they are the first
            used = measure(jail.pids)
            if used.processes:
                os.write(writing, msgspec.json.encode(JailUse(jail.life, *used)) + b"\n")
    finally:
        os._exit(0)
