"""/v1/files: a user's home, through that user's own jail.

A path is only passed on here: what it means, and whether it means anything, the jail says.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import msgspec
from aiohttp import web

from core.hub.bodies import as_json
from core.hub.errors import HubError, invalid, over_quota
from core.hub.jail_call import JailCall, JailCalls, JailFailure, ask_jail
from core.hub.paths import disposition, encoded, join, query_path, shown
from core.hub.ranges import Part, Unsatisfiable, etag, last_modified, wanted_part
from core.hub.tokens import Verifier, authenticate
from core.hub.uploads import Upload
from core.hub.writing import write
from core.vault.handle import UserHandle
from jail.wire.schema import (
    FileDelete,
    FileEntry,
    FileInfo,
    FileList,
    FileRead,
    FileStat,
)

_ASK_S = 120.0
_TRANSFER_S = 21_600.0
_MAX_AT_ONCE = 6
"""Requests of one user: their actor has 16 calls at once, and an upload has two."""
_CHANGED_TWICE = HubError(409, "the file changes faster than it can be sent", "conflict", retry_after_s=1)


class Files:
    """The handlers. Used on the hub's loop."""

    def __init__(
        self,
        verifier: Verifier,
        calls: JailCalls,
        max_upload_bytes: int,
        excess: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._excess = excess
        self._verifier = verifier
        self._calls = calls
        self._max_upload_bytes = max_upload_bytes
        self._running: Counter[str] = Counter()

    async def look(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/files: a directory's entries, or what lies at a path."""
        handle = await authenticate(request, self._verifier)
        path = query_path(request, ".")
        with self._counted(handle):
            info = await self._stat(handle, path)
            if info.kind == "directory":
                return await self._list(request, handle, path)
        return as_json(_object(path, info))

    async def download(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/files/content: a file, or with Range one part of it."""
        handle = await authenticate(request, self._verifier)
        path = query_path(request)
        with self._counted(handle):
            for _ in range(2):
                info = await self._stat(handle, path)
                if info.kind != "file":
                    raise _no_file(info)
                try:
                    return await self._send(request, handle, path, info)
                except JailFailure as error:
                    if error.failure.code != "invalid":
                        raise
            raise _CHANGED_TWICE

    async def upload(self, request: web.Request) -> web.Response:
        """PUT /v1/files/content: the body becomes the file, whole or not at all."""
        handle = await authenticate(request, self._verifier)
        path = query_path(request)
        if (request.content_length or 0) > self._max_upload_bytes:
            raise self._too_large()
        if what := self._excess(handle.user):
            raise over_quota(what)
        with self._counted(handle):
            new = await self._is_new(handle, path)
            upload = Upload(self._calls, handle, path, secrets.token_hex(8))
            async with upload:
                async for data in _body(request):
                    if upload.size_bytes + len(data) > self._max_upload_bytes:
                        raise self._too_large()
                    await upload.add(data)
                await upload.finish()
            info = await self._stat(handle, path)
        return as_json(_object(path, info), 201 if new else 200)

    async def delete(self, request: web.Request) -> web.Response:
        """DELETE /v1/files: a file, or with ``recursive=true`` a directory and all in it."""
        handle = await authenticate(request, self._verifier)
        path = query_path(request)
        value = request.query.get("recursive", "false").lower()
        if value not in ("true", "false", "1", "0"):
            raise invalid("`recursive` is true or false", "invalid_value", "recursive")
        with self._counted(handle):
            await ask_jail(self._calls, handle, FileDelete(path, value in ("true", "1")), _ASK_S)
        return as_json({"object": "file", "path": shown(path), "deleted": True})

    # -- parts -----------------------------------------------------------------------------------------

    @contextmanager
    def _counted(self, handle: UserHandle) -> Iterator[None]:
        if self._running[handle.user] >= _MAX_AT_ONCE:
            raise HubError(
                429, f"{_MAX_AT_ONCE} requests for your files run already: wait for one to end",
                "too_many_requests", retry_after_s=1,
            )  # fmt: skip
        self._running[handle.user] += 1
        try:
            yield
        finally:
            self._running[handle.user] -= 1
            if not self._running[handle.user]:
                del self._running[handle.user]

    async def _stat(self, handle: UserHandle, path: str) -> FileInfo:
        info: FileInfo = await ask_jail(self._calls, handle, FileStat(path), _ASK_S)
        return info

    async def _is_new(self, handle: UserHandle, path: str) -> bool:
        """Whether an upload makes a file; refuses early what it cannot replace."""
        try:
            info = await self._stat(handle, path)
        except JailFailure as error:
            if error.failure.code != "not_found":
                raise
            return True
        if info.kind in ("directory", "other"):
            raise _no_file(info)
        return False

    def _too_large(self) -> HubError:
        limit = self._max_upload_bytes
        return HubError(413, f"an upload has at most {limit} bytes on this server", "body_too_large")

    async def _list(self, request: web.Request, handle: UserHandle, path: str) -> web.StreamResponse:
        """Written as it comes: a directory may have any number of entries."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        head = {"object": "list", "path": shown(path), "path_encoded": encoded(path), "data": []}
        first = msgspec.json.encode(head)[:-2]
        with whole_or_broken(request, response):
            async with JailCall(self._calls, handle, FileList(path), _TRANSFER_S) as call:
                async for item in call:
                    rows = [_row(path, entry) for entry in item.entries]
                    await write(request, response, first + b",".join(rows))
                    first = b","
        if first != b",":
            await write(request, response, first)
        await write(request, response, b"]}")
        await response.write_eof()
        return response

    async def _send(
        self, request: web.Request, handle: UserHandle, path: str, info: FileInfo
    ) -> web.StreamResponse:
        size, tag, modified = info.size_bytes, etag(info.mark), last_modified(info.modified_s)
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Disposition": disposition(path),
            "Accept-Ranges": "bytes",
            "ETag": tag,
            "Last-Modified": modified,
        }
        ranges = request.headers.getall("Range", [])
        try:
            part = wanted_part(
                ranges[0] if len(ranges) == 1 else None, request.headers.get("If-Range"), size, tag, modified
            )
        except Unsatisfiable:
            raise HubError(
                416, f"the file has {size} bytes", "range_not_satisfiable", param="Range",
                headers={"Content-Range": f"bytes */{size}"},
            ) from None  # fmt: skip
        if part is not None:
            headers["Content-Range"] = f"bytes {part.first}-{part.first + part.length - 1}/{size}"
        whole = part or Part(0, size)
        response = web.StreamResponse(status=206 if part else 200, headers=headers)
        response.content_length = whole.length
        if request.method != "HEAD":
            await self._copy(request, response, handle, FileRead(path, *whole, info.mark))
        elif not response.prepared:
            await response.prepare(request)
        await response.write_eof()
        return response

    async def _copy(
        self, request: web.Request, response: web.StreamResponse, handle: UserHandle, read: FileRead
    ) -> None:
        """Exactly what was announced, or the connection ends: the file was cut, or the jail did."""
        left = read.length or 0
        with whole_or_broken(request, response):
            async with JailCall(self._calls, handle, read, _TRANSFER_S) as call:
                async for chunk in call:
                    left -= len(chunk.data)
                    if left < 0:
                        break  # no honest worker sends more than it was asked for
                    await write(request, response, chunk.data)
            if left:
                raise HubError(502, "the file changed while it was read; try again", "worker")
        if not response.prepared:
            await response.prepare(request)


@contextmanager
def whole_or_broken(request: web.Request, response: web.StreamResponse) -> Iterator[None]:
    """A failure after the first byte ends the connection: the client must not take a part for all."""
    try:
        yield
    except HubError as error:
        if not response.prepared:
            raise
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError(f"an answer ended early: {error.code}") from None


async def _body(request: web.Request) -> AsyncIterator[bytes]:
    """A request's body in pieces; HubError 408, 415."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise HubError(415, "send the body uncompressed", "unsupported_encoding")
    while True:
        try:
            async with asyncio.timeout(60.0):
                data = await request.content.readany()
        except TimeoutError:
            raise HubError(408, "the body did not come in time", "request_timeout") from None
        if not data:
            return
        yield data


def _no_file(info: FileInfo) -> HubError:
    what = {"directory": "a directory: list it with GET /v1/files", "link": "a link that leads nowhere"}
    said = what.get(info.kind, "a FIFO, a device or a socket")
    return HubError(400, f"this is no file but {said}", "not_a_file", param="path")


def _row(directory: str, entry: FileEntry) -> bytes:
    try:
        return msgspec.json.encode(_entry(directory, entry))
    except ValueError:
        raise HubError(502, "your jail told a name that no file can have; try again", "worker") from None


def _entry(directory: str, entry: FileEntry) -> dict[str, object]:
    return {"name": shown(entry.name), **_object(join(directory, entry.name), entry.info)}


def _object(path: str, info: FileInfo) -> dict[str, object]:
    return {
        "object": "file",
        "path": shown(path),
        "path_encoded": encoded(path),
        "kind": info.kind,
        "size_bytes": info.size_bytes,
        "modified_s": info.modified_s,
    }
