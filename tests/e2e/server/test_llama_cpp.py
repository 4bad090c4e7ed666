"""A server of other people's as upstream: llama.cpp's. CONTRIBUTING.md says how to run it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.real_server import UNATTACKED, Person, real_server

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    argv = [sys.executable, "-m", "tests.fakes.llama_cpp", str(tmp_path_factory.mktemp("llama"))]
    with subprocess.Popen(
        argv, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as llama:
        assert llama.stdout is not None
        url = next(line.strip() for line in llama.stdout if line.startswith("http"))
        agent = {"provider": "llama", "model": "random", "tools": []}
        with real_server({"providers.llama": {"base_url": url}, "agent": agent}, before=UNATTACKED) as server:
            yield server.new_user("alice")
        assert llama.stdin is not None
        llama.stdin.close()
        llama.wait(30)


def ask(person: Person, text: str, **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": text}]
    with person.client() as client:
        return client.chat.completions.create(model="assistant", messages=messages, **more)


def test_an_answer_has_the_tokens_that_were_asked_for(person: Person) -> None:
    answer = ask(person, "hello", max_tokens=12, temperature=0)
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.content
    assert answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens > 5


def test_a_streamed_answer_is_the_same_and_counted(person: Person) -> None:
    whole = ask(person, "hello", max_tokens=30, temperature=0).choices[0].message.content
    with person.client() as client:
        chunks = list(
            client.chat.completions.create(
                model="assistant", messages=[{"role": "user", "content": "hello"}], max_tokens=30,
                temperature=0, stream=True, stream_options={"include_usage": True},
            )
        )  # fmt: skip
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 30


def test_an_answer_keeps_to_a_schema(person: Person) -> None:
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    answer = ask(person, "hello", max_tokens=200, response_format=wanted)
    assert json.loads(answer.choices[0].message.content)["a"] in ("x", "y")


def test_a_session_goes_on(person: Person) -> None:
    headers = {"X-Certosa-Session": "long"}
    first = ask(person, "one", max_tokens=5, extra_headers=headers)
    second = ask(person, "two", max_tokens=5, extra_headers=headers)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens
