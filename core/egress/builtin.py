"""The provider ``builtin``, which needs no network: models ``assistant`` and ``load``.

``load`` is for load tests. Its answer is set by the last user message:

    tokens=N   how many tokens to answer with (default 100, at most 1,000,000)
    rate=R     tokens a second (default 20; 0: as fast as they are taken)
    size=C     characters a token, the space included (default 5, at most 1,024)
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

from core.egress.messages import ChatStart
from core.egress.providers import Outlet, ProviderError
from core.egress.rules import respond
from jail.wire.schema import ChatEnd, ToolCall, Usage

ASSISTANT, LOAD = "assistant", "load"
_SETTING = re.compile(r"\b(tokens|rate|size)=(\d{1,9}(?:\.\d{1,6})?)\b")
_MAX_TOKENS = 1_000_000
_MAX_RATE = 100_000.0
_MAX_SIZE = 1_024


class Load(NamedTuple):
    """What the model ``load`` was asked for."""

    tokens: int = 100
    rate_per_s: float = 20.0
    size: int = 5

    @classmethod
    def parse(cls, text: str) -> "Load":
        """Read the settings in a message; the last one of a name counts, others are defaults."""
        found = {name: float(value) for name, value in _SETTING.findall(text)}
        return cls(
            min(int(found.get("tokens", 100)), _MAX_TOKENS),
            min(found.get("rate", 20.0), _MAX_RATE),
            min(max(int(found.get("size", 5)), 1), _MAX_SIZE),
        )

    def token(self, number: int) -> str:
        """The token of that number: its last digits and a space, ``size`` characters."""
        digits = self.size - 1
        return f"{number:0{digits}d}"[-digits:] + " " if digits else "."


class BuiltinProvider:
    """Answers by rules, or with a set number of tokens at a set pace."""

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        """Answer ``ask`` through ``out``, token by token."""
        if ask.model == ASSISTANT:
            return await _assist(ask, out)
        if ask.model == LOAD:
            return await _load(ask, out)
        raise ProviderError(
            "not_found",
            f"builtin has no model {ask.model[:96]!r}; it has {ASSISTANT} and {LOAD}",
            spent="nothing",
        )

    async def close(self) -> None:
        """Nothing is held."""


async def _assist(ask: ChatStart, out: Outlet) -> ChatEnd:
    if ask.sampling.format is not None:
        raise ProviderError("invalid", f"response_format: builtin/{ASSISTANT} takes none; leave it out")
    next_ = respond(ask.messages, ask.tools, ask.files)
    text = next_.text
    for stop in ask.sampling.stop:
        text = text.partition(stop)[0] if stop else text
    tokens = re.findall(r"\S+\s*|\s+", text)
    most = ask.sampling.max_tokens or len(tokens)
    for token in tokens[:most]:
        await out.text(token)
        await asyncio.sleep(0)  # others' turn
    sent = min(len(tokens), most)
    if sent < len(tokens):
        return _end("length", ask, sent)
    if next_.call is None:
        return _end("stop", ask, sent)
    name, arguments = next_.call
    await out.call(ToolCall(f"call_{secrets.token_hex(8)}", name, arguments))
    return _end("tool_calls", ask, sent + len(arguments.split()))


async def _load(ask: ChatStart, out: Outlet) -> ChatEnd:
    said = next((m.text for m in reversed(ask.messages) if m.role == "user"), "")
    load = Load.parse(said)
    most = min(load.tokens, ask.sampling.max_tokens or load.tokens)
    async for number in _paced(range(most), load.rate_per_s):
        await out.text(load.token(number))
    return _end("stop" if most == load.tokens else "length", ask, most)


async def _paced(numbers: Iterable[int], rate_per_s: float) -> AsyncIterator[int]:
    """Numbers at a pace that does not drift; time lost to a slow taker is not made up for."""
    loop = asyncio.get_running_loop()
    due_s = loop.time()
    for number in numbers:
        yield number
        if not rate_per_s:
            await asyncio.sleep(0)
            continue
        due_s = max(due_s + 1 / rate_per_s, loop.time() - 1 / rate_per_s)
        await asyncio.sleep(max(0.0, due_s - loop.time()))


def _end(finish: str, ask: ChatStart, output_tokens: int) -> ChatEnd:
    words = sum(len(message.text.split()) for message in ask.messages)
    usage = Usage(input_tokens=words, output_tokens=output_tokens)
    if finish == "length":
        return ChatEnd("length", usage)
    return ChatEnd("tool_calls" if finish == "tool_calls" else "stop", usage)
