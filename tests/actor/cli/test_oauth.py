"""``certosa oauth`` edits the configuration and hands the secret to the vault unseen; ``connect`` waits."""

import base64
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.cli.presets import OAUTH_PRESETS
from core.config import load_config
from core.vault.box import Box
from tests.fakes.http_server import Answer, FakeHttpServer, Seen, http_server, json_answer

SECRET = "client-canary-1f2e3d4c"


class Place:
    """A configuration file and a data directory of a test's own, with or without a server's socket."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.data = directory / "data"
        (self.data / "_system").mkdir(parents=True)
        self.config = directory / "certosa.toml"
        self.config.write_text(
            f'# ours\n[server]\ndata_dir = "{self.data}"\n[hub]\npublic_url = "https://c.example"\n'
        )
        self.box = Box()
        self.kept: dict[str, str] = {}

    def run(self, *line: str, stdin: str = "") -> int:
        self._patch.setattr("sys.stdin", io.StringIO(stdin))
        return main(["--config", str(self.config), *line])

    @contextmanager
    def server(self) -> Iterator[FakeHttpServer]:
        """The running server's admin socket, as far as it is asked."""
        with http_server(self._answer, self.data / "_system" / "admin.sock") as server:
            yield server

    def _answer(self, seen: Seen) -> Answer:
        name = seen.path.rpartition("/")[2].replace("%3A", ":")
        if seen.path == "/v1/credential-key":
            return json_answer({"key": base64.b64encode(self.box.public).decode()})
        if seen.method == "PUT":
            self.kept[name] = self.box.open(name, base64.b64decode(seen.body["sealed"]))
            return json_answer({"name": name, "version": 1}, 201)
        if seen.method == "DELETE":
            del self.kept[name]
            return json_answer({"deleted": True})
        if seen.path == "/v1/credentials":
            return json_answer({"data": [{"name": name} for name in self.kept]})
        return json_answer({"recorded": True}, 201)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


def test_a_preset_is_added_listed_and_removed(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    with place.server():
        assert place.run("oauth", "add", "github", "--client-id", "c1", "--scope", "repo", stdin=SECRET) == 0
        said = capsys.readouterr().out
        assert "https://c.example/v1/oauth/github/callback" in said
        assert SECRET not in said
        section = load_config(place.config).oauth["github"]
        assert (section.client_id, section.scopes, section.hosts) == ("c1", ("repo",), ("api.github.com",))
        assert place.kept == {"oauth:github": SECRET}
        assert SECRET not in place.config.read_text()
        assert place.run("oauth", "list", "--json") == 0
        (row,) = json.loads(capsys.readouterr().out)["providers"]
        assert (row["name"], row["secret"], row["wants_secret"]) == ("github", True, True)
        assert place.run("oauth", "add", "github", "--client-id", "c2", stdin=SECRET) == 2
        assert place.run("oauth", "remove", "github") == 0
        assert "and its secret were removed" in capsys.readouterr().out
    assert place.kept == {}
    assert load_config(place.config).oauth == {}
    assert place.config.read_text().startswith("# ours\n")


def test_without_a_server_a_secret_has_no_place_and_nothing_changes(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    before = place.config.read_text()
    assert place.run("oauth", "add", "google", "--client-id", "c1", stdin=SECRET) == 3
    assert "start it first" in capsys.readouterr().err
    assert place.config.read_text() == before
    public = ("--no-secret", "--token-url", "https://a.example/t", "--host", "api.a.example")
    more = ("--device-url", "https://a.example/d")
    assert place.run("oauth", "add", "tv", "--client-id", "c1", *public, *more, "--users", "alice") == 0
    section = load_config(place.config).oauth["tv"]
    assert (section.client_auth, section.users) == ("none", ("alice",))
    assert place.run("oauth", "list") == 0
    assert place.run("oauth", "remove", "tv") == 0
    assert load_config(place.config).oauth == {}


@pytest.mark.parametrize(
    "more", [(), ("--token-url", "http://a.example/t", "--host", "a", "--device-url", "")]
)
def test_what_makes_no_section_is_refused(place: Place, more: tuple[str, ...]) -> None:
    before = place.config.read_text()
    assert place.run("oauth", "add", "x", "--client-id", "c1", "--no-secret", *more) == 2
    assert place.config.read_text() == before


def test_every_preset_is_a_section(place: Place) -> None:
    with place.server():
        for name in OAUTH_PRESETS:
            assert place.run("oauth", "add", name, "--client-id", "c1", stdin=SECRET) == 0
    assert set(load_config(place.config).oauth) == set(OAUTH_PRESETS)


@pytest.mark.parametrize(
    ("status", "code", "words"), [("done", 0, "is connected with acme"), ("failed", 1, "was refused")]
)
def test_connect_says_where_to_go_and_waits(
    place: Place,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    code: int,
    words: str,
) -> None:
    monkeypatch.setattr("core.cli.connecting._LOOK_S", 0.001)
    monkeypatch.setenv("CERTOSA_TOKEN", "token")
    asked: list[Any] = []

    def answer(seen: Seen) -> Answer:
        if seen.method == "POST":
            asked.append(seen.body)
            return json_answer(
                {"flow": "device", "url": "https://a.example/go", "user_code": "AB-CD", "expires_in_s": 600}
            )
        now = "waiting" if len(asked) < 3 else status
        asked.append(None)
        return json_answer({"status": now, "message": "it was refused"})

    with http_server(answer) as server:
        line = ["credential", "connect", "mail", "--with", "acme", "--device", "--scope", "read"]
        assert place.run(*line, "--url", server.url) == code
        out, err = capsys.readouterr()
        assert "https://a.example/go" in out
        assert "AB-CD" in out
        assert words in out + err
        assert asked[0] == {"with": "acme", "host": "", "path": "/", "scopes": ["read"], "flow": "device"}
        assert place.run(*line, "--no-wait", "--json", "--url", server.url) == 0
        assert json.loads(capsys.readouterr().out)["user_code"] == "AB-CD"
