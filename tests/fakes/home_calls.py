"""Jails of one verb family: file requests done on directories of the test's, by the worker's own code."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from actors.calls import CallSpec
from jail.peer.home import FileRefused, Home, explain
from jail.peer.uploads import Uploads
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import (
    Body,
    Done,
    Failure,
    FileChunk,
    FileDelete,
    FileEntries,
    FileList,
    FileRead,
    FileStat,
    FileWrite,
)

WAIT_S = 10.0
Answer = Callable[[Any], Body | Failure | Iterator[Body]]


class HomeCalls:
    """Implements core.hub.jail_call.JailCalls; ``instead`` answers in place of the worker's code."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._credit: dict[int, threading.Semaphore] = {}
        self._threads: list[threading.Thread] = []
        self._uploads: dict[str, Uploads] = {}
        self._writers: dict[str, ThreadPoolExecutor] = {}
        self.instead: Answer | None = None
        self.asked: list[tuple[str, Body]] = []
        self.cancelled: set[int] = set()

    def home(self, user: str) -> Path:
        home = self._directory / user / "home"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def parts(self, user: str) -> list[str]:
        """Temporary files of uploads."""
        directory = self.home(user) / ".certosa" / "uploads"
        return os.listdir(directory) if directory.exists() else []

    def call(self, spec: CallSpec) -> None:
        with self._lock:
            self.asked.append((spec.handle.user, spec.body))
            self._credit[spec.name] = threading.Semaphore(STREAM_WINDOW)
            if isinstance(spec.body, FileWrite):
                self._writer(spec.handle.user).submit(self._answer, spec)
                return
        thread = threading.Thread(target=self._answer, args=(spec,))
        self._threads.append(thread)
        thread.start()

    def grant_call(self, spec: CallSpec, count: int) -> None:
        self._credit[spec.name].release(count)

    def cancel_call(self, spec: CallSpec) -> None:
        self.cancelled.add(spec.name)
        self._credit[spec.name].release(1_000)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.shutdown()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        for uploads in self._uploads.values():
            uploads.drop_all()

    def _answer(self, spec: CallSpec) -> None:
        spec.sink.finish(self._outcome(spec))

    def _outcome(self, spec: CallSpec) -> Body | Failure:
        try:
            answer = self._act(spec)
            if isinstance(answer, Body):
                return answer
            for item in answer:
                assert self._credit[spec.name].acquire(timeout=WAIT_S), "no credit came"
                if spec.name in self.cancelled:
                    return Failure("cancelled", "it was cancelled")
                spec.sink.item(item)
            return self._closing(spec)
        except FileRefused as refused:
            return Failure(refused.code, refused.message)
        except OSError as error:
            said = explain(error)
            return Failure(said.code, said.message)

    def _closing(self, spec: CallSpec) -> Body:
        body = spec.body
        home = Home(str(self.home(spec.handle.user)))
        return home.stat(body.path) if isinstance(body, FileRead) else Done()

    def _act(self, spec: CallSpec) -> Any:
        if self.instead is not None:
            return self.instead(spec.body)
        user = spec.handle.user
        home = Home(str(self.home(user)))
        match spec.body:
            case FileStat(path=path):
                return home.stat(path)
            case FileList(path=path):
                return (FileEntries(batch) for batch in home.entries(path))
            case FileDelete(path=path, recursive=recursive):
                home.delete(path, recursive)
                return Done()
            case FileRead():
                return _chunks(home, spec.body)
            case FileWrite():
                self._uploads.setdefault(user, Uploads(home)).write(spec.body)
                return Done()
        raise TypeError(f"no file verb: {type(spec.body).__name__}")

    def _writer(self, user: str) -> ThreadPoolExecutor:
        """One thread: chunks are written in the order asked."""
        return self._writers.setdefault(user, ThreadPoolExecutor(1))


def _chunks(home: Home, read: FileRead) -> Iterator[FileChunk]:
    fd, info = home.open(read.path)
    try:
        if read.mark and read.mark != info.mark:
            raise FileRefused("invalid", "the file has changed")
        at = read.offset
        end = info.size_bytes if read.length is None else at + read.length
        while at < end and (data := os.pread(fd, min(65_536, end - at), at)):
            at += len(data)
            yield FileChunk(data)
    finally:
        os.close(fd)
