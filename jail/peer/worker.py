"""The worker: one loop that answers core's requests, several turns at once.

It ends when core's end of the edge does, when core breaks the protocol, or after ``drain``; and
whatever its tools have started ends first.
"""

import asyncio
import contextlib
import signal
import sys
import traceback
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from jail.peer.children import Children
from jail.peer.edge import Edge, Request
from jail.peer.errors import AskFailed
from jail.peer.items import ItemQueue
from jail.peer.port import Port
from jail.peer.toolbox import Toolbox
from jail.peer.tools import BUILT_IN
from jail.peer.tools.base import Surroundings
from jail.peer.turn import Turn
from jail.wire.connection import Asked, Connection
from jail.wire.errors import PeerFault
from jail.wire.schema import (
    Body,
    Done,
    Drain,
    Failure,
    FileDelete,
    FileList,
    FileRead,
    FileStat,
    FileWrite,
    LogLine,
    Ping,
    TurnHold,
    TurnStart,
)

if TYPE_CHECKING:
    from jail.peer.files import Files

EXIT_DRAINED = 0
EXIT_PEER_GONE = 3
EXIT_PEER_FAULT = 4

_SOFTWARE = "certosa-worker/0.1"
_HANDSHAKE_S = 60.0  # core connects before the worker has started; this is for a machine under load
_MAX_TURNS = 16  # three requests each stay below what one side may have open
_DRAIN_LINGER_MS = 1_000
_LOG_S = 2.0


def run(listen_fd: int, home: str) -> int:
    """Be a worker until the end; returns the process's exit status.

    Args:
        listen_fd: a listening AF_UNIX stream socket to which core connects once; taken over.
        home: the directory that tools' relative paths start from.

    Call it in the main thread of a process that has no other children: it reaps all of them.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # as pid 1 it cannot be ended from inside then
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_Worker(loop, home).run(listen_fd))
    finally:
        loop.close()


class _Outside(NamedTuple):
    """One turn's way out (see jail.peer.tools.base.Outside)."""

    turn: str
    edge: Edge

    async def ask(self, body: Body, timeout_s: float) -> Body:
        answer: Body = await self.edge.ask(body, timeout_s)
        return answer

    async def stream(self, body: Body, silence_s: float) -> Request:
        return await self.edge.stream(body, silence_s)


class _Worker:
    """Core's requests and who works on them. All of it runs on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, home: str) -> None:
        self._loop = loop
        self._home = home
        self._children = Children(loop)
        self._over: asyncio.Future[int] = loop.create_future()
        self._turns: dict[int, Turn] = {}
        self._names: dict[str, Turn] = {}
        self._queues: dict[int, ItemQueue] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._drains: list[int] = []
        self._files: Files | None = None
        self._edge: Edge

    async def run(self, listen_fd: int) -> int:
        """Serve until the end; the exit status."""
        connection = Connection("worker", self._loop.time(), _HANDSHAKE_S)
        port = Port(
            self._loop,
            listen_fd,
            on_frame=self._on_frame,
            on_end=partial(self._end, EXIT_PEER_GONE),
            on_fault=self._on_fault,
        )
        self._edge = Edge(connection, port.send, port.room, self)
        port.send(connection.hello(_SOFTWARE))
        handshake = self._loop.call_later(_HANDSHAKE_S, self._check_handshake, connection)
        try:
            code = await self._over
        finally:
            handshake.cancel()
            self._children.kill_all()
            if self._files is not None:
                self._files.close()
            for task in self._tasks:
                task.cancel()
        port.close(_DRAIN_LINGER_MS if code == EXIT_DRAINED else 0)
        return code

    def _end(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    def _on_frame(self, frame: bytes) -> None:
        self._edge.on_frame(frame)

    def _on_fault(self, fault: PeerFault) -> None:
        sys.stderr.write(f"core broke the protocol: {fault}\n")
        self._end(EXIT_PEER_FAULT)

    def _check_handshake(self, connection: Connection) -> None:
        if not connection.ready:
            self._on_fault(PeerFault("deadline", "no handshake in time"))

    # -- what core asks ---------------------------------------------------------------------------

    def on_ready(self) -> None:
        """The handshake is done; core speaks first."""

    def on_asked(self, asked: Asked) -> None:
        """Answer a request, or begin to work on it."""
        match asked.body:
            case Ping():
                self._edge.reply(asked.id, Done())
            case Drain():
                self._drains.append(asked.id)
                self._finish_drain()
            case TurnStart() as start:
                self._start_turn(asked.id, start)
            case TurnHold(turn=name, held=held):
                self._hold(name, held)
                self._edge.reply(asked.id, Done())
            case (FileList() | FileStat() | FileRead() | FileWrite() | FileDelete()) as body:
                self._serve_file().serve(asked.id, body)

    def _serve_file(self) -> "Files":
        """Made for the first such request: most workers have none, and each is to be small."""
        if self._files is None:
            from jail.peer.files import Files

            self._files = Files(self._loop, self._home, self._edge, self._finish_drain)
        return self._files

    def on_credit(self, request_id: int) -> None:
        """Send what waited for it."""
        if (items := self._queues.get(request_id)) is not None:
            items.pump()
        elif self._files is not None:
            self._files.on_credit(request_id)

    def on_cancel(self, request_id: int) -> None:
        """End a turn or a file's transfer; anything else is answered soon anyway."""
        if (turn := self._turns.get(request_id)) is not None:
            turn.cancel()
        elif self._files is not None:
            self._files.on_cancel(request_id)

    def _hold(self, name: str, held: bool) -> None:
        """Let a turn's time stand still, or go on; nothing for one that is over."""
        if (turn := self._names.get(name)) is None:
            return
        (self._edge.held.add if held else self._edge.held.discard)(name)
        turn.hold(held)

    def _start_turn(self, request_id: int, start: TurnStart) -> None:
        if self._drains:
            self._edge.error(request_id, "unavailable", "the jail is being closed; ask again")
            return
        if len(self._turns) >= _MAX_TURNS:
            self._edge.error(request_id, "overloaded", f"{_MAX_TURNS} turns run already", 5)
            return
        items = ItemQueue(partial(self._edge.credit, request_id), partial(self._edge.item, request_id))
        outside = _Outside(start.turn, self._edge)
        around = Surroundings(self._home, self._children, outside=outside, request=start.request)
        tools = Toolbox(start.turn, start.agent, BUILT_IN, self._edge, around, start.first_step)
        turn = Turn(start, self._edge, items, tools)
        self._turns[request_id], self._queues[request_id] = turn, items
        self._names[start.turn] = turn
        task = self._loop.create_task(self._run_turn(request_id, start.turn, turn))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_turn(self, request_id: int, name: str, turn: Turn) -> None:
        try:
            outcome = await turn.run()
        except Exception as error:  # noqa: BLE001 - a bug in one turn must not end the others
            outcome = Failure("worker", f"the worker failed inside the jail: {type(error).__name__}")
            await self._report(name, error)
        del self._turns[request_id], self._queues[request_id], self._names[name]
        self._edge.held.discard(name)
        if isinstance(outcome, Failure):
            self._edge.error(request_id, outcome.code, outcome.message, outcome.retry_after_s)
        else:
            self._edge.reply(request_id, outcome)
        self._finish_drain()

    async def _report(self, turn: str, error: Exception) -> None:
        """A bug of ours, loudly: the trace to stderr, its kind and place to the operator's log."""
        traceback.print_exception(error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        detail = f"{type(error).__name__} at {last.filename.rpartition('/')[2]}:{last.lineno}"
        with contextlib.suppress(AskFailed):  # the turn's own ERROR still says it
            await self._edge.ask(LogLine(turn, "error", "turn_crashed", detail), _LOG_S)

    def _finish_drain(self) -> None:
        if self._drains and not self._turns and not (self._files is not None and self._files.busy):
            for request_id in self._drains:
                self._edge.reply(request_id, Done())
            self._end(EXIT_DRAINED)
