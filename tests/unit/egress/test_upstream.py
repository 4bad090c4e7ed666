"""A provider is tried again, left alone, full, or replaced: before the first item and never after."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from core.config import ProviderSection
from core.egress.fallbacks import Fallback, WithFallbacks
from core.egress.messages import ChatStart
from core.egress.providers import Again, Outlet, Provider, ProviderError
from core.egress.upstream import Terms, Upstream
from jail.wire.schema import ChatEnd, ErrorCode, Failure, Message, Sampling, ToolCall, Usage
from tests.fakes.outlet import Kept

GOOD = ChatEnd("stop", Usage(1, 1))
Step = ProviderError | str | Callable[[Outlet], Awaitable[ChatEnd]]


class Steps:
    """A provider that takes one step a chat: raises, says a text, or does as told. The last repeats."""

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)
        self.asked: list[ChatStart] = []

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        self.asked.append(ask)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, ProviderError):
            raise ProviderError(
                step.failure.code, step.failure.message, step.failure.retry_after_s, step.again
            )
        if isinstance(step, str):
            await out.text(step)
            return GOOD
        return await step(out)

    async def close(self) -> None:
        pass


def _fault(again: Again = "retry", code: ErrorCode = "upstream", wait_s: int | None = None) -> ProviderError:
    return ProviderError(code, "p fell over.", wait_s, again)


def _upstream(provider: Provider, name: str = "p", **terms: Any) -> Upstream:
    given = {"retry_base_s": 0.01, "retry_cap_s": 0.02, **terms}
    return Upstream(name, provider, Terms.of(ProviderSection(base_url="http://x/v1", **given)))


def _ask(user: str = "alice") -> ChatStart:
    return ChatStart(1, user, "p", "m", (Message("user", "hi"),), (), Sampling())


async def _outcome(provider: Provider, user: str = "alice") -> tuple[ChatEnd | Failure, str]:
    kept = Kept()
    try:
        async with asyncio.timeout(10):
            return await provider.chat(_ask(user), kept), kept.everything
    except ProviderError as error:
        return error.failure, kept.everything


def _failed(outcome: ChatEnd | Failure) -> Failure:
    assert isinstance(outcome, Failure)
    return outcome


async def _breaks_off(out: Outlet) -> ChatEnd:
    await out.text("half ")
    raise _fault()


def test_a_passing_fault_is_tried_again_and_logged() -> None:
    steps = Steps(_fault(), _fault(code="upstream_rate_limit"), "well")
    with capture_logs() as logs:
        outcome, said = asyncio.run(_outcome(_upstream(steps)))
    assert (outcome, said) == (GOOD, "well")
    retried = [entry for entry in logs if entry["event"] == "chat_retried"]
    assert [(e["tried"], e["code"]) for e in retried] == [(1, "upstream"), (2, "upstream_rate_limit")]


def test_tries_are_bounded_and_told() -> None:
    steps = Steps(_fault())
    outcome, _ = asyncio.run(_outcome(_upstream(steps, retries=3)))
    assert len(steps.asked) == 4
    assert _failed(outcome).message.startswith("p fell over. It was tried 4 times in ")


@pytest.mark.parametrize("again", ["no", "elsewhere"])
def test_what_the_same_request_cannot_mend_is_not_tried_again(again: Again) -> None:
    steps = Steps(_fault(again))
    outcome, _ = asyncio.run(_outcome(_upstream(steps)))
    assert len(steps.asked) == 1
    assert _failed(outcome).message == "p fell over."


@pytest.mark.parametrize("how", ["text", "reasoning", "call"])
def test_nothing_is_tried_again_once_anything_has_come(how: str) -> None:
    async def half(out: Outlet) -> ChatEnd:
        await getattr(out, how)(ToolCall("c", "half", "{}") if how == "call" else "half")
        raise _fault()

    steps, other = Steps(half), Steps("never")
    both = WithFallbacks("p", _upstream(steps), [Fallback("q", other, "m2")])
    outcome, said = asyncio.run(_outcome(both))
    assert (len(steps.asked), len(other.asked), said) == (1, 0, "half")
    assert _failed(outcome).message == "p fell over."


def test_a_retry_after_is_waited_for_and_one_beyond_the_cap_is_passed_on() -> None:
    async def run() -> tuple[float, Failure]:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await _outcome(_upstream(Steps(_fault(wait_s=1), "well"), retry_cap_s=1.0))
        took_s = loop.time() - began_s
        outcome, _ = await _outcome(_upstream(Steps(_fault(wait_s=7)), retry_cap_s=1.0))
        return took_s, _failed(outcome)

    took_s, failure = asyncio.run(run())
    assert took_s >= 0.99
    assert failure == Failure("upstream", "p fell over.", 7)


def test_a_cancel_during_a_pause_ends_the_chat() -> None:
    async def run() -> int:
        steps = Steps(_fault(wait_s=30))
        task = asyncio.create_task(_upstream(steps, retry_cap_s=60.0).chat(_ask(), Kept()))
        while not steps.asked:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(steps.asked)

    assert asyncio.run(run()) == 1


def test_a_broken_provider_is_left_alone_then_tried_by_one_and_used_again() -> None:
    async def run() -> list[Any]:
        steps = Steps(_fault("elsewhere"))
        upstream = _upstream(steps, breaker_failures=2, breaker_open_s=0.6)
        for _ in range(2):
            await _outcome(upstream)
        refused, _ = await _outcome(upstream)
        asked = len(steps.asked)
        steps.steps = ["well"]
        await asyncio.sleep(0.65)
        again, _ = await _outcome(upstream)
        return [refused, asked, again]

    with capture_logs() as logs:
        refused, asked, again = asyncio.run(run())
    assert refused == Failure("unavailable", refused.message, 1)
    assert "failed 2 times in a row" in refused.message
    assert (asked, again) == (2, GOOD)
    events = [entry["event"] for entry in logs if entry["event"].startswith("breaker_")]
    assert events == ["breaker_opened", "breaker_half_opened", "breaker_closed"]


def test_a_breaker_that_opens_ends_the_tries() -> None:
    steps = Steps(_fault())
    asyncio.run(_outcome(_upstream(steps, retries=9, breaker_failures=2)))
    assert len(steps.asked) == 2


@pytest.mark.parametrize(
    "fault",
    [_fault("no"), _fault("elsewhere", "upstream_auth"), _fault("retry", "upstream_rate_limit")],
    ids=["refusal", "key", "rate"],
)
def test_refusals_keys_and_rates_do_not_open_the_breaker(fault: ProviderError) -> None:
    async def run() -> ChatEnd | Failure:
        upstream = _upstream(Steps(fault, fault, "well"), breaker_failures=1, retries=0)
        await _outcome(upstream)
        await _outcome(upstream)
        return (await _outcome(upstream))[0]

    assert asyncio.run(run()) == GOOD


def test_a_half_open_try_that_is_cancelled_does_not_close_the_way_for_good() -> None:
    async def run() -> ChatEnd | Failure:
        async def hangs(_: Outlet) -> ChatEnd:
            await asyncio.Event().wait()
            return GOOD

        steps = Steps(_fault("elsewhere"), hangs, "well")
        upstream = _upstream(steps, breaker_failures=1, breaker_open_s=0.01)
        await _outcome(upstream)
        await asyncio.sleep(0.02)
        task = asyncio.create_task(_outcome(upstream))
        while len(steps.asked) < 2:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return (await _outcome(upstream))[0]

    assert asyncio.run(run()) == GOOD


def test_streams_at_once_are_limited_in_all_and_a_user_and_freed_at_their_end() -> None:
    async def run() -> list[Any]:
        go = asyncio.Event()

        async def waits(_: Outlet) -> ChatEnd:
            await go.wait()
            return GOOD

        upstream = _upstream(Steps(waits), max_streams=3, max_streams_per_user=2)
        running = [asyncio.create_task(_outcome(upstream)) for _ in range(2)]
        await asyncio.sleep(0)
        mine, _ = await _outcome(upstream)
        running.append(asyncio.create_task(_outcome(upstream, "bob")))
        await asyncio.sleep(0)
        all_full, _ = await _outcome(upstream, "carol")
        go.set()
        await asyncio.gather(*running)
        return [mine, all_full, (await _outcome(upstream))[0]]

    mine, all_full, after = asyncio.run(run())
    assert (mine.code, mine.retry_after_s) == ("overloaded", 2)
    assert "max_streams_per_user" in mine.message
    assert all_full.code == "overloaded"
    assert "max_streams)" in all_full.message
    assert after == GOOD


def test_who_may_not_use_it_is_refused_and_is_not_sent_elsewhere() -> None:
    steps, other = Steps("well"), Steps("never")
    chain = WithFallbacks("p", _upstream(steps, users=("alice",)), [Fallback("q", other, "m")])
    assert asyncio.run(_outcome(chain, "alice"))[0] == GOOD
    outcome, _ = asyncio.run(_outcome(chain, "bob"))
    assert _failed(outcome).code == "refused"
    assert "you may not use p" in _failed(outcome).message
    assert (len(steps.asked), len(other.asked)) == (1, 0)


def test_an_empty_list_of_users_is_nobody() -> None:
    outcome, _ = asyncio.run(_outcome(_upstream(Steps("well"), users=())))
    assert _failed(outcome).code == "refused"


def test_a_fallback_that_this_user_may_not_use_is_passed_over() -> None:
    closed, third = Steps("never"), Steps("from the third")
    behind = [Fallback("q", _upstream(closed, "q", users=("bob",)), "m"), Fallback("r", third, "m")]
    outcome, said = asyncio.run(_outcome(WithFallbacks("p", _upstream(Steps(_fault("elsewhere"))), behind)))
    assert (outcome, said, closed.asked) == (GOOD, "from the third", [])


def test_fallbacks_are_asked_in_order_with_their_own_models() -> None:
    first, second, third = Steps(_fault()), Steps(_fault("no")), Steps("from the third")
    chain = WithFallbacks(
        "p", _upstream(first, retries=1), [Fallback("q", second, "m2"), Fallback("r", third, "m3")]
    )
    with capture_logs() as logs:
        outcome, said = asyncio.run(_outcome(chain))
    assert (outcome, said) == (GOOD, "from the third")
    assert len(first.asked) == 2
    assert [(a.provider, a.model) for a in (*second.asked, *third.asked)] == [("q", "m2"), ("r", "m3")]
    fell = [(entry["provider"], entry["to"]) for entry in logs if entry["event"] == "chat_fell_back"]
    assert fell == [("p", "q"), ("p", "r")]


def test_when_all_fail_the_first_ones_code_counts_and_all_are_told() -> None:
    first = Steps(_fault("elsewhere", "upstream_auth"))
    second = Steps(ProviderError("upstream", "q is gone.", None, "elsewhere"))
    chain = WithFallbacks("p", _upstream(first), [Fallback("q", second, "m2")])
    outcome, _ = asyncio.run(_outcome(chain))
    assert outcome == Failure("upstream_auth", "p fell over. Fallbacks: q is gone.")


def test_a_fallback_that_breaks_off_is_the_end() -> None:
    second, third = Steps(_breaks_off), Steps("never")
    chain = WithFallbacks(
        "p", _upstream(Steps(_fault("elsewhere"))), [Fallback("q", second, "m"), Fallback("r", third, "m")]
    )
    outcome, said = asyncio.run(_outcome(chain))
    assert isinstance(outcome, Failure)
    assert (said, third.asked) == ("half ", [])


def test_a_refused_request_does_not_wander_to_the_fallbacks() -> None:
    other = Steps("never")
    chain = WithFallbacks("p", _upstream(Steps(_fault("no"))), [Fallback("q", other, "m")])
    outcome, _ = asyncio.run(_outcome(chain))
    assert isinstance(outcome, Failure)
    assert other.asked == []
