"""Serves core's file verbs: the work on threads of its own, the answers in order and within credit."""

import asyncio
import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jail.peer.edge import Edge
from jail.peer.home import FileRefused, Home, explain
from jail.peer.uploads import Uploads
from jail.wire.schema import (
    Body,
    Done,
    FileChunk,
    FileDelete,
    FileEntries,
    FileInfo,
    FileList,
    FileRead,
    FileStat,
    FileWrite,
)

FileVerb = FileList | FileStat | FileRead | FileWrite | FileDelete
_T = TypeVar("_T")

_THREADS = 2  # apart from the tools': neither waits for the other's disk
_CHUNK_BYTES = 64 << 10
_SWEEP_S = 60.0


class _Cancelled(Exception):
    """Core no longer wants the answer."""


@dataclass(slots=True)
class _Answering:
    """One request of core's under way."""

    cancelled: bool = False
    moved: asyncio.Event = field(default_factory=asyncio.Event)


class Files:
    """All but the file work itself runs on the loop's thread.

    Args:
        home: the directory that is the tree's root.
        edge: where answers go.
        on_idle: called when a request is over and none is left.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, home: str, edge: Edge, on_idle: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._edge = edge
        self._on_idle = on_idle
        self._home = Home(home)
        self._uploads = Uploads(self._home)
        self._writing: dict[str, asyncio.Lock] = {}
        self._open: dict[int, _Answering] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="files")
        self._sweep = loop.call_later(_SWEEP_S, self._forget_idle)

    @property
    def busy(self) -> bool:
        """Whether a request is under way."""
        return bool(self._open)

    def serve(self, request_id: int, body: FileVerb) -> None:
        """Begin to work on a request."""
        self._open[request_id] = _Answering()
        task = self._loop.create_task(self._run(request_id, body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def on_credit(self, request_id: int) -> None:
        """More items may be sent."""
        if (answering := self._open.get(request_id)) is not None:
            answering.moved.set()

    def on_cancel(self, request_id: int) -> None:
        """Stop as soon as the work lets us."""
        if (answering := self._open.get(request_id)) is not None:
            answering.cancelled = True
            answering.moved.set()

    def close(self) -> None:
        """Leave nothing half done: uploads under way are forgotten."""
        self._sweep.cancel()
        for task in self._tasks:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._uploads.drop_all()

    # -- answering ----------------------------------------------------------------------------------

    async def _run(self, request_id: int, body: FileVerb) -> None:
        try:
            reply = await self._answer(request_id, body)
        except FileRefused as refused:
            self._edge.error(request_id, refused.code, refused.message)
        except OSError as error:
            said = explain(error)
            self._edge.error(request_id, said.code, said.message)
        except _Cancelled:
            self._edge.error(request_id, "cancelled", "no longer wanted")
        except Exception as error:  # noqa: BLE001 - a bug in one request must not end the turns
            traceback.print_exception(error, file=sys.stderr)
            message = f"the worker failed inside the jail: {type(error).__name__}"
            self._edge.error(request_id, "worker", message)
        else:
            self._edge.reply(request_id, reply)
        del self._open[request_id]
        if not self._open:
            self._on_idle()

    async def _answer(self, request_id: int, body: FileVerb) -> Body:
        match body:
            case FileStat(path=path):
                return await self._on_thread(self._home.stat, path)
            case FileDelete(path=path, recursive=recursive):
                await self._on_thread(self._home.delete, path, recursive)
                return Done()
            case FileList(path=path):
                await self._list(request_id, path)
                return Done()
            case FileRead():
                return await self._read(request_id, body)
            case FileWrite():
                await self._write(request_id, body)
                return Done()

    async def _list(self, request_id: int, path: str) -> None:
        batches = self._home.entries(path)
        try:
            while (batch := await self._on_thread(next, batches, None)) is not None:
                await self._send(request_id, FileEntries(batch))
        finally:
            with contextlib.suppress(ValueError):  # at the worker's end a thread may still be in it
                batches.close()

    async def _read(self, request_id: int, body: FileRead) -> FileInfo:
        fd, info = await self._on_thread(self._home.open, body.path)
        try:
            if body.mark and body.mark != info.mark:
                raise FileRefused("invalid", "the file has changed: ask again")
            at = body.offset
            end = info.size_bytes if body.length is None else min(info.size_bytes, at + body.length)
            while at < end:
                data = await self._on_thread(os.pread, fd, min(_CHUNK_BYTES, end - at), at)
                if not data:
                    break  # cut since: core sees that it got less
                at += len(data)
                await self._send(request_id, FileChunk(data))
        finally:
            os.close(fd)
        return info

    async def _write(self, request_id: int, body: FileWrite) -> None:
        # a lock wakes its waiters in their order, which is that of the chunks
        lock = self._writing.setdefault(body.upload, asyncio.Lock())
        async with lock:
            if self._open[request_id].cancelled:
                await self._on_thread(self._uploads.drop, body.upload)
                raise _Cancelled
            try:
                await self._on_thread(self._uploads.write, body)
            finally:
                if not self._uploads.known(body.upload):
                    self._writing.pop(body.upload, None)

    async def _send(self, request_id: int, item: Body) -> None:
        answering = self._open[request_id]
        while not answering.cancelled and self._edge.credit(request_id) <= 0:
            answering.moved.clear()
            await answering.moved.wait()
        if answering.cancelled:
            raise _Cancelled
        self._edge.item(request_id, item)

    async def _on_thread(self, work: Callable[..., _T], *arguments: Any) -> _T:
        return await self._loop.run_in_executor(self._threads, work, *arguments)

    def _forget_idle(self) -> None:
        self._sweep = self._loop.call_later(_SWEEP_S, self._forget_idle)
        self._threads.submit(self._uploads.drop_idle)
