"""A command's own acts are told to a running server: before, after, and not done where it cannot record."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cli import main
from core.cli.acting import recorded
from core.cli.failure import CommandFailed
from core.config import Config, load_config
from tests.fakes.http_server import Answer, FakeHttpServer, http_server, json_answer


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "data" / "_system").mkdir(parents=True)
    (tmp_path / "certosa.toml").write_text(f'[server]\ndata_dir = "{tmp_path / "data"}"\n')
    return load_config(tmp_path / "certosa.toml")


@pytest.fixture
def server(config: Config) -> Iterator[FakeHttpServer]:
    answers: list[Answer] = []
    with http_server(
        lambda _: answers.pop() if answers else json_answer({"recorded": True}, 201),
        config.data_dir / "_system" / "admin.sock",
    ) as running:
        running.answers = answers  # type: ignore[attr-defined]
        yield running


def _told(server: FakeHttpServer) -> list[tuple[str, str, str]]:
    return [(one.body["kind"], one.body["outcome"], one.body["on"]) for one in server.seen]


def test_an_act_is_told_before_and_after(config: Config, server: FakeHttpServer) -> None:
    with recorded(config, "backup_made", "/b"):
        assert _told(server) == [("backup_made", "asked", "/b")]
    assert _told(server)[1:] == [("backup_made", "done", "/b")]
    with pytest.raises(ValueError, match="broken"), recorded(config, "backup_made", "/c"):
        raise ValueError("broken")
    assert _told(server)[-1] == ("backup_made", "failed", "/c")


def test_an_act_that_a_server_cannot_record_is_not_done(config: Config, server: FakeHttpServer) -> None:
    server.answers.append(json_answer({"error": {"message": "the disk is full"}}, 503))  # type: ignore[attr-defined]
    done = False
    with pytest.raises(CommandFailed, match="disk is full"), recorded(config, "provider_set", "acme"):
        done = True
    assert not done


def test_without_a_server_it_is_done_all_the_same(config: Config) -> None:
    done = False
    with recorded(config, "provider_set", "acme"):
        done = True
    assert done


def test_adding_and_removing_a_provider_is_told(
    config: Config, server: FakeHttpServer, tmp_path: Path
) -> None:
    place = ["--config", str(tmp_path / "certosa.toml")]
    assert main([*place, "provider", "add", "ollama"]) == 0
    assert main([*place, "provider", "remove", "ollama"]) == 0
    assert _told(server) == [
        ("provider_set", "asked", "ollama"), ("provider_set", "done", "ollama"),
        ("provider_removed", "asked", "ollama"), ("provider_removed", "done", "ollama"),
    ]  # fmt: skip
