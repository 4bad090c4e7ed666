"""A chat request in the shape of ``POST /chat/completions``."""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from core.config import ProviderSection
from core.egress.attached import Note, Pdf, Picture, Shown, show
from core.egress.calls import is_json
from core.egress.messages import ChatStart
from core.egress.providers import ProviderError
from jail.wire.schema import Message, ResponseFormat, ToolSpec

_MAX_SHOWN_ARGUMENTS = 1_000


def request_body(ask: ChatStart, section: ProviderSection) -> bytes:
    """The request as JSON. Raises ProviderError ``invalid`` for what that server does not take."""
    body: dict[str, Any] = {
        "model": ask.model,
        "messages": [_message(message, show(ask, message, section.attachments)) for message in ask.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.tools:
        body["tools"] = [_tool(tool) for tool in ask.tools]
    sampling = ask.sampling
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    if sampling.max_tokens is not None:
        body[section.max_tokens_field] = sampling.max_tokens
    if sampling.stop:
        body["stop"] = sampling.stop
    if sampling.format is not None:
        body["response_format"] = _format(ask.provider, sampling.format, section)
    return msgspec.json.encode(body)


def _format(provider: str, wanted: ResponseFormat, section: ProviderSection) -> dict[str, Any]:
    if not wanted.schema:
        if section.response_format == "none":
            raise ProviderError("invalid", f"response_format: {provider} takes none; leave it out")
        return {"type": "json_object"}
    if section.response_format != "json_schema":
        raise ProviderError("invalid", f"response_format: {provider} takes no json_schema; leave it out")
    schema: dict[str, Any] = {"name": wanted.name, "schema": schema_object(wanted)}
    if wanted.description:
        schema["description"] = wanted.description
    if wanted.strict is not None:
        schema["strict"] = wanted.strict
    return {"type": "json_schema", "json_schema": schema}


def schema_object(wanted: ResponseFormat) -> dict[str, Any]:
    """A client's JSON Schema. Raises ProviderError ``invalid`` where it isn't a JSON object."""
    try:
        schema = msgspec.json.decode(wanted.schema)
    except (msgspec.MsgspecError, RecursionError):
        schema = None
    if not isinstance(schema, dict):
        raise ProviderError("invalid", "response_format: the schema is not a JSON object")
    return schema


def _message(message: Message, shown: Sequence[Shown]) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, "content": message.text}
    if shown:
        out["content"] = _content(message.text, shown)
    if message.role == "tool":
        out["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        out["content"] = message.text or None
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return out


def _content(text: str, shown: Sequence[Shown]) -> str | list[dict[str, Any]]:
    """What is shown, then what is said; plain text where that is all, which every server takes."""
    if all(isinstance(one, Note) for one in shown):
        return "\n\n".join([*(one.text for one in shown if isinstance(one, Note)), text])
    return [*map(_part, shown), {"type": "text", "text": text}]


def _part(shown: Shown) -> dict[str, Any]:
    match shown:
        case Note(text):
            return {"type": "text", "text": text}
        case Picture(kind, data, detail):
            url = {"url": data_url(kind, data), **({"detail": detail} if detail else {})}
            return {"type": "image_url", "image_url": url}
        case Pdf(name, data):
            file = {"filename": name, "file_data": data_url("application/pdf", data)}
            return {"type": "file", "file": file}


def data_url(kind: str, data: bytes) -> str:
    """RFC 2397."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _arguments(text: str) -> str:
    """What the model wrote, or a JSON object that cites it: servers parse these, and fail."""
    if is_json(text):
        return text
    return msgspec.json.encode({"not_json": text[:_MAX_SHOWN_ARGUMENTS]}).decode()


def tool_parameters(tool: ToolSpec) -> dict[str, Any]:
    """A tool's JSON Schema. Raises ProviderError ``invalid`` where it isn't a JSON object."""
    # decoded and encoded again: the text is a jail's, and must not reach beyond its place
    try:
        parameters = msgspec.json.decode(tool.parameters) if tool.parameters else {}
    except (msgspec.MsgspecError, RecursionError):
        parameters = None
    if not isinstance(parameters, dict):
        raise ProviderError("invalid", f"the parameters of tool {tool.name} are not a JSON object")
    return parameters or {"type": "object", "properties": {}}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool_parameters(tool),
        },
    }
