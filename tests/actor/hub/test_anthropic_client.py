"""The official anthropic package talks to the real hub."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import pytest
from anthropic.types import MessageParam

from core.sessions import EphemeralSession, StoredSession
from jail.wire.schema import Delta, Failure, Message, Notice, PictureShown, Sampling, TurnEnd, Usage
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import Answer, PlainClient
from tests.fakes.scripted_turns import PlayedTurn

Make = Callable[..., anthropic.Anthropic]
HELLO: list[MessageParam] = [{"role": "user", "content": "hello"}]
ASK: dict[str, Any] = {"model": "assistant", "max_tokens": 99, "messages": HELLO}
PATH = "/v1/messages"


@pytest.fixture
def claude(hub: HubProcess) -> Iterator[Make]:
    """Makes official clients: ``claude("alice", max_retries=0)``."""
    made: list[anthropic.Anthropic] = []

    def make(user: str = "alice", **options: Any) -> anthropic.Anthropic:
        options = {"api_key": f"token-{user}", "max_retries": 0, **options}
        made.append(anthropic.Anthropic(base_url=hub.url, timeout=20.0, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def _text(message: Any) -> str:
    return "".join(block.text for block in message.content)


def test_a_whole_answer_has_text_usage_and_a_reason(claude: Make, hub: HubProcess) -> None:
    answer = claude().messages.create(**ASK)
    assert (_text(answer), answer.role, answer.type) == ("Hello alice", "assistant", "message")
    assert (answer.stop_reason, answer.model) == ("end_turn", "assistant")
    assert answer.id.startswith("msg_")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 2)
    assert (answer._request_id or "").startswith("req_")
    assert hub.sample("certosa_http_requests_total", route="messages", status="2xx") == 1


def test_a_streamed_answer_comes_piece_by_piece_while_the_turn_runs(claude: Make, hub: HubProcess) -> None:
    hub.turns.script = lambda turn: turn.say("zero ")
    with claude().messages.stream(**ASK) as stream:
        turn = hub.turns.next()
        texts = iter(stream.text_stream)
        assert next(texts) == "zero "
        for word in ("one ", "two ", "three"):
            turn.say(word)
            assert next(texts) == word
        turn.end()
        assert list(texts) == []
        message = stream.get_final_message()
    assert _text(message) == "zero one two three"
    assert message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (3, 2)
    assert hub.sample("certosa_first_token_seconds_count") == 1


def test_the_events_come_in_the_apis_order(claude: Make) -> None:
    kinds = [event.type for event in claude().messages.create(**ASK, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert set(kinds[2:-3]) == {"content_block_delta"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_an_answer_without_text_is_a_message_all_the_same(claude: Make, hub: HubProcess) -> None:
    hub.turns.script = lambda turn: turn.end()
    assert claude().messages.create(**ASK).content == []
    kinds = [event.type for event in claude().messages.create(**ASK, stream=True)]
    assert kinds == ["message_start", "message_delta", "message_stop"]


def test_the_async_client_streams_and_asks_many_turns_at_once(hub: HubProcess) -> None:
    async def one(client: anthropic.AsyncAnthropic, stream: bool) -> str:
        if not stream:
            return _text(await client.messages.create(**ASK))
        async with client.messages.stream(**ASK) as events:
            return "".join([text async for text in events.text_stream])

    async def main() -> list[str]:
        alice = anthropic.AsyncAnthropic(api_key="token-alice", base_url=hub.url, max_retries=0)
        bob = anthropic.AsyncAnthropic(api_key="token-bob", base_url=hub.url, max_retries=0)
        async with alice, bob:
            asked = [one(c, stream) for c in (alice, bob) for stream in (False, True, True, False)]
            return await asyncio.gather(*asked)

    assert asyncio.run(main()) == ["Hello alice"] * 4 + ["Hello bob"] * 4


def test_a_bearer_token_does_as_well(claude: Make) -> None:
    assert _text(claude(api_key=None, auth_token="token-bob").messages.create(**ASK)) == "Hello bob"


def test_the_turn_gets_history_system_and_sampling_as_asked(claude: Make, hub: HubProcess) -> None:
    claude().messages.create(
        model="assistant",
        max_tokens=7,
        system=[
            {"type": "text", "text": "be "},
            {"type": "text", "text": "brief", "cache_control": {"type": "ephemeral"}},
        ],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "d"},
        ],
        extra_body={"temperature": 1, "top_p": 0.5},  # the package has no arguments for these any more
        stop_sequences=["END"],
        metadata={"user_id": "u"},
        tools=[],
        thinking={"type": "disabled"},
        service_tier="auto",
    )
    spec = hub.turns.next().spec
    assert isinstance(spec.session, EphemeralSession)
    assert spec.session.messages() == (
        Message("system", "be brief"),
        Message("user", "ab"),
        Message("assistant", "c"),
        Message("user", "d"),
    )
    assert spec.sampling == Sampling(1.0, 0.5, 7, ("END",))


def test_an_answer_of_ours_can_be_sent_back_as_it_came(claude: Make) -> None:
    one = claude()
    first = one.messages.create(**ASK)
    back: Any = {"role": "assistant", "content": first.content}
    again = one.messages.create(model="assistant", max_tokens=9, messages=[*HELLO, back, *HELLO])
    assert _text(again) == "Hello alice"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("rounds", "max_tokens"),
        ("wall", "max_tokens"),
    ],
)
def test_limits_end_as_max_tokens_and_say_which(
    claude: Make, hub: HubProcess, finish: Any, reason: str
) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.say("so far")
        turn.end(TurnEnd(finish, Usage()))

    hub.turns.script = script
    whole = claude().messages.create(**ASK)
    last = list(claude().messages.create(**ASK, stream=True))[-2]
    assert last.type == "message_delta"
    assert whole.stop_reason == last.delta.stop_reason == reason
    for extra in (whole.model_extra, last.model_extra):
        notice = (extra or {}).get("certosa")
        assert (notice["finish"] == finish) if finish in ("rounds", "wall") else notice is None  # type: ignore[index]


def test_tools_run_on_the_server_and_do_not_show(claude: Make, hub: HubProcess) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.put(Delta("", "thinking"))
        turn.put(Notice("old messages were left out"))
        turn.say("I look. ")
        turn.run_tool(1, "run_command", "done")
        turn.put(PictureShown("a.png", "image/png", 9, "", 1))
        turn.say("ready")
        turn.end()

    hub.turns.script = script
    with claude().messages.stream(**ASK) as stream:
        message = stream.get_final_message()
    whole = claude().messages.create(**ASK)
    for found in (message, whole):
        assert [block.type for block in found.content] == ["text"]
        assert _text(found) == "I look. ready"
        assert found.stop_reason == "end_turn"


def test_a_named_session_keeps_the_last_user_message(claude: Make, hub: HubProcess) -> None:
    one = claude(default_headers={"X-Certosa-Session": "diary"})
    one.messages.create(**ASK)
    spec = hub.turns.next().spec
    assert isinstance(spec.session, StoredSession)
    assert spec.session.session_id == "diary"


def test_models_are_the_users_own_agents(claude: Make, hub: HubProcess) -> None:
    hub.write_agent("alice", "coder", 'prompt = "x"')
    assert [model.id for model in claude().models.list()] == ["assistant", "coder"]
    assert claude().models.retrieve("coder").display_name == "coder"
    with pytest.raises(anthropic.NotFoundError):
        claude("bob").models.retrieve("coder")


FAILURES = [
    ("overloaded", 429, anthropic.RateLimitError, "rate_limit_error"),
    ("upstream_rate_limit", 429, anthropic.RateLimitError, "rate_limit_error"),
    ("upstream", 502, anthropic.InternalServerError, "api_error"),
    ("upstream_auth", 502, anthropic.InternalServerError, "api_error"),
    ("upstream_timeout", 504, anthropic.InternalServerError, "timeout_error"),
    ("unavailable", 503, anthropic.InternalServerError, "api_error"),
    ("worker", 502, anthropic.InternalServerError, "api_error"),
    ("internal", 500, anthropic.InternalServerError, "api_error"),
    ("refused", 403, anthropic.PermissionDeniedError, "permission_error"),
    ("not_found", 404, anthropic.NotFoundError, "not_found_error"),
]


@pytest.mark.parametrize(("code", "status", "kind", "named"), FAILURES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_fails_before_it_speaks_is_an_error_of_its_kind(
    claude: Make,
    hub: HubProcess,
    code: Any,
    status: int,
    kind: type[anthropic.APIStatusError],
    named: str,
    stream: bool,
) -> None:
    hub.turns.script = lambda turn: turn.end(Failure(code, "what happened and what to do", 7))
    with pytest.raises(kind, match="what happened") as error:
        claude().messages.create(**ASK, stream=stream)
    assert error.value.status_code == status
    assert error.value.response.headers["Retry-After"] == "7"
    body: Any = error.value.body
    assert body["type"] == "error"
    assert body["error"] == {"type": named, "message": "what happened and what to do"}
    assert body["request_id"] == error.value.request_id
    assert hub.server.admission.running == 0


def test_a_turn_that_fails_in_mid_stream_makes_the_client_raise(claude: Make, hub: HubProcess) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.say("half an ans")
        turn.cancelled.wait(0.2)  # so that the piece and the failure are two writes
        turn.end(Failure("upstream", "the model's server broke off"))

    hub.turns.script = script
    came: list[str] = []
    with pytest.raises(anthropic.APIStatusError, match="broke off"):  # noqa: SIM117
        with claude().messages.stream(**ASK) as stream:
            came.extend(stream.text_stream)
    assert came == ["half an ans"]


def test_a_turn_that_may_have_acted_is_not_repeated_by_the_client(claude: Make, hub: HubProcess) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.run_tool(1, "send_mail", "sent")
        turn.end(Failure("upstream", "broken"))

    hub.turns.script = script
    with pytest.raises(anthropic.InternalServerError):
        claude(max_retries=2).messages.create(**ASK)
    assert len(hub.turns.turns) == 1


def test_a_client_that_leaves_ends_its_turn(claude: Make, hub: HubProcess) -> None:
    hub.turns.script = lambda turn: turn.say("x")
    stream = claude().messages.create(**ASK, stream=True)
    turn = hub.turns.next()
    stream.close()
    turn.wait_cancelled()


def test_a_silent_stream_is_kept_alive_by_pings(tmp_path: Any) -> None:
    hub = HubProcess(tmp_path, keep_alive_s=0.05)
    try:
        hub.turns.script = lambda turn: None
        with (
            anthropic.Anthropic(api_key="token-alice", base_url=hub.url, max_retries=0) as client,
            client.messages.with_streaming_response.create(**ASK, stream=True) as response,
        ):
            lines = response.iter_lines()
            while next(lines) != "event: ping":
                pass
            turn = hub.turns.next()
            turn.say("at last")
            turn.end()
            assert any("at last" in line for line in lines)
    finally:
        hub.close()


def test_tokens_that_are_wrong_or_missing_are_refused(
    claude: Make, plain: PlainClient, hub: HubProcess
) -> None:
    with pytest.raises(anthropic.AuthenticationError, match="not valid"):
        claude("mallory").messages.create(**ASK)
    missing = PlainClient(hub.url).ask("POST", PATH, ASK)
    assert (missing.status, missing.json["error"]["type"]) == (401, "authentication_error")
    both = plain.ask("POST", PATH, ASK, {"x-api-key": "token-bob"})
    assert (both.status, "different tokens" in both.json["error"]["message"]) == (400, True)
    assert plain.ask("POST", PATH, ASK, {"x-api-key": "token-alice"}).status == 200
    twice = [
        ("Authorization", "Bearer token-alice"),
        ("x-api-key", "token-alice"),
        ("x-api-key", "token-bob"),
    ]
    assert PlainClient(hub.url).ask("POST", PATH, ASK, twice).status == 400


def _refused(answer: Answer) -> str:
    """The message, after checking the shape."""
    assert answer.status == 400
    found = answer.json
    assert sorted(found) == ["error", "request_id", "type"]
    assert found["error"]["type"] == "invalid_request_error"
    assert answer.headers["request-id"] == found["request_id"]
    message: str = found["error"]["message"]
    return message


IMAGE = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"nonsense": 1}, "nonsense"),
    ({"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, "tools"),
    ({"tool_choice": {"type": "any"}}, "tool_choice.type"),
    ({"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "thinking"),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    ({"top_k": 5}, "top_k"),
    ({"container": "c"}, "container"),
    ({"temperature": 1.5}, "temperature"),
    ({"stop_sequences": ["a"] * 5}, "stop_sequences"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [RESULT]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "user", "content": "x" * 900_001}]}, "messages[0].content"),
    ({"system": [IMAGE]}, "system[0]"),
]


@pytest.mark.parametrize(("change", "named"), FIELDS, ids=lambda value: str(value)[:50])
def test_what_cannot_be_honoured_is_refused_by_name(
    plain: PlainClient, hub: HubProcess, change: dict[str, Any], named: str
) -> None:
    assert named in _refused(plain.ask("POST", PATH, {**ASK, **change}))
    assert not hub.turns.turns


def test_without_max_tokens_the_field_is_named(plain: PlainClient) -> None:
    asked = {key: value for key, value in ASK.items() if key != "max_tokens"}
    assert "`max_tokens` is missing" in _refused(plain.ask("POST", PATH, asked))


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b"[" * 100_000, b'{"model": "a\xff"}'])
def test_a_body_that_is_no_request_is_refused_in_the_apis_shape(plain: PlainClient, body: bytes) -> None:
    assert _refused(plain.ask("POST", PATH, body))


def test_other_refusals_have_the_apis_shape_too(plain: PlainClient) -> None:
    events = plain.ask("POST", PATH, ASK, {"X-Certosa-Events": "on"})
    assert "X-Certosa-Events" in _refused(events)
    unknown = plain.ask("POST", PATH, {**ASK, "model": "nobody"})
    assert (unknown.status, unknown.json["error"]["type"]) == (404, "not_found_error")
    for method, path, status in (("GET", PATH, 405), ("POST", f"{PATH}/count_tokens", 404)):
        answer = plain.ask(method, path)
        assert (answer.status, answer.json["type"]) == (status, "error")
