"""A call of the hub's to a jail holds what was sent with it no longer than it lasts."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from actors.calls import CallSpec
from core.hub.jail_call import JailCall, ask_jail
from core.vault.handle import UserHandle
from core.vault.standing import Standings
from jail.wire.schema import Done, FileWrite


class AnsweringCalls:
    """Jails that answer at once."""

    def __init__(self) -> None:
        self.calls: list[weakref.ref[JailCall]] = []

    def call(self, spec: CallSpec) -> None:
        assert isinstance(spec.sink, JailCall)
        self.calls.append(weakref.ref(spec.sink))
        spec.sink.finish(Done())

    def grant_call(self, spec: CallSpec, count: int) -> None:
        raise AssertionError("there are no items")

    def cancel_call(self, spec: CallSpec) -> None:
        raise AssertionError("it is over")


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_call_that_is_over_goes_without_the_garbage_collector() -> None:
    """An upload of 100 MB would otherwise keep hundreds of its chunks until the collector comes by."""
    calls = AnsweringCalls()
    handle = UserHandle("alice", bytes(32), Standings().of("alice"))

    async def main() -> None:
        for _ in range(3):
            await ask_jail(calls, handle, FileWrite("x", "0" * 16, 0, b"data", last=True), 5.0)

    asyncio.run(main())
    assert [call() for call in calls.calls] == [None] * 3
