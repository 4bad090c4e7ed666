"""The worker of the benchmark ``hop``: runs inside a jail in the place of the real one.

A turn is a batch: its agent's prompt says how many times to ask core (``step.begin`` in a frame of
200 bytes, ``Done`` comes back), the turn's only item is the times in microseconds as JSON. How it waits
stands in ~/kind: "asyncio" is the real worker's port and edge, "blocking" the least that speaks the
protocol over the same socket, with neither a loop nor coroutines. Whoever starts it has put the
jail's library on the path.
"""

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Callable

import zmq

from jail.peer.edge import Edge
from jail.peer.port import Port
from jail.wire.connection import Asked, Connection, Event, Replied
from jail.wire.frames import Kind, encode_frame
from jail.wire.schema import Delta, StepBegin, TurnEnd, TurnStart, to_wire

_LISTEN_FD = 3
_FRAME_BYTES = 200
_ASK_S = 30.0


def _question(turn: str, step: int) -> StepBegin:
    return StepBegin(turn, step, "bench", "x" * _padding(turn))


def _padding(turn: str) -> int:
    """Characters that fill a frame up; the header of a string of 32 to 255 is one byte longer."""
    empty = encode_frame(Kind.REQUEST, 1_000, to_wire(StepBegin(turn, 1_000, "bench", "")))
    return _FRAME_BYTES - len(empty) - 1


class _Worker:
    """Turns over the real port and edge."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._over = loop.create_future()
        connection = Connection("worker", loop.time(), 60.0)
        port = Port(loop, _LISTEN_FD, self._on_frame, self._end, self._on_fault)
        self._edge = Edge(connection, port.send, port.room, self)
        port.send(connection.hello("bench/1"))
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await self._over

    def _on_frame(self, frame: bytes) -> None:
        self._edge.on_frame(frame)

    def on_ready(self) -> None:
        """Core speaks first."""

    def on_asked(self, asked: Asked) -> None:
        """A batch."""
        assert isinstance(asked.body, TurnStart)
        task = asyncio.ensure_future(self._batch(asked.id, asked.body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_credit(self, request_id: int) -> None:
        """One item never needs more."""

    def on_cancel(self, request_id: int) -> None:
        """Never used here."""

    async def _batch(self, request_id: int, start: TurnStart) -> None:
        questions = [_question(start.turn, step) for step in range(1, int(start.agent.prompt) + 1)]
        took = []
        for question in questions:
            began = time.perf_counter()
            await self._edge.ask(question, _ASK_S)
            took.append(round((time.perf_counter() - began) * 1e6, 1))
        self._edge.item(request_id, Delta(json.dumps(took)))
        self._edge.reply(request_id, TurnEnd("stop"))

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _on_fault(self, fault: Exception) -> None:
        sys.stderr.write(f"core broke the protocol: {fault}\n")
        self._end()


def _blocking() -> None:
    with socket.socket(fileno=os.dup(_LISTEN_FD)) as listener:
        path = os.fsdecode(listener.getsockname())
    pair = zmq.Context().socket(zmq.PAIR)
    pair.setsockopt(zmq.USE_FD, _LISTEN_FD)
    pair.bind(f"ipc://{path}")
    connection = Connection("worker", 0.0, 60.0)
    pair.send(connection.hello("bench/1"))
    while True:
        for event in connection.receive(pair.recv()):
            if isinstance(event, Asked):
                _blocking_batch(event, connection, pair.send, pair.recv)


def _blocking_batch(
    asked: Asked, connection: Connection, send: Callable[[bytes], object], receive: Callable[[], bytes]
) -> None:
    start = asked.body
    questions = [_question(start.turn, step) for step in range(1, int(start.agent.prompt) + 1)]
    took = []
    for question in questions:
        began = time.perf_counter()
        send(connection.request(question)[1])
        events: list[Event] = []
        while not any(isinstance(event, Replied) for event in events):
            events = connection.receive(receive())
        took.append(round((time.perf_counter() - began) * 1e6, 1))
    send(connection.item(asked.id, Delta(json.dumps(took))))
    send(connection.reply(asked.id, TurnEnd("stop")))


async def _asyncio() -> None:
    await _Worker(asyncio.get_running_loop()).run()


if __name__ == "__main__":
    with open("/home/user/kind", encoding="ascii") as file:
        kind = file.read()
    if kind == "blocking":
        _blocking()
    else:
        asyncio.run(_asyncio())
