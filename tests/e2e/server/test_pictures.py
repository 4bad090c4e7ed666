"""An agent draws a picture and shows it: its user has the event, and the bytes through their own jail."""

import asyncio
import json
from urllib.parse import quote
from uuid import uuid4

import pytest

from tests.fakes.browser import Browser, Json
from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.pictures import png
from tests.fakes.plain_client import Answer, PlainClient
from tests.fakes.real_server import Person, RealServer, run_certosa

DRAW = """
import os, struct, zlib
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
os.makedirs("plots", exist_ok=True)
rows = b"".join(b"\\0" + bytes((x * y) % 256 for x in range(300)) for y in range(200))
with open("plots/my plot.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n")
    file.write(chunk(b"IHDR", struct.pack(">IIBBBBB", 300, 200, 8, 0, 0, 0, 0)))
    file.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
"""
PLOT = "plots/my plot.png"


def fetch(person: Person, path: str) -> Answer:
    """What a client does with an event's path."""
    client = PlainClient(person.server.url, {"Authorization": f"Bearer {person.token}"})
    return client.ask("GET", f"/v1/files/content?path={quote(path)}")


def put(person: Person, path: str, data: bytes) -> None:
    client = PlainClient(person.server.url, {"Authorization": f"Bearer {person.token}"})
    assert client.ask("PUT", f"/v1/files/content?path={quote(path)}", data).status in (200, 201)


def show(path: str, caption: str = "") -> Call:
    return Call("show_picture", json.dumps({"path": path, "caption": caption}), "call_show")


def pictures(events: list[Json]) -> list[Json]:
    return [event for event in events if event["type"] == "picture"]


def drawing(model: FakeModelServer) -> None:
    """The model draws, shows, and has nothing to add."""
    draw = Call("run_python", json.dumps({"code": DRAW}), "call_draw")
    model.say(Script(calls=(draw,)), Script(calls=(show(PLOT, "x times y"),)), Script(text="There it is."))


def test_a_plot_is_drawn_and_shown_and_its_user_fetches_the_same_bytes(
    alice: Person, model: FakeModelServer
) -> None:
    session = f"plot-{uuid4().hex[:8]}"
    browser = Browser(alice.server.url, alice.token)

    async def main() -> tuple[list[Json], list[Json], Json]:
        drawing(model)
        async with browser.socket() as socket:
            socket.send(type="start", session=session, text="draw", agent="fake")
            by_socket = [m for m in await socket.until("done", "error") if "id" in m]
        async with browser.stream(session, "?after=0&until=idle") as stream:
            by_stream = await stream.rest()
        _, kept = await browser.call("GET", f"/v1/sessions/{session}")
        return by_socket, by_stream, kept

    by_socket, by_stream, kept = asyncio.run(main())
    made = (alice.home / PLOT).read_bytes()
    (event,) = pictures(by_socket)
    shown = {"path": PLOT, "media_type": "image/png", "size": len(made), "caption": "x times y"}
    assert event == {
        "type": "picture", "session": session, "turn": by_socket[0]["turn"], "id": event["id"],
        "time": event["time"], "step": 2, **shown,
    }  # fmt: skip
    assert by_stream == by_socket
    assert [e["type"] for e in by_socket if e.get("step") == 2] == ["tool_call", "picture", "tool_result"]
    answer = fetch(alice, event["path"])
    assert (answer.status, answer.body) == (200, made)
    assert [m["picture"] for m in kept["data"] if "picture" in m] == [shown]
    # the model is told, and nothing but the file has a byte of the picture
    told = model.requests[-1].body["messages"][-1]
    assert told["content"] == f"The user sees {PLOT} now (image/png, {len(made)} bytes)."


def test_a_client_that_is_cut_at_every_event_has_the_picture_once(
    alice: Person, model: FakeModelServer
) -> None:
    session = f"cut-{uuid4().hex[:8]}"
    browser = Browser(alice.server.url, alice.token)

    async def main() -> list[Json]:
        drawing(model)
        status, _ = await browser.call(
            "POST", f"/v1/sessions/{session}/turns", {"text": "draw", "agent": "fake"}
        )
        assert status == 202
        events: list[Json] = []
        while not events or events[-1]["type"] not in ("done", "error"):
            async with browser.stream(session, "?after=0", events[-1]["id"] if events else None) as stream:
                event = await stream.read()
                assert event is not None
                events.append(event[1])
                stream.cut()
        return events

    events = asyncio.run(main())
    numbers = [event["id"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert [event["path"] for event in pictures(events)] == [PLOT]


def test_the_built_in_assistant_shows_one_and_the_command_line_says_where_it_lies(
    server: RealServer, alice: Person
) -> None:
    put(alice, "pictures/é.png", png())
    done = alice.ask("show me the picture pictures/é.png")
    (event,) = pictures(done.events)
    assert (event["step"], event["path"], event["size"]) == (1, "pictures/é.png", len(png()))
    assert "The user sees pictures/é.png now" in done.text
    said = run_certosa(server, f"chat --url {server.url}", "show pictures/é.png", alice)
    assert "# pictures/é.png\n" in said.stderr
    refused = alice.ask("show notes-that-are-none.png")
    assert pictures(refused.events) == []
    assert "There is no notes-that-are-none.png" in refused.text


def test_a_picture_that_changed_or_is_gone_is_what_the_file_is_by_then(alice: Person) -> None:
    put(alice, "fleeting.png", png())
    (event,) = pictures(alice.ask("show fleeting.png").events)
    put(alice, "fleeting.png", b"something else")
    assert fetch(alice, event["path"]).body == b"something else"
    (alice.home / "fleeting.png").unlink()
    answer = fetch(alice, event["path"])
    assert (answer.status, answer.error["code"]) == (404, "not_found")


def test_anothers_picture_is_neither_shown_nor_fetched_and_ones_own_of_that_name_is(
    alice: Person, bob: Person
) -> None:
    name = f"{uuid4().hex[:8]}.png"
    put(alice, name, png(5, 5))
    (event,) = pictures(alice.ask(f"show {name}").events)
    bob.run(f"ln -s {alice.home / name} link.png")
    for path in (name, str(alice.home / name), "link.png", f"../../alice/home/{name}"):
        done = bob.ask(f"show {path}")
        assert (pictures(done.events), [ok for ok, _ in done.results]) == ([], [False]), path
    assert fetch(bob, event["path"]).status == 404
    put(bob, name, png(3, 9))
    (own,) = pictures(bob.ask(f"show {name}").events)
    assert own["path"] == event["path"]
    assert fetch(bob, own["path"]).body == png(3, 9)
    assert fetch(alice, event["path"]).body == png(5, 5)


@pytest.mark.parametrize("caption", ["x" * 501, "x" * 100_000])
def test_an_absurd_caption_shows_nothing_and_the_model_may_try_again(
    alice: Person, model: FakeModelServer, caption: str
) -> None:
    put(alice, "a.png", png())
    model.say(
        Script(calls=(show("a.png", caption),)),
        Script(calls=(show("a.png", "one\nline"),)),
        Script(text="ok"),
    )
    done = alice.ask("show", model="fake")
    assert [ok for ok, _ in done.results] == [False, True]
    assert "length <= 500" in done.results[0][1]
    assert [(event["step"], event["caption"]) for event in pictures(done.events)] == [(2, "one line")]
