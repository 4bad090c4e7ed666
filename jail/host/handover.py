"""Data that a program reads to its end, and does not get before whoever outlives us knows of it."""

import socket


class Handover:
    """One end of a socket pair, until :meth:`give` or :meth:`close`.

    Args:
        data: some kilobytes; the reader sees all of it or, should we end, nothing.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._sock: socket.socket | None
        self._sock, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.fd = end.detach()
        """The reader's end; the caller's to close."""

    def give(self) -> bool:
        """Hand all of it over, once; False if the reader got less: then it must not go on."""
        if self._sock is None:
            return True
        try:
            return self._sock.send(self._data, socket.MSG_DONTWAIT) == len(self._data)
        except OSError:
            return False
        finally:
            self.close()

    def close(self) -> None:
        """The reader finds the end of the data."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
