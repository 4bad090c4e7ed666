"""The first thing that runs in a jail: puts its library on the path and becomes the worker.

Started as ``/usr/bin/python3 -I -S .../jail/peer/start.py`` with the listening socket as
descriptor 3. ``-I -S`` leaves nothing importable but the standard library and what lies beside us.
"""

import gc
import os
import sys

TYPE_CHECKING = False  # as typing's, without importing it here
if TYPE_CHECKING:
    from typing import NoReturn

_LISTEN_FD = 3
_HOME = "/home/user"


def main() -> "NoReturn":
    """Be the worker, to the end of this process."""
    here = os.path.abspath(__file__)
    lib = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    if lib not in sys.path:  # it is when this interpreter was forked, with all of it imported
        sys.path.insert(0, lib)
    # asyncio does without ssl where it is missing; nobody in a jail needs it from us, and loading
    # it is a tenth of the start and 4 MB
    sys.modules["ssl"] = None  # type: ignore[assignment]
    gc.disable()  # nothing that imports make is garbage
    from jail.peer.worker import run

    gc.freeze()
    gc.enable()
    code = run(_LISTEN_FD, _HOME)
    sys.stderr.flush()
    # not sys.exit: a thread stuck in a slow disk must not hold the jail's pid 1 back
    os._exit(code)


if __name__ == "__main__":
    main()
