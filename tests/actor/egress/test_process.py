"""The real egress process over its link: vault, chats, limits, ends; and a key that never shows."""

import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from core.config import Config, ProviderSection, ServerSection
from core.egress.credential_messages import CredentialKept, SetCredential
from core.egress.messages import (
    AddUser,
    ChatCancel,
    ChatCredit,
    ChatDone,
    ChatFailed,
    ChatItem,
    ChatStart,
    HandleMinted,
    ListProviders,
    ListTokens,
    NewToken,
    Ok,
    Ping,
    ProvidersListed,
    RevokeToken,
    TokenMade,
    TokenRejected,
    Tokens,
    VerifyToken,
)
from core.vault.handle import UserHandle
from core.vault.terms import CredentialTerms
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import ChatCall, ChatDelta, Message, Sampling, ToolSpec
from tests.fakes.egress_process import EgressProcess
from tests.fakes.model_server import Call, Script, running_model_server

KEY = "sk-canary-0123456789abcdefghij"


def _config(url: str = "http://127.0.0.1:1/v1", **limits: Any) -> Config:
    return Config(
        server=ServerSection(log_level="debug"),
        providers={"acme": ProviderSection(base_url=url, **{"retries": 0, **limits})},
    )


def _start(id: int, text: str = "hi", provider: str = "acme", model: str = "m") -> ChatStart:
    tools = (ToolSpec("run_command", "runs", '{"properties": {"command": {}}}'),)
    return ChatStart(id, "alice", provider, model, (Message("user", text),), tools, Sampling())


def _ended(message: Any) -> bool:
    return isinstance(message, ChatDone | ChatFailed)


def _text(egress: EgressProcess, id: int) -> str:
    items = [m.item for m in egress.seen if isinstance(m, ChatItem) and m.id == id]
    return "".join(item.text for item in items if isinstance(item, ChatDelta))


def test_users_and_tokens_live_through_a_restart(tmp_path: Path) -> None:
    with EgressProcess(tmp_path) as egress:
        assert egress.ask(Ping(1)) == Ok(1)
        assert egress.ask(AddUser(2, "alice")) == Ok(2)
        made = egress.ask(NewToken(3, "alice", "laptop"))
        assert isinstance(made, TokenMade)
        minted = egress.ask(VerifyToken(4, made.token))
        assert isinstance(minted, HandleMinted)
        sealed = UserHandle(minted.user, minted.data_key).seal("place", b"letter")
        assert egress.stop() == 0
    with EgressProcess(tmp_path) as egress:
        again = egress.ask(VerifyToken(1, made.token))
        assert UserHandle(again.user, again.data_key).open("place", sealed) == b"letter"
        listed = egress.ask(ListTokens(2, "alice"))
        assert isinstance(listed, Tokens)
        assert [(t.token_id, t.label) for t in listed.tokens] == [(made.token_id, "laptop")]
        assert listed.tokens[0].last_used_s is not None
        assert egress.ask(RevokeToken(3, made.token_id)) == Ok(3)
        assert isinstance(egress.ask(VerifyToken(4, made.token)), TokenRejected)
        assert made.token not in egress.log()


def test_the_built_in_assistant_makes_a_real_call(tmp_path: Path) -> None:
    with EgressProcess(tmp_path) as egress:
        egress.send(_start(1, "run: id", "builtin", "assistant"))
        done = egress.receive(_ended)
        assert done.end.finish == "tool_calls"
        (call,) = [m.item for m in egress.seen if isinstance(m, ChatItem) and isinstance(m.item, ChatCall)]
        assert (call.call.name, call.call.arguments) == ("run_command", '{"command":"id"}')


def test_a_model_server_is_streamed_with_the_key_from_the_file(tmp_path: Path) -> None:
    with (
        running_model_server() as server,
        EgressProcess(tmp_path, _config(server.url), f'acme = "{KEY}"') as egress,
    ):
        server.say(Script(text="well then", calls=(Call("run_command", "{}", "c1"),)))
        egress.send(_start(1))
        done = egress.receive(_ended)
        assert isinstance(done, ChatDone)
        assert done.end.finish == "tool_calls"
        assert _text(egress, 1) == "well then"
        assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
        assert KEY not in egress.log() + str(egress.seen)


@pytest.mark.parametrize("where", ["file", "vault", "nowhere"])
def test_a_provider_has_a_key_wherever_it_is_kept(tmp_path: Path, where: str) -> None:
    keys = f'acme = "{KEY}"\n' if where == "file" else ""
    with EgressProcess(tmp_path, _config(), keys) as egress:
        if where == "vault":
            egress.send(SetCredential(1, "", "provider:acme", CredentialTerms(), KEY))
            assert isinstance(egress.receive(), CredentialKept)
        egress.send(ListProviders(2))
        listed = egress.receive()
        assert isinstance(listed, ProvidersListed)
        assert {one.name: one.key for one in listed.providers} == {
            "builtin": False,
            "acme": where != "nowhere",
        }
        assert KEY not in str(listed)


def test_without_a_key_file_no_authorization_is_sent(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        egress.send(_start(1))
        assert isinstance(egress.receive(_ended), ChatDone)
        assert "Authorization" not in server.requests[0].headers


def test_past_the_window_the_rest_comes_merged_with_credit(tmp_path: Path) -> None:
    words = [f"{n} " for n in range(200)]
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        server.say(Script(text="".join(words)))
        egress.send(_start(1))
        for _ in range(STREAM_WINDOW):
            assert isinstance(egress.receive(), ChatItem)
        # an answered ping is behind all that may be sent without credit
        assert egress.ask(Ping(2)) == Ok(2)
        assert sum(isinstance(m, ChatItem) for m in egress.seen) == STREAM_WINDOW
        while isinstance(egress.seen[-1], ChatItem | Ok):
            egress.send(ChatCredit(1, 1))
            egress.receive()
        assert isinstance(egress.seen[-1], ChatDone)
        assert _text(egress, 1) == "".join(words)


def test_without_credit_the_upstream_is_not_read_on(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        server.say(Script(misbehave="endless"))
        egress.send(_start(1))
        for _ in range(STREAM_WINDOW):
            egress.receive()
        before = -1
        while server.bytes_sent != before:  # it goes on until every buffer on the way is full
            before = server.bytes_sent
            for number in range(2, 60):
                egress.ask(Ping(number))
        assert before < 16 << 20
        egress.send(ChatCredit(1, 4))
        egress.receive(lambda message: isinstance(message, ChatItem))
        egress.send(ChatCancel(1))
        assert server.left.acquire(timeout=20)


def test_cancel_closes_the_upstreams_connection(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        server.say(Script(text="some words", misbehave="stall"))
        egress.send(_start(1))
        egress.receive(lambda message: isinstance(message, ChatItem))
        egress.send(ChatCancel(1))
        assert server.left.acquire(timeout=20)
        assert egress.ask(Ping(2)) == Ok(2)
        assert not any(_ended(message) for message in egress.seen)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        (Script(status=401), "upstream_auth"),
        (Script(status=429, headers={"Retry-After": "5"}), "upstream_rate_limit"),
        (Script(text="a", misbehave="not_json"), "upstream"),
        (Script(text="a", misbehave="cut"), "upstream"),
        (Script(text="a", misbehave="stall"), "upstream_timeout"),
    ],
    ids=["401", "429", "not_json", "cut", "stall"],
)
def test_a_failure_is_one_message_and_the_process_lives(tmp_path: Path, script: Script, code: str) -> None:
    with (
        running_model_server() as server,
        EgressProcess(tmp_path, _config(server.url, idle_s=1.0)) as egress,
    ):
        server.say(script)
        egress.send(_start(1))
        failed = egress.receive(_ended)
        assert isinstance(failed, ChatFailed)
        assert failed.failure.code == code
        egress.send(_start(2, "again"))
        assert isinstance(egress.receive(_ended), ChatDone)
        assert _text(egress, 2) == "You said: again"


def test_a_key_that_comes_back_in_any_way_reaches_neither_core_nor_the_log(tmp_path: Path) -> None:
    echo = f'{{"error": {{"message": "bad key {KEY}"}}}}'
    scripts = (
        Script(status=401, error_body=echo),
        Script(status=500, error_body=f"Traceback: Bearer {KEY}"),
        Script(raw_events=(f"data: {echo}\n\n",)),
        Script(raw_events=(f"data: not json {KEY}\n\n",)),
        Script(text=f"your key is {KEY} indeed", reasoning=KEY),
        Script(calls=(Call(KEY, f'{{"key": "{KEY}"}}', KEY),)),
        Script(headers={"Content-Type": KEY}),
    )
    with (
        running_model_server() as server,
        EgressProcess(tmp_path, _config(server.url), f'acme = "{KEY}"\nother = "{KEY}"') as egress,
    ):
        server.say(*scripts)
        for number in range(1, len(scripts) + 1):
            egress.send(_start(number))
            egress.receive(_ended)
        assert all(r.headers["Authorization"] == f"Bearer {KEY}" for r in server.requests)
        seen = str(egress.seen)
        assert egress.stop() == 0
        assert _text(egress, 5) == "your key is [struck out] indeed"
        assert "canary" not in seen
        assert "canary" not in egress.log()


def test_too_many_chats_of_a_user_are_overloaded(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        server.say(*[Script(misbehave="slow_headers")] * 20)
        egress.send(*(_start(number) for number in range(1, 10)))
        failed = egress.receive(_ended)
        assert (failed.id, failed.failure.code, failed.failure.retry_after_s) == (9, "overloaded", 2)


def test_sigterm_stops_running_chats_and_exits_in_order(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        server.say(Script(text="a", misbehave="stall"))
        egress.send(_start(1))
        egress.receive(lambda message: isinstance(message, ChatItem))
        egress.process.send_signal(signal.SIGTERM)
        assert egress.process.wait(20) == 0
        assert server.left.acquire(timeout=20)


def test_the_end_of_the_link_ends_it_and_sigint_does_not(tmp_path: Path) -> None:
    with EgressProcess(tmp_path) as egress:
        egress.ask(Ping(1))
        egress.process.send_signal(signal.SIGINT)
        assert egress.ask(Ping(2)) == Ok(2)
        assert egress.stop() == 0


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc0", b"GET / HTTP/1.1\r\n\r\n"])
def test_nonsense_on_the_link_ends_it_as_broken(tmp_path: Path, nonsense: bytes) -> None:
    with EgressProcess(tmp_path) as egress:
        egress.ask(Ping(1))
        egress.sock.sendall(nonsense)
        assert egress.process.wait(20) == 1
        assert "egress_ended" in egress.log()


def test_it_refuses_to_start_where_the_master_key_is_wrong_and_says_why(tmp_path: Path) -> None:
    with EgressProcess(tmp_path) as egress:
        egress.ask(AddUser(1, "alice"))
    (tmp_path / "_keys" / "master.key").write_bytes(os.urandom(32))
    with EgressProcess(tmp_path) as egress:
        assert egress.process.wait(20) == 78
        assert "this master key did not make this vault" in egress.log()


def test_it_refuses_a_provider_key_file_it_cannot_read_without_quoting_it(tmp_path: Path) -> None:
    with EgressProcess(tmp_path, _config(), f"acme = {KEY}") as egress:
        assert egress.process.wait(20) == 78
        assert "the provider key file" in egress.log()
        assert "canary" not in egress.log()


def test_messages_with_secrets_do_not_show_them() -> None:
    shown = f"{VerifyToken(1, KEY)!r} {TokenMade(2, 'id', KEY)!r} {HandleMinted(3, 'u', KEY.encode())!r}"
    assert shown == "VerifyToken(id=1) TokenMade(id=2) HandleMinted(id=3)"


def test_its_files_are_its_own_and_its_memory_nobody_elses(tmp_path: Path) -> None:
    with EgressProcess(tmp_path) as egress:
        egress.ask(Ping(1))
        assert stat.S_IMODE((tmp_path / "_keys").stat().st_mode) == 0o700
        proc = Path("/proc", str(egress.process.pid))
        limits = (proc / "limits").read_text()
        core = next(line for line in limits.splitlines() if line.startswith("Max core file size"))
        assert core.split()[4:6] == ["0", "0"]
        # a process that isn't dumpable has its /proc owned by root, whoever it is (proc(5))
        assert (proc / "mem").stat().st_uid == 0
