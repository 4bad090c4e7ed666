"""What is attached to a chat's messages, on its way from the user's jail to egress.

Piece by piece, each only when egress has taken the one before: neither core nor the link ever holds
more than a piece of a chat's files. Which file a path means, the jail says; whether it is the picture
that somebody says it is, egress looks for itself.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from actors.calls import CallSpec
from actors.service import UserHandle
from core.egress.messages import ChatFile
from core.errors import LinkError
from core.hub.jail_call import JailCalls
from jail.wire.schema import (
    TEXT_SHOWN_BYTES,
    Attachment,
    Body,
    Failure,
    FileChunk,
    FileInfo,
    FileRead,
    Message,
)

MAX_FILES = 32
MAX_FILES_BYTES = 24 << 20
"""Of one request to a model, the latest first; what is older is only cited."""
_PIECE_BYTES = 128 << 10
_PIECE_S = 30.0
_AT_ONCE = 8
"""The pieces of these are what the link holds at most; the others wait in turn."""

_UNREADABLE = ("not_found", "invalid", "refused", "limit")
"""The file's own faults; it is then left out, and cited."""

Start = Callable[[], None]


def wanted_files(messages: Sequence[Message]) -> list[Attachment]:
    """The files that a request to a model carries: each once, the latest first, within the bounds."""
    found: dict[str, Attachment] = {}
    left = MAX_FILES_BYTES
    for message in reversed(messages):
        for attachment in message.attachments:
            if attachment.path in found or len(found) >= MAX_FILES:
                continue
            left -= _length(attachment)
            if left < 0:
                return list(found.values())
            found[attachment.path] = attachment
    return list(found.values())


def _length(attachment: Attachment) -> int:
    # a little more than is shown, so that egress sees whether it is all
    most = TEXT_SHOWN_BYTES + 4
    return (
        min(attachment.size_bytes, most) if attachment.media_type == "text/plain" else attachment.size_bytes
    )


class _Gathering:
    """One chat's files; the sink of one call after the other. Its steps never overlap."""

    def __init__(
        self,
        calls: JailCalls,
        handle: UserHandle,
        files: Sequence[Attachment],
        send: Callable[[Any], None],
        stream_id: int,
        done: Callable[[], None],
        failed: Callable[[Failure], None],
    ) -> None:
        self._calls = calls
        self._handle = handle
        self._files = deque(files)
        self._send = send
        self._id = stream_id
        self._done, self._failed = done, failed
        self._at = 0
        self._mark = ""
        self._piece = bytearray()
        self._call: CallSpec | None = None
        self.ended = False

    def next(self) -> None:
        """Ask the jail for the next piece, or be done."""
        if self.ended:
            return
        if not self._files:
            self._done()
            return
        file = self._files[0]
        left = _length(file) - self._at
        if left <= 0:
            self._turn_over()
            self.next()
            return
        self._piece.clear()
        read = FileRead(file.path, self._at, min(left, _PIECE_BYTES), self._mark)
        self._call = CallSpec(self._handle, read, self, _PIECE_S)
        try:
            self._calls.call(self._call)
        except LinkError:  # core is stopping: so does the chat
            self.finish(Failure("unavailable", "core is stopping"))

    def end(self) -> None:
        """Nobody wants them any more."""
        self.ended = True
        if self._call is not None:
            self._calls.cancel_call(self._call)

    # -- on the user actor's thread -----------------------------------------------------------------

    def item(self, body: Body) -> None:
        """See :class:`actors.calls.CallSink`. A piece is few items: no credit is needed."""
        if isinstance(body, FileChunk) and len(self._piece) + len(body.data) <= _PIECE_BYTES:
            self._piece += body.data

    def finish(self, outcome: Body | Failure) -> None:
        """See :class:`actors.calls.CallSink`. A file that cannot be read is left out: egress says so."""
        self._call = None
        if self.ended:
            return
        if isinstance(outcome, Failure) and outcome.code not in _UNREADABLE:
            self._failed(outcome)
            return
        file = self._files[0]
        if (
            not isinstance(outcome, FileInfo)
            or not self._piece
            # a part of a picture is none; of a text it is what there was
            or (outcome.size_bytes != file.size_bytes and file.media_type != "text/plain")
        ):
            self._turn_over()
            self.next()
            return
        self._mark = outcome.mark
        self._at += len(self._piece)
        self._send(ChatFile(self._id, file.path, bytes(self._piece)))

    def _turn_over(self) -> None:
        self._files.popleft()
        self._at, self._mark = 0, ""


class Gatherings:
    """Those under way, and those that wait for their turn. Thread-safe."""

    def __init__(self, calls: JailCalls) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        self._running: dict[int, _Gathering] = {}
        self._waiting: dict[int, _Gathering] = {}

    def begin(
        self,
        stream_id: int,
        handle: UserHandle,
        files: Sequence[Attachment],
        send: Callable[[Any], None],
        start: Start,
        failed: Callable[[Failure], None],
    ) -> None:
        """Gather a chat's files, sending each piece by ``send``; then ``start`` is called, or ``failed``."""

        def done() -> None:
            self.end(stream_id)
            start()

        gathering = _Gathering(self._calls, handle, files, send, stream_id, done, failed)
        with self._lock:
            waits = len(self._running) >= _AT_ONCE
            (self._waiting if waits else self._running)[stream_id] = gathering
        if not waits:
            gathering.next()

    def taken(self, stream_id: int) -> None:
        """Egress has the last piece."""
        with self._lock:
            gathering = self._running.get(stream_id)
        if gathering is not None:
            gathering.next()

    def end(self, stream_id: int) -> None:
        """A chat has all its files, or ended before; the next in turn begins. Harmless for any other."""
        following: _Gathering | None = None
        with self._lock:
            gone = self._waiting.pop(stream_id, None) or self._running.pop(stream_id, None)
            if gone is not None and self._waiting and len(self._running) < _AT_ONCE:
                first = next(iter(self._waiting))
                following = self._running[first] = self._waiting.pop(first)
        if gone is not None:
            gone.end()
        if following is not None:
            following.next()

    def end_all(self) -> None:
        """The link is gone, and all chats with it."""
        with self._lock:
            gone = [*self._running.values(), *self._waiting.values()]
            self._running.clear()
            self._waiting.clear()
        for gathering in gone:
            gathering.end()
