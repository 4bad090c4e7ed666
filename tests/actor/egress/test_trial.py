"""The real egress process tests a provider for its operator: its models, and a word of one of them."""

from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from core.config import AgentSection, Config, ProviderSection
from core.egress.messages import ChatDone, ChatStart, ProviderTried, Refused, TryProvider
from jail.wire.schema import Message, Sampling
from tests.fakes.egress_process import EgressProcess
from tests.fakes.model_server import Script, running_model_server

KEY = "sk-canary-0123456789abcdefghij"
KEYS = f'acme = "{KEY}"'


def _config(url: str, agent: AgentSection | None = None, **more: Any) -> Config:
    given = {"connect_s": 2.0, "first_byte_s": 2.0, **more}
    providers = {"acme": ProviderSection(base_url=url, **given)}
    return Config(providers=providers, agent=agent or AgentSection())


@pytest.mark.parametrize(
    ("kind", "header", "value"),
    [("openai", "Authorization", f"Bearer {KEY}"), ("anthropic", "x-api-key", KEY)],
)
def test_it_lists_the_models_and_asks_the_first_with_the_key(
    tmp_path: Path, kind: str, header: str, value: str
) -> None:
    with (
        running_model_server() as server,
        EgressProcess(tmp_path, _config(server.url, kind=kind), KEYS) as egress,
    ):
        tried = egress.ask(TryProvider(7, "acme", ""))
        assert isinstance(tried, ProviderTried)
        assert (tried.models, tried.models_error) == (("m1", "m2"), "")
        assert (tried.model, tried.chat_error) == ("m1", "")
        assert tried.answer_s >= 0
        listed, asked = server.requests
        assert listed.path == "/v1/models"
        assert asked.body["model"] == "m1"
        assert asked.body["max_tokens"] == 16
        assert all(request.headers[header] == value for request in server.requests)


@pytest.mark.parametrize(
    ("agent", "model", "asked"),
    [
        (AgentSection(provider="acme", model="the-agents"), "", "the-agents"),
        (AgentSection(provider="acme", model="the-agents"), "named", "named"),
        (AgentSection(), "", "m1"),
    ],
)
def test_which_model_is_asked(tmp_path: Path, agent: AgentSection, model: str, asked: str) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url, agent)) as egress:
        assert egress.ask(TryProvider(1, "acme", model)).model == asked
        assert server.requests[1].body["model"] == asked


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ({"nothing": 1}, "no list of models"),
        ({"data": [{"id": 7}]}, "no list of models"),
        (404, "HTTP 404"),
        (401, "provider key file"),
    ],
)
def test_a_server_that_lists_nothing_is_asked_where_a_model_is_named(
    tmp_path: Path, models: Any, words: str
) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url), KEYS) as egress:
        for question, chat_error in (("named", ""), ("", "--model")):
            echo = web.Response(status=models, text=f"denied {KEY}") if isinstance(models, int) else models
            server.models = echo
            tried = egress.ask(TryProvider(1, "acme", question))
            assert words in tried.models_error
            assert "canary" not in tried.models_error
            assert chat_error in tried.chat_error


def test_names_of_models_are_one_visible_line_each(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url), KEYS) as egress:
        server.models = {"data": [{"id": f"evil\x1b[2J\nname {KEY}"}, {"id": "x" * 500}]}
        tried = egress.ask(TryProvider(1, "acme", "m"))
        assert tried.models == ("evil [2J name [struck out]", "x" * 128)


def test_what_fails_is_told_and_a_provider_not_there_is_refused(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        server.say(Script(status=500))
        assert "failed (HTTP 500)" in egress.ask(TryProvider(1, "acme", "")).chat_error
        refused = egress.ask(TryProvider(2, "nobody", ""))
        assert isinstance(refused, Refused)
        assert "'nobody'" in refused.message
        assert "SIGHUP" in refused.message
        built_in = egress.ask(TryProvider(3, "builtin", ""))
        assert isinstance(built_in, Refused)
        assert built_in.message == "builtin needs no test: it has no server behind it"
    (tmp_path / "gone").mkdir()
    with EgressProcess(tmp_path / "gone", _config("http://127.0.0.1:1/v1")) as egress:
        tried = egress.ask(TryProvider(1, "acme", "m"))
        assert "could not be reached" in tried.models_error
        assert "could not be reached" in tried.chat_error


def test_a_test_in_progress_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url)) as egress:
        server.say(Script(misbehave="slow_headers"))
        egress.send(TryProvider(1, "acme", "m"))
        while len(server.requests) < 2:
            egress.ask(TryProvider(2, "nobody", ""))
        assert egress.stop() == 0


def test_who_may_not_use_a_provider_is_refused_by_the_process_with_the_keys(tmp_path: Path) -> None:
    with (
        running_model_server() as server,
        EgressProcess(tmp_path, _config(server.url, users=("alice",)), KEYS) as egress,
    ):
        ended: list[Any] = []
        for number, user in ((1, "alice"), (2, "bob")):
            ask = ChatStart(number, user, "acme", "m", (Message("user", "hi"),), (), Sampling())
            egress.send(ask)
            ended.append(egress.receive(lambda m: hasattr(m, "end") or hasattr(m, "failure")))
        assert isinstance(ended[0], ChatDone)
        assert ended[1].failure.code == "refused"
        assert len(server.requests) == 1
