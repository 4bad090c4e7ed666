"""The real egress process before failing model servers: retries, the breaker, fallbacks, limits."""

import json
from pathlib import Path
from typing import Any

import msgspec

from core.config import Config, ProviderSection, ServerSection
from core.egress.messages import ChatCancel, ChatDone, ChatFailed, ChatItem, ChatStart
from jail.wire.schema import ChatDelta, Message, Sampling
from tests.fakes.egress_process import EgressProcess
from tests.fakes.model_server import Script, running_model_server

KEYS = 'acme = "sk-acme-0123456789abcdef"\nspare = "sk-spare-0123456789abcdef"\n'


def _config(url: str, spare: str = "", **terms: Any) -> Config:
    given = {"retry_base_s": 0.01, "retry_cap_s": 1.0, **terms}
    providers = {"acme": ProviderSection(base_url=url, **given)}
    if spare:
        providers["spare"] = ProviderSection(base_url=spare)
    return Config(server=ServerSection(log_level="debug", log_format="json"), providers=providers)


def _start(id: int, user: str = "alice") -> ChatStart:
    return ChatStart(id, user, "acme", "model-1", (Message("user", "hi"),), (), Sampling())


def _ended(message: Any) -> bool:
    return isinstance(message, ChatDone | ChatFailed)


def _text(egress: EgressProcess, id: int) -> str:
    items = [m.item for m in egress.seen if isinstance(m, ChatItem) and m.id == id]
    return "".join(item.text for item in items if isinstance(item, ChatDelta))


def _logged(egress: EgressProcess, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in egress.log().splitlines()]
    return [line for line in lines if line["event"] == event]


def test_429_and_5xx_are_tried_again_with_the_same_request(tmp_path: Path) -> None:
    with running_model_server() as server, EgressProcess(tmp_path, _config(server.url), KEYS) as egress:
        server.say(
            Script(status=429, headers={"Retry-After": "0"}), Script(status=503), Script(text="at last")
        )
        egress.send(_start(1))
        assert isinstance(egress.receive(_ended), ChatDone)
        assert _text(egress, 1) == "at last"
        assert len({json.dumps(request.body) for request in server.requests}) == 1
        assert [entry["code"] for entry in _logged(egress, "chat_retried")] == [
            "upstream_rate_limit", "upstream",
        ]  # fmt: skip


def test_a_server_that_is_not_there_is_tried_again_and_the_failure_says_so(tmp_path: Path) -> None:
    with EgressProcess(tmp_path, _config("http://127.0.0.1:1/v1"), KEYS) as egress:
        egress.send(_start(1))
        failed = egress.receive(_ended)
        assert isinstance(failed, ChatFailed)
        assert "could not be reached" in failed.failure.message
        assert "tried 3 times" in failed.failure.message


def test_an_answer_that_breaks_off_is_not_begun_again(tmp_path: Path) -> None:
    with (
        running_model_server() as server,
        running_model_server() as spare,
        EgressProcess(tmp_path, _config(server.url, spare.url, fallbacks=("spare/m2",)), KEYS) as egress,
    ):
        server.say(Script(text="some words", misbehave="cut"))
        egress.send(_start(1))
        failed = egress.receive(_ended)
        assert isinstance(failed, ChatFailed)
        assert _text(egress, 1) == "some words"
        assert (len(server.requests), len(spare.requests)) == (1, 0)


def test_a_fallback_answers_with_its_own_model_and_key(tmp_path: Path) -> None:
    with (
        running_model_server() as server,
        running_model_server() as spare,
        EgressProcess(tmp_path, _config(server.url, spare.url, fallbacks=("spare/org/m2",)), KEYS) as egress,
    ):
        server.say(Script(status=401))
        spare.say(Script(text="from the spare"))
        egress.send(_start(1))
        assert isinstance(egress.receive(_ended), ChatDone)
        assert _text(egress, 1) == "from the spare"
        assert spare.requests[0].body["model"] == "org/m2"
        assert spare.requests[0].headers["Authorization"] == "Bearer sk-spare-0123456789abcdef"
        assert [(e["provider"], e["to"]) for e in _logged(egress, "chat_fell_back")] == [("acme", "spare")]


def test_an_agents_own_fallbacks_are_asked_in_order_in_place_of_the_providers(tmp_path: Path) -> None:
    with (
        running_model_server() as server,
        running_model_server() as spare,
        EgressProcess(tmp_path, _config(server.url, spare.url, fallbacks=("spare/m2",)), KEYS) as egress,
    ):
        server.say(Script(status=401), Script(text="another model"))
        spare.say(Script(status=401))
        own = ("gone/x", "spare/m3", "acme/model-2", "builtin/assistant")
        egress.send(msgspec.structs.replace(_start(1), fallbacks=own))
        assert isinstance(egress.receive(_ended), ChatDone)
        assert _text(egress, 1) == "another model"
        assert [request.body["model"] for request in server.requests] == ["model-1", "model-2"]
        assert [request.body["model"] for request in spare.requests] == ["m3"]
        assert [e["to"] for e in _logged(egress, "chat_fell_back")] == ["spare", "acme"]


def test_a_provider_that_keeps_failing_is_no_longer_asked(tmp_path: Path) -> None:
    config = _config("http://127.0.0.1:1/v1", retries=0, breaker_failures=2, breaker_open_s=60.0)
    with EgressProcess(tmp_path, config, KEYS) as egress:
        for number in (1, 2):
            egress.send(_start(number))
            assert egress.receive(_ended).failure.code == "upstream"
        egress.send(_start(3))
        failure = egress.receive(_ended).failure
        assert failure.code == "unavailable"
        assert 1 <= failure.retry_after_s <= 60
        assert len(_logged(egress, "breaker_opened")) == 1


def test_one_users_streams_are_limited_and_a_cancel_frees_the_place(tmp_path: Path) -> None:
    with (
        running_model_server() as server,
        EgressProcess(tmp_path, _config(server.url, max_streams_per_user=1), KEYS) as egress,
    ):
        server.say(Script(text="a b", misbehave="stall"))
        egress.send(_start(1))
        egress.receive(lambda message: isinstance(message, ChatItem))
        egress.send(_start(2))
        assert egress.receive(_ended).failure.code == "overloaded"
        egress.send(_start(3, "bob"))
        assert isinstance(egress.receive(_ended), ChatDone)
        egress.send(ChatCancel(1))
        assert server.left.acquire(timeout=10)
        egress.send(_start(4))
        assert isinstance(egress.receive(_ended), ChatDone)
