"""What lies in a user's jail as files: asked of egress before the jail is built, and never read here.

ask --MountsGiven--> the files, for who asked   --MountsRefused, egress's end, no answer--> why not

Whose jail has which mounts is the operator's configuration, which this process and egress know each by
themselves: core names a user and has no say in it.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from jail.host.loop import Loop, Timer
from jail.host.messages import AskMounts, HostError, MountsGiven, MountsRefused
from jail.host.sealed import is_sealed

_ANSWER_S: Final = 10.0
_MAX_BYTES: Final = 8_192
_HINT: Final = "try again; if it stays so, the server's log says more"


class MountFiles:
    """Memory files by name, each read from its beginning by whoever is given it; until :meth:`close`."""

    def __init__(self, names: tuple[str, ...] = (), fds: tuple[int, ...] = ()) -> None:
        self.names, self.fds = names, fds

    def close(self) -> None:
        """Close them; harmless twice."""
        for fd in self.fds:
            os.close(fd)
        self.names = self.fds = ()


def nobody(_user: str) -> tuple[str, ...]:
    """Has any, where the configuration names none."""
    return ()


Take = Callable[[MountFiles | str], None]
"""Takes the files over, or is told in a sentence why there are none."""


@dataclass(frozen=True, slots=True)
class _Asked:
    names: tuple[str, ...]
    take: Take
    timer: Timer


class Mounts:
    """Asks for as many users at once as there are. On the loop's thread; nothing waits.

    Args:
        send: sends to egress at once; raises HostError where it cannot.
    """

    def __init__(self, loop: Loop, send: Callable[[AskMounts], None]) -> None:
        self._loop, self._send = loop, send
        self._requests = itertools.count(1)
        self._asked: dict[int, _Asked] = {}

    def ask(self, user: str, names: tuple[str, ...], take: Take) -> int:
        """Ask for these; the number is for :meth:`drop`. Raises HostError where nobody can be asked."""
        request = next(self._requests)
        try:
            self._send(AskMounts(request, user, names))
        except HostError as error:
            raise HostError(_missing(str(error))) from None
        late = f"the egress process did not answer in {_ANSWER_S:g} s"
        timer = self._loop.later(_ANSWER_S, lambda: self._settle(request, _missing(late)))
        self._asked[request] = _Asked(names, take, timer)
        return request

    def drop(self, request: int) -> None:
        """Nobody wants an answer to this one any more; one that comes is closed."""
        if (asked := self._asked.pop(request, None)) is not None:
            asked.timer.cancel()

    def answered(self, answer: MountsGiven | MountsRefused, fds: tuple[int, ...]) -> None:
        """Egress said something; the descriptors are taken over."""
        files = MountFiles(answer.names if isinstance(answer, MountsGiven) else (), fds)
        asked = self._asked.get(answer.request)
        if asked is None:
            files.close()
        elif isinstance(answer, MountsRefused):
            files.close()
            self._settle(answer.request, _missing(answer.message))
        elif fault := _fault(files, asked.names):
            files.close()
            self._settle(answer.request, _missing(f"the egress process gave {fault}"))
        else:
            self._settle(answer.request, files)

    def lose(self) -> None:
        """Egress has ended: all that was asked fails now."""
        for request in list(self._asked):
            self._settle(request, _missing("the egress process has ended and is being started again"))

    def _settle(self, request: int, result: MountFiles | str) -> None:
        if (asked := self._asked.pop(request, None)) is not None:
            asked.timer.cancel()
            asked.take(result)


def _missing(why: str) -> str:
    return f"the credentials that belong in it could not be had: {why}; {_HINT}"


def _fault(files: MountFiles, wanted: tuple[str, ...]) -> str:
    """What is wrong with an answer; "" if nothing. Nothing of the files is read."""
    if len(files.fds) != len(files.names) or len(set(files.names)) != len(files.names):
        return "names and files that do not belong together"
    if not set(files.names) <= set(wanted):
        return "what was not asked for"
    if not all(is_sealed(fd) and os.fstat(fd).st_size <= _MAX_BYTES for fd in files.fds):
        return "a file that is not sealed, or too large"
    return ""
