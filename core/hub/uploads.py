"""A file on its way into a user's jail: in chunks, a few of them ahead of their answers."""

import contextlib
from collections import deque
from types import TracebackType

from core.hub.errors import HubError
from core.hub.jail_call import JailCall, JailCalls, JailFailure
from core.vault.handle import UserHandle
from jail.wire.schema import FileWrite

_CHUNK_BYTES = 64 << 10
_AHEAD = 2
_CHUNK_S = 120.0
_STATUS = {"limit": 413, "invalid": 400}


class Upload:
    """One upload, used on the loop as a context manager: left before :meth:`finish`, it is undone.

    Args:
        name: 16 hex digits that no other upload under way has.
    """

    def __init__(self, calls: JailCalls, handle: UserHandle, path: str, name: str) -> None:
        self._calls = calls
        self._handle = handle
        self._path = path
        self._name = name
        self._buffer = bytearray()
        self._sent_bytes = 0
        self._waiting: deque[JailCall] = deque()
        self._taken = False
        self._finished = False

    @property
    def size_bytes(self) -> int:
        """What was added so far."""
        return self._sent_bytes + len(self._buffer)

    async def __aenter__(self) -> "Upload":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            self._drop()

    async def add(self, data: bytes) -> None:
        """Take some bytes; waits while the jail is behind. HubError where it refuses."""
        self._buffer += data
        while len(self._buffer) >= _CHUNK_BYTES:
            with memoryview(self._buffer) as view:
                chunk = bytes(view[:_CHUNK_BYTES])
            del self._buffer[:_CHUNK_BYTES]
            await self._send(chunk, last=False)

    async def finish(self) -> None:
        """Send what is left; returns once the file stands."""
        await self._send(bytes(self._buffer), last=True)
        while self._waiting:
            await self._settle()
        self._finished = True

    async def _send(self, data: bytes, last: bool) -> None:
        while len(self._waiting) >= _AHEAD:
            await self._settle()
        chunk = FileWrite(self._path, self._name, self._sent_bytes, data, last)
        self._waiting.append(JailCall(self._calls, self._handle, chunk, _CHUNK_S))
        self._sent_bytes += len(data)

    async def _settle(self) -> None:
        try:
            await self._waiting[0].reply()
        except JailFailure as error:
            failure = error.failure
            if self._taken and failure.code == "not_found":
                # the jail that took the beginning is gone, and the next one knows nothing of it
                raise HubError(502, "your jail ended in mid-upload; try again", "worker") from None
            status = _STATUS.get(failure.code, error.status)
            raise HubError(status, failure.message, failure.code, headers=error.headers) from None
        self._waiting.popleft().close()
        self._taken = True

    def _drop(self) -> None:
        for call in self._waiting:
            call.close()
        if self._sent_bytes or self._waiting:
            drop = FileWrite(self._path, self._name, 0, b"", last=False, drop=True)
            with contextlib.suppress(HubError):  # core is stopping, and takes the jail along
                JailCall(self._calls, self._handle, drop, _CHUNK_S)  # nobody waits for its answer
