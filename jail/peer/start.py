"""The first thing that runs in a jail: puts its library on the path and becomes the worker.

Started as ``/usr/bin/python3 -I -S .../jail/peer/start.py`` with the listening socket as
descriptor 3. ``-I -S`` leaves nothing importable but the standard library and what lies beside us.
"""

import gc
import os
import sys

_LISTEN_FD = 3
_HOME = "/home/user"


def _main() -> None:
    here = os.path.abspath(__file__)
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(here))))
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
    _main()
