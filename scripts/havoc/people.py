"""The people of a chaos test: each asks for one turn after the other and reads it to its end.

They behave as a patient page does: what fails for want of a server is tried again, a start with the
same key, a stream from the last event that came.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from scripts.havoc.turns import ENDS, Json, Turn
from tests.fakes.browser import Browser, CutError, RefusedError

PATIENCE_S = 120.0
"""How long a person tries; a turn that is not over then is lost."""
_KEPT_S = 30.0
"""How long it may take to read what is over."""
_AGAIN_S = 0.2
_NOT_NOW = frozenset((429, 503, 507))
_GONE = (OSError, EOFError, CutError, TimeoutError)


class Person:
    """One user of the server's."""

    def __init__(self, name: str, browser: Browser, wishes: Iterator[Turn]) -> None:
        self.name, self.browser = name, browser
        self.turns: list[Turn] = []
        self.faults: list[str] = []
        self._wishes = wishes

    async def live(self, over: Callable[[], bool]) -> None:
        """Ask and read until it is over."""
        while not over():
            await self.take(next(self._wishes))

    async def take(self, turn: Turn) -> None:
        """Ask for a turn and read it to its end."""
        self.turns.append(turn)
        try:
            async with asyncio.timeout(PATIENCE_S):
                if await self._ask(turn):
                    await self._read(turn)
        except TimeoutError:
            self.faults.append(f"{turn.key} ({turn.kind}): not over after {PATIENCE_S:.0f} s")

    async def _ask(self, turn: Turn) -> bool:
        body = {"text": turn.text, "agent": turn.agent, "key": turn.key}
        while True:
            turn.asked_often += 1
            try:
                status, answer = await self.browser.call("POST", f"/v1/sessions/{turn.session}/turns", body)
            except _GONE:
                await asyncio.sleep(_AGAIN_S)
                continue
            if status in (200, 202):
                turn.id = str(answer["id"])
                return True
            if status not in _NOT_NOW:
                turn.refused = f"{status} {answer['error']['code']}"
                self.faults.append(f"{turn.key} ({turn.kind}): refused with {turn.refused}")
                return False
            await asyncio.sleep(_AGAIN_S)

    async def _read(self, turn: Turn) -> None:
        while not turn.is_over:
            try:
                async with self._events(turn) as events:
                    async for event in events:
                        self._take_event(turn, event)
                        if event["type"] in ENDS:
                            return
                turn.cuts += 1
            except RefusedError as refused:
                if refused.status not in (204, *_NOT_NOW):
                    self.faults.append(f"{turn.key}: its events are refused with {refused.status}")
                    return
            except _GONE:
                turn.cuts += 1
            await asyncio.sleep(_AGAIN_S)

    @asynccontextmanager
    async def _events(self, turn: Turn) -> AsyncIterator[AsyncIterator[Json]]:
        async def read() -> AsyncIterator[Json]:
            while (found := await stream.read()) is not None:
                yield found[1]

        async with self.browser.stream(turn.session, f"?after={turn.last_id}&until=idle") as stream:
            yield read()

    def _take_event(self, turn: Turn, event: Json) -> None:
        if event["id"] <= turn.last_id:
            self.faults.append(f"{turn.key}: event {event['id']} came after {turn.last_id}")
        turn.events.append(event)


async def everything(person: Person, turn: Turn) -> tuple[list[Json], list[Json]]:
    """A turn's events as they are kept, and its session's messages.

    Raises AssertionError, RefusedError, CutError, OSError, and TimeoutError where the session is never idle.
    """
    async with asyncio.timeout(_KEPT_S), person.browser.stream(turn.session, "?after=0&until=idle") as stream:
        events = await stream.rest()
    status, found = await person.browser.call("GET", f"/v1/sessions/{turn.session}")
    assert status == 200, f"{turn.session} cannot be read: {status}"
    return events, found["data"]
