"""The fake model server's other wire format: Anthropic's Messages API, and how it misbehaves in it."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

from tests.fakes.model_script import Script, tokens

BAD_EVENTS = {
    "not_json": b"event: content_block_delta\ndata: {this is not JSON\n\n",
    "wrong_shape": (
        b"event: content_block_delta\n"
        b'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}}\n\n'
    ),
    "error_event": (
        b"event: error\n"
        b'data: {"type": "error", "error": {"type": "overloaded_error",'
        b' "message": "the model fell over"}}\n\n'
    ),
}
USAGE = {"input_tokens": 4, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 1}
"""7 tokens of prompt in all, as in the other format."""
_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def event(value: dict[str, Any]) -> bytes:
    """One event, named by its type as the real API does."""
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


def stop_reason(script: Script) -> str:
    """How a script's message ends, in this API's words."""
    finish = script.finish or ("tool_calls" if script.calls else "stop")
    return _STOP.get(finish, finish)


def whole(script: Script, model: str) -> dict[str, Any]:
    """A whole message, not streamed."""
    content: list[dict[str, Any]] = []
    if script.reasoning:
        content.append({"type": "thinking", "thinking": script.reasoning, "signature": "c2lnbmVk"})
    if script.text:
        content.append({"type": "text", "text": script.text})
    for call in script.calls:
        given = {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        content.append({key: value for key, value in given.items() if value is not None})
    return {
        **_head(model),
        "content": content,
        "stop_reason": stop_reason(script),
        "usage": {**USAGE, "output_tokens": len(tokens(script.text))},
    }


async def events(script: Script, model: str) -> AsyncIterator[bytes]:
    """What comes before the end: the start, the blocks of text; a misbehaviour's own event last."""
    start = {**_head(model), "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    yield event({"type": "message_start", "message": start})
    yield event({"type": "ping"})
    loop, index = asyncio.get_running_loop(), 0
    due_s = loop.time()
    for kind, text in (("thinking", script.reasoning), ("text", script.text)):
        if not text:
            continue
        yield event({"type": "content_block_start", "index": index, "content_block": _empty(kind)})
        for token in tokens(text):
            yield event(_delta(index, f"{kind}_delta", kind, token))
            if script.rate_per_s:
                due_s += 1 / script.rate_per_s
                await asyncio.sleep(max(0.0, due_s - loop.time()))
        if kind == "thinking":
            yield event(_delta(index, "signature_delta", "signature", "c2lnbmVk"))
        if kind == "text" and script.misbehave not in (None, "no_done", "hang_after_finish"):
            break  # they happen in mid-block
        yield event({"type": "content_block_stop", "index": index})
        index += 1
    bad = BAD_EVENTS.get(script.misbehave or "")
    if bad is not None:
        yield bad


def closing(script: Script) -> Iterator[bytes]:
    """The tool calls, and the end."""
    index = bool(script.reasoning) + bool(script.text)
    for at, call in enumerate(script.calls, index):
        given: dict[str, Any] = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        block = {key: value for key, value in given.items() if value is not None}
        yield event({"type": "content_block_start", "index": at, "content_block": block})
        yield event(_delta(at, "input_json_delta", "partial_json", ""))
        for part in re.findall(r".{1,7}", call.arguments, re.DOTALL):
            yield event(_delta(at, "input_json_delta", "partial_json", part))
        yield event({"type": "content_block_stop", "index": at})
    delta = {"stop_reason": stop_reason(script), "stop_sequence": None}
    usage = {"output_tokens": len(tokens(script.text))}
    yield event({"type": "message_delta", "delta": delta, "usage": usage})
    if script.misbehave not in ("no_done", "hang_after_finish"):
        yield event({"type": "message_stop"})


def endless_piece() -> bytes:
    """One of the pieces of an answer without end."""
    return event(_delta(0, "text_delta", "text", "x" * 1_000))


def _head(model: str) -> dict[str, Any]:
    return {
        "id": "msg_fake", "type": "message", "role": "assistant", "model": model, "stop_sequence": None
    }  # fmt: skip


def _empty(kind: str) -> dict[str, Any]:
    if kind == "thinking":
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _delta(index: int, kind: str, key: str, value: str) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: value}}
