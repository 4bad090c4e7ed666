"""A streamed chat completion put together from its chunks, without a socket.

The shapes are OpenAI's (https://platform.openai.com/docs/api-reference/chat-streaming) as servers
that say they are compatible send them: fields may be missing or null, ids may be missing, a
whole call may come at once. What has another type altogether is refused.
"""

from typing import Any

import msgspec

from core.egress.calls import MAX_NAME, UNNAMED, Bounds, Finish, call_id, count, ending
from core.egress.providers import ProviderError, UpstreamSaid
from jail.wire.schema import ChatEnd, ToolCall, Usage


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Fragment(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Fragment] | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode

_FINISH: dict[str, Finish] = {
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "content_filter",
}


class _Call:
    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.characters = 0


class Assembly:
    """One answer in the making.

    Args:
        provider: its name, for messages.
    """

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._bounds = Bounds(provider)
        self._calls: list[_Call] = []
        self._usage = Usage()
        self._finish: str | None = None
        self._anything = False
        self.done = False
        self.moves = 0

    @property
    def finished(self) -> bool:
        """Whether the upstream said why it ended; at most its usage still follows."""
        return self._finish is not None

    @property
    def usage(self) -> Usage:
        """What the upstream said was used, so far."""
        return self._usage

    def take(self, data: bytes) -> tuple[str, str]:
        """Take one event's data; returns the pieces (reasoning, text) it brought, in that order.

        Raises ProviderError for what isn't a chunk, UpstreamSaid for an error in one.
        """
        self.moves += 1
        if data.strip() == b"[DONE]":
            self.done = True
            return "", ""
        try:
            chunk = _decode(data)
        except (msgspec.MsgspecError, RecursionError):
            raise ProviderError(
                "upstream",
                f"{self._provider} sent a broken stream: an event that is not a chat completion"
                " chunk. Try again; if it stays, base_url is not an OpenAI-compatible server.",
                again="elsewhere",
            ) from None
        if chunk.error:
            raise UpstreamSaid(data)
        self._note_usage(chunk.usage)
        choice = next((c for c in chunk.choices or () if not c.index), None)
        return self._take_choice(choice) if choice else ("", "")

    def _take_choice(self, choice: _Choice) -> tuple[str, str]:
        self._anything = True
        if choice.finish_reason:
            self._finish = choice.finish_reason
        delta = choice.delta or choice.message
        if delta is None:
            return "", ""
        for fragment in delta.tool_calls or ():
            self._take_fragment(fragment)
        reasoning = delta.reasoning_content or delta.reasoning or ""
        return reasoning, (delta.content or "") + (delta.refusal or "")

    def _take_fragment(self, fragment: _Fragment) -> None:
        call = self._call_of(fragment)
        function = fragment.function or _Function()
        call.id = call.id or (fragment.id or "")
        if function.name and not call.name:
            call.name = function.name[:MAX_NAME]
        arguments = function.arguments
        if isinstance(arguments, dict):  # some servers send the object itself, whole
            arguments = msgspec.json.encode(arguments).decode()
        if arguments:
            call.characters += len(arguments)
            self._bounds.length(call.characters)
            call.arguments.append(arguments)

    def _call_of(self, fragment: _Fragment) -> _Call:
        """The call a fragment belongs to: by its index, or the last one where it has none."""
        if fragment.index is None:
            found = self._calls[-1] if self._calls and not fragment.id else None
        else:
            found = next((c for c in reversed(self._calls) if c.index == fragment.index), None)
        named = fragment.function is not None and bool(fragment.function.name)
        if found is not None and named and fragment.id and found.id not in ("", fragment.id):
            found = None  # servers that number every call 0, but name each
        if found is None:
            self._bounds.one_more(len(self._calls))
            found = _Call(fragment.index)
            self._calls.append(found)
        return found

    def _note_usage(self, usage: _Usage | None) -> None:
        if usage is not None:
            self._usage = Usage(count(usage.prompt_tokens), count(usage.completion_tokens))

    def end(self) -> tuple[list[ToolCall], ChatEnd]:
        """The calls and the end, once no more comes. Raises ProviderError where it was cut."""
        self._bounds.whole(self._anything and (self.done or self.finished))
        if self._finish == "error":
            raise ProviderError(
                "upstream", f"{self._provider} failed in mid-answer. Try again.", again="retry"
            )
        taken: set[str] = set()
        calls = [self._whole(call, taken) for call in self._calls]
        return ending(_FINISH.get(self._finish or "stop", "stop"), calls, self._usage)

    @staticmethod
    def _whole(call: _Call, taken: set[str]) -> ToolCall:
        return ToolCall(call_id(call.id, taken), call.name or UNNAMED, "".join(call.arguments) or "{}")
