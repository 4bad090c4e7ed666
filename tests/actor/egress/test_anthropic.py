"""The Messages API's client against a real server on a real socket, misbehaving in every way we know."""

import asyncio
import gc
import json
from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from core.config import ProviderSection
from core.egress.anthropic import AnthropicProvider
from core.egress.messages import ChatStart
from core.egress.providers import Again, ProviderError
from core.egress.secret import Secret, Striker
from jail.wire.schema import ChatEnd, Failure, Message, Sampling, ToolCall, ToolSpec, Usage
from tests.fakes.model_server import Call, FakeModelServer, Script, running_model_server
from tests.fakes.outlet import Kept

KEY = "sk-ant-canary-0123456789abcdefghij"


def _ask(text: str = "hi", **more: Any) -> ChatStart:
    given: dict[str, Any] = {
        "messages": (Message("user", text),), "tools": (), "sampling": Sampling(), **more
    }  # fmt: skip
    return ChatStart(1, "alice", "acme", "model-1", given["messages"], given["tools"], given["sampling"])


def _section(url: str, **limits: Any) -> ProviderSection:
    given: dict[str, Any] = {"connect_s": 5.0, "first_byte_s": 5.0, "idle_s": 5.0, **limits}
    return ProviderSection(kind="anthropic", base_url=url, **given)


def _run(*scripts: Script, ask: ChatStart | None = None, **limits: Any) -> tuple[Any, Kept, Any]:
    """One chat: its end or its error, what came before, and the server."""

    async def run() -> tuple[Any, Kept, Any]:
        async with FakeModelServer() as server:
            server.say(*scripts)
            kept, secret = Kept(), Secret(KEY)
            provider = AnthropicProvider("acme", _section(server.url, **limits), secret, Striker([secret]))
            try:
                async with asyncio.timeout(20):
                    return await provider.chat(ask or _ask(), kept), kept, server
            except ProviderError as error:
                shown = f"{error} {error!r} {error.failure}"
                return ("the key came back" if KEY in shown else error), kept, server
            finally:
                await provider.close()
                await asyncio.sleep(0)

    result = asyncio.run(run())
    gc.collect()  # a connection left open would warn here, in its own test
    return result


def test_an_answer_streams_with_thinking_text_and_all_of_its_usage() -> None:
    outcome, kept, _ = _run(Script(text="one two three", reasoning="let me think"))
    assert outcome == ChatEnd("stop", Usage(7, 3))
    assert kept.joined("reasoning") == "let me think"
    assert kept.joined() == "one two three"
    assert len(kept.said) == 6


def test_the_request_has_the_apis_shape_and_the_key_in_its_header_alone() -> None:
    conversation = (
        Message("system", "be kind"),
        Message("user", "hi"),
        Message("assistant", "so", (ToolCall("c1", "run", '{"a": 1}'), ToolCall("c:2", "run", "no json"))),
        Message("tool", "done", tool_call_id="c1"),
        Message("tool", "", tool_call_id="c:2"),
        Message("user", "and now"),
        Message("assistant", " "),
        Message("user", "well?"),
    )
    tools = (ToolSpec("run", "runs", '{"properties": {"a": {}}}'), ToolSpec("bare", "b", ""))
    ask = _ask(messages=conversation, tools=tools, sampling=Sampling(0.5, 0.9, 77, ("END",)))
    _, _, server = _run(Script(text="ok"), ask=ask)
    (request,) = server.requests
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == KEY
    assert request.headers["anthropic-version"] == "2023-06-01"
    assert "Authorization" not in request.headers
    assert KEY not in json.dumps(request.body)
    used = request.body["messages"][1]["content"][2]["id"]
    assert used.startswith("call_")
    assert request.body == {
        "model": "model-1",
        "max_tokens": 77,
        "stream": True,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "be kind"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "so"},
                    {"type": "tool_use", "id": "c1", "name": "run", "input": {"a": 1}},
                    {"type": "tool_use", "id": used, "name": "run", "input": {"not_json": "no json"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "done"},
                    {"type": "tool_result", "tool_use_id": used},
                    {"type": "text", "text": "and now"},
                    {"type": "text", "text": "well?"},
                ],
            },
        ],
        "tools": [
            {
                "name": "run",
                "description": "runs",
                "input_schema": {"type": "object", "properties": {"a": {}}},
            },
            {"name": "bare", "description": "b", "input_schema": {"type": "object", "properties": {}}},
        ],
    }


def test_max_tokens_is_always_sent() -> None:
    _, _, server = _run(max_tokens=123)
    assert server.requests[0].body["max_tokens"] == 123


def test_with_cache_the_ends_of_what_stays_are_marked() -> None:
    ask = _ask(
        messages=(Message("system", "a"), Message("system", "b"), Message("user", "c"), Message("user", "d")),
        tools=(ToolSpec("one", "", "{}"), ToolSpec("two", "", "{}")),
    )
    _, _, server = _run(ask=ask, cache=True)
    body = server.requests[0].body
    for blocks in (body["system"], body["tools"], body["messages"][0]["content"]):
        assert [block.get("cache_control") for block in blocks] == [None, {"type": "ephemeral"}]
    _, _, server = _run(ask=ask)
    assert "cache_control" not in json.dumps(server.requests[0].body)


def test_a_history_that_lost_its_beginning_begins_with_the_user_all_the_same() -> None:
    _, _, server = _run(ask=_ask(messages=(Message("assistant", "well"), Message("user", "go on"))))
    assert [m["role"] for m in server.requests[0].body["messages"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    "more",
    [
        {"sampling": Sampling(temperature=1.5)},
        {"tools": (ToolSpec("t", "", "[]"),)},
        {"messages": (Message("system", "x"),)},
        {"messages": (Message("user", " "),)},
    ],
    ids=["temperature", "schema", "no_turn", "blank"],
)
def test_what_the_api_has_no_place_for_is_refused_before_it_is_asked(more: Any) -> None:
    outcome, _, server = _run(ask=_ask(**more))
    assert outcome.failure.code == "invalid"
    assert server.requests == []


def test_tool_calls_come_whole_from_their_fragments() -> None:
    calls = (Call("one", '{"x": [1, 2, 3, 4]}', "a"), Call("two", "not json", "b"), Call(None, "", None))
    outcome, kept, _ = _run(Script(text="so", calls=calls))
    assert outcome.finish == "tool_calls"
    assert kept.calls[:2] == [ToolCall("a", "one", '{"x": [1, 2, 3, 4]}'), ToolCall("b", "two", "not json")]
    assert kept.calls[2].id
    assert kept.calls[2].name
    assert kept.calls[2].arguments == "{}"


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "stop"),  # without a tool
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons_have_their_meaning(reason: str, finish: str) -> None:
    outcome, _, _ = _run(Script(text="a", finish=reason))
    assert outcome.finish == finish


def test_a_call_that_was_cut_short_does_not_act() -> None:
    calls = (Call("one", '{"x": 1}', "a"), Call("two", '{"x": ', "b"))
    outcome, kept, _ = _run(Script(calls=calls, finish="length"))
    assert outcome.finish == "length"
    assert [call.name for call in kept.calls] == ["one"]


@pytest.mark.parametrize(
    ("script", "code", "words", "again"),
    [
        (Script(status=400, error_body='{"error": {"message": "too long"}}'), "upstream", "too long", "no"),
        (Script(status=401), "upstream_auth", "provider key file", "elsewhere"),
        (Script(status=403), "upstream_auth", "provider key file", "elsewhere"),
        (Script(status=404), "upstream", "no such model", "no"),
        (Script(status=429), "upstream_rate_limit", "429", "retry"),
        (Script(status=500), "upstream", "failed", "retry"),
        (Script(status=529), "upstream", "529", "retry"),
        (Script(text="a b", misbehave="not_json"), "upstream", "broken stream", "elsewhere"),
        (Script(text="a b", misbehave="wrong_shape"), "upstream", "broken stream", "elsewhere"),
        (Script(text="a b", misbehave="error_event"), "upstream", "the model fell over", "retry"),
        (Script(text="a b", misbehave="cut"), "upstream", "cut before its end", "retry"),
        (Script(text="a b", misbehave="reset"), "upstream", "cut before its end", "retry"),
        (Script(misbehave="html"), "upstream", "base_url", "elsewhere"),
        (Script(misbehave="redirect"), "upstream", "redirects are not followed", "no"),
        (Script(misbehave="gzip_bomb"), "upstream", "compressed", "elsewhere"),
        (Script(raw_events=('data: {"type": "message_stop"}\n\n',)), "upstream", "cut before", "retry"),
        (Script(raw_events=('data: {"choices": []}\n\n',)), "upstream", "broken stream", "elsewhere"),
    ],
    ids=lambda value: getattr(value, "misbehave", None) or str(value)[:40],
)
def test_each_misbehaviour_is_one_clear_failure(script: Script, code: str, words: str, again: Again) -> None:
    outcome, kept, server = _run(script)
    assert isinstance(outcome, ProviderError)
    assert (outcome.failure.code, outcome.again) == (code, again)
    assert words in outcome.failure.message
    assert outcome.failure.message.startswith("acme ")
    assert kept.joined() == script.text
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("kind", "code", "again"),
    [
        ("overloaded_error", "upstream", "retry"),
        ("rate_limit_error", "upstream_rate_limit", "retry"),
        ("authentication_error", "upstream_auth", "elsewhere"),
        ("invalid_request_error", "upstream", "no"),
        ("new_error", "upstream", "retry"),
    ],
)
def test_an_error_event_says_what_helps_and_does_not_bring_the_key(
    kind: str, code: str, again: Again
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": f"denied for {KEY}"}}
    outcome, _, _ = _run(Script(raw_events=(f"event: error\ndata: {json.dumps(error)}\n\n",)))
    assert (outcome.failure.code, outcome.again) == (code, again)
    assert "denied for" in outcome.failure.message
    assert "canary" not in outcome.failure.message


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (Script(text="a b", misbehave="stall"), "stalled in mid-answer within 0.2 s"),
        (Script(misbehave="slow_headers"), "did not begin to answer within 0.2 s"),
        (Script(misbehave="trickle"), "stalled in mid-answer within 0.2 s"),  # pings, for ever
    ],
    ids=["stall", "slow_headers", "trickle"],
)
def test_silence_and_pings_alone_end_at_their_limits(script: Script, words: str) -> None:
    outcome, kept, _ = _run(script, connect_s=0.2, first_byte_s=0.2, idle_s=0.2)
    assert outcome.failure.code == "upstream_timeout"
    assert words in outcome.failure.message
    assert kept.joined() == script.text


@pytest.mark.parametrize("how", ["endless", "huge_line"])
def test_an_answer_without_end_stops_at_its_limit(how: Any) -> None:
    outcome, _, server = _run(Script(misbehave=how), max_answer_bytes=300_000)
    assert "more than 300000 bytes" in outcome.failure.message
    assert server.bytes_sent < 8 << 20


@pytest.mark.parametrize("how", ["no_done", "hang_after_finish", "plain_json"])
def test_what_can_be_understood_is_accepted(how: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.egress.model_server._AFTER_FINISH_S", 0.1)
    outcome, kept, _ = _run(Script(text="all is well", misbehave=how))
    assert outcome == ChatEnd("stop", Usage(7, 3))
    assert kept.joined() == "all is well"


def test_a_whole_message_may_have_thinking_and_calls() -> None:
    script = Script(reasoning="hm", calls=(Call("t", '{"a": 1}', "a"),), misbehave="plain_json")
    outcome, kept, _ = _run(script)
    assert outcome.finish == "tool_calls"
    assert kept.joined("reasoning") == "hm"
    assert kept.calls == [ToolCall("a", "t", '{"a":1}')]


def test_blocks_and_events_of_unknown_kinds_are_skipped() -> None:
    def event(**value: Any) -> str:
        return f"data: {json.dumps(value)}\n\n"

    outcome, kept, _ = _run(
        Script(
            raw_events=(
                event(type="message_start", message={"usage": {"input_tokens": 3, "output_tokens": 1}}),
                event(type="content_block_start", index=0, content_block={"type": "server_tool_use"}),
                event(
                    type="content_block_delta",
                    index=0,
                    delta={"type": "input_json_delta", "partial_json": "{"},
                ),
                event(type="content_block_start", index=1, content_block={"type": "redacted_thinking"}),
                event(type="content_block_delta", index=1, delta={"type": "new_delta", "what": 1}),
                event(type="something_new", index=7),
                event(type="content_block_start", index=2, content_block={"type": "text", "text": "fine"}),
                event(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9}),
                event(type="message_stop"),
            )
        )
    )
    assert outcome == ChatEnd("stop", Usage(3, 9))
    assert kept.said == [("text", "fine")]
    assert kept.calls == []


def test_too_many_calls_and_too_long_arguments_are_refused() -> None:
    many = tuple(Call("t", "{}", f"c{n}") for n in range(65))
    outcome, _, _ = _run(Script(calls=many))
    assert "more than 64 tools" in outcome.failure.message
    delta = {"type": "input_json_delta", "partial_json": "x" * 140_000}
    big = f"data: {json.dumps({'type': 'content_block_delta', 'index': 0, 'delta': delta})}\n\n"
    start = 'data: {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use"}}\n\n'
    outcome, _, _ = _run(Script(raw_events=(start, big)))
    assert "characters of arguments" in outcome.failure.message


def test_cancel_closes_the_connection_at_once() -> None:
    async def run() -> bool:
        async with FakeModelServer() as server:
            server.say(Script(text="a b c", misbehave="stall"))
            provider = AnthropicProvider("acme", _section(server.url), None, Striker([]))
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


def test_a_rate_limit_says_when_to_come_back() -> None:
    outcome, _, _ = _run(Script(status=429, headers={"Retry-After": "17"}))
    assert outcome.failure == Failure("upstream_rate_limit", outcome.failure.message, 17)


# ---- the fake speaks the real format: the official package understands it -------------------------


@pytest.fixture
def official() -> Any:
    made: list[anthropic.Anthropic] = []

    def make(server: FakeModelServer) -> anthropic.Anthropic:
        url = server.url.removesuffix("/v1")
        made.append(anthropic.Anthropic(api_key=KEY, base_url=url, max_retries=0, timeout=20.0))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_the_official_package_reads_the_fakes_stream(
    official: Callable[[FakeModelServer], anthropic.Anthropic],
) -> None:
    with running_model_server() as server:
        server.say(Script(text="well then", reasoning="hm", calls=(Call("run", '{"a": [1, 2]}', "c1"),)))
        with official(server).messages.stream(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
    assert text == "well then"
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    call = message.content[2]
    assert call.type == "tool_use"
    assert (call.id, call.name, call.input) == ("c1", "run", {"a": [1, 2]})
    assert message.stop_reason == "tool_use"
    assert message.usage.cache_read_input_tokens == 1


def test_the_official_package_reads_the_fakes_whole_message(
    official: Callable[[FakeModelServer], anthropic.Anthropic],
) -> None:
    with running_model_server() as server:
        server.say(Script(text="well then"))
        message = official(server).messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        )
    block = message.content[0]
    assert block.type == "text"
    assert block.text == "well then"
    assert message.stop_reason == "end_turn"


def test_the_official_package_raises_at_the_fakes_error_event(
    official: Callable[[FakeModelServer], anthropic.Anthropic],
) -> None:
    with running_model_server() as server:
        server.say(Script(text="a", misbehave="error_event"))
        stream = official(server).messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        with pytest.raises(anthropic.APIStatusError, match="fell over"):
            list(stream)
