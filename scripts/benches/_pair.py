"""Two processes with a bare pyzmq PAIR each: the floor of the benchmark ``hop``.

``ping`` reads how many round trips to make from its standard input, a line a batch, and prints the
times in microseconds as one line of JSON; ``pong`` sends back what comes, until an empty message.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

_PAYLOAD = b"x" * 200
_LIMIT_MS = 30_000
_END_S = 10.0


class Pair:
    """Both processes, as the benchmark sees them."""

    def __init__(self, ping: "subprocess.Popen[str]") -> None:
        self._ping = ping

    def batch(self, count: int) -> list[float]:
        """Make round trips of 200 bytes; returns what each took (in microseconds)."""
        assert self._ping.stdin is not None
        assert self._ping.stdout is not None
        self._ping.stdin.write(f"{count}\n")
        self._ping.stdin.flush()
        took: list[float] = json.loads(self._ping.stdout.readline())
        return took


@contextmanager
def running_pair(path: Path, before_ping: object, before_pong: object) -> Iterator[Pair]:
    """Start both; each ``before_`` is called just before its process starts, which inherits from it."""
    assert callable(before_ping)
    assert callable(before_pong)
    before_pong()
    pong = _start("pong", path)
    try:
        before_ping()
        ping = _start("ping", path)
        try:
            yield Pair(ping)
        finally:
            ping.communicate(timeout=_END_S)  # its input ends, and so does it
    finally:
        pong.communicate(timeout=_END_S)


def _start(role: str, path: Path) -> "subprocess.Popen[str]":
    argv = [sys.executable, "-I", __file__, role, str(path)]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _main(role: str, path: str) -> None:
    pair = zmq.Context().socket(zmq.PAIR)
    pair.setsockopt(zmq.RCVTIMEO, _LIMIT_MS)
    if role == "pong":
        pair.bind(f"ipc://{path}")
        while message := pair.recv():
            pair.send(message)
        return
    pair.connect(f"ipc://{path}")
    for line in sys.stdin:
        took = []
        for _ in range(int(line)):
            began = time.perf_counter()
            pair.send(_PAYLOAD)
            pair.recv()
            took.append(round((time.perf_counter() - began) * 1e6, 1))
        print(json.dumps(took), flush=True)
    pair.send(b"")


if __name__ == "__main__":
    _main(*sys.argv[1:])
