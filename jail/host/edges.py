"""The two ends of a jail's edge."""

import os
import socket
from contextlib import suppress


class Edges:
    """Makes the two ends of jails' edges, by way of a name that nobody else can reach.

    Args:
        run_dir: a directory that only the spawner may enter.
    """

    def __init__(self, run_dir: str | os.PathLike[str]) -> None:
        self._run_dir = run_dir
        self._count = 0

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """A listening socket with one connection waiting and no name any more."""
        self._count += 1
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        edge = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        directory = os.open(self._run_dir, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        name = f"edge-{os.getpid()}-{self._count}"
        # through the descriptor: a socket's path may have 107 bytes only
        path = f"/proc/self/fd/{directory}/{name}"
        try:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory)
            listener.bind(path)
            try:
                listener.listen(1)
                edge.connect(path)
            finally:
                os.unlink(name, dir_fd=directory)
        except OSError:
            listener.close()
            edge.close()
            raise
        finally:
            os.close(directory)
        edge.setblocking(False)
        return listener, edge
