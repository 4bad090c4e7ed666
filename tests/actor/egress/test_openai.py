"""The client against a real server on a real socket that misbehaves in every way we know."""

import asyncio
import gc
import ipaddress
import json
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from core.config import ProviderSection
from core.egress.messages import ChatStart
from core.egress.openai import OpenAiProvider
from core.egress.providers import ProviderError
from core.egress.secret import Secret, Striker
from jail.wire.schema import ChatEnd, Failure, Message, Sampling, ToolCall, ToolSpec, Usage
from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.outlet import Kept

KEY = "sk-canary-0123456789abcdefghij"


def _ask(text: str = "hi", **more: Any) -> ChatStart:
    given: dict[str, Any] = {"messages": (Message("user", text),), "tools": (), **more}
    return ChatStart(1, "alice", "acme", "model-1", given["messages"], given["tools"], Sampling())


def _section(url: str, **limits: Any) -> ProviderSection:
    given: dict[str, Any] = {"connect_s": 5.0, "first_byte_s": 5.0, "idle_s": 5.0, **limits}
    return ProviderSection(base_url=url, **given)


async def _chat(server: FakeModelServer, ask: ChatStart | None = None, **limits: Any) -> tuple[Any, Kept]:
    """One chat: its end or its failure, and what came before."""
    kept = Kept()
    secret = Secret(KEY)
    provider = OpenAiProvider("acme", _section(server.url, **limits), secret, Striker([secret]))
    try:
        async with asyncio.timeout(20):
            return await provider.chat(ask or _ask(), kept), kept
    except ProviderError as error:
        shown = f"{error} {error!r} {error.failure}"
        return ("the key came back" if KEY in shown else error.failure), kept
    finally:
        await provider.close()
        await asyncio.sleep(0)


def _run(*scripts: Script, ask: ChatStart | None = None, **limits: Any) -> tuple[Any, Kept, Any]:
    async def run() -> tuple[Any, Kept, Any]:
        async with FakeModelServer() as server:
            server.say(*scripts)
            outcome, kept = await _chat(server, ask, **limits)
            return outcome, kept, server

    result = asyncio.run(run())
    gc.collect()  # a connection left open would warn here, in its own test
    return result


def test_an_answer_streams_with_reasoning_text_and_usage() -> None:
    outcome, kept, _ = _run(Script(text="one two three", reasoning="let me think"))
    assert outcome == ChatEnd("stop", Usage(7, 3))
    assert kept.joined("reasoning") == "let me think"
    assert kept.joined() == "one two three"
    assert len(kept.said) == 6


def test_the_request_has_openais_shape_and_the_key_in_its_header_alone() -> None:
    conversation = (
        Message("system", "be kind"),
        Message("user", "hi"),
        Message("assistant", "", (ToolCall("c1", "run", '{"a": 1}'), ToolCall("c2", "run", "no json"))),
        Message("tool", "done", tool_call_id="c1"),
    )
    tools = (ToolSpec("run", "runs", '{"type": "object"}'), ToolSpec("bare", "b", ""))
    ask = ChatStart(1, "alice", "acme", "model-1", conversation, tools, Sampling(0.5, 0.9, 77, ("END",)))
    _, _, server = _run(Script(text="ok"), ask=ask)
    (request,) = server.requests
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.headers["Accept-Encoding"] == "identity"
    assert "Cookie" not in request.headers
    assert KEY not in json.dumps(request.body)
    assert request.body == {
        "model": "model-1",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 77,
        "stop": ["END"],
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}},
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "run", "arguments": '{"not_json":"no json"}'},
                    },
                ],
            },
            {"role": "tool", "content": "done", "tool_call_id": "c1"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "run", "description": "runs", "parameters": {"type": "object"}},
            },
            {
                "type": "function",
                "function": {
                    "name": "bare",
                    "description": "b",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
    }


@pytest.mark.parametrize("parameters", ["{}}", "[]", "no", "[" * 10_000, '{"a": 1}, "model": "x"'])
def test_a_tools_schema_cannot_reach_beyond_its_place(parameters: str) -> None:
    outcome, _, server = _run(ask=_ask(tools=(ToolSpec("t", "", parameters),)))
    assert outcome == Failure("invalid", "the parameters of tool t are not a JSON object")
    assert server.requests == []


def test_tool_calls_come_whole() -> None:
    calls = (Call("one", '{"x": [1, 2]}', "a"), Call("two", "not json", "b"), Call(None, "", None))
    outcome, kept, _ = _run(Script(text="so", calls=calls))
    assert outcome.finish == "tool_calls"
    assert kept.calls[:2] == [ToolCall("a", "one", '{"x": [1, 2]}'), ToolCall("b", "two", "not json")]
    assert kept.calls[2].id
    assert kept.calls[2].name


@pytest.mark.parametrize(
    ("script", "code", "words"),
    [
        (Script(status=400, error_body='{"error": {"message": "too long"}}'), "upstream", "too long"),
        (Script(status=401), "upstream_auth", "provider key file"),
        (Script(status=403), "upstream_auth", "provider key file"),
        (Script(status=404), "upstream", "no such model"),
        (Script(status=429), "upstream_rate_limit", "429"),
        (Script(status=500), "upstream", "failed"),
        (Script(status=503, error_body="<html>"), "upstream", "503"),
        (Script(status=504), "upstream_timeout", "504"),
        (Script(text="a b", misbehave="not_json"), "upstream", "broken stream"),
        (Script(text="a b", misbehave="wrong_shape"), "upstream", "broken stream"),
        (Script(text="a b", misbehave="error_event"), "upstream", "the model fell over"),
        (Script(text="a b", misbehave="cut"), "upstream", "cut before its end"),
        (Script(text="a b", misbehave="reset"), "upstream", "cut before its end"),
        (Script(misbehave="html"), "upstream", "base_url"),
        (Script(misbehave="redirect"), "upstream", "redirects are not followed"),
        (Script(misbehave="gzip_bomb"), "upstream", "compressed"),
        (Script(raw_events=("data: [DONE]\n\n",)), "upstream", "cut before its end"),
        (Script(raw_events=("hello\n",)), "upstream", "cut before its end"),
    ],
    ids=lambda value: getattr(value, "misbehave", None) or str(value)[:40],
)
def test_each_misbehaviour_is_one_clear_failure(script: Script, code: str, words: str) -> None:
    outcome, kept, server = _run(script)
    assert isinstance(outcome, Failure)
    assert outcome.code == code
    assert words in outcome.message
    assert outcome.message.startswith("acme ")
    assert kept.joined() == script.text
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script(text="a b", misbehave="stall"), "stalled in mid-answer within 0.2 s"),
        (Script(misbehave="slow_headers"), "did not begin to answer within 0.2 s"),
        (Script(misbehave="trickle"), "within 0.2 s"),
    ],
    ids=["stall", "slow_headers", "trickle"],
)
def test_silence_and_a_trickle_end_at_their_limits(script: Script, words: str) -> None:
    outcome, kept, _ = _run(script, connect_s=0.2, first_byte_s=0.2, idle_s=0.2)
    assert isinstance(outcome, Failure)
    assert outcome.code == "upstream_timeout"
    assert words in outcome.message
    assert kept.joined() == script.text


@pytest.mark.parametrize("how", ["endless", "huge_line"])
def test_an_answer_without_end_stops_at_its_limit(how: Any) -> None:
    outcome, _, server = _run(Script(misbehave=how), max_answer_bytes=300_000)
    assert isinstance(outcome, Failure)
    assert outcome.code == "upstream"
    assert "more than 300000 bytes" in outcome.message
    assert server.bytes_sent < 8 << 20  # what the sockets' buffers hold, not what it would send


def test_a_line_longer_than_the_parsers_limit_is_a_broken_stream() -> None:
    outcome, _, _ = _run(Script(misbehave="huge_line"))
    assert outcome.code == "upstream"
    assert "a line of more than" in outcome.message


@pytest.mark.parametrize("how", ["no_done", "hang_after_finish", "plain_json"])
def test_what_can_be_understood_is_accepted(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.egress.model_server._AFTER_FINISH_S", 0.1)
    outcome, kept, _ = _run(Script(text="all is well", misbehave=how))
    assert isinstance(outcome, ChatEnd)
    assert outcome.finish == "stop"
    assert kept.joined() == "all is well"


def test_a_whole_completion_may_have_calls() -> None:
    outcome, kept, _ = _run(Script(calls=(Call("t", "{}", "a"),), misbehave="plain_json"))
    assert outcome.finish == "tool_calls"
    assert kept.calls == [ToolCall("a", "t", "{}")]


def test_retry_after_is_passed_on() -> None:
    outcome, _, _ = _run(Script(status=429, headers={"Retry-After": "17"}))
    assert outcome == Failure("upstream_rate_limit", outcome.message, 17)
    assert "17 s" in outcome.message


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_a_key_that_the_server_echoes_does_not_come_back(status: int) -> None:
    body = json.dumps({"error": {"message": f"Bad key Bearer {KEY} and {KEY[:20]}"}})
    outcome, _, _ = _run(Script(status=status, error_body=body))
    assert "Bad key" in outcome.message
    assert "canary" not in outcome.message


def test_an_error_event_that_echoes_the_key_does_not_bring_it_back() -> None:
    event = f'data: {{"error": {{"message": "denied for {KEY}"}}}}\n\n'
    outcome, _, _ = _run(Script(raw_events=(event,)))
    assert "denied for" in outcome.message
    assert "canary" not in outcome.message


@pytest.mark.parametrize(
    ("make_url", "words"),
    [
        (lambda port: f"http://127.0.0.1:{port}/v1", "Connection refused"),
        (lambda port: "http://nowhere.invalid/v1", "could not be resolved"),
    ],
    ids=["refused", "unresolved"],
)
def test_a_server_that_is_not_there_says_so(make_url: Callable[[int], str], words: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    async def run() -> Failure:
        provider = OpenAiProvider("acme", _section(make_url(port)), None, Striker([]))
        try:
            with pytest.raises(ProviderError) as caught:
                await provider.chat(_ask(), Kept())
        finally:
            await provider.close()
        return caught.value.failure

    failure = asyncio.run(run())
    assert failure.code == "upstream"
    assert words in failure.message


@pytest.mark.parametrize("greeting", [b"SSH-2.0-x\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 20_000])
def test_a_server_that_does_not_speak_http_is_an_upstream_failure(greeting: bytes) -> None:
    async def run() -> Failure:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(greeting)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        secret = Secret(KEY)
        section = _section(f"http://127.0.0.1:{port}/v1")
        provider = OpenAiProvider("acme", section, secret, Striker([secret]))
        try:
            with pytest.raises(ProviderError) as caught:
                await provider.chat(_ask(), Kept())
        finally:
            await provider.close()
            server.close()
            await server.wait_closed()
        return caught.value.failure

    failure = asyncio.run(run())
    assert failure.code == "upstream"
    assert KEY not in failure.message


def test_a_certificate_that_does_not_verify_ends_it_before_the_key_is_sent(tmp_path: Path) -> None:
    certificate = _self_signed(tmp_path)
    came: list[bytes] = []

    async def run() -> Failure:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.append(await reader.read(10_000))
            writer.close()

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        section = _section(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        provider = OpenAiProvider("acme", section, Secret(KEY), Striker([]))
        try:
            with pytest.raises(ProviderError) as caught:
                await provider.chat(_ask(), Kept())
        finally:
            await provider.close()
            server.close()
            await server.wait_closed()
        return caught.value.failure

    failure = asyncio.run(run())
    assert failure.code == "upstream"
    assert "TLS certificate that does not verify" in failure.message
    assert KEY.encode() not in b"".join(came)


def _self_signed(directory: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that nobody vouches for, in one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    path.write_bytes(private + certificate.public_bytes(pem))
    return path


def test_cancel_closes_the_connection_at_once() -> None:
    async def run() -> bool:
        async with FakeModelServer() as server:
            server.say(Script(text="a b c", misbehave="stall"))
            provider = OpenAiProvider("acme", _section(server.url), None, Striker([]))
            kept = Kept()
            task = asyncio.create_task(provider.chat(_ask(), kept))
            async with asyncio.timeout(10):
                while len(kept.said) < 3:
                    await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            left = await asyncio.to_thread(server.left.acquire, timeout=10)
            await provider.close()
            return left

    assert asyncio.run(run())


def test_while_the_outlet_waits_the_server_is_not_read() -> None:
    async def run() -> tuple[int, int]:
        go = asyncio.Event()

        class Slow(Kept):
            async def text(self, text: str) -> None:
                await super().text(text)
                await go.wait()

        async with FakeModelServer() as server:
            server.say(Script(misbehave="endless"))
            provider = OpenAiProvider("acme", _section(server.url, idle_s=0.6), None, Striker([]))
            task = asyncio.create_task(provider.chat(_ask(), Slow()))
            before = -1
            async with asyncio.timeout(10):
                while server.bytes_sent != before or before == 0:
                    before = server.bytes_sent
                    await asyncio.sleep(0.8)  # longer than idle_s: our own wait is no stall
            assert not task.done()
            go.set()
            async with asyncio.timeout(10):
                while server.bytes_sent == before:
                    await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            await provider.close()
            return before, server.bytes_sent

    before, after = asyncio.run(run())
    assert 0 < before < after
