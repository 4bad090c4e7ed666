"""The session a turn works on: a stored one, or one that lives as long as the turn."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from core.sessions.recovery import StepCall, StepRow
from core.vault.handle import UserHandle
from jail.wire.schema import Message

_MAX_TURN_BYTES = 64 << 20
_MAX_TURN_RECORDS = 20_000
"""What one turn's worker may have kept: it isn't trusted to stop."""
_STEPS = 256
"""Of a session that is not kept, for a report of what was done."""


class Allowance:
    """Counts what a turn has stored; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = 0
        self._records = 0

    def take(self, size_bytes: int, records: int) -> bool:
        """Whether that much more may be kept."""
        with self._lock:
            self._bytes += size_bytes
            self._records += records
            return self._bytes <= _MAX_TURN_BYTES and self._records <= _MAX_TURN_RECORDS


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A named session in its owner's database."""

    handle: UserHandle
    session_id: str
    turn: str
    allowance: Allowance = field(default_factory=Allowance)

    @property
    def owner(self) -> str:
        """Whose session it is."""
        return self.handle.user


class EphemeralSession:
    """What the client sent, and what the turn adds; kept for nobody. Thread-safe."""

    def __init__(self, owner: str, turn: str, messages: Sequence[Message]) -> None:
        self.owner = owner
        self.turn = turn
        self.allowance = Allowance()
        self._messages = list(messages)
        self._steps: OrderedDict[int, StepRow] = OrderedDict()
        self._lock = threading.Lock()

    def append(self, messages: Sequence[Message]) -> None:
        """Add messages in order."""
        with self._lock:
            self._messages += messages

    def begin_step(self, step: int, call: StepCall) -> None:
        """Note a tool call that begins; the last of them are remembered."""
        with self._lock:
            self._steps[step] = StepRow(step, "begun", StepCall(call.tool, ""))
            if len(self._steps) > _STEPS:
                self._steps.popitem(last=False)

    def end_step(self, step: int, ok: bool) -> None:
        """Note how it ended."""
        with self._lock:
            if (row := self._steps.get(step)) is not None:
                self._steps[step] = row._replace(state="ok" if ok else "failed")

    def steps(self) -> list[StepRow]:
        """Those remembered, in order."""
        with self._lock:
            return list(self._steps.values())

    def messages(self) -> tuple[Message, ...]:
        """All of them, oldest first."""
        with self._lock:
            return tuple(self._messages)


Session = StoredSession | EphemeralSession


def message_bytes(message: Message) -> int:
    """About what a message takes on the wire, in bytes of UTF-8."""
    size = len(message.text.encode()) + 64
    for call in message.tool_calls:
        size += len(call.arguments.encode()) + len(call.name) + len(call.id) + 48
    for attachment in message.attachments:
        size += len(attachment.path.encode()) + 64
    return size
