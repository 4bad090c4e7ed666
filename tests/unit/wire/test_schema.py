"""Typed messages: unknown fields, wrong types and cunning names are refused, by name of the field."""

import time
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
    Picture,
    PictureShown,
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
        Message("tool", "t", tool_call_id="c", picture=Picture("a/b c.png", "image/gif", 1, "é")),
        PictureShown("a.png", "image/png", 16 << 20, "", 100_000),
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


_SHOWN: dict[str, Any] = {
    "type": "picture", "step": 1, "path": "plots/a.png", "media_type": "image/png", "size": 1, "caption": "a",
}  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["a", "..a", "a..", "...", "a/..b/c..", ".hidden/x", "a b", "größe.png", "x" * 4_096, "a\\b", "a:b"],
)
def test_a_pictures_path_is_any_name_below_the_home(path: str) -> None:
    assert from_wire(_SHOWN | {"path": path}, TurnItem).path == path


@pytest.mark.parametrize(
    "wrong",
    [
        {"path": path}
        for path in (
            "",
            "/",
            "/a",
            "/home/user/a",
            "..",
            "../a",
            "a/..",
            "a/../b",
            "a/b/../../../c",
            "//a",
            "a\nb",
            "a\n",
            "\n",
            "\0ff",
            "a\rb",
            "a\x1b[2J",
            "a\x7f",
            "a\x9bb",
            "a\u2028b",
            "x" * 4_097,
            "../" * 1_300,
            7,
            None,
            b"a",
        )
    ]
    + [{"caption": caption} for caption in ("x" * 501, "a\nb", "\x1b]0;owned\x07", None, 1)]
    + [{"media_type": kind} for kind in ("image/svg+xml", "text/html", "image/PNG", "image/png\n", "", None)]
    + [{"size": size} for size in (0, -1, (16 << 20) + 1, True, 1.0, "1")]
    + [{"step": step} for step in (0, -1, 100_001, True, "1", None)]
    + [{"data": b"\x89PNG"}, {"session": "s"}, {"turn": _TURN}, {"user": "bob"}, {"id": 1}],
    ids=lambda wrong: str(wrong)[:40],
)
def test_a_picture_that_is_not_as_it_has_to_be_is_refused_and_one_that_is_is_not(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(PeerFault) as caught:
        from_wire(_SHOWN | wrong, TurnItem)

    assert caught.value.reason == "schema"
    assert from_wire(_SHOWN, TurnItem) == PictureShown("plots/a.png", "image/png", 1, "a", 1)


@pytest.mark.parametrize("field", ["step", "path", "media_type", "size", "caption"])
def test_a_picture_has_all_of_its_fields(field: str) -> None:
    with pytest.raises(PeerFault):
        from_wire({name: value for name, value in _SHOWN.items() if name != field}, TurnItem)


def test_a_message_holds_a_picture_to_the_same() -> None:
    picture = {name: _SHOWN[name] for name in ("path", "media_type", "size", "caption")}
    raw = {"role": "tool", "picture": picture}
    assert from_wire(raw, Message).picture == Picture("plots/a.png", "image/png", 1, "a")
    with pytest.raises(PeerFault):
        from_wire(raw | {"picture": picture | {"path": "../a"}}, Message)


def test_no_path_takes_long_to_refuse() -> None:
    started_s = time.process_time()
    for path in ("a/" * 2_047 + "\n", "." * 4_095 + "\n", "../" * 1_365, "a/" * 450_000, "a/.." * 225_000):
        with pytest.raises(PeerFault):
            from_wire(_SHOWN | {"path": path}, TurnItem)
    assert time.process_time() - started_s < 1


def test_a_fault_never_repeats_the_peers_words() -> None:
    for raw, kind in (
        ({"type": "delta", "canary": 1}, Delta),
        ({"type": "canary"}, TurnItem),
        ({"finish": "canary"}, ChatEnd),
        ({"role": "canary"}, Message),
        (_SHOWN | {"path": "/canary"}, TurnItem),
        (_SHOWN | {"media_type": "canary"}, TurnItem),
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
