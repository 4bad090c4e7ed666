"""Answers in Anthropic's shape, whole or as events of a stream, made from a turn's events.

https://docs.anthropic.com/en/api/messages-streaming. One block of text: tools ran on the server.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from core.hub import anthropic_errors
from core.hub.answer import limit_notice
from core.hub.errors import HubError
from core.sessions import LogEvent
from jail.wire.schema import Delta, TurnEnd, Usage

_STOP = {"stop": "end_turn", "content_filter": "refusal"}
_encode = msgspec.json.Encoder().encode


def stop_reason(end: TurnEnd) -> str:
    """How a turn ended, in Anthropic's words: a limit of ours is ``max_tokens``."""
    return _STOP.get(end.finish, "max_tokens")


class MessagesAnswer:
    """One answer (see core.hub.delivery.Shape).

    Args:
        turn: the turn's id; the answer's own is made from it.
        model: the agent's name.
    """

    def __init__(self, turn: str, model: str) -> None:
        self._id = "msg_" + turn.removeprefix("turn_")
        self._model = model
        self._begun = False
        self._spoke = False

    def whole(self, text: str, end: TurnEnd) -> bytes:
        """A ``message``, for an answer that isn't streamed."""
        return _encode({
            **self._head(),
            "content": [{"type": "text", "text": text}] if text else [],
            "stop_reason": stop_reason(end),
            "usage": _usage(end.usage),
            **_notice(end),
        })  # fmt: skip

    def chunks(self, events: Iterable[LogEvent]) -> bytes:
        """Some events; neighbouring pieces of text become one. May be empty."""
        text = "".join(event.item.text for event in events if isinstance(event.item, Delta))
        if not text:
            return b""
        out = self._begin()
        if not self._spoke:
            self._spoke = True
            block = {"type": "text", "text": ""}
            out += _event("content_block_start", index=0, content_block=block)
        return out + _event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})

    def keep_alive(self) -> bytes:
        """A ping, which clients skip."""
        return self._begin() + _event("ping")

    def last(self, end: TurnEnd) -> bytes:
        """What closes a stream that ended well."""
        out = self._begin()
        if self._spoke:
            out += _event("content_block_stop", index=0)
        delta = {"stop_reason": stop_reason(end), "stop_sequence": None}
        out += _event("message_delta", delta=delta, usage=_usage(end.usage), **_notice(end))
        return out + _event("message_stop")

    def failed(self, error: HubError) -> bytes:
        """An error in a stream that has begun: Anthropic's clients raise it."""
        return b"event: error\ndata: " + _encode(anthropic_errors.as_dict(error)) + b"\n\n"

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        # how long the prompt was is known at the end; message_delta then has all counts
        message = {**self._head(), "content": [], "stop_reason": None, "usage": _usage(Usage())}
        return _event("message_start", message=message)

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._model,
            "stop_sequence": None,
        }  # fmt: skip


def _usage(usage: Usage) -> dict[str, int]:
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


def _notice(end: TurnEnd) -> dict[str, Any]:
    notice = limit_notice(end)
    return {"certosa": notice} if notice else {}


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: ".encode() + _encode({"type": kind, **fields}) + b"\n\n"
