"""What clients are told of the shapes, and the shapes."""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from actors.asking import ApprovalResolved, ApprovalWanted
from core.hub.live.events import AnyEvent, line_of
from core.hub.live.requests import AnyAnswer, AnyRequest, TurnAsked
from core.hub.live.schema import documents, schema
from core.sessions.events import Accepted, Ended, Failed, LogItem, Resumed, SessionEvent, Used
from jail.wire.schema import (
    Delta,
    Notice,
    PictureShown,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnItem,
    Usage,
)

KEPT = Path(__file__).parents[3] / "docs" / "schema"
ITEMS: list[LogItem] = [
    Accepted("assistant", 1, "hi", True),
    Delta("a", "b"),
    ToolStarted(1, "run_command", '{"command": "true"}'),
    ToolProgress(1, "out"),
    ToolEnded(1, True, "out"),
    PictureShown("plots/a b.png", "image/png", 1_234, "a plot", 1),
    ApprovalWanted("approval_1", "tool", "run_command", '{"command": "true"}', 1_700_000_600, 1, True),
    ApprovalResolved("approval_1", "refused"),
    Notice("n"),
    Resumed(3),
    Used(Usage(1, 2)),
    Ended("stop"),
    Failed("timeout", "m", 3),
]


def test_the_kept_schemas_are_the_codes_own() -> None:
    made = documents()
    assert {path.name for path in KEPT.iterdir()} == made.keys()
    for name, data in made.items():
        assert (KEPT / name).read_bytes() == data, "run scripts/schema"


@pytest.mark.parametrize(
    ("name", "kinds"), [("events", AnyEvent), ("requests", AnyRequest), ("answers", AnyAnswer)]
)
def test_a_schema_knows_each_by_its_type(name: str, kinds: Any) -> None:
    found = schema(name)
    assert found["discriminator"]["mapping"].keys() == {
        kind.__struct_config__.tag for kind in get_args(kinds)
    }
    for kind in get_args(kinds):
        shape = found["$defs"][kind.__name__]
        assert shape["properties"].keys() == {"type", *kind.__struct_fields__}
        assert shape["description"]


def test_the_body_that_starts_a_turn_is_described() -> None:
    body = schema("turn")["$defs"]["TurnAsked"]
    assert body["properties"].keys() == set(TurnAsked.__struct_fields__)
    assert (body["required"], body["additionalProperties"]) == (["text"], False)


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_every_event_says_where_it_belongs_and_has_all_its_fields(item: LogItem) -> None:
    event = SessionEvent(7, "turn_1", 1_700_000_000_250, item, 10)
    line = line_of("s", event)
    shown = msgspec.json.decode(line)
    assert (shown["session"], shown["turn"], shown["id"], shown["time"]) == (
        "s",
        "turn_1",
        7,
        1_700_000_000.25,
    )
    assert shown["type"] == item.__struct_config__.tag
    fields = msgspec.to_builtins(item)
    fields |= fields.pop("usage", {})
    assert fields.items() <= shown.items()
    known = msgspec.json.decode(line, type=AnyEvent)
    assert shown.keys() == {"type", *type(known).__struct_fields__}


def test_all_that_a_worker_and_core_can_say_has_a_form() -> None:
    assert {type(item) for item in ITEMS} == set(get_args(LogItem))
    assert set(get_args(TurnItem)) < set(get_args(LogItem))
    assert len(get_args(AnyEvent)) == len(ITEMS)


def test_an_event_is_encoded_once_for_all_who_watch() -> None:
    event = SessionEvent(7, "turn_1", 1, Delta("a"), 10)
    assert line_of("s", event) is line_of("s", event)
