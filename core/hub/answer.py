"""Answers in OpenAI's shape, whole or as chunks of a stream, made from a turn's events."""

import time
from collections.abc import Iterable
from typing import Any

import msgspec

from core.hub.errors import HubError
from core.sessions import LogEvent
from jail.wire.schema import Delta, TurnEnd, Usage

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": still working\n\n"

_FINISH = {"stop": "stop", "length": "length", "content_filter": "content_filter"}
_NOTICES = {
    "rounds": "the turn ended at its limit of rounds",
    "repeats": "the turn ended because the same tool call was repeated",
    "failing": "the turn ended because its tool calls kept failing",
    "wall": "the turn ended at its time limit",
}

_encode = msgspec.json.Encoder().encode


def finish_reason(end: TurnEnd) -> str:
    """How a turn ended, in OpenAI's words: a limit of ours is ``length``."""
    return _FINISH.get(end.finish, "length")


def limit_notice(end: TurnEnd) -> dict[str, str] | None:
    """What Certosa adds where one of its own limits ended the turn."""
    text = _NOTICES.get(end.finish)
    return None if text is None else {"type": "notice", "finish": end.finish, "text": text}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


class Answer:
    """What every chunk of one answer has in common.

    Args:
        turn: the turn's id; the answer's own is made from it.
        model: the agent's name.
        events: whether the turn's other events are wanted, as ``certosa`` objects.
        include_usage: whether a stream closes with the usage.
    """

    def __init__(self, turn: str, model: str, events: bool, include_usage: bool) -> None:
        self._id = "chatcmpl-" + turn.removeprefix("turn_")
        self._created_s = int(time.time())
        self._model = model
        self._events = events
        self._include_usage = include_usage
        self._begun = False

    def whole(self, text: str, end: TurnEnd) -> bytes:
        """A ``chat.completion``, for an answer that isn't streamed."""
        notice = limit_notice(end)
        return _encode({
            **self._head("chat.completion"),
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": finish_reason(end),
            }],
            "usage": _usage(end.usage),
            **({"certosa": notice} if notice else {}),
        })  # fmt: skip

    def chunks(self, events: Iterable[LogEvent]) -> bytes:
        """Some events as chunks; neighbouring pieces of text become one. May be empty."""
        out: list[bytes] = []
        text: list[str] = []
        for event in events:
            item = event.item
            if isinstance(item, Delta) and item.text:
                text.append(item.text)
            if self._events and not (isinstance(item, Delta) and not item.reasoning):
                self._flush(text, out)
                shown = msgspec.to_builtins(item)
                if isinstance(item, Delta):
                    shown = {"type": "reasoning", "text": item.reasoning}
                out.append(self._chunk({}, None, {"id": event.id, **shown}))
        self._flush(text, out)
        return b"".join(out)

    def keep_alive(self) -> bytes:
        """A comment, which clients skip."""
        return KEEP_ALIVE

    def failed(self, error: HubError) -> bytes:
        """An error in a stream that has begun: OpenAI's clients raise it."""
        return _sse(error.as_dict())

    def last(self, end: TurnEnd) -> bytes:
        """What closes a stream that ended well."""
        out = [] if self._begun else [self._chunk({"role": "assistant", "content": ""}, None)]
        out.append(self._chunk({}, finish_reason(end), limit_notice(end)))
        if self._include_usage:
            head = self._head("chat.completion.chunk")
            out.append(_sse({**head, "choices": [], "usage": _usage(end.usage)}))
        out.append(DONE)
        return b"".join(out)

    def _flush(self, text: list[str], out: list[bytes]) -> None:
        if text:
            delta = {"content": "".join(text)}
            out.append(self._chunk(delta if self._begun else {"role": "assistant", **delta}, None))
            self._begun = True
            text.clear()

    def _chunk(
        self, delta: dict[str, str], finish: str | None, certosa: dict[str, Any] | None = None
    ) -> bytes:
        return _sse({
            **self._head("chat.completion.chunk"),
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
            **({"certosa": certosa} if certosa else {}),
        })  # fmt: skip

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._id, "object": kind, "created": self._created_s, "model": self._model
        }  # fmt: skip


def _sse(body: dict[str, Any]) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"
