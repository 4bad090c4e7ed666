import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from core.egress.messages import ChatStart
from core.egress.metered import Metered
from core.egress.providers import Counter, ProviderError
from core.ledger.metering import Amount, Claim, Grant, LedgerUnavailable, LimitReached, Met
from jail.wire.schema import ChatEnd, Failure, Message, Sampling, ToolCall, ToolSpec, Usage

ASK = ChatStart(
    7, "alice", "acme", "m1", (Message("user", "x" * 300),), (ToolSpec("t", "d", "{}"),), Sampling()
)


class FakeMeter:
    """Grants what is asked, at most ``output`` tokens of an answer; or raises ``error``."""

    def __init__(self, output: int = 10**6, capped: bool = False, met: tuple[Met, ...] = ()) -> None:
        self.output, self.capped, self.met = output, capped, met
        self.error: Exception | None = None
        self.claims: list[Claim] = []
        self.settled: list[tuple[int, Amount, bool]] = []

    async def reserve(self, claim: Claim) -> Grant:
        self.claims.append(claim)
        if self.error is not None:
            raise self.error
        amount = claim.most._replace(output_tokens=min(claim.most.output_tokens, self.output))
        return Grant(len(self.claims), amount, self.capped, self.met)

    def settle(self, grant_id: int, used: Amount, estimated: bool = False) -> None:
        self.settled.append((grant_id, used, estimated))


class Says:
    """A provider that says ``text`` and then does as told."""

    def __init__(self, then: Callable[[Counter], Any], text: str = "") -> None:
        self.then, self.text = then, text
        self.asked: list[ChatStart] = []

    async def chat(self, ask: ChatStart, out: Counter) -> ChatEnd:
        self.asked.append(ask)
        await out.text(self.text)
        found = self.then(out)
        if isinstance(found, ProviderError):
            raise found
        end: ChatEnd = await found if asyncio.iscoroutine(found) else found
        return end

    async def close(self) -> None:
        pass


class Nowhere:
    async def text(self, text: str) -> None:
        pass

    async def reasoning(self, text: str) -> None:
        pass

    async def call(self, call: ToolCall) -> None:
        pass


def run(provider: Says, meter: FakeMeter, told: list[tuple[int, Met]] | None = None) -> ChatEnd:
    heard = told if told is not None else []
    metered = Metered(provider, meter, lambda id, met: heard.append((id, met)), 1_000, 1.0)
    return asyncio.run(metered.chat(ASK, Nowhere()))


def test_what_the_upstream_says_is_what_is_settled() -> None:
    meter = FakeMeter()
    run(Says(lambda _: ChatEnd("stop", Usage(90, 12)), "hello"), meter)
    ((grant, used, estimated),) = meter.settled
    assert (grant, used[:3], estimated) == (1, (1, 90, 12), False)
    (claim,) = meter.claims
    # never less than a prompt can have: a token has a byte at least
    assert claim.most.input_tokens >= 300 + len("td{}")
    assert claim.most.output_tokens == 1_000


def test_where_nobody_says_it_is_counted_here_and_marked() -> None:
    meter = FakeMeter()
    run(Says(lambda _: ChatEnd("stop"), "y" * 300), meter)
    ((_, used, estimated),) = meter.settled
    assert estimated
    assert used.output_tokens == 100
    assert 100 <= used.input_tokens <= meter.claims[0].most.input_tokens


def test_an_answer_that_broke_off_is_charged_for_what_came() -> None:
    meter = FakeMeter()
    with pytest.raises(ProviderError):
        run(Says(lambda _: ProviderError("upstream", "cut"), "y" * 30), meter)
    ((_, used, estimated),) = meter.settled
    assert (used.requests, used.output_tokens, estimated) == (1, 10, True)
    assert used.input_tokens > 0


def test_an_answer_that_broke_off_is_charged_by_what_the_upstream_had_said_of_it() -> None:
    def said(out: Counter) -> ProviderError:
        out.usage(Usage(77, 50))
        return ProviderError("upstream", "cut")

    meter = FakeMeter()
    with pytest.raises(ProviderError):
        run(Says(said, "y" * 30), meter)
    assert meter.settled[0][1][:3] == (1, 77, 50)


def test_what_was_turned_away_costs_a_request_and_no_tokens() -> None:
    meter = FakeMeter()
    with pytest.raises(ProviderError):
        run(Says(lambda _: ProviderError("upstream", "503", spent="nothing")), meter)
    assert meter.settled == [(1, Amount(1), False)]


def test_a_chat_that_is_cancelled_is_settled() -> None:
    async def forever() -> ChatEnd:
        await asyncio.Event().wait()
        raise AssertionError

    async def cancelled(meter: FakeMeter) -> None:
        metered = Metered(Says(lambda _: forever(), "y" * 9), meter, lambda *_: None, 1_000, 1.0)
        task = asyncio.create_task(metered.chat(ASK, Nowhere()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    meter = FakeMeter()
    asyncio.run(cancelled(meter))
    ((_, used, estimated),) = meter.settled
    assert (used.output_tokens, estimated) == (3, True)


def test_under_a_hard_limit_the_upstream_is_told_to_keep_within_what_is_left() -> None:
    provider = Says(lambda _: ChatEnd("length", Usage(1, 20)))
    run(provider, FakeMeter(output=20, capped=True))
    assert provider.asked[0].sampling.max_tokens == 20
    free = Says(lambda _: ChatEnd("stop", Usage(1, 20)))
    run(free, FakeMeter())
    assert free.asked[0].sampling.max_tokens is None


def test_at_a_hard_limit_nothing_is_asked_and_the_user_is_told() -> None:
    provider, meter = Says(lambda _: ChatEnd("stop")), FakeMeter()
    meter.error = LimitReached("tokens", Failure("quota", "used up", 3_600))
    told: list[tuple[int, Met]] = []
    with pytest.raises(ProviderError) as raised:
        run(provider, meter, told)
    assert raised.value.failure == Failure("quota", "used up", 3_600)
    assert raised.value.again == "no"
    assert provider.asked == []
    assert meter.settled == []
    assert told == [(7, Met("hard", "tokens", "used up"))]


def test_what_cannot_be_counted_does_not_go_out() -> None:
    provider, meter = Says(lambda _: ChatEnd("stop")), FakeMeter()
    meter.error = LedgerUnavailable("the disk is full")
    with pytest.raises(ProviderError) as raised:
        run(provider, meter)
    assert raised.value.failure.code == "unavailable"
    assert provider.asked == []


def test_a_soft_limit_is_told_and_the_chat_goes_on() -> None:
    met = Met("soft", "cost", "past it")
    told: list[tuple[int, Met]] = []
    run(Says(lambda _: ChatEnd("stop", Usage(1, 1))), FakeMeter(met=(met,)), told)
    assert told == [(7, met)]


@pytest.mark.parametrize("text", ["", "y" * 3_000])
def test_what_cannot_be_is_not_believed_and_what_may_be_is(text: str) -> None:
    meter = FakeMeter()
    for said in (Usage(10**10, 10**10), Usage(700, 1_990)):
        end = run(Says(lambda _, said=said: ChatEnd("stop", said), text), meter)  # type: ignore[misc]
        assert end.usage.input_tokens <= 304 + 4 * (64 + 64 + 16)
        assert end.usage.output_tokens <= max(2_000, len(text))
        _, used, estimated = meter.settled[-1]
        assert (used[1:3], estimated) == (
            (end.usage.input_tokens, end.usage.output_tokens), said.input_tokens > 10**6
        )  # fmt: skip
    assert end.usage == Usage(700, 1_990)
