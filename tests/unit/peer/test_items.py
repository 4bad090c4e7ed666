"""Items wait for credit, in order, and text that waits is merged."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from jail.peer.items import ItemQueue
from jail.wire.schema import Delta, Notice, ToolEnded, TurnItem


class Line:
    """A core that takes as many items as it has credit for."""

    def __init__(self, credit: int) -> None:
        self.left = credit
        self.got: list[Any] = []
        self.queue = ItemQueue(lambda: self.left, self._send)

    def _send(self, item: TurnItem) -> None:
        assert self.left > 0
        self.left -= 1
        self.got.append(item)

    def grant(self, count: int) -> None:
        """More credit."""
        self.left += count
        self.queue.pump()


def test_with_credit_everything_leaves_at_once_as_it_is() -> None:
    line = Line(9)
    for text in ("a", "b"):
        line.queue.add(Delta(text))

    assert line.got == [Delta("a"), Delta("b")]


def test_what_waits_is_merged_but_not_across_other_items_or_kinds() -> None:
    line = Line(0)
    for item in (
        Delta("a"),
        Delta("b"),
        Delta(reasoning="r"),
        Delta(reasoning="s"),
        Delta("c"),
        Notice("n"),
        Delta("d"),
    ):
        line.queue.add(item)

    line.grant(99)

    assert line.got == [
        Delta("ab"),
        Delta(reasoning="rs"),
        Delta("c"),
        Notice("n"),
        Delta("d"),
    ]


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(max_size=30), st.booleans(), st.integers(0, 2)), max_size=40))
def test_no_text_is_lost_or_reordered(steps: list[tuple[str, bool, int]]) -> None:
    line = Line(1)
    for text, reasoning, grant in steps:
        line.queue.add(Delta(reasoning=text) if reasoning else Delta(text))
        line.grant(grant)
    line.grant(100)

    assert line.queue.waiting == 0
    assert "".join(i.text for i in line.got) == "".join(t for t, r, _ in steps if not r)
    assert "".join(i.reasoning for i in line.got) == "".join(t for t, r, _ in steps if r)


def test_past_its_bound_whoever_produces_waits_until_credit_comes() -> None:
    async def scene() -> None:
        line = Line(0)
        put = asyncio.ensure_future(line.queue.put(ToolEnded(1, True, "x" * 100_000)))
        await asyncio.sleep(0)
        assert not put.done()
        line.grant(1)
        await asyncio.wait_for(put, 1)
        assert await line.queue.flush(1)

    asyncio.run(scene())


def test_a_flush_without_credit_gives_up_in_time() -> None:
    async def scene() -> bool:
        line = Line(0)
        line.queue.add(Notice("n"))
        return await line.queue.flush(0.01)

    assert asyncio.run(scene()) is False
