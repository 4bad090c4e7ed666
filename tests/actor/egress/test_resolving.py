"""Look-ups of names: in threads of their own, bounded, and nobody waits behind another's."""

import asyncio
import threading

import pytest

from core.egress.fetch_stream import FetchError
from core.egress.resolving import Resolver
from tests.fakes.outside_world import LIMIT_S, run


def test_one_users_slow_names_hold_up_nobody_else() -> None:
    answer = threading.Event()

    def slow(host: str, port: int) -> list[str]:
        if host.startswith("slow"):
            assert answer.wait(LIMIT_S)
        return [f"93.184.216.{port % 256}"]

    async def work() -> None:
        resolver = Resolver(slow)
        try:
            waiting = [asyncio.ensure_future(resolver.resolve("alice", f"slow{n}", 1)) for n in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(FetchError, match="slow to resolve"):
                await resolver.resolve("alice", "quick.example", 1)
            assert await resolver.resolve("alice", "10.0.0.1", 1) == ["10.0.0.1"]
            assert await resolver.resolve("bob", "quick.example", 7) == ["93.184.216.7"]
            waiting[0].cancel()  # its thread is still out there
            await asyncio.sleep(0)
            with pytest.raises(FetchError):
                await resolver.resolve("alice", "quick.example", 1)
        finally:
            answer.set()
        done = await asyncio.gather(*waiting, return_exceptions=True)
        assert done[1:] == [["93.184.216.1"]] * 3
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    assert await resolver.resolve("alice", "quick.example", 9) == ["93.184.216.9"]
                    return
                except FetchError:
                    await asyncio.sleep(0.01)

    run(work())


def test_a_name_that_is_none_is_an_error() -> None:
    def none(host: str, port: int) -> list[str]:
        raise OSError("Name or service not known")

    async def work() -> None:
        with pytest.raises(OSError, match="not known"):
            await Resolver(none).resolve("alice", "no.example", 1)
        assert await Resolver().resolve("alice", "localhost", 1)

    run(work())
