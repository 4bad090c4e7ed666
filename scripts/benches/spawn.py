"""What starting a jail takes, beside the least bwrap that isolates.

``start``: as in [jail]. ``until`` "running": the jail is built and its program is next; "handshake":
its worker said HELLO, from the moment the spawner was asked. Jails of both kinds and bare bwraps in
turn, through the spawner's own launchers and tables of jails.
"""

import socket
from collections.abc import Iterator
from contextlib import closing

from jail.host.messages import Start
from jail.wire.connection import Connection, PeerReady
from jail.wire.frames import MAX_FRAME_BYTES
from jail.wire.zmtp import Zmtp
from scripts.benches._yard import BenchError, Yard, now_ms, open_yard
from scripts.benches.result import Result, median_and_p99

_ALONE = 40
_TOGETHER = ((20, 3), (100, 2))  # at once, batches
_STARTS: tuple[Start, ...] = ("fork", "exec")
_UNTIL = ("running", "handshake")
_WARM_UP = 2
_TRUE = ("/usr/bin/true",)


class Handshakes:
    """Jails that are starting, and when each of them got how far (in milliseconds)."""

    def __init__(self, yard: Yard) -> None:
        self._yard = yard
        self._asked: dict[int, float] = {}
        self._edges: list[socket.socket] = []
        self.running_ms: dict[int, float] = {}
        self.ready_ms: dict[int, float] = {}

    def start(self, numbers: range) -> list[int]:
        """Start these users' jails and wait for all handshakes; returns their lives."""
        lives = []
        for number in numbers:
            asked = now_ms()
            life = self._yard.start(number, self._on_started)
            self._asked[life] = asked
            lives.append(life)
        self._yard.loop.run_until(lambda: all(life in self.ready_ms for life in lives))
        return lives

    def end(self, lives: list[int]) -> None:
        """End jails and forget their edges."""
        self.close()
        self._yard.end(lives)

    def close(self) -> None:
        """Close all edges; their workers end for it."""
        for edge in self._edges:
            self._yard.loop.forget(edge.fileno())
            edge.close()
        self._edges.clear()

    def _on_started(self, life: int, edge: socket.socket, spawn_s: float) -> None:
        self.running_ms[life] = spawn_s * 1_000
        self._edges.append(edge)
        zmtp, connection = Zmtp(MAX_FRAME_BYTES), Connection("core", 0.0, 60.0)
        edge.send(zmtp.outgoing())

        def read() -> None:
            data = edge.recv(65_536)
            if not data:
                raise BenchError(f"a worker ended before its handshake ({self._yard.ended.get(life)})")
            for payload in zmtp.feed(data):
                if any(isinstance(event, PeerReady) for event in connection.receive(payload)):
                    self.ready_ms[life] = now_ms() - self._asked[life]
                for answer in connection.take_answers():
                    edge.send(zmtp.encode(answer))
            if answer := zmtp.outgoing():
                edge.send(answer)

        self._yard.loop.watch(edge.fileno(), read)


def measure() -> Iterator[Result]:
    """One at a time, then twenty and a hundred at once."""
    users = max(at_once for at_once, _ in _TOGETHER)
    with open_yard(users, starts=_STARTS) as yard, closing(Handshakes(yard)) as jails:
        for _ in range(_WARM_UP):
            _bare(yard, 1)
            for way in _STARTS:
                yard.use(way)
                jails.end(jails.start(range(1)))
        for at_once, batches in ((1, _ALONE), *_TOGETHER):
            yield from _measure(yard, jails, at_once, batches)


def _measure(yard: Yard, jails: Handshakes, at_once: int, batches: int) -> Iterator[Result]:
    floor_ms: list[float] = []
    found: dict[tuple[Start, str], list[float]] = {(w, u): [] for w in _STARTS for u in _UNTIL}
    for _ in range(batches):
        floor_ms += _bare(yard, at_once)
        for way in _STARTS:
            yard.use(way)
            lives = jails.start(range(at_once))
            found[way, "running"] += [jails.running_ms[life] for life in lives]
            found[way, "handshake"] += [jails.ready_ms[life] for life in lives]
            jails.end(lives)
    floor, _ = median_and_p99(floor_ms)
    for (way, until), took in found.items():
        median, p99 = median_and_p99(took)
        varied: dict[str, str | int | float] = {
            "start": way, "at_once": at_once, "until": until, "n": len(took)
        }  # fmt: skip
        yield Result("spawn", varied, median, p99, "ms", floor)


def _bare(yard: Yard, at_once: int) -> list[float]:
    """How long each of some bare bwraps started at once took to its end (in milliseconds)."""
    took: list[float] = []

    def start(number: int) -> None:
        began = now_ms()
        yard.start_bare(number, _TRUE, lambda: took.append(now_ms() - began))

    for number in range(at_once):
        start(number)
    yard.loop.run_until(lambda: len(took) == at_once)
    return took
