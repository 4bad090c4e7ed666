"""What runs for core by an id of core's: a stream and the task that fills it, ended by either side."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Generic, NamedTuple, Protocol, TypeVar

_CLOSE_S = 2.0


class Credited(Protocol):
    """A stream that core takes items of."""

    def grant(self, count: int) -> None:
        """Core takes ``count`` more items."""
        ...

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present."""
        ...


S = TypeVar("S", bound=Credited)


class _Entry(NamedTuple, Generic[S]):
    user: str
    stream: S
    task: "asyncio.Task[None]"


class Running(Generic[S]):
    """The streams that run, by id. On the loop's thread only. Its length counts those that end, too."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[S]] = {}
        self._ending: set[asyncio.Task[None]] = set()  # cancelled, and not gone yet
        self._per_user: Counter[str] = Counter()
        self._open = True

    def __len__(self) -> int:
        return len(self._entries) + len(self._ending)

    def __contains__(self, id_: int) -> bool:
        return id_ in self._entries

    def of(self, user: str) -> int:
        """How many are a user's, those that end among them."""
        return self._per_user[user]

    def get(self, id_: int) -> S | None:
        """A stream that runs."""
        entry = self._entries.get(id_)
        return None if entry is None else entry.stream

    def streams(self) -> list[tuple[int, S]]:
        """Each id with its stream."""
        return [(id_, entry.stream) for id_, entry in self._entries.items()]

    def tasks(self) -> set["asyncio.Task[None]"]:
        """Of all that run or end."""
        return {*(entry.task for entry in self._entries.values()), *self._ending}

    def begin(self, id_: int, user: str, stream: S, run: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        """Run ``run`` for a stream; the id must be free."""
        stream.set_open(self._open)
        self._per_user[user] += 1
        task = asyncio.get_running_loop().create_task(run)
        self._entries[id_] = _Entry(user, stream, task)
        task.add_done_callback(lambda done: self._gone(id_, user, done))
        return task

    def credit(self, id_: int, count: int) -> None:
        """More items may come; nothing happens where it has ended."""
        stream = self.get(id_)
        if stream is not None and count > 0:
            stream.grant(count)

    def cancel(self, id_: int) -> S | None:
        """Stop one at once; returns its stream, None where it has ended."""
        entry = self._entries.pop(id_, None)
        if entry is None:
            return None
        self._ending.add(entry.task)
        entry.task.cancel()
        return entry.stream

    def over(self, id_: int) -> None:
        """It is about to say its last: from here on neither credit nor cancel has a meaning."""
        self._entries.pop(id_, None)

    def set_open(self, is_open: bool) -> None:
        """Whether the link takes anything at present."""
        self._open = is_open
        for _, stream in self.streams():
            stream.set_open(is_open)

    async def close(self) -> None:
        """Stop all, without a word to core."""
        tasks = self.tasks()
        self._entries.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)

    def _gone(self, id_: int, user: str, task: "asyncio.Task[None]") -> None:
        self._ending.discard(task)
        entry = self._entries.get(id_)
        if entry is not None and entry.task is task:
            del self._entries[id_]
        self._per_user[user] -= 1
        if not self._per_user[user]:
            del self._per_user[user]


def crash_site(error: BaseException) -> list[str]:
    """Where an error happened, the innermost place last, and nothing of its words or values."""
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        frames.append(f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return frames[-8:]
