"""Chats start within limits, wait for credit, end once, and leave nothing behind when cancelled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from core.egress.builtin import BuiltinProvider, Load
from core.egress.messages import ChatCancel, ChatCredit, ChatDone, ChatFailed, ChatItem, ChatStart
from core.egress.outbox import MAX_PENDING_CHARACTERS
from core.egress.providers import Outlet, Provider, ProviderError
from core.egress.secret import STRUCK, Secret, Striker
from core.egress.streams import StreamLimits, Streams
from core.errors import LinkError
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import (
    ChatCall,
    ChatDelta,
    ChatEnd,
    Failure,
    Message,
    Sampling,
    ToolCall,
    Usage,
)

KEY = "sk-canary-0123456789abcdefghij"
Chat = Callable[[ChatStart, Outlet], Awaitable[ChatEnd]]


class Scripted:
    """A provider that does what a test says."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.cancelled = 0

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        try:
            return await self._chat(ask, out)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def close(self) -> None:
        pass


class Desk:
    """Streams over one provider, and what they sent."""

    def __init__(self, provider: Provider, limits: StreamLimits | None = None) -> None:
        self.sent: list[Any] = []
        self._news = asyncio.Event()
        limits = limits or StreamLimits(8, 4)
        self.streams = Streams({"p": provider}, self._send, Striker([Secret(KEY)]), limits)

    def _send(self, message: msgspec.Struct) -> None:
        self.sent.append(message)
        self._news.set()

    def start(self, id: int, text: str = "", model: str = "m", user: str = "alice", **more: Any) -> None:
        messages = (Message("user", text),)
        sampling = Sampling(**more)
        self.streams.start(ChatStart(id, user, "p", model, messages, (), sampling))

    async def end(self, id: int) -> Any:
        """The message that ends a chat."""
        async with asyncio.timeout(5):
            while True:
                for message in self.sent:
                    if isinstance(message, ChatDone | ChatFailed) and message.id == id:
                        return message
                self._news.clear()
                await self._news.wait()

    def items(self, id: int) -> list[Any]:
        return [m.item for m in self.sent if isinstance(m, ChatItem) and m.id == id]

    def text(self, id: int) -> str:
        return "".join(item.text for item in self.items(id) if isinstance(item, ChatDelta))


def _says(*texts: str) -> Scripted:
    async def chat(ask: ChatStart, out: Outlet) -> ChatEnd:
        for text in texts:
            await out.text(text)
        return ChatEnd("stop", Usage(1, len(texts)))

    return Scripted(chat)


async def _for_ever(ask: ChatStart, out: Outlet) -> ChatEnd:
    while True:
        await out.text("x" * 1_000)
        await asyncio.sleep(0)


async def _never(ask: ChatStart, out: Outlet) -> ChatEnd:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_chat_streams_and_is_done_once() -> None:
    async def run() -> None:
        desk = Desk(_says("a", "b"))
        desk.start(1)
        assert await desk.end(1) == ChatDone(1, ChatEnd("stop", Usage(1, 2)))
        assert desk.items(1) == [ChatDelta(text="a"), ChatDelta(text="b")]
        assert len(desk.streams) == 0

    asyncio.run(run())


def test_past_the_window_deltas_merge_and_the_end_waits_for_them() -> None:
    async def run() -> None:
        desk = Desk(_says(*(f"{n} " for n in range(50))))
        desk.start(1)
        await _turns()
        assert len(desk.items(1)) == STREAM_WINDOW
        assert not any(isinstance(message, ChatDone) for message in desk.sent)
        desk.streams.credit(ChatCredit(1, 1))
        await desk.end(1)
        assert len(desk.items(1)) == STREAM_WINDOW + 1
        assert desk.text(1) == "".join(f"{n} " for n in range(50))

    asyncio.run(run())


def test_without_credit_a_provider_is_held_at_the_bound() -> None:
    async def run() -> None:
        brought = 0

        async def chat(ask: ChatStart, out: Outlet) -> ChatEnd:
            nonlocal brought
            while True:
                await out.text("x" * 1_000)
                brought += 1_000

        desk = Desk(Scripted(chat))
        desk.start(1)
        await _turns()
        held = brought
        await _turns()
        window = STREAM_WINDOW * 1_000
        assert held == brought
        assert abs(held - window - MAX_PENDING_CHARACTERS) <= 1_000
        desk.streams.credit(ChatCredit(1, 1))
        await _turns()
        assert brought > held
        await desk.streams.close()

    asyncio.run(run())


def test_while_the_link_is_shut_deltas_merge_though_there_is_credit() -> None:
    async def run() -> None:
        desk = Desk(_says("a", "b", "c"))
        desk.streams.set_open(False)
        desk.start(1)
        await _turns()
        assert desk.sent == []
        desk.streams.set_open(True)
        await desk.end(1)
        assert desk.items(1) == [ChatDelta(text="abc")]

    asyncio.run(run())


class Led:
    """A provider that says what it is told to, one after the other; "" ends it."""

    def __init__(self) -> None:
        self.texts: asyncio.Queue[str | ToolCall] = asyncio.Queue()

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        while text := await self.texts.get():
            await (out.text(text) if isinstance(text, str) else out.call(text))
        return ChatEnd("stop")

    async def close(self) -> None:
        pass

    def say(self, *texts: "str | ToolCall") -> None:
        for text in texts:
            self.texts.put_nowait(text)


async def _behind() -> tuple[Desk, Led]:
    """A chat whose eight pieces so far were taken late."""
    led = Led()
    desk = Desk(led)
    desk.start(1)
    led.say(*"abcdefgh")
    await _turns()
    await asyncio.sleep(0.3)
    desk.streams.credit(ChatCredit(1, 8))
    assert desk.text(1) == "abcdefgh"
    desk.sent.clear()
    return desk, led


async def _until_sent(desk: Desk, count: int) -> list[Any]:
    async with asyncio.timeout(5):
        while len(desk.items(1)) < count:
            await asyncio.sleep(0.001)
    return desk.items(1)


def test_behind_whoever_takes_late_pieces_merge_for_a_moment() -> None:
    async def run() -> None:
        desk, led = await _behind()
        began_s = asyncio.get_running_loop().time()
        led.say("1", "2")
        await _turns()
        led.say("3")
        await _turns()
        assert desk.items(1) == [ChatDelta(text="1")]
        assert await _until_sent(desk, 2) == [ChatDelta(text="1"), ChatDelta(text="23")]
        assert asyncio.get_running_loop().time() - began_s >= 0.09
        led.say("")
        assert isinstance(await desk.end(1), ChatDone)

    asyncio.run(run())


def test_a_call_and_the_end_do_not_wait_for_that_moment() -> None:
    async def run() -> None:
        desk, led = await _behind()
        call = ToolCall("c1", "run", "{}")
        led.say("1", "2", call)
        await _turns()
        assert desk.items(1) == [ChatDelta(text="1"), ChatDelta(text="2"), ChatCall(call)]
        desk, led = await _behind()
        led.say("1", "2", "")
        await _turns()
        assert desk.items(1) == [ChatDelta(text="1"), ChatDelta(text="2")]
        assert isinstance(desk.sent[-1], ChatDone)

    asyncio.run(run())


def test_neither_a_cancelled_chat_nor_a_shut_link_is_sent_what_waits_for_it() -> None:
    async def run() -> None:
        desk, led = await _behind()
        led.say("1", "2")
        await _turns()
        desk.streams.cancel(ChatCancel(1))
        await asyncio.sleep(0.2)
        assert desk.items(1) == [ChatDelta(text="1")]
        desk, led = await _behind()
        led.say("1", "2")
        await _turns()
        desk.streams.set_open(False)
        await asyncio.sleep(0.2)
        assert desk.items(1) == [ChatDelta(text="1")]
        desk.streams.set_open(True)
        assert await _until_sent(desk, 2) == [ChatDelta(text="1"), ChatDelta(text="2")]
        await desk.streams.close()

    asyncio.run(run())


def test_cancel_stops_the_provider_at_once_and_says_nothing_more() -> None:
    async def run() -> None:
        provider = Scripted(_for_ever)
        desk = Desk(provider)
        desk.start(1)
        await _turns()
        sent = len(desk.sent)
        desk.streams.cancel(ChatCancel(1))
        await _turns()
        assert provider.cancelled == 1
        assert len(desk.sent) == sent
        assert len(desk.streams) == 0
        desk.streams.cancel(ChatCancel(1))
        desk.streams.credit(ChatCredit(1, 1))

    asyncio.run(run())


def test_limits_hold_for_a_user_and_for_all() -> None:
    async def run() -> None:
        desk = Desk(Scripted(_never), StreamLimits(total=3, per_user=2))
        for number, user in enumerate(["alice", "alice", "alice", "bob", "carol"], 1):
            desk.start(number, user=user)
        await _turns()
        refused = [m for m in desk.sent if isinstance(m, ChatFailed)]
        assert [(m.id, m.failure.code, m.failure.retry_after_s) for m in refused] == [
            (3, "overloaded", 2),
            (5, "overloaded", 2),
        ]
        desk.streams.cancel(ChatCancel(1))
        await _turns()
        desk.start(6, user="alice")
        await _turns()
        assert len(desk.streams) == 3
        await desk.streams.close()
        assert len(desk.streams) == 0

    asyncio.run(run())


def test_an_unknown_provider_and_model_are_not_found() -> None:
    async def run() -> None:
        desk = Desk(BuiltinProvider())
        desk.streams.start(ChatStart(1, "a", "nobody", "m", (Message("user"),), (), Sampling()))
        desk.start(2, model="nothing")
        for number, word in ((1, "nobody"), (2, "nothing")):
            failed = await desk.end(number)
            assert failed.failure.code == "not_found"
            assert word in failed.failure.message

    asyncio.run(run())


def test_an_id_used_twice_is_a_fault_of_cores() -> None:
    async def run() -> None:
        desk = Desk(Scripted(_never))
        desk.start(1)
        with pytest.raises(LinkError):
            desk.start(1)
        await desk.streams.close()

    asyncio.run(run())


def test_what_came_before_a_failure_comes_before_its_end() -> None:
    async def chat(ask: ChatStart, out: Outlet) -> ChatEnd:
        await out.text("half an ans")
        raise ProviderError("upstream", "broke", 7)

    async def run() -> None:
        desk = Desk(Scripted(chat))
        desk.start(1)
        assert await desk.end(1) == ChatFailed(1, Failure("upstream", "broke", 7))
        assert desk.text(1) == "half an ans"

    asyncio.run(run())


def test_a_bug_in_one_chat_is_loud_without_its_words_and_ends_only_that_chat() -> None:
    async def chat(ask: ChatStart, out: Outlet) -> ChatEnd:
        raise ValueError(f"bug with {KEY}")

    async def run() -> None:
        desk = Desk(Scripted(chat))
        with capture_logs() as logs:
            desk.start(1)
            failed = await desk.end(1)
        assert failed.failure.code == "internal"
        assert [line["event"] for line in logs] == ["chat_crashed", "chat_failed"]
        assert KEY not in str(logs) + str(desk.sent)

    asyncio.run(run())


def test_a_key_in_an_answer_is_struck_out_and_order_is_kept() -> None:
    async def chat(ask: ChatStart, out: Outlet) -> ChatEnd:
        await out.reasoning(KEY[:9])
        await out.reasoning(KEY[9:] + "s")
        await out.text("sk-")
        await out.call(ToolCall("c", "t", f'{{"k": "{KEY}"}}'))
        await out.text(KEY)
        return ChatEnd("tool_calls")

    async def run() -> None:
        desk = Desk(Scripted(chat))
        desk.start(1)
        await desk.end(1)
        assert KEY not in str(desk.sent)
        text = [
            item.call.arguments if isinstance(item, ChatCall) else item.text or item.reasoning
            for item in desk.items(1)
        ]
        assert "".join(text) == f'{STRUCK}ssk-{{"k": "{STRUCK}"}}{STRUCK}'

    asyncio.run(run())


def test_the_assistant_streams_token_by_token_within_its_limit() -> None:
    async def run() -> None:
        desk = Desk(BuiltinProvider())
        desk.start(1, "hello", "assistant")
        desk.streams.credit(ChatCredit(1, 100))
        done = await desk.end(1)
        assert done.end.finish == "stop"
        assert len(desk.items(1)) == done.end.usage.output_tokens > 10
        desk.start(2, "hello", "assistant", max_tokens=2)
        done = await desk.end(2)
        assert (done.end.finish, len(desk.items(2))) == ("length", 2)
        desk.start(3, "hello", "assistant", stop=("built",))
        await desk.end(3)
        assert desk.text(3).endswith("Certosa's ")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "load"),
    [
        ("", Load(100, 20.0, 5)),
        ("tokens=7 rate=0 size=1", Load(7, 0.0, 1)),
        ("go: tokens=3, rate=2.5", Load(3, 2.5, 5)),
        ("tokens=999999999 rate=999999999 size=999999999", Load(1_000_000, 100_000.0, 1_024)),
        ("tokens=-1 rate=x size=0", Load(100, 20.0, 1)),
    ],
)
def test_load_is_set_by_the_message(text: str, load: Load) -> None:
    assert Load.parse(text) == load


def test_load_answers_with_the_number_of_tokens_asked_for() -> None:
    async def run() -> None:
        desk = Desk(BuiltinProvider())
        desk.start(1, "tokens=10 rate=0 size=4", "load")
        done = await desk.end(1)
        assert done.end == ChatEnd("stop", Usage(3, 10))
        assert [len(item.text) for item in desk.items(1)] == [4] * 10

    asyncio.run(run())


def test_load_keeps_its_pace() -> None:
    async def run() -> None:
        desk = Desk(BuiltinProvider())
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        desk.start(1, "tokens=10 rate=100", "load")
        await desk.end(1)
        assert loop.time() - started_s >= 0.09

    asyncio.run(run())
