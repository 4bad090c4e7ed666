"""Agents' files: what is taken from them, and what is refused without waiting or following."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from core.config import AgentSection, Config, ProviderSection
from core.hub.agents import MAX_FILE_BYTES, AgentFileError, Agents, NoSuchAgent
from jail.wire.schema import Limits

CONFIG = Config(
    agent=AgentSection(prompt="default prompt", limits=Limits(rounds=7)),
    providers={"local": ProviderSection(base_url="http://x/v1")},
)


@pytest.fixture
def agents(tmp_path: Path) -> Agents:
    (tmp_path / "alice" / "agents").mkdir(parents=True)
    return Agents(tmp_path, CONFIG)


@pytest.fixture
def folder(agents: Agents, tmp_path: Path) -> Path:
    return tmp_path / "alice" / "agents"


def test_everybody_has_the_assistant_file_or_not(agents: Agents, folder: Path) -> None:
    for user in ("alice", "somebody-without-a-directory"):
        agent = agents.get(user, "assistant")
        assert (agent.prompt, agent.provider, agent.model) == ("default prompt", "builtin", "assistant")
        assert [entry.name for entry in agents.list(user)] == ["assistant"]
    (folder / "assistant.toml").write_text('prompt = "mine"')
    assert agents.get("alice", "assistant").prompt == "mine"


def test_a_file_changes_what_it_names_and_nothing_else(agents: Agents, folder: Path) -> None:
    (folder / "coder.toml").write_text(
        'provider = "local"\nmodel = "m"\ntools = ["read_file"]\n[limits]\nwall_s = 60\n'
    )
    agent = agents.get("alice", "coder")
    assert (agent.name, agent.prompt) == ("coder", "default prompt")
    assert (agent.provider, agent.model, agent.tools) == ("local", "m", ("read_file",))
    assert (agent.limits.wall_s, agent.limits.rounds) == (60, 7)


def test_fallbacks_are_the_configurations_unless_the_file_names_some(
    agents: Agents, folder: Path, tmp_path: Path
) -> None:
    (folder / "coder.toml").write_text('fallbacks = ["local/org/m", "builtin/assistant"]')
    assert agents.get("alice", "coder").fallbacks == ("local/org/m", "builtin/assistant")
    assert agents.get("alice", "assistant").fallbacks == ()
    agents.apply(msgspec.structs.replace(CONFIG, agent=AgentSection(fallbacks=("local/m",))))
    assert agents.get("alice", "assistant").fallbacks == ("local/m",)
    assert agents.get("alice", "coder").fallbacks == ("local/org/m", "builtin/assistant")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('fallbacks = ["elsewhere/m"]', "fallbacks: 'elsewhere/m' is not PROVIDER/MODEL"),
        ('fallbacks = ["local"]', "fallbacks"),
        ('fallbacks = ["local/"]', "fallbacks"),
        ('fallbacks = "local/m"', "fallbacks"),
        ('promt = "x"', "promt"),
        ("prompt = 5", "prompt"),
        ('provider = "elsewhere"', "provider"),
        ("[limits]\nwall_s = 0", "wall_s"),
        ("[limits]\nwal_s = 5", "wal_s"),
        ('[limits]\nrounds = "x"', "rounds"),
        ('tools = ["a b"]', "tools"),
        ("not toml", "not TOML"),
        ("x = " + "[" * 20_000, "not TOML"),
        ('prompt = "' + "x" * 64_001 + '"', "prompt"),
        ("#" * (MAX_FILE_BYTES + 1), "longer"),
    ],
)
def test_a_file_that_will_not_do_is_refused_with_what_is_wrong(
    agents: Agents, folder: Path, text: str, named: str
) -> None:
    (folder / "x.toml").write_text(text)
    with pytest.raises(AgentFileError, match=named) as error:
        agents.get("alice", "x")
    assert "x.toml" in str(error.value)


def test_bytes_that_are_no_text_are_refused(agents: Agents, folder: Path) -> None:
    (folder / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AgentFileError, match="not TOML"):
        agents.get("alice", "x")


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "device_link", "socket"])
def test_what_is_no_regular_file_is_refused_at_once(
    agents: Agents, folder: Path, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "bob").mkdir()
    secret = tmp_path / "bob" / "secret.toml"
    secret.write_text('prompt = "bobs secret"')
    path = folder / "x.toml"
    match kind:
        case "link":
            path.symlink_to(secret)
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "device_link":
            path.symlink_to("/dev/zero")
        case _:
            import socket

            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(str(path))
    begun_s = time.monotonic()
    with pytest.raises(AgentFileError):
        agents.get("alice", "x")
    assert time.monotonic() - begun_s < 1
    assert [entry.name for entry in agents.list("alice")] == ["assistant"]
    if kind != "directory":
        path.unlink()
        path.write_bytes(secret.read_bytes())
        assert agents.get("alice", "x").prompt == "bobs secret"  # a file of her own is read


@pytest.mark.parametrize("which", ["agents", "user"])
def test_a_directory_that_is_a_link_is_not_followed(
    agents: Agents, folder: Path, tmp_path: Path, which: str
) -> None:
    (tmp_path / "bob" / "agents").mkdir(parents=True)
    (tmp_path / "bob" / "agents" / "x.toml").write_text('prompt = "bobs secret"')
    assert agents.get("bob", "x").prompt == "bobs secret"
    folder.rmdir()
    if which == "agents":
        folder.symlink_to(tmp_path / "bob" / "agents")
    else:
        folder.parent.rmdir()
        folder.parent.symlink_to(tmp_path / "bob")
    with pytest.raises(AgentFileError):
        agents.get("alice", "x")
    with pytest.raises(AgentFileError):
        agents.list("alice")


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a.b", ".x", "a\0", "x" * 65, "ä", "x\n"])
def test_a_name_that_could_lead_elsewhere_is_no_agent(agents: Agents, name: str) -> None:
    with pytest.raises(NoSuchAgent):
        agents.get("alice", name)


def test_the_list_shows_agents_and_nothing_else(agents: Agents, folder: Path) -> None:
    for name in ("coder.toml", "a b.toml", ".hidden.toml", "notes.txt", "x.toml.bak", "toml"):
        (folder / name).write_text("")
    entries = agents.list("alice")
    assert [entry.name for entry in entries] == ["assistant", "coder"]
    assert entries[1].created_s == int((folder / "coder.toml").stat().st_mtime)


def test_tools_that_are_to_be_asked_about_are_the_agents_own(tmp_path: Path) -> None:
    folder = tmp_path / "alice" / "agents"
    folder.mkdir(parents=True)
    agents = Agents(
        tmp_path, Config(agent=AgentSection(tools=("read_file", "run_command"), ask=("run_command",)))
    )
    assert agents.get("alice", "assistant").ask == ("run_command",)
    (folder / "reader.toml").write_text('tools = ["read_file"]')
    assert agents.get("alice", "reader").ask == ()
    (folder / "shy.toml").write_text('ask = ["read_file"]')
    assert agents.get("alice", "shy").ask == ("read_file",)
    (folder / "bold.toml").write_text("ask = []")
    assert agents.get("alice", "bold").ask == ()
    (folder / "wrong.toml").write_text('ask = ["run_comand"]')
    with pytest.raises(AgentFileError, match="ask: 'run_comand' is none of this agent's tools"):
        agents.get("alice", "wrong")
