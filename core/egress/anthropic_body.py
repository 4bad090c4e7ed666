"""A chat request in the shape of Anthropic's ``POST /messages``."""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from core.config import ProviderSection
from core.egress.attached import Note, Pdf, Picture, Shown, show
from core.egress.body import schema_object, tool_parameters
from core.egress.messages import ChatStart
from core.egress.providers import ProviderError
from jail.wire.schema import Message, ResponseFormat, ToolCall

_MAX_SHOWN_ARGUMENTS = 1_000
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_CACHED = {"type": "ephemeral"}
_LEFT_OUT = "(What was said before was left out.)"

Block = dict[str, Any]


def request_body(ask: ChatStart, section: ProviderSection) -> bytes:
    """The request as JSON. Raises ProviderError ``invalid`` for what this API has no place for."""
    turns = _turns(
        (message, _blocks(message, show(ask, message, section.attachments)))
        for message in ask.messages
        if message.role != "system"
    )
    body: dict[str, Any] = {
        "model": ask.model,
        "max_tokens": ask.sampling.max_tokens or section.max_tokens,
        "messages": turns,
        "stream": True,
    }
    system = [_text(m.text) for m in ask.messages if m.role == "system" and m.text.strip()]
    if system:
        body["system"] = system
    if ask.tools:
        body["tools"] = [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": {"type": "object", **tool_parameters(tool)},
            }
            for tool in ask.tools
        ]
    _add_sampling(body, ask, section)
    if section.cache:
        # what stays the same from round to round: instructions, tools, and all that was said so far
        for blocks in (system, body.get("tools"), turns[-1]["content"]):
            if blocks:
                blocks[-1]["cache_control"] = _CACHED
    return msgspec.json.encode(body)


def _add_sampling(body: dict[str, Any], ask: ChatStart, section: ProviderSection) -> None:
    sampling = ask.sampling
    if sampling.temperature is not None:
        if sampling.temperature > 1:
            raise ProviderError("invalid", f"temperature is at most 1 at {ask.provider}: ask for less")
        body["temperature"] = sampling.temperature
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    if sampling.stop:
        body["stop_sequences"] = sampling.stop
    if sampling.format is not None:
        body["output_config"] = {"format": _format(ask.provider, sampling.format, section)}


def _format(provider: str, wanted: ResponseFormat, section: ProviderSection) -> dict[str, Any]:
    """https://docs.anthropic.com/en/docs/build-with-claude/structured-outputs: a schema is all it takes."""
    if not wanted.schema or section.response_format != "json_schema":
        kind = "json_schema" if wanted.schema else "json_object"
        raise ProviderError("invalid", f"response_format: {provider} takes no {kind}; leave it out")
    return {"type": "json_schema", "schema": schema_object(wanted)}


def _turns(messages: Iterable[tuple[Message, list[Block]]]) -> list[dict[str, Any]]:
    """Messages of alternating roles: neighbours of one role become one, results are the user's."""
    turns: list[dict[str, Any]] = []
    for message, blocks in messages:
        role = "assistant" if message.role == "assistant" else "user"
        if not blocks:
            continue
        if not turns and role == "assistant":
            turns.append({"role": "user", "content": [_text(_LEFT_OUT)]})
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    if not turns:
        raise ProviderError("invalid", "the conversation has no text to answer")
    return turns


def _blocks(message: Message, shown: Sequence[Shown]) -> list[Block]:
    if message.role == "tool":
        block: Block = {"type": "tool_result", "tool_use_id": _id(message.tool_call_id)}
        return [{**block, "content": message.text} if message.text else block]
    # a block of blank text is refused there
    blocks = [_text(message.text)] if message.text.strip() else []
    return [_shown(one) for one in shown] + blocks + [_tool_use(call) for call in message.tool_calls]


def _shown(shown: Shown) -> Block:
    match shown:
        case Note(text):
            return _text(text)
        case Picture(kind, data, _):
            return {"type": "image", "source": _base64(kind, data)}
        case Pdf(name, data):
            return {"type": "document", "title": name, "source": _base64("application/pdf", data)}


def _base64(kind: str, data: bytes) -> dict[str, str]:
    return {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _tool_use(call: ToolCall) -> Block:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.MsgspecError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):  # what the model wrote, cited in the object that has to be here
        arguments = {"not_json": call.arguments[:_MAX_SHOWN_ARGUMENTS]}
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": arguments}


def _id(call_id: str) -> str:
    """An id as this API takes it; one that another provider made may have other characters."""
    if _ID.match(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode()).hexdigest()[:24]
