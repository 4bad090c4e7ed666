"""SIGUSR1 in core and egress: the tasks of the loop and the actors' mailboxes, beside the stacks.

No text, token or key stands in it: names, numbers, states, and lines of this program.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pykka
import structlog

from jail.host.dumping import Dump

_STATE_S = 10.0
_log = structlog.get_logger()


class StateDump:
    """A process's answer to SIGUSR1; made on its running loop, on the main thread.

    Args:
        path: the file.
        state: what else there is to say; may take a while, and is given up after 10 s.
    """

    def __init__(self, path: Path, state: Callable[[], Coroutine[Any, Any, Mapping[str, Any]]]) -> None:
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._loop.add_signal_handler(signal.SIGUSR1, self._begin)
        self._dump = Dump(path)
        self._dump.arm()

    def close(self) -> None:
        """No more of it."""
        self._dump.disarm()
        self._loop.remove_signal_handler(signal.SIGUSR1)
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._run(), name="state-dump")

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(_STATE_S):
                more = dict(await self._state())
        except Exception as error:  # noqa: BLE001 - what there is, is written all the same
            more = {"state": f"not known: {type(error).__name__}"}
        actors = await asyncio.to_thread(_actors)
        self._dump.write({"actors": actors, **more}, _tasks(self._loop))
        _log.info("state_dumped", path=str(self._dump.path))


def _actors() -> list[dict[str, Any]]:
    found = []
    for ref in pykka.ActorRegistry.get_all():
        actor = ref._actor_weakref()
        name = getattr(actor, "name", "") if actor is not None else ""
        found.append(
            {
                "actor": name,
                "class": ref.actor_class.__name__,
                "alive": ref.is_alive(),
                "mailbox": ref.actor_inbox.qsize(),  # type: ignore[attr-defined]  # see actors.base
            }
        )
    return sorted(found, key=lambda entry: str(entry["actor"]))


def _tasks(loop: asyncio.AbstractEventLoop) -> Iterator[str]:
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        text = StringIO()
        text.write(f"-- task {task.get_name()}\n")
        # the frames alone: a task's own repr could show its arguments
        for frame in task.get_stack(limit=12):
            text.write(f"   {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}\n")
        yield text.getvalue().rstrip()
