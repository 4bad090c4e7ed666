"""A request of Anthropic's Messages API: parsed, typed, and refused by name where it won't do.

As in :mod:`core.hub.request`, what cannot be honoured is refused, and a value that asks for nothing
is accepted. ``cache_control`` is accepted too: it asks for speed, not for another answer.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from core.hub.errors import invalid
from core.hub.request import check_conversation, check_length, clip, refusal
from jail.wire.schema import Message, Sampling

_Nothing = Annotated[list[Any], Meta(max_length=0)] | None
_Stop = Annotated[str, Meta(min_length=1, max_length=256)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _CacheControl(_Struct, frozen=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Block(_Struct, frozen=True):
    type: Literal["text"]
    text: str
    cache_control: _CacheControl | None = None
    citations: _Nothing = None  # what clients send back from an answer of ours


class _In(_Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class _Metadata(_Struct, frozen=True):
    user_id: Annotated[str, Meta(max_length=512)] | None = None


class _Off(_Struct, frozen=True):
    type: Literal["disabled"]


class _ToolChoice(_Struct, frozen=True):
    type: Literal["auto", "none"]
    disable_parallel_tool_use: bool | None = None


class MessagesRequest(_Struct, frozen=True):
    """The body of POST /v1/messages, as far as we honour it."""

    model: Annotated[str, Meta(min_length=1, max_length=128)]
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)]
    messages: list[_In]
    system: str | list[_Block] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: Annotated[list[_Stop], Meta(max_length=4)] | None = None
    metadata: _Metadata | None = None
    # known to Anthropic's API, and accepted where they ask for nothing
    service_tier: Literal["auto", "standard_only"] | None = None
    thinking: _Off | None = None
    tools: _Nothing = None
    tool_choice: _ToolChoice | None = None
    mcp_servers: _Nothing = None
    cache_control: _CacheControl | None = None
    top_k: None = None
    container: None = None
    context_management: None = None
    output_config: None = None
    output_format: None = None
    inference_geo: None = None
    speed: Literal["standard"] | None = None

    @property
    def sampling(self) -> Sampling:
        """What of it goes to the model's server."""
        return Sampling(self.temperature, self.top_p, self.max_tokens, tuple(self.stop_sequences or ()))


_TOOLS = "tools run on the server, as the agent's file says; a client cannot bring its own"
_INSTEAD = {
    "tools": _TOOLS,
    "tool_choice": _TOOLS,
    "mcp_servers": _TOOLS,
    "content": "text only: a string, or blocks of type text",
    "type": "text only; no tools or thinking of the client's",
    "role": "roles are user, assistant and system",
    "thinking": "the agent's provider decides on thinking",
    "stop_sequences": "four at most",
}

_decode = msgspec.json.Decoder(MessagesRequest).decode


def parse_messages(body: bytes) -> MessagesRequest:
    """Parse a request's body, or raise HubError 400 naming the field."""
    try:
        return _decode(body)
    except msgspec.ValidationError as error:
        raise refusal(str(error), _INSTEAD) from None
    except RecursionError:
        raise invalid("the body is nested too deeply", "invalid_json") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise invalid(f"the body is not JSON: {clip(str(error))}", "invalid_json") from None


def history(request: MessagesRequest) -> list[Message]:
    """The request's messages as models see them, ``system`` first. Raises HubError 400."""
    found = [Message("system", _text(request.system, "system"))] if request.system else []
    found += [
        Message(given.role, _text(given.content, f"messages[{i}].content"))
        for i, given in enumerate(request.messages)
    ]
    return check_conversation(found)


def _text(content: str | list[_Block], where: str) -> str:
    # blocks are one message: joined as they are, since a client may have cut within a word
    text = content if isinstance(content, str) else "".join(block.text for block in content)
    check_length(text, where)
    return text
