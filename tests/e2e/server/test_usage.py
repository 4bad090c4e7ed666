"""What is used is counted before and after, limits hold, and the audit log says who did what."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest

from core.cli import main
from tests.fakes.model_server import FakeModelServer, Script
from tests.fakes.real_server import (
    LIMIT_S,
    UNATTACKED,
    Person,
    RealServer,
    new_person,
    real_server,
    until,
    with_model,
)

PRICES = {"input": "1", "output": "2.5"}
_A_DAY = 12_000


@pytest.fixture(scope="module")
def server(shared_model: FakeModelServer) -> Iterator[RealServer]:
    sections = {
        **with_model(shared_model.url),
        'providers.fake.prices."echo"': PRICES,
        "usage.soft": {"requests": 2},
        "usage.hard": {"tokens": 1_000_000},
    }
    with real_server(sections, before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    """Who has used something."""
    person = new_person(server, "alice")
    person.ask("help")
    return person


def used(server: RealServer, user: str) -> dict[str, Any]:
    found: dict[str, Any] = server.admin.call("GET", f"/v1/users/{user}/usage")
    return found


def limit(server: RealServer, user: str, **hard: int | str | None) -> None:
    server.admin.call("PATCH", f"/v1/users/{user}/limits", {"hard": hard})


def own(person: Person) -> Any:
    with person.client() as client:
        return client.get("/usage", cast_to=object)


def lines(server: RealServer, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.admin.call("GET", f"/v1/audit?limit=1000{query}")["lines"]
    return found


def test_a_chat_is_counted_and_its_user_sees_what_it_cost(server: RealServer, model: FakeModelServer) -> None:
    ann = new_person(server, "ann")
    model.say(Script(text="three short words"))
    assert ann.ask("hi", model="fake").text == "three short words"
    (row,) = own(ann)["data"]
    assert (row["provider"], row["model"], row["requests"], row["estimated"]) == ("fake", "echo", 1, 0)
    assert row["output_tokens"] == 3
    assert row["input_tokens"] > 0
    micro = row["input_tokens"] + 2.5 * row["output_tokens"]
    assert float(row["cost"]) == pytest.approx(micro / 1e6)
    today = own(ann)["today"]["dimensions"]["tokens"]
    assert (today["used"], today["held"]) == (row["input_tokens"] + 3, 0)
    assert today["hard"] == 1_000_000


def test_nobody_sees_another_s_usage(server: RealServer) -> None:
    carol = new_person(server, "ursula")
    assert own(carol)["data"] == []
    with carol.client() as client, pytest.raises(openai.BadRequestError):
        client.get("/usage?user=alice", cast_to=object)


def test_a_soft_limit_is_a_header_and_an_event_once_and_stops_nothing(server: RealServer) -> None:
    dora = new_person(server, "dora")
    headers = []
    for _ in range(4):
        with dora.client() as client:
            raw = client.chat.completions.with_raw_response.create(
                model="assistant", messages=[{"role": "user", "content": "help"}]
            )
            headers.append(raw.headers.get("X-Certosa-Notice", ""))
    assert [bool(text) for text in headers] == [False, False, True, False]
    assert "soft limit of 2 requests" in headers[2]
    assert server.logged("soft_limit_reached", user="dora", dimension="requests")
    emil = new_person(server, "emil")
    for _ in range(2):
        emil.ask("help")
    notices = [event for event in emil.ask("help").events if event["type"] == "notice"]
    assert [notice["kind"] for notice in notices] == ["usage"]


def test_at_a_hard_limit_the_turn_ends_as_openai_s_and_anthropic_s_clients_expect(
    server: RealServer, model: FakeModelServer
) -> None:
    frank, before = new_person(server, "frank"), len(model.requests)
    limit(server, "frank", tokens=10)
    with pytest.raises(openai.RateLimitError) as raised:
        frank.ask("hi", model="fake")
    assert (raised.value.code, raised.value.type) == ("insufficient_quota", "insufficient_quota")
    assert "begins anew at" in raised.value.message
    assert 0 < int(raised.value.response.headers["Retry-After"]) <= 86_400
    assert raised.value.response.headers["x-should-retry"] == "false"
    with anthropic.Anthropic(base_url=server.url, api_key=frank.token, max_retries=0) as client:
        with pytest.raises(anthropic.RateLimitError) as refused:
            client.messages.create(model="fake", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
        assert refused.value.body["error"]["type"] == "rate_limit_error"  # type: ignore[index]
    assert len(model.requests) == before
    assert [line["on"] for line in lines(server, "&user=frank&kind=limit_reached")] == ["tokens"]
    limit(server, "frank", tokens="default")
    model.say(Script(text="there you are"))
    assert frank.ask("hi", model="fake").text == "there you are"


def test_turns_at_once_do_not_overspend_together(server: RealServer, model: FakeModelServer) -> None:
    gerda = new_person(server, "gerda")
    limit(server, "gerda", tokens=_A_DAY)
    model.say(*(Script(text="w " * 40, rate_per_s=200) for _ in range(12)))

    def attempt(_: int) -> bool:
        try:
            gerda.ask("hi", model="fake")
        except openai.RateLimitError:
            return False
        return True

    before = len(model.requests)
    with ThreadPoolExecutor(4) as pool:
        passed = list(pool.map(attempt, range(12)))
    tokens = own(gerda)["today"]["dimensions"]["tokens"]
    assert 0 < tokens["used"] <= _A_DAY
    assert tokens["held"] == 0
    assert any(passed)
    assert not all(passed)
    # and the model server was told to keep within what was left
    assert all(0 < request.body["max_tokens"] < _A_DAY for request in model.requests[before:])


def test_what_egress_held_when_it_was_killed_is_counted_in_full(
    server: RealServer, model: FakeModelServer
) -> None:
    hugo, before = new_person(server, "hugo"), len(model.requests)
    model.say(Script(text="word " * 2_000, rate_per_s=20))
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(hugo.ask, "hi", model="fake")
        until("the chat at the model server", lambda: len(model.requests) > before)
        held = used(server, "hugo")["today"]["dimensions"]["tokens"]["held"]
        assert held > 0
        os.kill(server.pid("egress"), signal.SIGKILL)
        with pytest.raises(openai.APIError):
            failed.result(LIMIT_S)
    until("egress again", lambda: server.logged("reservations_settled_in_full"))
    until("the link", lambda: server.admin.call("GET", "/v1/status")["egress"] == "up")
    answer = used(server, "hugo")
    assert answer["today"]["dimensions"]["tokens"]["used"] == held
    assert answer["today"]["dimensions"]["tokens"]["held"] == 0
    assert answer["data"][0]["estimated"] == 1


def test_administrators_acts_and_failed_logins_are_in_the_audit_log(server: RealServer) -> None:
    new_person(server, "ida")
    made = [line for line in lines(server, "&user=ida") if line["kind"] == "user_added"]
    # core says what it is about to do and did, egress what it did for it
    assert [(line["by"], line["outcome"]) for line in made] == [
        ("core", "asked"), ("egress", "noted"), ("core", "done"),
    ]  # fmt: skip
    assert {line["who"] for line in made if line["by"] == "core"} == {f"uid:{os.geteuid()}"}
    assert all(line["request"].startswith("req_") for line in made if line["by"] == "core")
    tokens = [line["on"] for line in lines(server, "&user=ida&kind=token_made")]
    listed = server.admin.call("GET", "/v1/users/ida/tokens")["tokens"]
    assert tokens == ["", listed[0]["token_id"], listed[0]["token_id"]]  # asked for, and made
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="cts_wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()
    (failed,) = until("the failed login", lambda: lines(server, "&kind=login_failed"))
    assert (failed["detail"], failed["outcome"]) == ("127.0.0.1", "refused")
    assert "cts_wrong" not in str(lines(server))
    assert lines(server, "&kind=server_started")


def test_a_changed_line_is_found_and_its_restoring_too(
    server: RealServer, alice: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--data-dir", str(server.data_dir), "audit", "verify"]
    assert main(arguments) == 0
    assert "is whole" in capsys.readouterr().out
    path = server.data_dir / "_keys" / "audit" / "audit-00000001.jsonl"
    right = path.read_bytes()
    with path.open("r+b") as file:  # in place: the server has it open
        file.write(right.replace(b'"user":"alice"', b'"user":"aldous"'.ljust(14), 1)[: len(right)])
    assert main(arguments) == 1
    assert "audit-00000001.jsonl:" in capsys.readouterr().err
    with path.open("r+b") as file:
        file.write(right)
        file.truncate(max(path.stat().st_size, len(right)))
    assert main([*arguments, "--json"]) == 0


def test_the_command_line_shows_usage_and_limits(
    server: RealServer, alice: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data-dir", str(server.data_dir)]
    assert main([*where, "usage"]) == 0
    assert "builtin/assistant" in capsys.readouterr().out
    assert main([*where, "limit", "set", "alice", "--hard", "cost=2.50", "--soft", "tokens=none"]) == 0
    assert "2.50*" in capsys.readouterr().out
    assert main([*where, "audit", "show", "--kind", "limits_set", "--user", "alice"]) == 0
    assert "hard.cost=" in capsys.readouterr().out


def test_files_of_the_ledger_and_the_log_are_egress_s_alone(server: RealServer) -> None:
    keys = server.data_dir / "_keys"
    egress = os.stat(f"/proc/{server.pid('egress')}").st_uid
    for path in [keys / "ledger.db", keys / "audit", *(keys / "audit").iterdir()]:
        assert path.stat().st_mode & 0o077 == 0
        assert path.stat().st_uid == egress
