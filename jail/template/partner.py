"""Core's part in a rehearsal, played by a process of its own: what it loads and does stays with it."""

import os
import socket
from typing import Any, Final

from jail.template.errors import BuildError
from jail.wire.connection import Asked, Connection, Event, Failed, ItemCame, PeerReady, Replied
from jail.wire.frames import MAX_FRAME_BYTES
from jail.wire.schema import (
    Agent,
    Body,
    ChatCall,
    ChatDelta,
    ChatEnd,
    Done,
    Drain,
    History,
    Message,
    Ping,
    ProviderChat,
    SessionLoad,
    ToolCall,
    TurnStart,
)
from jail.wire.zmtp import Zmtp

_TURN: Final = "turn_0000000000000000"
# of the host only what every jail shows too: a template's memory is every worker's
_CALLS: Final = (
    ("list_files", f'{{"path": "{os.path.dirname(socket.__file__)}/asyncio"}}'),
    ("read_file", f'{{"path": "{socket.__file__}", "limit": 9}}'),
    ("run_command", '{"command": "echo hello"}'),
)
_AGENT: Final = Agent("assistant", "", "builtin", "assistant", tuple(name for name, _ in _CALLS))
_RECEIVE_BYTES: Final = 65_536


class Partner:
    """Talks to one worker: a PING, some turns, each with all its tools, then DRAIN.

    Args:
        edge: core's end, blocking.
        turns: how many.
    """

    def __init__(self, edge: socket.socket, turns: int) -> None:
        self._edge = edge
        self._lines: list[Body] = [Ping(), *(TurnStart(_TURN, _AGENT) for _ in range(turns)), Drain()]
        self._zmtp = Zmtp(MAX_FRAME_BYTES)
        self._connection = Connection("core", 0.0, 60.0)
        self._called = False

    def play(self) -> None:
        """Play until the worker goes. Raises OSError and BuildError when it fails at its part."""
        try:
            self._go_on()
        except ConnectionError:
            if self._lines:
                raise
            # it was told to go, and went before it had read what was on its way to it

    def _go_on(self) -> None:
        self._edge.sendall(self._zmtp.outgoing())
        while data := self._edge.recv(_RECEIVE_BYTES):
            messages = self._zmtp.feed(data)
            self._edge.sendall(self._zmtp.outgoing())
            for message in messages:
                events = self._connection.receive(message)
                self._send(*self._connection.take_answers())
                for event in events:
                    self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case PeerReady() | Replied() if self._lines:
                self._called = False
                self._send(self._connection.request(self._lines.pop(0))[1])
            case Failed(failure=failure):
                raise BuildError(f"the worker said {failure.code}: {failure.message}")
            case ItemCame(id=request_id):
                self._send(self._connection.grant(request_id, 1))
            case Asked(id=request_id, body=body):
                *items, reply = self._answer(body)
                self._send(*(self._connection.item(request_id, item) for item in items))
                self._send(self._connection.reply(request_id, reply))

    def _answer(self, body: Any) -> tuple[Body, ...]:
        """The items and the reply to one request of the worker's."""
        match body:
            case SessionLoad():
                return History((Message("user", "hello"),)), Done()
            case ProviderChat() if not self._called:
                self._called = True
                calls = (ToolCall(f"call{number}", *call) for number, call in enumerate(_CALLS))
                return *map(ChatCall, calls), ChatEnd("tool_calls")
            case ProviderChat():
                return ChatDelta("hello "), ChatDelta("there"), ChatEnd("stop")
        return (Done(),)

    def _send(self, *frames: bytes) -> None:
        for frame in frames:
            self._edge.sendall(self._zmtp.encode(frame))
