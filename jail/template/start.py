"""The first thing that runs in the template: loads what a worker needs, then forks on demand.

Started as ``python3 -I -S /proc/self/fd/4`` with the control socket as descriptor 3, this file as
descriptor 4 and the spawner's own directory as 5, in exactly the environment that a worker has: what
it was started with is what every worker forked from it shows in its /proc.
"""

import gc
import os
import sys

_CONTROL_FD = 3
_SCRIPT_FD = 4
_RUN_DIR_FD = 5


def _main() -> None:
    me = os.readlink(f"/proc/self/fd/{_SCRIPT_FD}")
    os.close(_SCRIPT_FD)
    app = os.path.dirname(os.path.dirname(os.path.dirname(me)))
    lib = os.path.join(os.path.dirname(app), "lib")
    sys.path[:0] = [lib]
    sys.modules["ssl"] = None  # type: ignore[assignment]  # see jail.peer.start
    gc.disable()
    import jail

    jail.__path__.append(os.path.join(app, "jail"))
    from jail.host.edges import Edges
    from jail.template.building import build
    from jail.template.serving import serve
    from jail.template.warmth import warm_up

    warm_up(lib, Edges(f"/proc/self/fd/{_RUN_DIR_FD}/."))
    os.close(_RUN_DIR_FD)
    fork = serve(_CONTROL_FD)  # returns in each fork
    run = build(fork)  # returns in the jail
    del fork
    sys.exit(run())


if __name__ == "__main__":
    _main()
