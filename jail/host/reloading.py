"""SIGHUP: what is new is checked first, by a child that may read what the spawner does not, then handed on.

reload() -> Fresh, or HostError   the configuration is read, files are opened; nothing is read of them
fork: check() -> what is wrong    in a child, which reads keys and certificates and ends
nothing wrong: Handed... Reload   to core and egress; services started later get the same
"""

import os
import select
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from jail.host.loop import Loop, Timer
from jail.host.messages import HostError
from jail.host.process import fork_quietly

_CHECK_S: Final = 30.0
_MAX_WORDS_BYTES: Final = 4_096
_PIPE_BUF: Final = select.PIPE_BUF


@dataclass(frozen=True, slots=True)
class Fresh:
    """What a reload brings; the descriptors are the taker's.

    Args:
        core, egress: by flag, as in their ServiceSpec.
        replaceable: all flags that a reload may bring; those it does not bring are gone.
        check: called in a child; returns what is wrong, in one line, or "".
        log: what to say when it is in use.
    """

    core: Mapping[str, int]
    egress: Mapping[str, int]
    replaceable: frozenset[str]
    check: Callable[[], str]
    log: Mapping[str, Any] = field(default_factory=dict)
    on_use: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Close the descriptors."""
        for fd in (*self.core.values(), *self.egress.values()):
            os.close(fd)


class Reloading:
    """One reload at a time; a signal that comes meanwhile begins another when it is done.

    Args:
        reload: see the module.
        use: is given what was found right.
        observe: the log.
    """

    def __init__(
        self,
        loop: Loop,
        reload: Callable[[], Fresh],
        use: Callable[[Fresh], None],
        observe: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._loop, self._reload, self._use, self._observe = loop, reload, use, observe
        self._fresh: Fresh | None = None
        self._again = False
        self._pid = 0
        self._pipe = -1
        self._words = b""
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Read, and have it checked."""
        if self._fresh is not None:
            self._again = True
            return
        try:
            fresh = self._reload()
        except HostError as error:
            self._refuse(str(error))
            return
        try:
            reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            fresh.close()
            self._refuse(str(error))
            return
        try:
            pid = fork_quietly()
        except OSError as error:
            for fd in (reading, writing):
                os.close(fd)
            fresh.close()
            self._refuse(str(error))
            return
        if pid == 0:
            _check(fresh.check, writing)
        os.close(writing)
        self._fresh, self._pid, self._pipe, self._words = fresh, pid, reading, b""
        self._loop.watch(reading, self._on_words)
        self._timer = self._loop.later(_CHECK_S, self._kill)

    def close(self) -> None:
        """Give up what is being checked."""
        if self._fresh is not None:
            self._kill()
            self._end().close()

    def _on_words(self) -> None:
        try:
            data = os.read(self._pipe, _PIPE_BUF)
        except BlockingIOError:
            return
        self._words = (self._words + data)[:_MAX_WORDS_BYTES]
        if data:
            return
        words, fresh = self._words.decode(errors="replace"), self._end()
        if words == "ok":
            self._use(fresh)
            fresh.on_use()
            self._observe("config_reloaded", fresh.log)
        else:
            fresh.close()
            self._refuse(words or "it could not be checked")
        if self._again:
            self._again = False
            self.begin()

    def _end(self) -> Fresh:
        assert self._fresh is not None
        fresh, self._fresh = self._fresh, None
        self._loop.forget(self._pipe)
        os.close(self._pipe)
        if self._timer is not None:
            self._timer.cancel()
        return fresh

    def _kill(self) -> None:
        # reaped by the spawner with all its children, but not before its end of the pipe was read
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def _refuse(self, reason: str) -> None:
        self._observe("reload_failed", {"reason": reason, "hint": "everything stays as it was"})


def _check(check: Callable[[], str], writing: int) -> None:
    """The child: never returns."""
    try:
        words = check() or "ok"
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process ends here
        # its words could quote a key
        words = f"the check itself failed: {type(error).__name__}"
    try:
        os.write(writing, words.encode(errors="replace")[:_PIPE_BUF])
    finally:
        os._exit(0)
