"""A chat request in the shape of ``POST /chat/completions``."""

from typing import Any

import msgspec

from core.egress.chunks import is_json
from core.egress.messages import ChatStart
from core.egress.providers import ProviderError
from jail.wire.schema import Message, ToolSpec

_MAX_SHOWN_ARGUMENTS = 1_000


def request_body(ask: ChatStart) -> bytes:
    """The request as JSON. Raises ProviderError ``invalid`` where a tool's schema is not JSON."""
    body: dict[str, Any] = {
        "model": ask.model,
        "messages": [_message(message) for message in ask.messages],
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
        body["max_tokens"] = sampling.max_tokens
    if sampling.stop:
        body["stop"] = sampling.stop
    return msgspec.json.encode(body)


def _message(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, "content": message.text}
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
