"""Core's end of an edge, for a worker under test: a real Unix socket, a scripted model.

It serves the worker's verbs from memory and keeps what came; the test pumps it.
"""

import select
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jail.wire.connection import (
    Asked,
    CancelCame,
    Connection,
    Failed,
    ItemCame,
    PeerReady,
    Replied,
)
from jail.wire.frames import MAX_FRAME_BYTES
from jail.wire.schema import (
    Agent,
    ApprovalAsk,
    Body,
    ChatEnd,
    Delta,
    Done,
    Drain,
    Failure,
    History,
    HttpBody,
    HttpFetch,
    LogLine,
    Message,
    Ping,
    ProviderChat,
    SessionAppend,
    SessionLoad,
    StepBegin,
    StepEnd,
    TurnEnd,
    TurnStart,
)
from jail.wire.zmtp import Zmtp

TIMEOUT_S = 20.0
_LOOK_S = 0.02  # conditions that no frame announces (a file, a process) are looked at this often
_STOP = ChatEnd("stop")


@dataclass(frozen=True)
class Answer:
    """What the model says in one round; ``end`` None: it never comes to an end."""

    items: Sequence[Body] = ()
    end: Body | None = _STOP


@dataclass
class TurnLog:
    """What the worker said about one turn."""

    items: list[Any] = field(default_factory=list)
    outcome: TurnEnd | Failure | None = None

    @property
    def text(self) -> str:
        """The answer's text so far."""
        return "".join(item.text for item in self.items if isinstance(item, Delta))

    def of(self, kind: type[Any]) -> list[Any]:
        """The items of one type."""
        return [item for item in self.items if isinstance(item, kind)]


@dataclass
class _Chat:
    id: int
    items: list[Body]
    end: Body | None


class CoreEnd:
    """Core's end. ``grants`` False: no credit is given beyond the first window."""

    def __init__(
        self, sock: socket.socket, answers: Iterable[Answer] = (), history: Iterable[Message] = ()
    ) -> None:
        self.sock = sock
        sock.setblocking(False)
        self.answers = list(answers)
        self.history = list(history)
        self.grants = True
        self.appended: list[Message] = []
        self.chats: list[ProviderChat] = []
        self.fetched: list[Answer] = []
        """What servers outside answer, one after the other."""
        self.fetches: list[HttpFetch] = []
        self.uploads: list[bytes] = []
        self.steps: list[StepBegin | StepEnd] = []
        self.logs: list[LogLine] = []
        self.refuse: dict[type[Body], Failure] = {}
        self.unanswered: list[Body] = []
        self.silent: set[type[Body]] = set()
        self.silent_ids: list[int] = []
        self.asked: list[ApprovalAsk] = []
        self.cancelled_chats = 0
        self.items_sent = 0
        self.software = ""
        self.turns: dict[int, TurnLog] = {}
        self.closed_requests: dict[int, Any] = {}
        self.items: dict[int, list[Any]] = {}
        self.ended = False
        self._zmtp = Zmtp(MAX_FRAME_BYTES)
        self.connection = Connection("core", 0.0, 1e9)
        self._open_chats: dict[int, _Chat] = {}
        self._out = bytearray(self._zmtp.outgoing())

    # -- what a test does -------------------------------------------------------------------------

    def start_turn(self, agent: Agent, turn: str = "turn_0000000000000001") -> TurnLog:
        """Ask for a turn; what comes of it fills the log that is returned."""
        request_id = self.request(TurnStart(turn, agent))
        self.turns[request_id] = TurnLog()
        return self.turns[request_id]

    def request(self, body: Body) -> int:
        """Open a request; its closing body appears in ``closed_requests``."""
        self.pump(lambda: self.connection.ready)
        request_id, frame = self.connection.request(body)
        self.send(frame)
        return request_id

    def cancel(self, log: TurnLog) -> None:
        """Cancel a turn."""
        (request_id,) = (i for i, known in self.turns.items() if known is log)
        self.send(self.connection.cancel(request_id))

    def grant(self, log: TurnLog, count: int) -> None:
        """Let the worker send that many more items."""
        (request_id,) = (i for i, known in self.turns.items() if known is log)
        self.send(self.connection.grant(request_id, count))

    def settle(self) -> None:
        """A few round trips: whatever the worker was about to send has come by then."""
        for _ in range(5):
            ping = self.request(Ping())
            self.pump(lambda: ping in self.closed_requests)  # noqa: B023 - waited for at once

    def drain(self) -> int:
        """Ask the worker to drain."""
        return self.request(Drain())

    def run_turn(self, agent: Agent) -> TurnLog:
        """A whole turn."""
        log = self.start_turn(agent)
        self.pump(lambda: log.outcome is not None)
        return log

    def send(self, frame: bytes) -> None:
        """Queue a frame."""
        self._out += self._zmtp.encode(frame)

    def pump(self, until: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
        """Carry frames both ways until something is so; fails when it does not come in time."""
        deadline = time.monotonic() + timeout_s
        while not until():
            left = deadline - time.monotonic()
            assert left > 0, "it did not happen in time"
            assert not self.ended, "the worker closed its end"
            self._turn(min(left, _LOOK_S))

    def pump_to_end(self, timeout_s: float = TIMEOUT_S) -> None:
        """Carry frames until the worker closes its end."""
        deadline = time.monotonic() + timeout_s
        while not self.ended:
            left = deadline - time.monotonic()
            assert left > 0, "the worker did not end in time"
            self._turn(left)

    # -- how it works -----------------------------------------------------------------------------

    def _turn(self, timeout_s: float) -> None:
        write = [self.sock] if self._out else []
        readable, writable, _ = select.select([self.sock], write, [], timeout_s)
        if writable:
            sent = self.sock.send(self._out)
            del self._out[:sent]
        if readable:
            try:
                data = self.sock.recv(65_536)
            except ConnectionResetError:
                data = b""
            if not data:
                self.ended = True
                return
            for message in self._zmtp.feed(data):
                for event in self.connection.receive(message):
                    self._on_event(event)
                for frame in self.connection.take_answers():
                    self.send(frame)
            self._out += self._zmtp.outgoing()

    def _on_event(self, event: Any) -> None:
        match event:
            case PeerReady(software=software):
                self.software = software
            case Asked():
                self._serve(event.id, event.body)
            case ItemCame(id=request_id, body=body):
                log = self.turns.get(request_id)
                (log.items if log else self.items.setdefault(request_id, [])).append(body)
                if self.grants:
                    self.send(self.connection.grant(request_id, 1))
            case Replied(id=request_id, body=body):
                self._close(request_id, body)
            case Failed(id=request_id, failure=failure):
                self._close(request_id, failure)
            case CancelCame(id=request_id):
                if request_id in self._open_chats:
                    del self._open_chats[request_id]
                    self.cancelled_chats += 1
                    self.send(self.connection.error(request_id, "cancelled", "as asked"))
            case _:
                pass  # credit: looked at below
        for chat in list(self._open_chats.values()):
            self._stream(chat)

    def _close(self, request_id: int, outcome: Any) -> None:
        self.closed_requests[request_id] = outcome
        if request_id in self.turns:
            self.turns[request_id].outcome = outcome

    def _serve(self, request_id: int, body: Any) -> None:
        if type(body) in self.silent:
            self.unanswered.append(body)
            self.silent_ids.append(request_id)
            return
        refusal = self.refuse.get(type(body))
        if refusal is not None:
            self.send(self.connection.error(request_id, refusal.code, refusal.message, refusal.retry_after_s))
            return
        match body:
            case ProviderChat():
                self.chats.append(body)
                answer = self.answers.pop(0) if self.answers else Answer()
                self._open_chats[request_id] = _Chat(request_id, list(answer.items), answer.end)
                return
            case HttpFetch():
                self.fetches.append(body)
                self.uploads.append(body.body)
                answer = self.fetched.pop(0)
                self._open_chats[request_id] = _Chat(request_id, list(answer.items), answer.end)
                return
            case HttpBody(data=data):
                self.uploads.append(data)
            case SessionLoad():
                for at in range(0, len(self.history), 64):
                    part = History(tuple(self.history[at : at + 64]))
                    self.send(self.connection.item(request_id, part))
            case SessionAppend(messages=messages):
                self.appended += messages
            case StepBegin() | StepEnd():
                self.steps.append(body)
            case ApprovalAsk():
                self.asked.append(body)
            case LogLine():
                self.logs.append(body)
        self.send(self.connection.reply(request_id, Done()))

    def _stream(self, chat: _Chat) -> None:
        while chat.items and self.connection.credit(chat.id) > 0:
            self.send(self.connection.item(chat.id, chat.items.pop(0)))
            self.items_sent += 1
        if chat.items or chat.end is None:
            return
        del self._open_chats[chat.id]
        if isinstance(chat.end, Failure):
            failure = chat.end
            self.send(self.connection.error(chat.id, failure.code, failure.message, failure.retry_after_s))
        else:
            self.send(self.connection.reply(chat.id, chat.end))
