"""An answer of Anthropic's Messages API put together from its events, without a socket.

The shapes are https://docs.anthropic.com/en/api/messages-streaming: a message of blocks, each
started, grown by deltas and stopped; events and blocks of unknown types are skipped, as it asks for.
"""

from typing import Any

import msgspec

from core.egress.calls import MAX_NAME, UNNAMED, Bounds, Finish, call_id, count, ending
from core.egress.providers import Again, ProviderError, UpstreamSaid
from jail.wire.schema import ChatEnd, ErrorCode, ToolCall, Usage

_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
_ERRORS: dict[str, tuple[ErrorCode, Again]] = {
    "rate_limit_error": ("upstream_rate_limit", "retry"),
    "overloaded_error": ("upstream", "retry"),
    "api_error": ("upstream", "retry"),
    "timeout_error": ("upstream_timeout", "retry"),
    "authentication_error": ("upstream_auth", "elsewhere"),
    "permission_error": ("upstream_auth", "elsewhere"),
    "billing_error": ("upstream_auth", "elsewhere"),
    "invalid_request_error": ("upstream", "no"),
    "not_found_error": ("upstream", "no"),
    "request_too_large": ("upstream", "no"),
}


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Block(msgspec.Struct):
    type: str
    id: str | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    usage: _Usage | None = None


class _Error(msgspec.Struct):
    type: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int | None = None
    message: _Message | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: _Error | None = None
    # a whole message, from a server that does not stream
    content: list[_Block] | None = None
    stop_reason: str | None = None


_decode = msgspec.json.Decoder(_Event).decode


class _Call:
    def __init__(self, block: _Block) -> None:
        self.id = block.id or ""
        self.name = (block.name or "")[:MAX_NAME]
        self.whole = msgspec.json.encode(block.input).decode() if block.input else ""
        self.parts: list[str] = []
        self.characters = len(self.whole)

    @property
    def arguments(self) -> str:
        return "".join(self.parts) or self.whole or "{}"


class MessageAssembly:
    """One answer in the making (see core.egress.model_server.Assembly).

    Args:
        provider: its name, for messages.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._bounds = Bounds(provider)
        self._calls: dict[int, _Call] = {}
        self._usage = _Usage()
        self._finish: str | None = None
        self._began = False
        self.done = False
        self.moves = 0

    @property
    def finished(self) -> bool:
        """Whether the upstream said why it ended."""
        return self._finish is not None

    @property
    def usage(self) -> Usage:
        """What the upstream said was used so far: input with what was read from the cache and written to
        it, all of which is the prompt.
        """
        usage = self._usage
        read = count(usage.cache_read_input_tokens)
        written = count(usage.cache_creation_input_tokens)
        total = count(usage.input_tokens) + read + written
        return Usage(count(total), count(usage.output_tokens))

    def take(self, data: bytes) -> tuple[str, str]:
        """Take one event's data; returns the pieces (reasoning, text) it brought.

        Raises ProviderError for what isn't an event, UpstreamSaid for an error in one.
        """
        try:
            event = _decode(data)
        except (msgspec.MsgspecError, RecursionError):
            raise ProviderError(
                "upstream",
                f"{self._provider} sent a broken stream: an event that is not of the Messages API."
                " Try again; if it stays, base_url is not a server of that kind.",
                again="elsewhere",
            ) from None
        if event.type == "ping":
            return "", ""  # keeps the connection alive, and the answer where it was
        self.moves += 1
        match event.type:
            case "error":
                code, again = _ERRORS.get((event.error and event.error.type) or "", ("upstream", "retry"))
                raise UpstreamSaid(data, code, again)
            case "message_start":
                self._began = True
                self._note_usage(event.message.usage if event.message else None)
            case "content_block_start" if event.content_block is not None:
                return self._start(event.index or 0, event.content_block)
            case "content_block_delta" if event.delta is not None:
                return self._grow(event.index or 0, event.delta)
            case "message_delta":
                self._note_usage(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._finish = event.delta.stop_reason
            case "message_stop":
                self.done = True
            case "message":
                return self._take_whole(event)
        return "", ""

    def _start(self, index: int, block: _Block) -> tuple[str, str]:
        if block.type == "tool_use":
            self._bounds.one_more(len(self._calls))
            call = _Call(block)
            self._calls[index] = call
            self._bounds.length(call.characters)
        return block.thinking or "", block.text or "" if block.type == "text" else ""

    def _grow(self, index: int, delta: _Delta) -> tuple[str, str]:
        if delta.type == "input_json_delta" and delta.partial_json:
            call = self._calls.get(index)
            if call is not None:  # else a tool of the server's own, which it runs itself
                call.parts.append(delta.partial_json)
                call.characters += len(delta.partial_json)
                self._bounds.length(call.characters)
            return "", ""
        return delta.thinking or "", delta.text or ""

    def _take_whole(self, message: _Event) -> tuple[str, str]:
        self._began = self.done = True
        self._finish = message.stop_reason or "end_turn"
        self._note_usage(message.usage)
        pieces = [self._start(index, block) for index, block in enumerate(message.content or ())]
        return "".join(r for r, _ in pieces), "".join(t for _, t in pieces)

    def _note_usage(self, usage: _Usage | None) -> None:
        """Counts only grow (each event has the total so far); a field left out says nothing."""
        if usage is None:
            return
        for field in _Usage.__struct_fields__:
            if (value := getattr(usage, field)) is not None:
                setattr(self._usage, field, value)

    def end(self) -> tuple[list[ToolCall], ChatEnd]:
        """The calls and the end, once no more comes. Raises ProviderError where it was cut."""
        self._bounds.whole(self._began and (self.done or self.finished))
        taken: set[str] = set()
        calls = [
            ToolCall(call_id(call.id, taken), call.name or UNNAMED, call.arguments)
            for _, call in sorted(self._calls.items())
        ]
        return ending(_FINISH.get(self._finish or "end_turn", "stop"), calls, self.usage)
