"""/v1/agents over HTTP, and ``certosa agent`` against it."""

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient

_CODER = {
    "prompt": 'Line one\nline "two" \\ \x7f \x01 ☃',
    "provider": "local",
    "model": "m",
    "tools": ["read_file", "run_command"],
    "limits": {"rounds": 5, "wall_s": 60},
}


@pytest.fixture
def folder(hub: HubProcess) -> Path:
    folder = hub.users_dir / "alice" / "agents"
    folder.mkdir(parents=True)
    return folder


def test_an_agent_is_made_changed_used_and_deleted(hub: HubProcess, plain: PlainClient, folder: Path) -> None:
    made = plain.ask("PUT", "/v1/agents/coder", _CODER)
    assert made.status == 201
    assert {key: made.json["own"][key] for key in _CODER} == _CODER
    assert tomllib.loads((folder / "coder.toml").read_text()) == _CODER
    shown = plain.ask("GET", "/v1/agents/coder").json
    assert (shown["name"], shown["model"], shown["limits"]["rounds"]) == ("coder", "m", 5)
    assert shown["limits"]["repeats"] == hub.config.agent.limits.repeats

    body = {"model": "coder", "messages": [{"role": "user", "content": "hello"}]}
    assert plain.ask("POST", "/v1/chat/completions", body).status == 200
    agent = hub.turns.next().spec.agent
    assert (agent.prompt, agent.limits.wall_s) == (_CODER["prompt"], 60)

    assert plain.ask("PUT", "/v1/agents/coder", {"model": "other"}).status == 200
    assert tomllib.loads((folder / "coder.toml").read_text()) == {"model": "other"}
    assert [row["name"] for row in plain.ask("GET", "/v1/agents").json["data"]] == ["assistant", "coder"]
    assert plain.ask("DELETE", "/v1/agents/coder").json["deleted"] is True
    assert plain.ask("DELETE", "/v1/agents/coder").status == 404
    assert plain.ask("GET", "/v1/agents/coder").error["code"] == "agent_not_found"
    assert os.listdir(folder) == []


def test_the_assistant_can_be_changed_and_is_never_gone(plain: PlainClient, folder: Path) -> None:
    before = plain.ask("GET", "/v1/agents/assistant").json
    assert plain.ask("PUT", "/v1/agents/assistant", {"prompt": "mine"}).status == 201
    assert plain.ask("GET", "/v1/agents/assistant").json["prompt"] == "mine"
    assert plain.ask("DELETE", "/v1/agents/assistant").status == 200
    assert plain.ask("GET", "/v1/agents/assistant").json == before


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"promt": "x"}, "did you mean prompt"),
        ({"limits": {"round": 5}}, "did you mean rounds"),
        ({"limits": {"rounds": 10_000}}, "limits"),
        ({"limits": {"rounds": 25}}, "more than this server allows: 24"),
        ({"limits": {"rounds": 0}}, "limits"),
        ({"limits": {"rounds": "5"}}, "limits"),
        ({"limits": {"rounds": True}}, "limits"),
        ({"limits": [1]}, "limits"),
        ({"provider": "nobody"}, "this server has no 'nobody'"),
        ({"provider": "../x"}, "provider"),
        ({"tools": ["a b"]}, "tools"),
        ({"prompt": None}, "prompt"),
        ({"prompt": "x" * 64_001}, "prompt"),
        ({"prompt": "☃" * 40_000}, "shorten the prompt"),
        ([], "no JSON object"),
        (b"{", "not JSON"),
        (b'{"prompt": "\\ud800"}', ""),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_an_agent_that_makes_no_sense_is_refused_and_none_is_written(
    plain: PlainClient, folder: Path, body: Any, said: str
) -> None:
    refused = plain.ask("PUT", "/v1/agents/coder", body)
    assert refused.status == 400
    assert refused.error["code"] == "invalid_agent"
    assert said in refused.error["message"]
    assert os.listdir(folder) == []


@pytest.mark.parametrize("name", ["..", "a%2Fb", "..%2Fcoder", "a.b", "%00", "a%0A", "x" * 65, "-a"])
def test_a_name_that_is_none_reaches_no_file(
    hub: HubProcess, plain: PlainClient, folder: Path, name: str
) -> None:
    assert plain.ask("PUT", f"/v1/agents/{name}", {"model": "m"}).status in (400, 404, 405)
    assert plain.ask("GET", f"/v1/agents/{name}").status == 404
    assert plain.ask("DELETE", f"/v1/agents/{name}").status in (404, 405)
    assert os.listdir(folder) == []
    assert sorted(os.listdir(hub.users_dir)) == ["alice"]


def test_a_file_is_as_readable_as_its_directory(plain: PlainClient, folder: Path) -> None:
    for mode, expected in ((0o700, 0o600), (0o750, 0o644)):
        folder.chmod(mode)
        plain.ask("PUT", "/v1/agents/coder", {"model": "m"})
        assert stat.S_IMODE((folder / "coder.toml").stat().st_mode) == expected


def test_a_link_or_fifo_in_its_place_is_left_alone(plain: PlainClient, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    (folder / "link.toml").symlink_to(outside)
    os.mkfifo(folder / "fifo.toml")
    for name in ("link", "fifo"):
        assert plain.ask("PUT", f"/v1/agents/{name}", {"model": "m"}).status == 400
        assert plain.ask("GET", f"/v1/agents/{name}").status == 400
    assert outside.read_text() == "x"


def test_limits_of_a_file_are_capped_by_the_operators(
    hub: HubProcess, plain: PlainClient, folder: Path
) -> None:
    hub.write_agent("alice", "greedy", "[limits]\nrounds = 200\nwall_s = 5\n")
    limits = plain.ask("GET", "/v1/agents/greedy").json["limits"]
    assert (limits["rounds"], limits["wall_s"]) == (hub.config.agent.limits.rounds, 5)


def test_a_file_that_will_not_do_is_listed_with_its_reason(
    hub: HubProcess, plain: PlainClient, folder: Path
) -> None:
    hub.write_agent("alice", "broken", "prompt = 7\n")
    rows = {row["name"]: row for row in plain.ask("GET", "/v1/agents").json["data"]}
    assert "prompt" in rows["broken"]["error"]
    assert "error" not in rows["assistant"]
    assert plain.ask("PUT", "/v1/agents/broken", {"model": "m"}).status == 200


def test_agents_are_their_users_alone(hub: HubProcess, plain: PlainClient, folder: Path) -> None:
    bob = PlainClient(hub.url, {"Authorization": "Bearer token-bob"})
    plain.ask("PUT", "/v1/agents/coder", {"model": "m"})
    assert bob.ask("GET", "/v1/agents/coder").status == 404
    assert bob.ask("DELETE", "/v1/agents/coder").status == 404
    assert bob.ask("PUT", "/v1/agents/coder", {"model": "m"}).status == 503  # bob has no directory yet
    assert PlainClient(hub.url).ask("GET", "/v1/agents").status == 401


def test_the_command_line_sets_shows_lists_and_deletes(
    hub: HubProcess,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CERTOSA_TOKEN", "token-alice")

    def agent(*arguments: str) -> tuple[int, str, str]:
        status = main(["agent", *arguments, "--url", hub.url])
        said = capsys.readouterr()
        return status, said.out, said.err

    assert agent("set", "coder", "--provider", "local", "--model", "m", "--limit", "rounds=5")[0] == 0
    assert agent("set", "coder", "--prompt", "Be brief.", "--tools", "read_file")[0] == 0
    assert tomllib.loads((folder / "coder.toml").read_text()) == {
        "provider": "local", "model": "m", "prompt": "Be brief.", "tools": ["read_file"],
        "limits": {"rounds": 5},
    }  # fmt: skip
    assert "prompt: Be brief." in agent("show", "coder")[1]
    assert json.loads(agent("show", "coder", "--json")[1])["limits"]["rounds"] == 5
    assert "local" in agent("list")[1]
    file = tmp_path / "whole.toml"
    file.write_text('prompt = """\ntwo\nlines"""\n')
    assert agent("set", "coder", "--file", str(file))[0] == 0
    assert tomllib.loads((folder / "coder.toml").read_text()) == {"prompt": "two\nlines"}
    status, _, said = agent("set", "coder", "--limit", "round=5")
    assert (status, "did you mean rounds" in said) == (1, True)
    assert agent("set", "coder", "--limit", "rounds=x")[0] == 2
    assert agent("delete", "coder")[0] == 0
    assert agent("delete", "coder")[0] == 1
