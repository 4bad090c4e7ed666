"""/v1/usage over HTTP, and what administrators see and set."""

import pytest

from core.cli import main
from core.egress.account_messages import LimitChange
from core.ledger.limits import PICO
from jail.wire.schema import Failure, Notice
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient
from tests.fakes.scripted_turns import PlayedTurn

BODY = {"model": "assistant", "messages": [{"role": "user", "content": "hello"}]}


def test_a_user_sees_their_own_day_and_no_other_s(hub: HubProcess, plain: PlainClient) -> None:
    answer = plain.ask("GET", "/v1/usage?since=2026-11-01&until=2026-12-02")
    assert answer.status == 200
    assert answer.json["today"]["user"] == "alice"
    assert answer.json["data"][0]["cost"] == "0.50"
    assert hub.accounts.asked == [("standing", "alice"), ("usage", "alice", "2026-11-01", "2026-12-02")]
    assert plain.ask("GET", "/v1/usage?user=bob").status == 400


@pytest.mark.parametrize(
    "query", ["day=yesterday", "day=2026-1-1", "since=2026-02-30", "day=2026-01-01&since=2026-01-01"]
)
def test_a_day_that_is_none_is_refused_by_name(plain: PlainClient, query: str) -> None:
    answer = plain.ask("GET", f"/v1/usage?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_value")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("since=2026-12-02T09:00%2B01:00&limit=5", 200),
        ("since=0001-01-01T00:00%2B10:00", 400),
        ("limit=" + "9" * 5_000, 400),
        ("until=noon", 400),
    ],
)
def test_what_the_audit_log_is_asked_for_is_checked(hub: HubProcess, query: str, status: int) -> None:
    root = PlainClient(hub.admin_url, {"Authorization": "Bearer admin-root"})
    assert root.ask("GET", f"/admin/v1/audit?{query}").status == status


def command(hub: HubProcess, line: str) -> int:
    system = hub.directory / "_system"
    if not system.exists():
        system.mkdir()
        (system / "admin.sock").symlink_to(hub.command_path)
    return main(["--data-dir", str(hub.directory), *line.split()])


def test_the_command_line_sets_limits_and_shows_them(
    hub: HubProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "limit set bob --hard tokens=500_000 --hard cost=2.50 --soft requests=none --soft bytes=default"
    assert command(hub, line) == 0
    assert hub.accounts.asked[0] == (
        "set_limits",
        "bob",
        (
            LimitChange("soft", "requests"),
            LimitChange("soft", "bytes", default=True),
            LimitChange("hard", "tokens", 500_000),
            LimitChange("hard", "cost", 2_500_000_000_000),
        ),
    )
    assert 5 * PICO // 2 == 2_500_000_000_000
    assert "500,000*" in capsys.readouterr().out
    assert command(hub, "limit show nobody") == 1
    assert "no user 'nobody'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "setting",
    ["cost=-1", "cost=1e9", "cost=0.0000001", "cost=much", "tokens=-1", "tokens=1.5", "words=3", "tokens"],
)
def test_a_limit_that_is_none_is_refused(hub: HubProcess, setting: str) -> None:
    assert command(hub, f"limit set bob --hard {setting}") in (1, 2)
    assert hub.accounts.asked == []


def test_usage_is_a_table_for_people(hub: HubProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(hub, "usage --since 2026-11-01") == 0
    assert hub.accounts.asked == [("usage", "", "2026-11-01", "9999-12-31")]
    shown = capsys.readouterr().out
    assert "acme/m1" in shown
    assert "0.50 USD" in shown
    assert "1 estimated" in shown
    assert command(hub, "usage bob --day 2026-12-01") == 0
    assert "the day ends at" in capsys.readouterr().out
    assert command(hub, "usage --day 2026-12-01 --since 2026-12-01") == 2


def test_the_audit_log_is_shown_by_filters_and_checked(
    hub: HubProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    times = "--since 2026-12-02T09:00+01:00 --until 2026-12-03"
    assert command(hub, f"audit show --user alice {times} --limit 5") == 0
    assert hub.accounts.asked == [("audit", "alice", "", "2026-12-02T08:00:00.000Z", "2026-12-03T24", 5)]
    assert "user_added done by uid:0 user alice" in capsys.readouterr().out
    assert command(hub, "audit show --since noon") == 1
    assert command(hub, "audit verify") == 0
    hub.accounts.faults = ("audit-00000001.jsonl:3 was changed",)
    assert command(hub, "audit verify") == 1
    assert ":3 was changed" in capsys.readouterr().err


def test_a_used_up_day_answers_as_openai_does_and_is_not_tried_again(
    hub: HubProcess, plain: PlainClient
) -> None:
    hub.turns.script = lambda turn: turn.end(Failure("quota", "used up", 3_600))
    answer = plain.ask("POST", "/v1/chat/completions", BODY)
    assert answer.status == 429
    assert answer.json["error"]["code"] == answer.json["error"]["type"] == "insufficient_quota"
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("3600", "false")


def test_a_soft_limit_s_notice_is_a_header_that_nothing_can_be_smuggled_into(
    hub: HubProcess, plain: PlainClient
) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.put(Notice("past it\r\nX-Evil: 1", "usage"))
        turn.say("hello")
        turn.end()

    hub.turns.script = script
    for stream in (False, True):
        answer = plain.ask("POST", "/v1/chat/completions", {**BODY, "stream": stream})
        assert answer.headers["x-certosa-notice"] == "past it??X-Evil: 1"
        assert "x-evil" not in answer.headers


def test_a_wrong_token_is_told_to_the_audit_log(hub: HubProcess) -> None:
    PlainClient(hub.url, {"Authorization": "Bearer wrong"}).ask("GET", "/v1/models")
    assert hub.failed_logins == [("127.0.0.1", "")]
