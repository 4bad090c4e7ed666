"""Upload and download of 100 MB through the user's own jail, beside a plain aiohttp file server.

One client on one connection; the jail is warm; transfers of the two servers come in turn. Each line has
``mb_per_s`` and ``floor_mb_per_s`` (of medians; 1 MB is 10**6 bytes) and ``core_grew_mb``: the most that
core's own memory (RssAnon, looked at every 10 ms) was above what it was before the first transfer, which
is to be below 8 MB whatever the size of a file.
"""

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from core.capacity.program import running_module
from core.cli.demo_server import demo_server
from scripts.benches._people import add_users
from scripts.benches._yard import BenchError
from scripts.benches.result import Result, median_and_p99

_BYTES = 100_000_000
_SAMPLES = 7
_PIECE = 256 << 10
_PATH = "/v1/files/content?path=bench.bin"
_LIMIT_S = 120.0
_LOOK_S = 0.01
_MB = 1_000_000


def measure() -> Iterator[Result]:
    """Uploads, then downloads."""
    with running_module("scripts.benches._file_server") as plain, demo_server() as server:
        assert plain.stdout is not None
        bare = Place(int(plain.stdout.readline()), "/file")
        (token,) = add_users(server, 1)
        ours = Place(server.hub_port, _PATH, token)
        ours.upload(os.urandom(_PIECE) * 4)  # a jail is started, and what core loads late is loaded
        ours.download(_PIECE * 4)
        core = core_of(server.pid)
        data = os.urandom(_BYTES)
        transfers: dict[str, Callable[[Place], float]] = {
            "upload": partial(Place.upload, data=data),
            "download": partial(Place.download, size=_BYTES),
        }
        for name, transfer in transfers.items():
            floor_s: list[float] = []
            took_s: list[float] = []
            with grown(core) as most:
                for _ in range(_SAMPLES):
                    floor_s.append(transfer(bare))
                    took_s.append(transfer(ours))
            yield _result(name, took_s, floor_s, most[0])
        ours.close()
        bare.close()


def _result(name: str, took_s: list[float], floor_s: list[float], grew: int) -> Result:
    median, worst = median_and_p99(took_s)
    floor, _ = median_and_p99(floor_s)
    return Result(
        "files",
        {
            "transfer": name,
            "mb": _BYTES // _MB,
            "mb_per_s": round(_BYTES / _MB / median, 1),
            "floor_mb_per_s": round(_BYTES / _MB / floor, 1),
            "core_grew_mb": round(grew / _MB, 2),
            "n": _SAMPLES,
        },
        median,
        worst,
        "s",
        floor,
    )


class Place:
    """A file at a server, on a connection that is kept open."""

    def __init__(self, port: int, path: str, token: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_LIMIT_S)
        self._path = path
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def upload(self, data: bytes) -> float:
        """Put the file there; how long it took (in seconds)."""
        began = time.perf_counter()
        headers = {**self._headers, "Content-Length": str(len(data))}
        pieces = (data[at : at + _PIECE] for at in range(0, len(data), _PIECE))
        self._connection.request("PUT", self._path, pieces, headers)
        response = self._connection.getresponse()
        said = response.read()
        if response.status not in (200, 201):
            raise BenchError(f"upload: status {response.status}: {said[:300]!r}")
        return time.perf_counter() - began

    def download(self, size: int) -> float:
        """Get the file from there; how long it took (in seconds)."""
        began = time.perf_counter()
        self._connection.request("GET", self._path, headers=self._headers)
        response = self._connection.getresponse()
        buffer, came = bytearray(_PIECE), 0
        while count := response.readinto(buffer):
            came += count
        if response.status != 200 or came != size:
            raise BenchError(f"download: status {response.status}, {came} bytes of {size}")
        return time.perf_counter() - began

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def core_of(spawner: int) -> int:
    """The pid of a server's core: the spawner's child that runs core/start.py."""
    children = Path(f"/proc/{spawner}/task/{spawner}/children").read_text().split()
    for child in map(int, children):
        if b"core/start.py" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    raise BenchError("no core among the spawner's children")


@contextmanager
def grown(pid: int) -> Iterator[list[int]]:
    """The most that a process's own memory is above what it is now, as long as the block runs (in bytes)."""
    before = _anonymous_bytes(pid)
    most = [0]
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(_LOOK_S):
            most[0] = max(most[0], _anonymous_bytes(pid) - before)

    thread = threading.Thread(target=look, name="memory")
    thread.start()
    try:
        yield most
    finally:
        stop.set()
        thread.join()


def _anonymous_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1_024
    raise BenchError("the kernel does not say RssAnon")
