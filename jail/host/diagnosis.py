"""Why a jail could not be built: the same profile once more, running /bin/true, its stderr read.

A jail's own stderr is never read: the worker inherits it. This run executes nothing of the user's.
"""

import os
from dataclasses import replace
from typing import Final

from jail.host.executing import Jail
from jail.host.explain import explain
from jail.host.launcher import ExecStarter, JailSpec
from jail.host.running import Phase

_MAX_TEXT_BYTES: Final = 4_096
_COMMAND: Final = ("/usr/bin/true",)


class Diagnosis:
    """One such run; the caller's loop polls ``jail`` until it has ended, then asks for ``text``.

    Args:
        why: what is known already, to be told where this run finds nothing wrong.
    """

    def __init__(self, starter: ExecStarter, spec: JailSpec, why: str = "") -> None:
        """Begin. Raises HostError when not even bwrap can be started."""
        self._why = why
        # never fills: whatever is written past the pipe's capacity blocks a jail that is killed
        self._said, end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            profile = replace(spec.profile, command=_COMMAND)
            self.jail: Jail = starter.start(replace(spec, profile=profile), error_fd=end)
        except BaseException:
            os.close(self._said)
            raise
        finally:
            os.close(end)

    def text(self) -> str:
        """What to tell; to be called once, when the jail has ended."""
        try:
            said = os.read(self._said, _MAX_TEXT_BYTES).decode(errors="replace")
        except BlockingIOError:
            said = ""
        finally:
            os.close(self._said)
            self.jail.close()
        if self.jail.phase is Phase.ENDED and self.jail.how == "exit 0":
            why = f" ({self._why})" if self._why else ""
            return f"the jail ended while it was being built{why}, though another could be; try again"
        return explain(said)
