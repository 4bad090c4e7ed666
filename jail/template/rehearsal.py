"""What every worker does first, done by the template: so that it need not be done in memory of its own.

Types are prepared at their first use, code is rewritten as it runs, what attributes were found to be is
remembered; either, in a worker, would be a copy of a page. So the template is a worker itself for a
while: the real one, with all its threads, sockets and tools, whose core is a process that plays it
(:mod:`jail.template.partner`). Nothing is kept, no thread goes on, no descriptor stays open.
"""

import os
import signal
import socket
import threading
from typing import Final, NoReturn

import msgspec

from jail.host.edges import Edges
from jail.host.starting import TO_BUILDER, BuildJail, Entered
from jail.peer import worker
from jail.template.errors import BuildError
from jail.template.partner import Partner

_TURNS: Final = 2  # of each play
_HOME: Final = "/"  # read, never written


def rehearse_building() -> None:
    """Go through what a builder does with its request."""
    request = BuildJail("/bin/true", b"args", b"filter", 1, 1, ((0, 1),), 1, ("/bin/true", "-c"))
    TO_BUILDER.decode(msgspec.msgpack.encode(request))
    msgspec.msgpack.encode(Entered())


def rehearse(edges: Edges) -> None:
    """Be a worker from its first frame to its exit. Raises OSError, and BuildError if it ends otherwise."""
    rehearse_building()
    listener, edge = edges.pair()
    over, over_end = os.pipe2(os.O_CLOEXEC)
    partner = os.fork()
    if partner == 0:
        listener.close()
        os.close(over_end)
        _play(edge, over)
    edge.close()
    os.close(over)
    handler = signal.getsignal(signal.SIGINT)
    try:
        status = worker.run(listener.detach(), _HOME)
    finally:
        signal.signal(signal.SIGINT, handler)
        # not before: its end is a signal, which a loop that is being closed can't take
        os.close(over_end)
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join()
    _, ended = os.waitpid(partner, 0)
    if status != worker.EXIT_DRAINED or ended:
        raise BuildError(f"a rehearsal ended with {status}, its partner with {ended}")


def _play(edge: socket.socket, over: int) -> NoReturn:
    """The partner's whole life."""
    status = 1
    try:
        edge.setblocking(True)
        Partner(edge, _TURNS).play()
        edge.close()
        os.read(over, 1)
        status = 0
    finally:
        # nobody above this frame may run: it would be a second template
        os._exit(status)
