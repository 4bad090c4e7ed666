"""Typed messages: unknown fields, wrong types and cunning names are refused, by name of the field."""

from typing import Any

import pytest

from jail.wire.errors import PeerFault
from jail.wire.schema import (
    FROM_JAIL,
    RESERVED_FROM_JAIL,
    RESERVED_TO_JAIL,
    TO_JAIL,
    Agent,
    ChatEnd,
    Delta,
    Failure,
    LogLine,
    Message,
    ToolCall,
    TurnItem,
    TurnStart,
    Usage,
    from_wire,
    to_wire,
)

_TURN = "turn_0123456789abcdef"


@pytest.mark.parametrize(
    "body",
    [
        TurnStart(_TURN, Agent("a", "p", "builtin/assistant", "m", ("list_files",))),
        Message("assistant", "", (ToolCall("c", "n", "{}"),)),
        Delta("x"),
        ChatEnd("stop", Usage(1, 2)),
        Failure("limit", "m", 3),
    ],
)
def test_structs_go_round(body: Any) -> None:
    assert from_wire(to_wire(body), type(body)) == body


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"type": "delta", "text": True}, Delta),
        ({"type": "delta", "text": b"x"}, Delta),
        ({"type": "delta", "text": None}, Delta),
        ({"type": "delta", "user": "bob"}, Delta),
        ({"text": "no tag"}, TurnItem),
        ({"type": "unknown"}, TurnItem),
        ({"input_tokens": True}, Usage),
        ({"input_tokens": 1.0}, Usage),
        ({"input_tokens": -1}, Usage),
        ({"input_tokens": 2**53 + 1}, Usage),
        ({"finish": "whatever"}, ChatEnd),
        ({"role": "root"}, Message),
        ({"role": "user", "tool_calls": [{}] * 65}, Message),
        ({"code": "limit", "message": "x" * 2_001}, Failure),
        ([], Delta),
        (None, Delta),
        ("x", Delta),
        ({"verb": "log", "turn": _TURN + "\n", "level": "info", "event": "x"}, LogLine),
        ({"verb": "log", "turn": _TURN, "level": "info", "event": "x\n"}, LogLine),
        ({"verb": "log", "turn": "turn_x", "level": "info", "event": "x"}, LogLine),
        ({"name": "../a", "prompt": "", "provider": "p", "model": "m"}, Agent),
        ({"name": "a\n", "prompt": "", "provider": "p", "model": "m"}, Agent),
        ({"name": "", "prompt": "", "provider": "p", "model": "m"}, Agent),
    ],
)
def test_what_is_not_this_message_is_refused(raw: Any, kind: Any) -> None:
    with pytest.raises(PeerFault) as caught:
        from_wire(raw, kind)

    assert caught.value.reason == "schema"


def test_a_fault_never_repeats_the_peers_words() -> None:
    for raw, kind in (
        ({"type": "delta", "canary": 1}, Delta),
        ({"type": "canary"}, TurnItem),
        ({"finish": "canary"}, ChatEnd),
        ({"role": "canary"}, Message),
        ({"role": "it's the canary"}, Message),
        ({"type": 'canary\'s "own"'}, TurnItem),
        ({"verb": "canary", "turn": _TURN, "level": "info", "event": "x"}, LogLine),
    ):
        with pytest.raises(PeerFault) as caught:
            from_wire(raw, kind)
        assert "canary" not in str(caught.value)


def test_no_verb_is_both_served_and_reserved() -> None:
    assert not FROM_JAIL.keys() & RESERVED_FROM_JAIL
    assert not TO_JAIL.keys() & RESERVED_TO_JAIL


def test_no_message_of_a_jail_names_a_user() -> None:
    for verb in FROM_JAIL.values():
        fields = set(verb.request.__struct_fields__)
        assert not fields & {"user", "owner", "skill", "session", "handle", "life"}
