"""A provider whose every try is reserved in the ledger before it goes out, and settled after it.

It stands below retries and fallbacks, so each of those is charged for what it used itself.
"""

import math
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from core.egress.messages import ChatStart
from core.egress.providers import Counter, Outlet, ProviderError
from core.ledger.metering import Amount, Claim, Grant, LedgerUnavailable, LimitReached, Met, Meter
from core.media import is_picture, media_type
from jail.wire.schema import TEXT_SHOWN_BYTES, ChatEnd, Message, ToolCall, ToolSpec, Usage

_RETRY_AFTER_S = 2
_LEAST_OUTPUT = 64
"""With less left a chat is refused: an answer of a few words helps nobody, and is paid for."""
_A_MESSAGE, _A_TOOL, _A_CHAT = 16, 64, 64
"""Tokens that formats and templates put around what is said: more than they use."""
_A_PICTURE, _PDF_BYTES_PER_TOKEN = 5_000, 8
"""What a picture and a PDF file are held as: by their pixels and pages they are mostly less."""
_AROUND_MOST, _OUTPUT_MOST = 4, 2
"""How much more than was held a server may say: for templates of its own, or an answer past its bound."""
_ESTIMATED_BYTES_PER_TOKEN = 3
"""Where nobody told: English has 4, other languages and code have less. Rather too many than too few."""

_log = structlog.get_logger(__name__)


class Chatting(Protocol):
    """A provider that tells a :class:`Counter` what was used."""

    async def chat(self, ask: ChatStart, out: Counter) -> ChatEnd:
        """See core.egress.providers.Provider."""
        ...

    async def close(self) -> None:
        """See core.egress.providers.Provider."""
        ...


class Metered:
    """See core.egress.providers.Provider.

    Args:
        provider: what is asked.
        meter: the ledger.
        told: called with the id of a chat and a limit that its user reached.
        output_tokens: what an answer may have where its client does not say.
        bytes_per_token: of a prompt, for what is held before its tokens are known.
        counted: told of the provider, and the tokens in and out that were charged.
    """

    def __init__(
        self,
        provider: Chatting,
        meter: Meter,
        told: Callable[[int, Met], None],
        output_tokens: int,
        bytes_per_token: float,
        counted: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        self._report = counted
        self._provider = provider
        self._meter = meter
        self._told = told
        self._output_tokens = output_tokens
        self._bytes_per_token = bytes_per_token

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        """Answer ``ask`` within what is left to its user. Raises ProviderError, ``quota`` among them."""
        sent = _size(ask.messages, ask.tools, ask.files)
        try:
            grant = await self._meter.reserve(self._claim(ask, sent))
        except LimitReached as reached:
            self._told(ask.id, Met("hard", reached.dimension, reached.failure.message))
            failure = reached.failure
            raise ProviderError(
                failure.code, failure.message, failure.retry_after_s, spent="nothing"
            ) from None
        except LedgerUnavailable as error:
            raise ProviderError("unavailable", str(error), _RETRY_AFTER_S, spent="nothing") from None
        counted = _Counted(out)
        nothing = False
        try:
            for met in grant.met:
                self._told(ask.id, met)
            if grant.capped:
                sampling = msgspec.structs.replace(ask.sampling, max_tokens=grant.amount.output_tokens)
                ask = msgspec.structs.replace(ask, sampling=sampling)
            end = await self._provider.chat(ask, counted)
            usage = counted.end(end.usage, sent, grant)
            if usage != end.usage:
                _log.warning("usage_not_believed", provider=ask.provider, told=msgspec.to_builtins(end.usage))
            return msgspec.structs.replace(end, usage=usage)
        except ProviderError as error:
            nothing = error.spent == "nothing"
            raise
        finally:
            used, estimated = (Amount(1), False) if nothing else counted.amount(sent, grant)
            self._meter.settle(grant.id, used, estimated)
            self._report(ask.provider, used.input_tokens, used.output_tokens)

    async def close(self) -> None:
        """Close the provider's connections."""
        await self._provider.close()

    def _claim(self, ask: ChatStart, sent: "_Sent") -> Claim:
        held = math.ceil(sent.bytes / self._bytes_per_token) + sent.around
        most = ask.sampling.max_tokens or self._output_tokens
        least = min(most, _LEAST_OUTPUT)
        return Claim(ask.user, "chat", ask.provider, ask.model, Amount(1, held, least), Amount(1, held, most))


class _Sent(msgspec.Struct, frozen=True):
    bytes: int
    around: int


class _Counted:
    """An outlet that counts what passes."""

    def __init__(self, out: Outlet) -> None:
        self._out = out
        self._told = Usage()
        self._bytes = 0
        self._whole = False

    async def text(self, text: str) -> None:
        """Pass it on."""
        self._bytes += len(text.encode("utf-8", "replace"))
        await self._out.text(text)

    async def reasoning(self, text: str) -> None:
        """Pass it on."""
        self._bytes += len(text.encode("utf-8", "replace"))
        await self._out.reasoning(text)

    async def call(self, call: ToolCall) -> None:
        """Pass it on."""
        self._bytes += len(call.name) + len(call.arguments.encode("utf-8", "replace"))
        await self._out.call(call)

    def usage(self, usage: Usage) -> None:
        """What the upstream says so far."""
        self._told = usage

    def end(self, usage: Usage, sent: _Sent, grant: Grant) -> Usage:
        """What it says when it is done; returns that, or as much of it as can be."""
        self._told, self._whole = usage, True
        return self._most(sent, grant)

    def _most(self, sent: _Sent, grant: Grant) -> Usage:
        # a token is a byte at least; what thinks unseen is still held to what it was granted
        return Usage(
            min(self._told.input_tokens, sent.bytes + _AROUND_MOST * sent.around),
            min(self._told.output_tokens, max(_OUTPUT_MOST * grant.amount.output_tokens, self._bytes)),
        )

    def amount(self, sent: _Sent, grant: Grant) -> tuple[Amount, bool]:
        """What was used, and whether that is an estimate: of a cut answer, or where nobody said what can be.

        An estimate is at most what was held: the upstream was told to keep within it.
        """
        told = self._most(sent, grant)
        both = sent.bytes + self._bytes
        if self._whole and (told.input_tokens or told.output_tokens):
            return Amount(1, told.input_tokens, told.output_tokens, both), told != self._told
        guess = min(_estimate(sent.bytes) + sent.around, grant.amount.input_tokens)
        output_tokens = max(told.output_tokens, min(_estimate(self._bytes), grant.amount.output_tokens))
        return Amount(1, told.input_tokens or guess, output_tokens, both), True


def _estimate(size: int) -> int:
    return -(-size // _ESTIMATED_BYTES_PER_TOKEN)


def _size(messages: tuple[Message, ...], tools: tuple[ToolSpec, ...], files: dict[str, bytes]) -> _Sent:
    size, around = 0, _A_CHAT
    for data in files.values():
        kind = media_type(data)
        if kind is not None and is_picture(kind):
            around += _A_PICTURE
        elif kind == "text/plain":
            size += min(len(data), TEXT_SHOWN_BYTES)
        else:
            around += max(_A_PICTURE, len(data) // _PDF_BYTES_PER_TOKEN)
    for message in messages:
        around += _A_MESSAGE
        size += _bytes(message.text)
        for call in message.tool_calls:
            around += _A_MESSAGE
            size += _bytes(call.name) + _bytes(call.arguments) + _bytes(call.id)
    for tool in tools:
        around += _A_TOOL
        size += _bytes(tool.name) + _bytes(tool.description) + _bytes(tool.parameters)
    return _Sent(size, around)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
