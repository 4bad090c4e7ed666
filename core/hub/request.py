"""A chat completion as a client asks for it: parsed, typed, and refused by name where it won't do.

What OpenAI's API has and we cannot honour is refused rather than ignored: an answer that silently
lacks what was asked for is worse than an error. A value that asks for nothing (null, no penalty,
plain text) is accepted, since clients send those by themselves.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from core.hub.errors import HubError, invalid
from core.hub.inbox import Inbox, check_count
from core.sessions import Labels
from jail.wire.schema import Attachment, Message, ResponseFormat, Sampling, attached

MAX_MESSAGES = 1_000
MAX_TEXT_BYTES = 900_000
"""One message in UTF-8; a frame to the worker carries it whole."""

Role = Literal["system", "user", "assistant"]
_MAX_SCHEMA_BYTES = 65_536
_Zero = Annotated[float, Meta(ge=0, le=0)] | None
# of nulls: 8 MB of objects is refused at the first, and not after half a second's parsing
_Nothing = Annotated[list[None], Meta(max_length=0)] | None
_Stop = Annotated[str, Meta(min_length=1, max_length=256)]


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _Text(_Struct, frozen=True, tag="text"):
    text: str


class _InputText(_Struct, frozen=True, tag="input_text"):
    text: str


class _Refusal(_Struct, frozen=True, tag="refusal"):
    refusal: str


class _ImageUrl(_Struct, frozen=True):
    url: str
    detail: Literal["auto", "low", "high"] | None = None


class _Image(_Struct, frozen=True, tag="image_url"):
    image_url: _ImageUrl


class _InputImage(_Struct, frozen=True, tag="input_image"):
    image_url: str
    detail: Literal["auto", "low", "high"] | None = None


class _FileData(_Struct, frozen=True):
    file_data: str
    filename: Annotated[str, Meta(max_length=256)] | None = None


class _File(_Struct, frozen=True, tag="file"):
    file: _FileData


class _InputFile(_Struct, frozen=True, tag="input_file"):
    file_data: str
    filename: Annotated[str, Meta(max_length=256)] | None = None


_Part = _Text | _InputText | _Refusal | _Image | _InputImage | _File | _InputFile


class _In(_Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part] | None = None
    # what clients send back from an answer of ours, always empty
    refusal: None = None
    audio: None = None
    function_call: None = None
    tool_calls: _Nothing = None
    annotations: _Nothing = None


class _StreamOptions(_Struct, frozen=True):
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class _PlainText(_Struct, frozen=True, tag="text"):
    pass


class _JsonObject(_Struct, frozen=True, tag="json_object"):
    pass


class _Schema(_Struct, frozen=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
    schema: dict[str, Any] = {}
    description: Annotated[str, Meta(max_length=2_000)] | None = None
    strict: bool | None = None


class _JsonSchema(_Struct, frozen=True, tag="json_schema"):
    json_schema: _Schema


class ChatRequest(_Struct, frozen=True):
    """The body of POST /v1/chat/completions, as far as we honour it."""

    model: Annotated[str, Meta(min_length=1, max_length=128)]
    messages: list[_In]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    stop: _Stop | Annotated[list[_Stop], Meta(max_length=4)] | None = None
    n: Literal[1] | None = None
    user: Annotated[str, Meta(max_length=512)] | None = None
    metadata: (
        Annotated[
            dict[
                Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]
            ], Meta(max_length=16)
        ] | None
    ) = None  # fmt: skip
    # known to OpenAI's API, and accepted where they ask for nothing
    presence_penalty: _Zero = None
    frequency_penalty: _Zero = None
    logprobs: Literal[False] | None = None
    store: Literal[False] | None = None
    response_format: _PlainText | _JsonObject | _JsonSchema | None = None
    service_tier: Literal["auto", "default"] | None = None
    modalities: Annotated[list[Literal["text"]], Meta(max_length=1)] | None = None
    tools: _Nothing = None
    functions: _Nothing = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    function_call: None = None
    logit_bias: None = None
    top_logprobs: None = None
    seed: None = None
    audio: None = None
    prediction: None = None
    reasoning_effort: None = None
    verbosity: None = None
    web_search_options: None = None

    @property
    def labels(self) -> Labels:
        """What it says of itself."""
        return Labels(self.user or "", self.metadata or {})

    @property
    def sampling(self) -> Sampling:
        """What of it goes to the model's server."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        limit = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        return Sampling(self.temperature, self.top_p, limit, stop, self._format)

    @property
    def _format(self) -> ResponseFormat | None:
        match self.response_format:
            case _JsonObject():
                return ResponseFormat()
            case _JsonSchema(asked):
                schema = msgspec.json.encode(asked.schema).decode()
                return ResponseFormat(asked.name, asked.description or "", schema, asked.strict)
        return None


_TOOLS = "tools run on the server, as the agent's file says; a client cannot bring its own"
_INSTEAD = {
    "tools": _TOOLS,
    "functions": _TOOLS,
    "tool_choice": _TOOLS,
    "function_call": _TOOLS,
    "tool_calls": _TOOLS,
    "n": "one answer a request",
    "content": "a string, or a list of parts of type text, image_url or file",
    "type": "parts are text, input_text, image_url, input_image, file and input_file",
    "file_id": "there are no files by id here: send file_data",
    "role": "roles are system, developer, user and assistant; tool messages stay on the server",
}

_decode = msgspec.json.Decoder(ChatRequest).decode
_T = TypeVar("_T")

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*?)`")
_NAME = re.compile(r"[A-Za-z_]\w*")
# an entry of a list that must have none: the list is what is wrong
_ENTRY = re.compile(r"\b(tools|functions|tool_calls|annotations)\[\d+\]$")
_AT = re.compile(r" - at `\$\.?(.*?)`$", re.DOTALL)


def decoded(body: bytes, decode: Callable[[bytes], _T], instead: Mapping[str, str]) -> _T:
    """A request's body, typed, or HubError 400 naming the field.

    Args:
        instead: what to do instead, by the field's name.
    """
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise refusal(str(error), instead) from None
    except RecursionError:
        raise invalid("the body is nested too deeply", "invalid_json") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise invalid(f"the body is not JSON: {clip(str(error))}", "invalid_json") from None


def parse_chat(body: bytes) -> ChatRequest:
    """Parse a request's body, or raise HubError 400 naming the field."""
    request = decoded(body, _decode, _INSTEAD)
    one, other = request.max_tokens, request.max_completion_tokens
    if one is not None and other is not None and one != other:
        raise invalid("max_tokens and max_completion_tokens differ; send one", "invalid_value", "max_tokens")
    if isinstance(request.response_format, _JsonSchema):
        schema = request.response_format.json_schema.schema
        check_schema(schema, "response_format.json_schema.schema")
    return request


def check_schema(schema: dict[str, Any], where: str) -> None:
    """HubError 400 for a client's JSON Schema that is too long."""
    if len(msgspec.json.encode(schema)) > _MAX_SCHEMA_BYTES:
        raise invalid(f"`{where}` has more than {_MAX_SCHEMA_BYTES} bytes", "invalid_value", where)


def history(request: ChatRequest, inbox: Inbox) -> list[Message]:
    """The request's messages as models see them, their files in ``inbox``.

    Raises HubError 400 for what cannot be a conversation.
    """
    return check_conversation(
        [_message(given, f"messages[{i}]", inbox) for i, given in enumerate(request.messages)]
    )


def last_user_message(messages: list[Message]) -> Message:
    """What a turn in a kept session takes; there is one after :func:`history`."""
    return next(message for message in reversed(messages) if message.role == "user")


def _message(given: _In, where: str, inbox: Inbox) -> Message:
    content = given.content
    role: Role = "system" if given.role == "developer" else given.role
    if content is None:
        if given.role != "assistant":
            raise invalid(f"a {given.role} message needs content", "missing_content", f"{where}.content")
        return Message(role, "")
    if isinstance(content, str):
        return compose(role, [content], f"{where}.content")
    parts = [_part(part, f"{where}.content[{i}]", inbox) for i, part in enumerate(content)]
    return compose(role, parts, f"{where}.content")


def _part(part: _Part, where: str, inbox: Inbox) -> str | Attachment:
    match part:
        case _Text(text) | _InputText(text) | _Refusal(text):
            return text
        case _Image(_ImageUrl(url, detail)):
            return inbox.url(url, f"{where}.image_url.url", "picture", detail=detail or "")
        case _InputImage(url, detail):
            return inbox.url(url, f"{where}.image_url", "picture", detail=detail or "")
        case _File(_FileData(data, name)):
            return _file(data, name, f"{where}.file.file_data", inbox)
        case _InputFile(data, name):
            return _file(data, name, f"{where}.file_data", inbox)


def _file(data: str, name: str | None, where: str, inbox: Inbox) -> Attachment:
    """Clients send a data: URL here, and some bare base64."""
    take = inbox.url if ":" in data[:64] else inbox.base64
    return take(data, where, "file", name or "")


def compose(role: Role, parts: Sequence[str | Attachment], where: str) -> Message:
    """One message of its parts: texts joined as they are, since a client may have cut within a word;
    files cited at their place. HubError 400 where it is too long, or not a user's and has files.
    """
    files = tuple(part for part in parts if isinstance(part, Attachment))
    if files and role != "user":
        raise invalid(f"only a user's message may have files, not a {role} message", "invalid_value", where)
    check_count(len(files), where)
    text = "".join(part if isinstance(part, str) else f"\n{attached(part.path)}\n" for part in parts)
    if files:
        text = text.strip("\n")
    check_length(text, where)
    return Message(role, text, attachments=files)


def check_length(text: str, where: str) -> None:
    """HubError 400 for a text that is no message: a frame to the worker carries it whole."""
    if len(text) > MAX_TEXT_BYTES or len(text.encode()) > MAX_TEXT_BYTES:
        raise invalid(
            f"one message is longer than {MAX_TEXT_BYTES} bytes: split it or shorten it",
            "message_too_long",
            where,
        )


def check_conversation(messages: list[Message]) -> list[Message]:
    """The same messages, or HubError 400 where there are too many or none to answer."""
    if len(messages) > MAX_MESSAGES:
        raise invalid(
            f"{len(messages)} messages, limit {MAX_MESSAGES}: leave out the oldest, or let"
            " the server keep them with the header X-Certosa-Session",
            "too_many_messages",
            "messages",
        )
    if not any(message.role == "user" for message in messages):
        raise invalid("there is no message of role user to answer", "no_user_message", "messages")
    return messages


def refusal(error: str, instead: Mapping[str, str]) -> HubError:
    """msgspec's words as an error of ours: which field, and what to do.

    Args:
        instead: what to do instead, by the field's name.
    """
    at = _AT.search(error)
    where = _ENTRY.sub(r"\1", at[1]) if at else ""
    what = clip(error[: at.start()] if at else error)
    if unknown := _UNKNOWN.match(what):
        param = _join(where, unknown[1])
        return invalid(f"`{param}` is not a field this server knows", "unknown_parameter", param)
    if missing := _MISSING.match(what):
        param = _join(where, missing[1])
        return invalid(f"`{param}` is missing", "missing_required_parameter", param)
    name = ["", *_NAME.findall(where)][-1]
    hint = f"; {instead[name]}" if name in instead else ""
    if not hint and "Expected `null`" in what:
        hint = "; this server cannot honour it, leave it out"
    return invalid(f"`{where or 'the body'}`: {what}{hint}", "invalid_value", where or None)


def _join(where: str, name: str) -> str:
    return clip(f"{where}.{name}" if where else name)


def clip(text: Any, limit: int = 200) -> str:
    """What a client sent, as far as it may stand in a message."""
    shown = "".join(c if c.isprintable() else "?" for c in str(text))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
