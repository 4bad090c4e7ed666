"""The official openai package talks to the real hub."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
import structlog
from openai.types.chat import ChatCompletionMessageParam

from core.sessions import EphemeralSession, StoredSession
from jail.wire.schema import (
    Delta,
    Failure,
    Message,
    Notice,
    PictureShown,
    ResponseFormat,
    Sampling,
    ToolProgress,
    TurnEnd,
    Usage,
)
from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import PlainClient
from tests.fakes.scripted_turns import PlayedTurn

Make = Callable[..., openai.OpenAI]
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


def test_a_whole_answer_has_text_usage_and_a_reason(client: Make, hub: HubProcess) -> None:
    answer = client().chat.completions.create(model="assistant", messages=HELLO)
    choice = answer.choices[0]
    assert (choice.message.content, choice.message.role) == ("Hello alice", "assistant")
    assert (choice.finish_reason, answer.model) == ("stop", "assistant")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 2)
    assert answer.usage.total_tokens == 5
    assert answer._request_id is not None
    assert hub.sample("certosa_turns_ended_total", outcome="stop") == 1


def test_a_streamed_answer_comes_piece_by_piece_while_the_turn_runs(client: Make, hub: HubProcess) -> None:
    hub.turns.script = lambda turn: turn.say("zero ")
    stream = client().chat.completions.create(
        model="assistant", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    turn = hub.turns.next()
    assert next(stream).choices[0].delta.content == "zero "
    for word in ("one ", "two ", "three"):
        turn.say(word)
        chunk = next(stream)
        assert chunk.choices[0].delta.content == word
    turn.end()
    rest = list(stream)
    assert [c.choices[0].finish_reason for c in rest if c.choices] == ["stop"]
    assert rest[-1].usage is not None
    assert rest[-1].usage.total_tokens == 5
    assert hub.sample("certosa_first_token_seconds_count") == 1


def test_without_asking_there_is_no_usage_chunk(client: Make) -> None:
    chunks = list(client().chat.completions.create(model="assistant", messages=HELLO, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Hello alice"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.usage is None for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_async_client_streams_many_turns_at_once(hub: HubProcess) -> None:
    async def one(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(model="assistant", messages=HELLO, stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def main() -> list[str]:
        url = f"{hub.url}/v1"
        alice = openai.AsyncOpenAI(api_key="token-alice", base_url=url, max_retries=0)
        bob = openai.AsyncOpenAI(api_key="token-bob", base_url=url, max_retries=0)
        async with alice, bob:
            return await asyncio.gather(*[one(c) for c in (alice, bob) for _ in range(4)])

    assert asyncio.run(main()) == ["Hello alice"] * 4 + ["Hello bob"] * 4


def test_the_turn_gets_history_agent_and_sampling_as_asked(client: Make, hub: HubProcess) -> None:
    hub.write_agent("alice", "coder", 'prompt = "write code"\nprovider = "local"\nmodel = "m1"')
    client().chat.completions.create(
        model="coder",
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c"},
            {"role": "user", "content": "d"},
        ],
        temperature=1,
        top_p=0.5,
        max_completion_tokens=7,
        stop=["END"],
        n=1,
        user="somebody",
        metadata={"k": "v"},
        presence_penalty=0,
    )  # fmt: skip
    spec = hub.turns.next().spec
    assert isinstance(spec.session, EphemeralSession)
    assert spec.session.messages() == (
        Message("system", "be brief"),
        Message("user", "ab"),
        Message("assistant", "c"),
        Message("user", "d"),
    )
    assert (spec.agent.prompt, spec.agent.provider, spec.agent.model) == ("write code", "local", "m1")
    assert spec.sampling == Sampling(1.0, 0.5, 7, ("END",))
    assert spec.handle.user == "alice"


def test_an_answer_of_ours_can_be_sent_back_as_it_came(client: Make, hub: HubProcess) -> None:
    one = client()
    first = one.chat.completions.create(model="assistant", messages=HELLO)
    back = first.choices[0].message.model_dump()
    messages = [*HELLO, back, *HELLO]
    again = one.chat.completions.create(model="assistant", messages=messages)  # type: ignore[arg-type]
    assert again.choices[0].message.content == "Hello alice"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("rounds", "length"),
        ("repeats", "length"),
        ("failing", "length"),
        ("wall", "length"),
    ],
)
def test_limits_end_as_length_and_say_which(client: Make, hub: HubProcess, finish: str, reason: str) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.say("so far")
        turn.end(TurnEnd(finish, Usage()))  # type: ignore[arg-type]

    hub.turns.script = script
    whole = client().chat.completions.create(model="assistant", messages=HELLO)
    chunks = list(client().chat.completions.create(model="assistant", messages=HELLO, stream=True))
    assert whole.choices[0].finish_reason == chunks[-1].choices[0].finish_reason == reason
    limited = finish in ("rounds", "repeats", "failing", "wall")
    for extra in (whole.model_extra, chunks[-1].model_extra):
        notice = (extra or {}).get("certosa")
        assert (notice["finish"] == finish) if limited else notice is None  # type: ignore[index]


def test_tool_events_come_to_those_who_ask_and_to_nobody_else(client: Make, hub: HubProcess) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.put(Delta("", "thinking"))
        turn.put(Notice("old messages were left out"))
        turn.run_tool(1, "run_command", "done")
        turn.put(ToolProgress(2, "half"))
        turn.put(PictureShown("a b.png", "image/png", 9, "", 2))
        turn.say("ready")
        turn.end()

    hub.turns.script = script

    def ask(headers: dict[str, str]) -> tuple[str, list[str]]:
        chunks = client().chat.completions.create(
            model="assistant", messages=HELLO, stream=True, extra_headers=headers
        )
        text, kinds = "", []
        for chunk in chunks:
            text += chunk.choices[0].delta.content or ""
            if chunk.model_extra and "certosa" in chunk.model_extra:
                kinds.append(chunk.model_extra["certosa"]["type"])
        return text, kinds

    kinds = ["reasoning", "notice", "tool_call", "tool_result", "tool_progress", "picture"]
    assert ask({"X-Certosa-Events": "on"}) == ("ready", kinds)
    assert ask({}) == ("ready", [])


def test_models_are_the_users_own_agents(client: Make, hub: HubProcess) -> None:
    hub.write_agent("alice", "coder", 'prompt = "x"')
    hub.write_agent("bob", "secret-plan", 'prompt = "x"')
    assert [model.id for model in client().models.list()] == ["assistant", "coder"]
    assert client().models.retrieve("coder").owned_by == "certosa"
    with pytest.raises(openai.NotFoundError):
        client().models.retrieve("secret-plan")
    assert client("bob").models.retrieve("secret-plan").id == "secret-plan"


def test_a_named_session_supplies_the_history_and_takes_the_last_user_message(
    client: Make, hub: HubProcess
) -> None:
    one = client(default_headers={"X-Certosa-Session": "diary"})
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "ignored"},
        {"role": "user", "content": "ignored too"},
        {"role": "assistant", "content": "and this"},
        {"role": "user", "content": "taken"},
    ]
    one.chat.completions.create(model="assistant", messages=messages)
    one.chat.completions.create(model="assistant", messages=HELLO)
    for _ in range(2):
        spec = hub.turns.next().spec
        assert isinstance(spec.session, StoredSession)
        assert (spec.session.session_id, spec.session.owner) == ("diary", "alice")

    async def kept() -> list[str]:
        from core.sessions.asking import ask_storage

        page = await ask_storage(
            hub.storage, hub.book.handles["alice"], lambda s: s.read_messages("diary", 0, 9, 9_999, 9)
        )
        return [message.text for message in page.messages]

    assert hub.run(kept()) == ["taken", "hello"]


def test_two_turns_in_one_session_are_a_conflict_and_it_is_free_afterwards(
    client: Make, hub: HubProcess
) -> None:
    hub.turns.script = lambda turn: turn.say("x")
    one = client(default_headers={"X-Certosa-Session": "diary"})
    stream = one.chat.completions.create(model="assistant", messages=HELLO, stream=True)
    turn = hub.turns.next()
    with pytest.raises(openai.ConflictError) as error:
        one.chat.completions.create(model="assistant", messages=HELLO)
    assert error.value.code == "session_busy"
    # the same name of another user's is another session
    bobs = client("bob", default_headers={"X-Certosa-Session": "diary"})
    other = bobs.chat.completions.create(model="assistant", messages=HELLO, stream=True)
    hub.turns.next().end()
    list(other)
    turn.end()
    list(stream)
    again = one.chat.completions.create(model="assistant", messages=HELLO, stream=True)
    hub.turns.next().end()
    assert list(again)


FAILURES = [
    ("overloaded", 429, openai.RateLimitError),
    ("upstream_rate_limit", 429, openai.RateLimitError),
    ("upstream", 502, openai.InternalServerError),
    ("upstream_auth", 502, openai.InternalServerError),
    ("upstream_timeout", 504, openai.InternalServerError),
    ("timeout", 504, openai.InternalServerError),
    ("unavailable", 503, openai.InternalServerError),
    ("worker", 502, openai.InternalServerError),
    ("internal", 500, openai.InternalServerError),
    ("cancelled", 499, openai.APIStatusError),
    ("limit", 400, openai.BadRequestError),
    ("refused", 403, openai.PermissionDeniedError),
    ("not_found", 404, openai.NotFoundError),
]


@pytest.mark.parametrize(("code", "status", "kind"), FAILURES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_fails_before_it_speaks_is_an_error_of_its_kind(
    client: Make,
    hub: HubProcess,
    code: str,
    status: int,
    kind: type[openai.APIStatusError],
    stream: bool,
) -> None:
    failure = Failure(code, "what happened and what to do", 7)  # type: ignore[arg-type]
    if code == "limit":
        failure = Failure("limit", "what happened and what to do")
    hub.turns.script = lambda turn: turn.end(failure)
    with pytest.raises(kind) as error:
        client().chat.completions.create(model="assistant", messages=HELLO, stream=stream)
    assert (error.value.status_code, error.value.code) == (status, code)
    assert "what happened" in str(error.value)
    assert error.value.response.headers.get("Retry-After") == (None if code == "limit" else "7")
    assert hub.sample("certosa_turns_ended_total", outcome=code) == 1
    assert hub.server.admission.running == 0


def test_a_turn_that_fails_in_mid_stream_makes_the_client_raise(client: Make, hub: HubProcess) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.say("half an ans")
        turn.cancelled.wait(0.2)  # so that the piece and the failure are two writes
        turn.end(Failure("upstream", "the model's server broke off"))

    hub.turns.script = script
    stream = client().chat.completions.create(model="assistant", messages=HELLO, stream=True)
    assert next(stream).choices[0].delta.content == "half an ans"
    with pytest.raises(openai.APIError, match="broke off"):
        list(stream)


def test_a_turn_that_may_have_acted_is_not_repeated_by_the_client(client: Make, hub: HubProcess) -> None:
    def script(turn: PlayedTurn) -> None:
        turn.run_tool(1, "send_mail", "sent")
        turn.end(Failure("upstream", "broken"))

    hub.turns.script = script
    with pytest.raises(openai.InternalServerError):
        client(max_retries=2).chat.completions.create(model="assistant", messages=HELLO)
    assert len(hub.turns.turns) == 1
    hub.turns.script = lambda turn: turn.end(Failure("upstream_rate_limit", "busy", 0))
    with pytest.raises(openai.RateLimitError):
        client(max_retries=1).chat.completions.create(model="assistant", messages=HELLO)
    assert len(hub.turns.turns) == 3  # nothing was done, so the client tried again


def test_tokens_wrong_revoked_or_unverifiable_are_told_apart_only_where_it_helps(
    client: Make, hub: HubProcess
) -> None:
    with pytest.raises(openai.AuthenticationError) as wrong:
        client("mallory").chat.completions.create(model="assistant", messages=HELLO)
    client("bob").chat.completions.create(model="assistant", messages=HELLO)
    hub.book.revoke("bob")
    with pytest.raises(openai.AuthenticationError) as revoked:
        client("bob").chat.completions.create(model="assistant", messages=HELLO)
    assert wrong.value.body == revoked.value.body
    hub.book.broken = True
    with pytest.raises(openai.InternalServerError) as unsure:
        client().chat.completions.create(model="assistant", messages=HELLO)
    assert unsure.value.status_code == 503


def test_user_and_metadata_are_kept_with_the_session_and_outlive_a_new_title(
    client: Make, hub: HubProcess, plain: PlainClient
) -> None:
    def say(**more: Any) -> None:
        headers = {"X-Certosa-Session": "s"}
        client().chat.completions.create(model="assistant", messages=HELLO, extra_headers=headers, **more)

    say(user="customer-7", metadata={"ticket": "12"})
    say()  # says nothing of itself, and takes nothing back
    plain.ask("PATCH", "/v1/sessions/s", {"title": "new"})
    shown = plain.ask("GET", "/v1/sessions/s").json
    assert (shown["title"], shown["user"], shown["metadata"]) == ("new", "customer-7", {"ticket": "12"})
    say(user="customer-8")
    shown = plain.ask("GET", "/v1/sessions/s").json
    assert (shown["title"], shown["user"], "metadata" in shown) == ("new", "customer-8", False)


def test_a_turn_without_a_session_is_logged_with_its_request_id_user_and_metadata(client: Make) -> None:
    with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as logged:
        answer = client().chat.completions.create(
            model="assistant", messages=HELLO, user="customer-7", metadata={"ticket": "12"}
        )
        client().chat.completions.create(model="assistant", messages=HELLO)
    first, second = [line for line in logged if line["event"] == "turn_accepted"]
    assert first["request_id"] == answer._request_id
    assert (first["user"], first["agent"], first["kept"]) == ("alice", "assistant", False)
    assert (first["client_user"], first["client_metadata"]) == ("customer-7", {"ticket": "12"})
    assert "client_user" not in second
    assert first["request_id"] != second["request_id"]


def test_a_format_for_the_answer_goes_to_the_model(client: Make, hub: HubProcess) -> None:
    schema: Any = {"type": "object", "properties": {"a": {"type": "string"}}}
    asked: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    client().chat.completions.create(model="assistant", messages=HELLO, response_format=asked)
    wanted = hub.turns.next().spec.sampling.format
    assert wanted is not None
    assert (wanted.name, json.loads(wanted.schema), wanted.strict) == ("x", schema, True)
    client().chat.completions.create(
        model="assistant", messages=HELLO, response_format={"type": "json_object"}
    )
    assert hub.turns.next().spec.sampling.format == ResponseFormat()
