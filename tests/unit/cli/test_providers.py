"""``certosa provider`` edits two files, and no key is seen on the way."""

import getpass
import io
import json
import os
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.cli import main
from core.cli.presets import PRESETS
from core.config import load_config

KEY = "sk-canary-0123456789abcdefghij"


class Place:
    """A configuration file and a data directory of a test's own."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self.data = directory / "data"
        self.config = directory / "certosa.toml"
        self.config.write_text(f'# ours\n[server]\ndata_dir = "{self.data}"\n')
        self.config.chmod(0o640)

    @property
    def keys(self) -> Path:
        return self.data / "_keys" / "provider-keys.toml"

    def run(self, *line: str, stdin: str = "") -> int:
        self._patch.setattr("sys.stdin", io.StringIO(stdin))
        return main(["--config", str(self.config), "provider", *line])


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    # as root, other uids have to pass through the data directory
    directory = Path(tempfile.mkdtemp(prefix="certosa-cli-"))
    directory.chmod(0o711)
    yield Place(directory, monkeypatch)
    shutil.rmtree(directory)


def test_a_preset_and_a_key_from_standard_input(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.run("add", "claude", "--preset", "anthropic", stdin=f"{KEY}\n") == 0
    section = load_config(place.config).providers["claude"]
    assert (section.kind, section.base_url) == ("anthropic", "https://api.anthropic.com/v1")
    assert place.config.read_text().startswith("# ours\n")
    assert stat.S_IMODE(place.config.stat().st_mode) == 0o640
    assert tomllib.loads(place.keys.read_text()) == {"claude": KEY}
    info = place.keys.stat()
    assert (stat.S_IMODE(info.st_mode), info.st_uid) == (0o600, os.geteuid())
    out, err = capsys.readouterr()
    assert "after SIGHUP or a restart" in out
    assert KEY not in out + err
    assert KEY not in place.config.read_text()
    assert sorted(p.name for p in place.keys.parent.iterdir()) == ["provider-keys.toml"]


def test_the_key_may_be_typed_unseen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(getpass, "getpass", lambda prompt: KEY)
    monkeypatch.setattr("sys.stdin", Terminal())
    assert main(["--config", str(place.config), "provider", "add", "openai"]) == 0
    assert tomllib.loads(place.keys.read_text()) == {"openai": KEY}


def test_a_key_is_never_an_argument(place: Place) -> None:
    for line in (["--key", KEY], [f"--key={KEY}"], ["--no-key", KEY]):
        with pytest.raises(SystemExit):
            place.run("add", "x", "--base-url", "http://x/v1", *line)
    assert not place.keys.exists()


def test_what_the_spawner_opens_is_what_was_written(place: Place) -> None:
    from core.serve import _open_keys, owners_of

    place.run("add", "openai", stdin=KEY)
    fd = _open_keys(place.keys, owners_of(load_config(place.config)))
    assert fd is not None
    os.close(fd)


def test_other_keys_and_their_comments_stay(place: Place) -> None:
    place.run("add", "openai", stdin=KEY)
    place.keys.write_text(f"# mine\nother = 'sk-other'\n{place.keys.read_text()}")
    assert place.run("add", "a.b", "--base-url", "http://x/v1", "--key", stdin="sk-\"quoted\\'") == 0
    text = place.keys.read_text()
    assert text.startswith("# mine\nother = 'sk-other'\n")
    assert tomllib.loads(text) == {"other": "sk-other", "openai": KEY, "a.b": "sk-\"quoted\\'"}
    assert place.run("remove", "openai") == 0
    assert tomllib.loads(place.keys.read_text()) == {"other": "sk-other", "a.b": "sk-\"quoted\\'"}
    assert "openai" not in load_config(place.config).providers


@pytest.mark.parametrize("key", ["", "\n", "two words", "ünicode", "x" * 5_000, "a\x07b"])
def test_what_is_no_key_changes_nothing(place: Place, key: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = place.config.read_text()
    assert place.run("add", "openai", stdin=key) == 2
    assert place.config.read_text() == before
    assert not place.keys.exists()
    assert "key" in capsys.readouterr().err


def test_a_key_file_that_is_not_toml_is_left_alone_and_not_quoted(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run("add", "openai", stdin=KEY)
    place.keys.write_text(f"nonsense {KEY}")
    assert place.run("add", "openrouter", stdin="sk-new-0123456789") == 1
    assert place.keys.read_text() == f"nonsense {KEY}"
    assert "openrouter" not in load_config(place.config).providers
    assert KEY not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_a_key_file_that_is_no_file_is_refused_at_once(
    place: Place, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run("add", "openai", stdin=KEY)
    place.keys.unlink()
    target = tmp_path / "target"
    target.write_text("other = 'x'")
    if kind == "link":
        place.keys.symlink_to(target)
    elif kind == "fifo":
        os.mkfifo(place.keys)
    else:
        place.keys.mkdir()
    assert place.run("add", "openrouter", stdin=KEY) == 1
    assert target.read_text() == "other = 'x'"
    assert capsys.readouterr().err.startswith("certosa: ")


def test_users_fallbacks_and_an_address_of_ones_own(place: Place) -> None:
    place.run("add", "vllm", "--base-url", "http://10.0.0.2:8000/v1", "--users", "alice,bob")
    place.run(
        "add", "spare", "--preset", "ollama", "--users", "", "--fallback", "vllm/m", "--fallback", "builtin/a"
    )
    providers = load_config(place.config).providers
    assert (providers["vllm"].base_url, providers["vllm"].users) == (
        "http://10.0.0.2:8000/v1", ("alice", "bob"),
    )  # fmt: skip
    assert (providers["spare"].users, providers["spare"].fallbacks) == ((), ("vllm/m", "builtin/a"))
    assert not place.keys.exists()


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_makes_a_right_configuration(place: Place, preset: str) -> None:
    assert place.run("add", preset, stdin=KEY) == 0
    section = load_config(place.config).providers[preset]
    assert section.base_url == PRESETS[preset].base_url
    assert place.keys.exists() == PRESETS[preset].wants_key


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["x"], "--preset"),
        (["x", "--base-url", "nonsense"], "base_url"),
        (["x", "--base-url", "http://u:p@x/v1"], "base_url"),
        (["builtin", "--base-url", "http://x/v1"], "Certosa's own"),
        (["x", "--base-url", "http://x/v1", "--users", "Alice"], "users"),
        (["x", "--base-url", "http://x/v1", "--fallback", "gone/m"], "fallbacks"),
    ],
)
def test_what_would_be_wrong_is_refused_before_anything_is_written(
    place: Place, line: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = place.config.read_text()
    assert place.run("add", *line) == 2
    assert words in capsys.readouterr().err
    assert place.config.read_text() == before


def test_the_list_says_who_has_a_key_and_never_which(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run("add", "openai", "--users", "alice", stdin=KEY)
    place.run("add", "ollama")
    capsys.readouterr()
    assert place.run("list", "--json") == 0
    out = capsys.readouterr().out
    rows = {row["name"]: row for row in json.loads(out)["providers"]}
    assert [(name, row["key"], row["users"]) for name, row in rows.items()] == [
        ("builtin", False, None), ("ollama", False, None), ("openai", True, ["alice"]),
    ]  # fmt: skip
    assert rows["builtin"]["default"]
    place.run("list")
    table = capsys.readouterr().out
    assert "openai" in table
    assert KEY not in out + table


def test_a_running_server_says_which_keys_are_kept_in_its_vault(
    place: Place, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run("add", "openai", stdin=KEY)
    place.run("add", "ollama")
    place.run("add", "vllm", "--preset", "vllm")
    capsys.readouterr()

    class Server:
        def call(self, method: str, path: str) -> dict[str, object]:
            assert (method, path) == ("GET", "/v1/providers")
            return {"providers": [{"name": "ollama", "key": True}, {"name": "vllm", "key": False}]}

    monkeypatch.setattr("core.cli.providers.connect_admin", lambda _: Server())
    assert place.run("list", "--json") == 0
    rows = {row["name"]: row["key"] for row in json.loads(capsys.readouterr().out)["providers"]}
    assert rows == {"builtin": False, "ollama": True, "openai": True, "vllm": False}


def test_removing_what_is_not_there_or_still_needed_changes_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.run("add", "openai", stdin=KEY)
    place.config.write_text(place.config.read_text() + '[agent]\nprovider = "openai"\n')
    assert place.run("remove", "gone") == 2
    assert place.run("remove", "openai") == 2
    assert "agent.provider" in capsys.readouterr().err
    assert tomllib.loads(place.keys.read_text()) == {"openai": KEY}


def test_removing_says_whether_a_key_went_too(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.run("add", "openai", stdin=KEY)
    place.run("add", "ollama")
    capsys.readouterr()
    assert place.run("remove", "openai") == 0
    assert capsys.readouterr().out.startswith("openai and its key were removed. ")
    assert place.run("remove", "ollama") == 0
    assert capsys.readouterr().out.startswith("ollama was removed. ")


def test_a_configuration_behind_a_link_stays_behind_it(place: Place, tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    place.config.rename(real)
    place.config.symlink_to(real)
    assert place.run("add", "ollama") == 0
    assert place.config.is_symlink()
    assert "ollama" in load_config(real).providers


def test_a_test_needs_a_running_server(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.run("test", "openai") == 3
    assert "no server runs" in capsys.readouterr().err


def test_what_show_prints_with_and_without_users_is_the_same_again(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    from core.config import parse_config

    place.run("add", "ollama")
    place.run("add", "vllm", "--users", "")
    capsys.readouterr()
    main(["--config", str(place.config), "config", "show"])
    assert parse_config(capsys.readouterr().out) == load_config(place.config)
