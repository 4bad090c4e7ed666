"""Two people chat through the official client: answers, tools, sessions, usage, models."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import openai
import pytest

from tests.fakes.model_server import Call, FakeModelServer, Script
from tests.fakes.real_server import LIMIT_S, Person


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


def test_an_answer_comes_whole(alice: Person, bob: Person) -> None:
    for person in (alice, bob):
        with person.client() as client:
            answer = client.chat.completions.create(model="assistant", messages=user("who are you?"))
        assert answer.object == "chat.completion"
        assert answer.id.startswith("chatcmpl-")
        assert answer.model == "assistant"
        assert answer.choices[0].message.role == "assistant"
        assert "built-in assistant" in (answer.choices[0].message.content or "")
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.completion_tokens > 0
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_an_answer_comes_piece_by_piece_with_usage_last(alice: Person, model: FakeModelServer) -> None:
    model.say(Script(text="one two three four five", rate_per_s=50))
    with alice.client() as client:
        stream = client.chat.completions.create(
            model="fake", messages=user("count"), stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    texts = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert "".join(texts) == "one two three four five"
    assert len(texts) > 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (7, 5)
    assert len({c.id for c in chunks}) == 1


def test_the_asynchronous_client_streams_for_both_at_once(alice: Person, bob: Person) -> None:
    async def talk(person: Person, word: str) -> str:
        async with openai.AsyncOpenAI(
            base_url=f"{person.server.url}/v1", api_key=person.token, max_retries=0, timeout=LIMIT_S
        ) as client:
            whole = await client.chat.completions.create(
                model="assistant", messages=user(f"run: echo {word}")
            )
            stream = await client.chat.completions.create(
                model="assistant", messages=user(f"run: echo {word}"), stream=True
            )
            text = "".join([c.choices[0].delta.content or "" async for c in stream])
            assert whole.choices[0].message.content == text
            return text

    async def both() -> tuple[str, str]:
        return await asyncio.gather(talk(alice, "of-alice"), talk(bob, "of-bob"))

    of_alice, of_bob = asyncio.run(both())
    assert "of-alice" in of_alice
    assert "of-bob" not in of_alice
    assert "of-bob" in of_bob
    assert "of-alice" not in of_bob


def test_a_model_calls_every_tool_and_sees_what_came_of_it(alice: Person, model: FakeModelServer) -> None:
    calls = [
        Call("write_file", '{"path": "tale.txt", "content": "a cell in a wall\\n"}', "call_1"),
        Call("list_files", "{}", "call_2"),
        Call("read_file", '{"path": "tale.txt"}', "call_3"),
        Call(
            "edit_file", json.dumps({"path": "tale.txt", "old_text": "cell", "new_text": "hatch"}), "call_4"
        ),
        Call("search_files", '{"pattern": "hatch"}', "call_5"),
        Call("run_command", '{"command": "cat tale.txt && pwd"}', "call_6"),
        Call("run_python", '{"code": "print(6 * 7)"}', "call_7"),
    ]
    model.say(*(Script(text="well ", calls=(call,)) for call in calls), Script(text="all done"))
    before = len(model.requests)
    done = alice.ask("use your tools", model="fake")
    assert done.finish == "stop"
    assert done.text.endswith("all done")
    assert [name for name, _ in done.calls] == [call.name for call in calls]
    assert all(ok for ok, _ in done.results), done.results
    for expected, (_, text) in zip(
        ("tale.txt", "tale.txt", "a cell in a wall", "tale.txt", "hatch", "/home/user", "42"),
        done.results, strict=True,
    ):  # fmt: skip
        assert expected in text
    assert (alice.home / "tale.txt").read_text() == "a hatch in a wall\n"
    last = model.requests[-1].body["messages"]
    assert [m["role"] for m in last] == ["system", "user", *["assistant", "tool"] * 7]
    assert last[-1]["tool_call_id"] == "call_7"
    assert {tool["function"]["name"] for tool in model.requests[before].body["tools"]} >= {
        call.name for call in calls
    }


def test_a_client_never_sees_tool_calls_to_run(alice: Person) -> None:
    with alice.client() as client:
        answer = client.chat.completions.create(model="assistant", messages=user("list files"))
    assert answer.choices[0].finish_reason == "stop"
    assert not answer.choices[0].message.tool_calls


def test_a_session_remembers_and_no_session_forgets(alice: Person, model: FakeModelServer) -> None:
    session = f"s-{uuid4().hex[:8]}"
    model.say(Script(text="noted"), Script(text="teal"), Script(text="no idea"))
    alice.ask("the colour is teal", session, "fake")
    alice.ask("which colour?", session, "fake")
    texts = [m.get("content") for m in model.requests[-1].body["messages"][1:]]
    assert texts == ["the colour is teal", "noted", "which colour?"]
    alice.ask("which colour?", model="fake")
    assert [m.get("content") for m in model.requests[-1].body["messages"][1:]] == ["which colour?"]


def test_a_session_takes_only_the_last_user_message(alice: Person, model: FakeModelServer) -> None:
    session = f"s-{uuid4().hex[:8]}"
    model.say(Script(text="first"), Script(text="second"))
    alice.ask("one", session, "fake")
    with alice.client() as client:
        client.chat.completions.create(
            model="fake",
            messages=[
                {"role": "user", "content": "forged"},
                {"role": "assistant", "content": "forged too"},
                {"role": "user", "content": "two"},
            ],
            extra_headers={"X-Certosa-Session": session},
        )
    assert [m.get("content") for m in model.requests[-1].body["messages"][1:]] == ["one", "first", "two"]


def test_a_client_sends_its_own_history_without_a_session(alice: Person, model: FakeModelServer) -> None:
    history: Any = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": [{"type": "text", "text": "tw"}, {"type": "text", "text": "o"}]},
    ]
    with alice.client() as client:
        answer = client.chat.completions.create(model="fake", messages=history, temperature=0.5, max_tokens=9)
    assert answer.choices[0].message.content == "You said: two"
    seen = model.requests[-1].body
    assert [m.get("content") for m in seen["messages"][-4:]] == ["be brief", "one", "1", "two"]
    assert seen["temperature"] == 0.5


def test_one_session_id_of_two_people_is_two_sessions(
    alice: Person, bob: Person, model: FakeModelServer
) -> None:
    session = f"s-{uuid4().hex[:8]}"
    alice.ask("remember the password is swordfish", session)
    assert "swordfish" in alice.ask("what do you remember?", session).text
    of_bob = bob.ask("what do you remember?", session)
    assert "swordfish" not in json.dumps(of_bob.events) + of_bob.text
    bob.ask("hello", session, "fake")
    assert "swordfish" not in json.dumps(model.requests[-1].body)


def test_models_are_the_users_own_agents(alice: Person, bob: Person) -> None:
    alice.add_agent("secretary", 'prompt = "Be a secretary."\n')
    with alice.client() as client:
        assert {m.id for m in client.models.list()} >= {"assistant", "fake", "secretary"}
        assert client.models.retrieve("secretary").id == "secretary"
    with bob.client() as client:
        assert "secretary" not in {m.id for m in client.models.list()}
        with pytest.raises(openai.NotFoundError, match="no agent"):
            client.models.retrieve("secretary")
        with pytest.raises(openai.NotFoundError, match="secretary"):
            client.chat.completions.create(model="secretary", messages=user("hi"))
