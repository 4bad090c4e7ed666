"""A request of Anthropic's Messages API: parsed, typed, and refused by name where it won't do.

As in :mod:`core.hub.request`, what cannot be honoured is refused, and a value that asks for nothing
is accepted. ``cache_control`` is accepted too: it asks for speed, not for another answer.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from core.hub.inbox import Inbox, Wanted
from core.hub.request import Role, check_conversation, check_schema, compose, decoded
from core.sessions import Labels
from jail.wire.schema import Attachment, Message, ResponseFormat, Sampling

_Nothing = Annotated[list[Any], Meta(max_length=0)] | None
_Stop = Annotated[str, Meta(min_length=1, max_length=256)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _CacheControl(_Struct, frozen=True):
    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Base64(_Struct, frozen=True, tag="base64"):
    data: str
    media_type: Annotated[str, Meta(max_length=128)]  # the file's first bytes are believed instead


class _TextSource(_Struct, frozen=True, tag="text"):
    data: str
    media_type: Literal["text/plain"]


class _UrlSource(_Struct, frozen=True, tag="url"):
    url: str


class _Citations(_Struct, frozen=True):
    enabled: Literal[False] | None = None


class _Image(_Struct, frozen=True, tag="image"):
    source: _Base64 | _UrlSource
    cache_control: _CacheControl | None = None


class _Document(_Struct, frozen=True, tag="document"):
    source: _Base64 | _TextSource | _UrlSource
    title: Annotated[str, Meta(max_length=500)] | None = None
    context: None = None
    citations: _Citations | None = None
    cache_control: _CacheControl | None = None


class _Block(_Struct, frozen=True, tag="text"):
    text: str
    cache_control: _CacheControl | None = None
    citations: _Nothing = None  # what clients send back from an answer of ours


class _In(_Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block | _Image | _Document]


class _Metadata(_Struct, frozen=True):
    user_id: Annotated[str, Meta(max_length=512)] | None = None


class _Off(_Struct, frozen=True):
    type: Literal["disabled"]


class _ToolChoice(_Struct, frozen=True):
    type: Literal["auto", "none"]
    disable_parallel_tool_use: bool | None = None


class _Format(_Struct, frozen=True):
    type: Literal["json_schema"]
    schema: dict[str, Any]


class _OutputConfig(_Struct, frozen=True):
    format: _Format | None = None
    effort: None = None


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
    output_config: _OutputConfig | None = None
    output_format: None = None
    inference_geo: None = None
    speed: Literal["standard"] | None = None

    @property
    def labels(self) -> Labels:
        """What it says of itself."""
        return Labels((self.metadata and self.metadata.user_id) or "")

    @property
    def sampling(self) -> Sampling:
        """What of it goes to the model's server."""
        wanted = self.output_config.format if self.output_config else None
        format_ = (
            ResponseFormat("answer", "", msgspec.json.encode(wanted.schema).decode(), True)
            if wanted
            else None
        )
        stop = tuple(self.stop_sequences or ())
        return Sampling(self.temperature, self.top_p, self.max_tokens, stop, format_)


_TOOLS = "tools run on the server, as the agent's file says; a client cannot bring its own"
_INSTEAD = {
    "tools": _TOOLS,
    "tool_choice": _TOOLS,
    "mcp_servers": _TOOLS,
    "content": "a string, or blocks of type text, image or document",
    "type": "blocks are text, image and document, their sources base64 or text;"
    " no tools or thinking of the client's",
    "citations": "this server cites nothing; leave it out",
    "role": "roles are user, assistant and system",
    "thinking": "the agent's provider decides on thinking",
    "stop_sequences": "four at most",
}

_decode = msgspec.json.Decoder(MessagesRequest).decode


def parse_messages(body: bytes) -> MessagesRequest:
    """Parse a request's body, or raise HubError 400 naming the field."""
    request = decoded(body, _decode, _INSTEAD)
    if request.output_config and request.output_config.format:
        check_schema(request.output_config.format.schema, "output_config.format.schema")
    return request


def history(request: MessagesRequest, inbox: Inbox) -> list[Message]:
    """The request's messages as models see them, ``system`` first, their files in ``inbox``.

    Raises HubError 400.
    """
    found = [_message("system", request.system, "system", inbox)] if request.system else []
    found += [
        _message(given.role, given.content, f"messages[{i}].content", inbox)
        for i, given in enumerate(request.messages)
    ]
    return check_conversation(found)


def _message(
    role: Role, content: str | Sequence[_Block | _Image | _Document], where: str, inbox: Inbox
) -> Message:
    if isinstance(content, str):
        return compose(role, [content], where)
    return compose(role, [_part(b, f"{where}[{i}].source", inbox) for i, b in enumerate(content)], where)


def _part(block: _Block | _Image | _Document, where: str, inbox: Inbox) -> str | Attachment:
    if isinstance(block, _Block):
        return block.text
    wanted: Wanted = "picture" if isinstance(block, _Image) else "file"
    name = (block.title or "") if isinstance(block, _Document) else ""
    match block.source:
        case _Base64(data=data):
            return inbox.base64(data, f"{where}.data", wanted, name)
        case _TextSource(data=data):
            return inbox.add(data.encode(), f"{where}.data", wanted, name)
        case _UrlSource(url=url):
            return inbox.url(url, f"{where}.url", wanted, name)
