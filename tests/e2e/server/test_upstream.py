"""A model server that fails in every way it can: the turn says how, and the server goes on."""

import json
from contextlib import suppress
from typing import Any

import openai
import pytest

from tests.fakes.model_server import Call, FakeModelServer, Misbehaviour, Script
from tests.fakes.real_server import LIMIT_S, Person


def whole(person: Person) -> Any:
    """An answer that is not streamed; raises openai.APIStatusError."""
    with person.client() as client:
        return client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "hi"}]
        )  # fmt: skip


def goes_on(person: Person, model: FakeModelServer) -> None:
    """The same server and the same jail answer the next turn."""
    model.forget()
    assert whole(person).choices[0].message.content == "You said: hi"


def error_of(raised: openai.APIStatusError) -> dict[str, Any]:
    body: dict[str, Any] = raised.response.json()["error"]
    assert set(body) == {"message", "type", "param", "code"}
    return body


@pytest.mark.parametrize(
    ("upstream", "retry_after", "status", "code", "said"),
    [
        (400, None, 502, "upstream", "did not accept the request (HTTP 400)"),
        (401, None, 502, "upstream_auth", "refused our key (HTTP 401)"),
        (404, None, 502, "upstream", "no such model"),
        (429, "7", 429, "upstream_rate_limit", "Try again in 7 s"),
        (500, None, 502, "upstream", "failed (HTTP 500)"),
        (503, "3", 502, "upstream", "failed (HTTP 503)"),
        (504, None, 504, "upstream_timeout", "ran out of time (HTTP 504)"),
    ],
)
def test_a_refusal_upstream_is_told_by_name(
    alice: Person, model: FakeModelServer, upstream: int, retry_after: str | None,
    status: int, code: str, said: str,
) -> None:  # fmt: skip
    body = json.dumps({"error": {"message": "the reason of the fake", "type": "x", "code": None}})
    headers = {"Retry-After": retry_after} if retry_after else {}
    model.say(Script(status=upstream, error_body=body, headers=headers))
    with pytest.raises(openai.APIStatusError) as raised:
        whole(alice)
    error = error_of(raised.value)
    assert (raised.value.status_code, error["code"]) == (status, code)
    assert error["message"].startswith("fake ")
    assert said in error["message"]
    assert "the reason of the fake" in error["message"]
    assert raised.value.response.headers.get("Retry-After") == retry_after
    goes_on(alice, model)


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("not_json", 502, "broken stream"),
        ("wrong_shape", 502, "fake"),
        ("error_event", 502, "the model fell over"),
        ("stall", 504, "stalled in mid-answer within 1.5 s"),
        ("slow_headers", 504, "did not begin to answer within 1.5 s"),
        ("trickle", 504, "stalled in mid-answer within 1.5 s"),
        ("cut", 502, "fake"),
        ("reset", 502, "fake"),
        ("huge_line", 502, "fake"),
        ("html", 502, "check base_url"),
        ("redirect", 502, "redirects are not followed"),
        ("gzip_bomb", 502, "compressed"),
    ],
)
def test_a_broken_answer_is_told_by_name(
    alice: Person, bob: Person, model: FakeModelServer, how: Misbehaviour, status: int, said: str
) -> None:
    model.say(Script(text="some words", misbehave=how))
    with pytest.raises(openai.APIStatusError) as raised:
        whole(alice)
    error = error_of(raised.value)
    assert raised.value.status_code == status, error
    assert error["code"] in ("upstream", "upstream_timeout")
    assert said in error["message"]
    goes_on(alice, model)
    goes_on(bob, model)


def test_a_stream_that_breaks_keeps_its_words_and_ends_with_an_error(
    alice: Person, model: FakeModelServer
) -> None:
    model.say(Script(text="some words", misbehave="cut"))
    with alice.client() as client:
        stream = client.chat.completions.create(
            model="fake", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        said: list[str] = []
        with pytest.raises(openai.APIError) as raised:
            said += (chunk.choices[0].delta.content or "" for chunk in stream)
    assert "".join(said) == "some words"
    assert raised.value.code == "upstream"
    assert "fake" in raised.value.message
    goes_on(alice, model)


def test_what_a_session_heard_before_the_break_is_kept(alice: Person, model: FakeModelServer) -> None:
    model.say(Script(text="some words", misbehave="cut"), Script(text="and more"))
    with pytest.raises(openai.APIError):
        alice.ask("one", "broken", "fake")
    assert alice.ask("two", "broken", "fake").text == "and more"
    texts = [str(m.get("content")) for m in model.requests[-1].body["messages"][1:]]
    assert texts[0] == "one"
    assert texts[-1] == "two"
    assert any("some words" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read_file", "{not JSON"),
        ("read_file", "[1, 2]"),
        ("read_file", '{"path": 7}'),
        ("read_file", '{"path": "x", "surprise": 1}'),
        ("read_file", '{"path": "' + "../" * 40 + 'etc/shadow"}'),
        ("read_file", '{"path": "a\\u0000b"}'),
        ("no_such_tool", "{}"),
        ("run_command", '{"command": ""}'),
    ],
)
def test_a_call_that_makes_no_sense_is_told_to_the_model_which_goes_on(
    alice: Person, model: FakeModelServer, name: str, arguments: str
) -> None:
    model.say(Script(calls=(Call(name, arguments),)), Script(text="I see"))
    done = alice.ask("do it", model="fake")
    assert (done.finish, done.text) == ("stop", "I see")
    last = model.requests[-1].body["messages"][-1]
    assert (last["role"], last["tool_call_id"]) == ("tool", "call_fake")
    assert last["content"]
    assert [ok for ok, _ in done.results] == [False]


def test_a_model_that_repeats_one_call_for_ever_is_stopped(alice: Person, model: FakeModelServer) -> None:
    model.say(*(Script(calls=(Call("list_files", "{}", f"call_{n}"),)) for n in range(30)))
    done = alice.ask("go", model="fake")
    assert done.finish == "length"
    assert len(done.calls) <= 24
    assert any(e["type"] == "notice" for e in done.events)
    goes_on(alice, model)


def test_an_endless_answer_is_cut_and_stops_the_model(alice: Person, model: FakeModelServer) -> None:
    model.say(Script(misbehave="endless"))
    with suppress(openai.APIError):  # whichever limit comes first: the provider's or the message's
        assert alice.ask("go on", model="fake").finish == "length"
    assert model.left.acquire(timeout=LIMIT_S)
    goes_on(alice, model)
