"""The hub as an actor: its place in the tree. The HTTP work itself is on the event loop."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from actors.base import Actor, Ref
from actors.observer import Observer

_START_S = 30.0
_STOP_S = 18.0

Act = Callable[[], Coroutine[Any, Any, None]]


class HubActor(Actor):
    """Serves while it lives: a hub that cannot start fails the tree above it.

    Args:
        loop: the event loop the hub runs on; not this actor's thread.
        start: opens the listeners.
        stop: closes them; harmless when they are.
    """

    def __init__(
        self,
        name: str,
        parent: Ref | None,
        observer: Observer,
        *,
        loop: asyncio.AbstractEventLoop,
        start: Act,
        stop: Act,
    ) -> None:
        super().__init__(name, parent, observer)
        self._loop = loop
        self._start_hub = start
        self._stop_hub = stop

    def setup(self) -> None:
        """Open the listeners."""
        self._run(self._start_hub, _START_S)

    def teardown(self) -> None:
        """Close them."""
        self._run(self._stop_hub, _STOP_S)

    def _run(self, act: Act, timeout_s: float) -> None:
        asyncio.run_coroutine_threadsafe(act(), self._loop).result(timeout_s)
