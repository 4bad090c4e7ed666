"""An agent made over HTTP runs, and its file is core's to write and its user's to read."""

import os
import stat

from tests.e2e.server.test_files import ask
from tests.fakes.real_server import Person


def test_an_agent_made_over_http_runs_and_its_user_reads_the_file(alice: Person, bob: Person) -> None:
    made = ask(alice, "PUT", "/v1/agents/shell", {"prompt": "run things", "tools": ["run_command"]})
    assert made.status == 201

    done = alice.ask("run: cat /agents/shell.toml", model="shell")
    assert "run things" in done.output
    assert "run things" not in bob.run("cat /agents/shell.toml")
    assert "denied" in alice.run("rm -f /agents/shell.toml || echo denied")
    file = alice.home.parent / "agents" / "shell.toml"
    if os.geteuid() == 0:
        assert file.stat().st_uid == file.parent.stat().st_uid
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert ask(alice, "DELETE", "/v1/agents/shell").status == 200
    assert not file.exists()


def test_a_session_of_a_real_turn_is_its_users_alone(alice: Person, bob: Person) -> None:
    alice.ask("run: echo of-alice", session="private")
    shown = ask(alice, "GET", "/v1/sessions/private").json
    assert shown["data"][0]["role"] == "user"
    assert "of-alice" in str(shown["data"])
    other = ask(bob, "GET", "/v1/sessions/private")
    assert (other.status, other.body) == (404, ask(bob, "GET", "/v1/sessions/none").body)
    assert ask(bob, "DELETE", "/v1/sessions/private").status == 404
    assert ask(alice, "DELETE", "/v1/sessions/private").status == 200
    assert ask(alice, "GET", "/v1/sessions/private").status == 404
