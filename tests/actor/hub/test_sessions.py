"""/v1/sessions over HTTP, and ``certosa session`` against it."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.sessions import Storage
from core.sessions.store import UserStore
from jail.wire.schema import Message, Picture, ToolCall
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient
from tests.fakes.scripted_turns import PlayedTurn
from tests.fakes.token_book import handle_of

_CALL = ToolCall("call_1", "run_command", '{"command": "echo ```"}')
_TALK = [
    Message("user", "What is in the cellar?"),
    Message("assistant", "", (_CALL,)),
    Message("tool", "```\nwine\n```", tool_call_id="call_1"),
    Message("assistant", "Wine."),
]


def keep(storage: Storage, user: str, session: str, messages: list[Message], now_s: int = 1_000) -> None:
    """Store a session, as a turn would have."""
    over = threading.Event()
    failed: list[Exception] = []

    def work(store: UserStore) -> None:
        store.ensure_session(session, messages[0].text if messages else "", now_s)
        store.append_messages(session, messages, now_s)

    def fail(error: Exception) -> None:
        failed.append(error)
        over.set()

    storage.submit(handle_of(user), work, lambda _: over.set(), fail)
    assert over.wait(10)
    assert not failed


@pytest.fixture
def bob(hub: HubProcess) -> PlainClient:
    return PlainClient(hub.url, {"Authorization": "Bearer token-bob"})


def test_sessions_are_listed_page_by_page(hub: HubProcess, plain: PlainClient) -> None:
    for number in range(5):
        keep(hub.storage, "alice", f"s{number}", [Message("user", f"title {number}")], 100 + number)

    first = plain.ask("GET", "/v1/sessions?limit=3").json
    second = plain.ask("GET", f"/v1/sessions?limit=3&after={first['next']}").json

    assert [row["id"] for row in first["data"] + second["data"]] == ["s4", "s3", "s2", "s1", "s0"]
    assert second["next"] is None
    assert first["data"][0] == {
        "object": "session", "id": "s4", "title": "title 4", "created_s": 104, "updated_s": 104,
        "messages": 1,
    }  # fmt: skip


def test_a_session_is_shown_with_its_messages_page_by_page(hub: HubProcess, plain: PlainClient) -> None:
    keep(hub.storage, "alice", "cellar", _TALK)

    first = plain.ask("GET", "/v1/sessions/cellar?limit=3").json
    second = plain.ask("GET", f"/v1/sessions/cellar?limit=3&after={first['next']}").json

    assert [row["seq"] for row in first["data"]] == [1, 2, 3]
    assert first["data"][1]["tool_calls"][0]["function"]["name"] == "run_command"
    assert first["data"][2]["tool_call_id"] == "call_1"
    assert [row["content"] for row in second["data"]] == ["Wine."]
    assert second["next"] is None
    assert plain.ask("GET", "/v1/sessions/cellar?after=4").json["data"] == []


def test_a_session_is_renamed_forked_and_deleted(hub: HubProcess, plain: PlainClient) -> None:
    keep(hub.storage, "alice", "cellar", _TALK)

    assert plain.ask("PATCH", "/v1/sessions/cellar", {"title": "Wine list"}).json["title"] == "Wine list"
    forked = plain.ask("POST", "/v1/sessions/cellar/fork", {"at": 1, "id": "attic"})
    assert (forked.status, forked.json["messages"], forked.json["title"]) == (201, 1, "Wine list")
    again = plain.ask("POST", "/v1/sessions/cellar/fork", {"at": 1, "id": "attic"})
    assert (again.status, again.error["code"]) == (409, "session_exists")
    assert plain.ask("DELETE", "/v1/sessions/cellar").json["deleted"] is True
    assert plain.ask("GET", "/v1/sessions/cellar").status == 404
    assert plain.ask("GET", "/v1/sessions/attic").json["data"][0]["content"] == "What is in the cellar?"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/v1/sessions/a", {}), ("PATCH", "/v1/sessions/a", {"title": ""}),
        ("PATCH", "/v1/sessions/a", {"title": "x" * 81}), ("PATCH", "/v1/sessions/a", {"title": "a\nb"}),
        ("PATCH", "/v1/sessions/a", {"title": "x", "id": "b"}), ("PATCH", "/v1/sessions/a", b"{"),
        ("POST", "/v1/sessions/a/fork", {"at": -1, "id": "b"}),
        ("POST", "/v1/sessions/a/fork", {"at": True, "id": "b"}),
        ("POST", "/v1/sessions/a/fork", {"at": 1, "id": "../b"}),
        ("GET", "/v1/sessions?limit=0", None), ("GET", "/v1/sessions?limit=1001", None),
        ("GET", "/v1/sessions?after=x", None), ("GET", "/v1/sessions/a?after=-1", None),
        ("GET", "/v1/sessions/search", None), ("GET", "/v1/sessions/search?q=" + "x" * 201, None),
        ("GET", "/v1/sessions/a/export?format=pdf", None),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(
    hub: HubProcess, plain: PlainClient, method: str, path: str, body: Any
) -> None:
    keep(hub.storage, "alice", "a", _TALK)
    assert plain.ask(method, path, body).status == 400
    assert plain.ask("GET", "/v1/sessions/a").json["title"] == _TALK[0].text


def test_another_users_session_answers_like_one_that_does_not_exist(
    hub: HubProcess, plain: PlainClient, bob: PlainClient
) -> None:
    keep(hub.storage, "alice", "cellar", _TALK)

    for method, tail, body in (
        ("GET", "", None), ("PATCH", "", {"title": "mine"}), ("DELETE", "", None),
        ("GET", "/export", None), ("POST", "/fork", {"at": 1, "id": "stolen"}),
    ):  # fmt: skip
        answers = [
            bob.ask(method, f"/v1/sessions/{name}{tail}", body) for name in ("cellar", "nothing", "a%00b")
        ]
        assert {(a.status, a.body) for a in answers} == {(404, answers[0].body)}
        assert answers[0].error["code"] == "session_not_found"
    assert bob.ask("GET", "/v1/sessions").json["data"] == []
    assert bob.ask("GET", "/v1/sessions/search?q=cellar").json["data"] == []
    assert plain.ask("GET", "/v1/sessions/cellar").json["title"] == _TALK[0].text
    assert PlainClient(hub.url).ask("GET", "/v1/sessions/cellar").status == 401


def test_a_session_with_a_running_turn_is_not_deleted(hub: HubProcess, plain: PlainClient) -> None:
    go = threading.Event()

    def wait(turn: PlayedTurn) -> None:
        assert go.wait(10)
        turn.end()

    hub.turns.script = wait
    body = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}]}
    talk = threading.Thread(
        target=plain.ask, args=("POST", "/v1/chat/completions", body, {"X-Certosa-Session": "busy"})
    )
    talk.start()
    turn = hub.turns.next()
    refused = plain.ask("DELETE", "/v1/sessions/busy")
    assert (refused.status, refused.error["code"]) == (409, "session_busy")
    assert plain.ask("GET", "/v1/sessions/busy").json["data"][0]["content"] == "hello"
    go.set()
    assert turn.ended.wait(10)
    talk.join()
    assert plain.ask("DELETE", "/v1/sessions/busy").status == 200


def test_a_search_finds_only_ones_own_words_and_goes_on_where_it_stopped(
    hub: HubProcess, plain: PlainClient
) -> None:
    keep(hub.storage, "alice", "cellar", _TALK)
    keep(hub.storage, "alice", "more", [Message("user", "wine?"), Message("assistant", "No WINE.")], 2_000)

    first = plain.ask("GET", "/v1/sessions/search?q=wine&limit=2").json
    second = plain.ask("GET", f"/v1/sessions/search?q=wine&limit=50&after={first['next']}").json

    hits = [(hit["session"], hit["seq"], hit["role"]) for hit in first["data"] + second["data"]]
    assert hits == [
        ("more", 0, None), ("more", 2, "assistant"), ("more", 1, "user"),
        ("cellar", 4, "assistant"), ("cellar", 3, "tool"),
    ]  # fmt: skip
    assert second["next"] is None


def test_a_session_is_exported_whole(hub: HubProcess, plain: PlainClient) -> None:
    many = [*_TALK, *(Message("user", f"{number} " + "x" * 2_000) for number in range(400))]
    keep(hub.storage, "alice", "cellar", many)

    as_json = plain.ask("GET", "/v1/sessions/cellar/export")
    as_text = plain.ask("GET", "/v1/sessions/cellar/export?format=markdown")

    assert [m["seq"] for m in as_json.json["messages"]] == list(range(1, 405))
    assert as_json.headers["content-disposition"].startswith('attachment; filename="cellar.json"')
    text = as_text.body.decode()
    assert text.startswith("# What is in the cellar?\n")
    assert text.count("## User") == 401
    assert "````\n```\nwine\n```\n````\n" in text
    assert 'Called run_command:\n````\n{"command": "echo ```"}\n````' in text


def test_what_was_shown_is_with_the_session_for_good(hub: HubProcess, plain: PlainClient) -> None:
    def shown(path: str, caption: str) -> Message:
        return Message("tool", "ok", tool_call_id="c", picture=Picture(path, "image/png", 9, caption))

    hostile = "](http://evil.example/) <b>`*"
    names = ["http://evil.example/x.png", "a) ![b](c.png", "ä/100%.png"]
    messages = [
        shown("plots/a b.png", "A plot"),
        shown(names[0], hostile),
        *(shown(n, "") for n in names[1:]),
    ]
    keep(hub.storage, "alice", "plots", messages)

    first = {"path": "plots/a b.png", "media_type": "image/png", "size": 9, "caption": "A plot"}
    assert plain.ask("GET", "/v1/sessions/plots").json["data"][0]["picture"] == first
    exported = plain.ask("GET", "/v1/sessions/plots/export").json["messages"]
    assert exported[0]["picture"] == first
    assert [message["picture"]["path"] for message in exported[1:]] == names
    text = plain.ask("GET", "/v1/sessions/plots/export?format=markdown").body.decode()
    assert [line for line in text.splitlines() if line.startswith("!")] == [
        "![A plot](plots/a%20b.png)",
        r"![\]\(http\:\/\/evil\.example\/\) \<b\>\`\*](http%3A//evil.example/x.png)",
        r"![a\) \!\[b\]\(c\.png](a%29%20%21%5Bb%5D%28c.png)",
        r"![ä\/100\%\.png](%C3%A4/100%25.png)",
    ]


def test_an_empty_session_is_exported_too(hub: HubProcess, plain: PlainClient) -> None:
    keep(hub.storage, "alice", "empty", [])
    assert plain.ask("GET", "/v1/sessions/empty/export").json["messages"] == []
    assert plain.ask("GET", "/v1/sessions/empty").json["data"] == []


def test_the_command_line_lists_shows_exports_and_deletes(
    hub: HubProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    keep(hub.storage, "alice", "cellar", _TALK)
    monkeypatch.setenv("CERTOSA_TOKEN", "token-alice")

    def session(*arguments: str) -> tuple[int, str, str]:
        status = main(["session", *arguments, "--url", hub.url])
        said = capsysbinary.readouterr()
        return status, said.out.decode(), said.err.decode()

    assert "cellar" in session("list")[1]
    assert json.loads(session("list", "--json")[1])["sessions"][0]["messages"] == 4
    assert "[4] assistant: Wine." in session("show", "cellar")[1]
    assert session("export", "cellar")[1].startswith("# What is in the cellar?")
    out = tmp_path / "cellar.json"
    assert session("export", "cellar", "--format", "json", "-o", str(out))[0] == 0
    assert len(json.loads(out.read_text())["messages"]) == 4
    assert session("export", "cellar", "-o", str(out))[0] == 2
    assert session("delete", "cellar")[0] == 2
    assert session("delete", "cellar", "--yes")[0] == 0
    status, _, said = session("show", "cellar")
    assert status == 1
    assert "no session of this id" in said
    assert "You have no sessions" in session("list")[2]
