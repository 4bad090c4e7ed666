"""Providers of the real server: Anthropic's format at both ends, tests by the operator, who may use which."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.fakes.model_server import Call, FakeModelServer, Script, running_model_server
from tests.fakes.real_server import LIMIT_S, Person, RealServer, command, real_server

KEY = "sk-ant-canary-0123456789abcdefghij"


@pytest.fixture(scope="module")
def model() -> Iterator[FakeModelServer]:
    with running_model_server(keep_alive=False) as fake:
        yield fake


@pytest.fixture(scope="module")
def server(model: FakeModelServer) -> Iterator[RealServer]:
    claude = {"kind": "anthropic", "base_url": model.url, "retries": 1, "retry_base_s": 0.01, "cache": True}
    sections: dict[str, dict[str, Any]] = {
        "providers.claude": claude,
        "providers.closed": {"base_url": model.url, "users": ["alice"]},
        "providers.broken": {
            "base_url": "http://127.0.0.1:1/v1", "retries": 0, "fallbacks": ["closed/m", "claude/spare"],
        },
    }  # fmt: skip
    with real_server(sections, keys=f'claude = "{KEY}"') as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return _person(server, "alice")


@pytest.fixture(scope="module")
def bob(server: RealServer) -> Person:
    return _person(server, "bob")


def _person(server: RealServer, name: str) -> Person:
    person = server.new_user(name)
    for provider in ("claude", "closed", "broken"):
        person.add_agent(provider, f'provider = "{provider}"\nmodel = "m"\n')
    return person


def _ask(person: Person, agent: str, text: str = "hi") -> str:
    with person.client() as client:
        answer = client.chat.completions.create(model=agent, messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content or ""


def _certosa(server: RealServer, *line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("", "--config", str(server.config_path), *line),
        capture_output=True, text=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_tool_runs_in_the_jail_between_anthropics_format_at_both_ends(
    alice: Person, server: RealServer, model: FakeModelServer
) -> None:
    model.say(
        Script(text="I look. ", calls=(Call("run_command", '{"command": "echo from-the-jail"}', "toolu_1"),)),
        Script(text="It said so."),
    )
    asked = len(model.requests)
    client = anthropic.Anthropic(api_key=alice.token, base_url=server.url, max_retries=0, timeout=LIMIT_S)
    with (
        client,
        client.messages.stream(
            model="claude", max_tokens=50, messages=[{"role": "user", "content": "look"}]
        ) as stream,
    ):
        message = stream.get_final_message()
    assert [block.type for block in message.content] == ["text"]
    assert "I look. " in str(message.content)
    assert "It said so." in str(message.content)
    assert message.usage.input_tokens == 14  # of two rounds, cache included
    first, second = model.requests[asked:]
    assert first.headers["x-api-key"] == KEY
    call, result = second.body["messages"][-2:]
    assert call["content"][-1]["input"] == {"command": "echo from-the-jail"}
    (block,) = result["content"]
    assert (block["type"], block["tool_use_id"]) == ("tool_result", "toolu_1")
    assert "from-the-jail" in block["content"]
    assert block["cache_control"] == {"type": "ephemeral"}
    assert KEY not in server.log_path.read_text()


def test_a_passing_failure_upstream_is_not_seen_by_the_client(alice: Person, model: FakeModelServer) -> None:
    model.say(Script(status=529), Script(text="well again"))
    assert _ask(alice, "claude") == "well again"


def test_who_may_not_use_a_provider_is_told_so_and_others_answer_in_its_place(
    alice: Person, bob: Person, model: FakeModelServer
) -> None:
    assert _ask(alice, "closed") == "You said: hi"
    asked = len(model.requests)
    with pytest.raises(openai.PermissionDeniedError, match="you may not use closed"):
        _ask(bob, "closed")
    assert len(model.requests) == asked
    assert _ask(alice, "broken") == "You said: hi"
    assert model.requests[-1].body["model"] == "m"  # alice's by the first fallback
    assert _ask(bob, "broken") == "You said: hi"
    assert model.requests[-1].body["model"] == "spare"  # bob's by the one that is open to him


def test_the_operator_tests_a_provider_through_the_running_server(
    server: RealServer, model: FakeModelServer
) -> None:
    done = _certosa(server, "provider", "test", "claude", "--json")
    assert done.returncode == 0, done.stderr
    found: Any = json.loads(done.stdout)
    assert (found["ok"], found["models"], found["model"]) == (True, ["m1", "m2"], "m1")
    done = _certosa(server, "provider", "test", "claude", "--model", "m2")
    assert "2 models: m1, m2\nm2 answered in " in done.stdout
    broken = _certosa(server, "provider", "test", "broken", "--model", "m")
    assert broken.returncode == 1
    assert "could not be reached" in broken.stderr
    unknown = _certosa(server, "provider", "test", "nobody")
    assert unknown.returncode == 1
    assert "SIGHUP" in unknown.stderr


def test_a_provider_that_was_added_answers_after_a_restart(model: FakeModelServer) -> None:
    with real_server({}, start=False) as server:
        server.start()
        done = subprocess.run(
            command(
                "", "--config", str(server.config_path), "provider", "add", "added", "--kind", "anthropic",
                "--base-url", model.url, "--key",
            ),
            input=f"{KEY}\n", capture_output=True, text=True, timeout=LIMIT_S, check=True,
        )  # fmt: skip
        assert "or a restart" in done.stdout
        assert "SIGHUP" in _certosa(server, "provider", "test", "added").stderr
        assert server.stop() == 0
        with server.log_path.open("ab") as log:
            server.process = subprocess.Popen(
                command("", "--config", str(server.config_path), "serve"),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        server.wait_ready()
        done = _certosa(server, "provider", "test", "added", "--json")
        assert json.loads(done.stdout)["ok"] is True
        assert model.requests[-1].headers["x-api-key"] == KEY
