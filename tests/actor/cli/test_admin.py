import json
from collections.abc import Callable
from pathlib import Path

import pytest

from core.cli import main
from tests.fakes.http_server import Answer, Seen, http_server, json_answer

TOKEN = {"token_id": "tok_1", "token": "cts_abc"}
LISTED = {
    "token_id": "tok_1", "user": "alice", "label": "phone", "created_s": 0, "last_used_s": None
}  # fmt: skip


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    (tmp_path / "_system").mkdir()
    return tmp_path


def run(data_dir: Path, line: str, respond: Callable[[Seen], Answer]) -> tuple[int, list[Seen]]:
    with http_server(respond, data_dir / "_system" / "admin.sock") as server:
        status = main(["--data-dir", str(data_dir), *line.split()])
    return status, server.seen


@pytest.mark.parametrize(
    ("line", "method", "path", "body"),
    [
        ("user add alice", "POST", "/v1/users", {"name": "alice"}),
        ("user disable alice", "POST", "/v1/users/alice/disable", None),
        ("user enable alice", "POST", "/v1/users/alice/enable", None),
        ("user delete alice --yes", "DELETE", "/v1/users/alice", None),
        ("user delete ../a?b --yes", "DELETE", "/v1/users/..%2Fa%3Fb", None),
        ("token revoke tok_1", "DELETE", "/v1/tokens/tok_1", None),
    ],
)
def test_a_command_is_one_request(data_dir: Path, line: str, method: str, path: str, body: object) -> None:
    status, seen = run(data_dir, line, lambda _: Answer(204))
    assert status == 0
    assert [(s.method, s.path, s.body) for s in seen] == [(method, path, body)]


def test_a_new_token_goes_alone_to_stdout(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, seen = run(data_dir, "token new alice --label phone", lambda _: json_answer(TOKEN))
    assert status == 0
    assert (seen[0].path, seen[0].body) == ("/v1/users/alice/tokens", {"label": "phone"})
    assert capsys.readouterr().out == "cts_abc\n"


def test_a_program_gets_the_new_token_as_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(data_dir, "token new alice --json", lambda _: json_answer(TOKEN))
    assert json.loads(capsys.readouterr().out) == TOKEN


def test_lists_are_tables_for_people_and_json_for_programs(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users = {"users": [{"name": "alice", "disabled": False}, {"name": "bob", "disabled": True}]}
    run(data_dir, "user list", lambda _: json_answer(users))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "STATE"], ["alice", "enabled"], ["bob", "disabled"]
    ]  # fmt: skip
    (data_dir / "_system" / "admin.sock").unlink()
    run(data_dir, "token list alice --json", lambda _: json_answer({"tokens": [LISTED]}))
    assert json.loads(capsys.readouterr().out) == {"tokens": [LISTED]}


def test_tokens_of_one_user_are_asked_for_by_name(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, seen = run(data_dir, "token list a/b", lambda _: json_answer({"tokens": [LISTED]}))
    assert seen[0].path == "/v1/users/a%2Fb/tokens"
    assert "never" in capsys.readouterr().out


def test_a_refusal_is_the_servers_own_sentence_on_stderr(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = json_answer({"error": {"message": "there is a user alice\x1b[2J already"}}, 409)
    status, _ = run(data_dir, "user add alice", lambda _: refusal)
    assert status == 1
    said = capsys.readouterr()
    assert said.err == "certosa: there is a user alice\u241b[2J already\n"
    assert said.out == ""


def test_a_refusal_without_a_message_names_the_status(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _ = run(data_dir, "user add alice", lambda _: Answer(502, b"<html>"))
    assert status == 1
    assert "502" in capsys.readouterr().err


@pytest.mark.parametrize("directory", ["_system", ""])
def test_where_no_server_runs_the_code_is_3_and_the_way_out_is_named(
    tmp_path: Path, directory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / directory).mkdir(exist_ok=True)
    assert main(["--data-dir", str(tmp_path), "user", "list"]) == 3
    assert "certosa serve" in capsys.readouterr().err


def test_a_socket_file_that_was_left_behind_is_no_server(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with http_server(lambda _: Answer(), data_dir / "_system" / "admin.sock"):
        pass
    assert main(["--data-dir", str(data_dir), "user", "list"]) == 3
    assert "no server runs" in capsys.readouterr().err


def test_a_data_directory_with_a_long_path_is_reached(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(5):
        deep = deep / ("d" * 40)
    (deep / "_system").mkdir(parents=True)
    short = tmp_path / "s"
    short.symlink_to(deep / "_system")
    with http_server(lambda _: json_answer({"users": []}), short / "admin.sock"):
        assert main(["--data-dir", str(deep), "user", "list"]) == 0


def test_deleting_a_user_needs_yes_where_nobody_can_be_asked(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, seen = run(data_dir, "user delete alice", lambda _: Answer(204))
    assert (status, seen) == (2, [])
    assert "--yes" in capsys.readouterr().err
