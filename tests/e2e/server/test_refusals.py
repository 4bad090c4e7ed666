"""What a client does wrong, and what it is told: OpenAI's shape, a status, a sentence."""

import http.client
import json
import socket
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import openai
import pytest

from tests.fakes.real_server import Person, RealServer

PATH = "/v1/chat/completions"
LOAD_AGENT = 'provider = "builtin"\nmodel = "load"\n'


@pytest.fixture(scope="module")
def carol(server: RealServer) -> Person:
    person = server.new_user("carol")
    person.add_agent("load", LOAD_AGENT)
    return person


def post(person: Person, body: bytes, token: str | None = None, **headers: str) -> tuple[int, Any, Any]:
    """Status, headers and JSON of a request that no library mended."""
    connection = http.client.HTTPConnection("127.0.0.1", person.server.hub_port, timeout=60)
    sent = {"Content-Type": "application/json", **headers}
    if token != "":
        sent["Authorization"] = f"Bearer {person.token if token is None else token}"
    try:
        connection.request("POST", PATH, body, sent)
        with connection.getresponse() as response:
            return response.status, response.headers, json.loads(response.read())
    finally:
        connection.close()


def chat(**more: Any) -> bytes:
    return json.dumps(
        {"model": "assistant", "messages": [{"role": "user", "content": "hi"}], **more}
    ).encode()  # fmt: skip


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_json", None),
        (b"{", "invalid_json", None),
        (b'{"model": "assistant", "messages": [}', "invalid_json", None),
        (b"\xff\xfe", "invalid_json", None),
        (b"[" * 100_000, "invalid_value", None),
        (b"[]", "invalid_value", None),
        (chat(nonsense=1), "unknown_parameter", "nonsense"),
        (chat(messages=[{"role": "user", "content": "x", "who": 1}]), "unknown_parameter", "messages[0].who"),
        (b'{"model": "assistant"}', "missing_required_parameter", "messages"),
        (chat(messages=[]), "no_user_message", "messages"),
        (chat(messages=[{"role": "tool", "content": "x"}]), "invalid_value", "messages[0].role"),
        (chat(n=2), "invalid_value", "n"),
        (chat(temperature=9), "invalid_value", "temperature"),
        (chat(temperature=True), "invalid_value", "temperature"),
        (chat(tools=[{"type": "function"}]), "invalid_value", "tools"),
        (chat(response_format={"type": "grammar"}), "invalid_value", "response_format.type"),
    ],
    ids=lambda value: value[:24].decode(errors="replace") if isinstance(value, bytes) else str(value),
)  # fmt: skip
def test_a_body_that_will_not_do_is_refused_by_name(
    alice: Person, body: bytes, code: str, param: str | None
) -> None:
    status, headers, answer = post(alice, body)
    assert status == 400
    assert headers["Content-Type"].startswith("application/json")
    assert headers["X-Request-Id"].startswith("req_")
    error = answer["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, param)
    assert error["message"]


def test_the_same_body_without_the_mistake_is_answered(alice: Person) -> None:
    status, _, answer = post(alice, chat())
    assert (status, answer["object"]) == (200, "chat.completion")


@pytest.mark.parametrize("token", ["", "nonsense", "x" * 5_000, "tok_0123456789abcdef", "{}; drop table"])
def test_a_token_that_is_none_is_refused(alice: Person, token: str) -> None:
    status, headers, answer = post(alice, chat(), token)
    assert status == 401
    assert headers["WWW-Authenticate"].startswith("Bearer")
    assert answer["error"]["type"] == "authentication_error"
    if token:
        assert token not in json.dumps(answer)


def test_the_official_client_raises_what_it_should(alice: Person, server: RealServer) -> None:
    stranger = Person(server, "nobody", "wrong")
    with pytest.raises(openai.AuthenticationError):
        stranger.ask("hi")
    with pytest.raises(openai.NotFoundError) as missing:
        alice.ask("hi", model="no-such-agent")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        alice.ask("hi", session="not a session")
    assert wrong.value.code == "invalid_session_id"
    with alice.client() as client, pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="assistant", messages=[{"role": "user", "content": "x"}], n=3)


def test_a_body_past_the_limit_is_refused(alice: Person) -> None:
    status, _, answer = post(alice, b" " * ((16 << 20) + 1))
    assert (status, answer["error"]["code"]) == (413, "body_too_large")
    assert post(alice, chat() + b" " * (4 << 20))[0] == 200


def test_a_compressed_body_is_refused(alice: Person) -> None:
    status, _, answer = post(alice, chat(), **{"Content-Encoding": "gzip"})
    assert (status, answer["error"]["code"]) == (415, "unsupported_encoding")


def test_an_unknown_address_and_a_wrong_method_have_openais_shape(alice: Person) -> None:
    with alice.client() as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.post("/embeddings", cast_to=object, body={})
        assert unknown.value.code == "unknown_url"
        with pytest.raises(openai.APIStatusError) as method:
            client.delete("/chat/completions", cast_to=object)
        assert (method.value.status_code, method.value.code) == (405, "method_not_allowed")


def test_one_turn_a_session_and_the_second_is_told_409(carol: Person) -> None:
    session = f"s-{uuid4().hex[:8]}"
    with running(carol, session) as stream:
        next(stream)
        with pytest.raises(openai.ConflictError) as busy:
            carol.ask("tokens=1", session, "load")
        assert busy.value.code == "session_busy"
        assert busy.value.response.headers["Retry-After"]
        assert carol.ask("tokens=1", model="load").finish == "stop"
        cancel(carol, stream)


def test_a_fifth_turn_of_one_user_is_told_429_and_others_go_on(carol: Person, bob: Person) -> None:
    with ExitStack() as held:
        streams = [held.enter_context(running(carol)) for _ in range(4)]
        for stream in streams:
            next(stream)
        with pytest.raises(openai.RateLimitError) as many:
            carol.ask("tokens=1", model="load")
        assert many.value.code == "too_many_turns"
        assert int(many.value.response.headers["Retry-After"]) > 0
        assert bob.ask("help").finish == "stop"
    # the streams are closed, so their turns end, and the official client's own retry gets through
    with carol.client(max_retries=5) as client:
        answer = client.chat.completions.create(
            model="load", messages=[{"role": "user", "content": "tokens=2"}]
        )  # fmt: skip
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


class running:
    """A turn that goes on until it is cancelled; iterates over its chunks."""

    def __init__(self, person: Person, session: str = "") -> None:
        self._person, self._session = person, session
        self.turn = ""

    def __enter__(self) -> "running":
        self._client = self._person.client()
        raw = self._client.chat.completions.with_raw_response.create(
            model="load",
            messages=[{"role": "user", "content": "tokens=100000 rate=50"}],
            stream=True,
            extra_headers={"X-Certosa-Session": self._session} if self._session else {},
        )
        self.turn = raw.headers["X-Certosa-Turn"]
        self._stream = raw.parse()
        return self

    def __iter__(self) -> "running":
        return self

    def __next__(self) -> Any:
        return next(self._stream)

    def __exit__(self, *exc: object) -> None:
        self._stream.close()
        self._client.close()


def cancel(person: Person, turn: running) -> None:
    with person.client() as client:
        client.post(f"/turns/{turn.turn}/cancel", cast_to=object)


def test_a_turn_is_cancelled_by_its_owner_alone(carol: Person, bob: Person) -> None:
    session = f"s-{uuid4().hex[:8]}"
    with running(carol, session) as stream:
        next(stream)
        with pytest.raises(openai.NotFoundError) as foreign:
            cancel(bob, stream)
        with bob.client() as client, pytest.raises(openai.NotFoundError) as unknown:
            client.post("/turns/turn_0123456789abcdef/cancel", cast_to=object)
        assert str(foreign.value) == str(unknown.value)
        next(stream)
        cancel(carol, stream)
        with pytest.raises(openai.APIError, match="cancelled"):
            list(stream)
        with pytest.raises(openai.NotFoundError):
            cancel(carol, stream)
    assert carol.ask("tokens=1", session, "load").finish == "stop"


@pytest.mark.parametrize("end", [b"\x01", b"\0", b"x" * 9_000], ids=["control", "nul", "long"])
def test_a_malformed_request_leaves_no_token_in_the_log(carol: Person, end: bytes) -> None:
    server, canary = carol.server, f"cts-canary-{uuid4().hex}"
    before = len(server.logged("request_malformed"))
    with socket.create_connection(("127.0.0.1", server.hub_port), timeout=60) as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ")
        sock.sendall(canary.encode() + end + b"\r\n\r\n")
        assert b" 400 " in sock.recv(4_096)
    server.wait_logged("request_malformed", before + 1)
    assert canary not in server.log_path.read_text()


def test_a_body_full_of_what_must_be_empty_is_refused_at_its_first_entry(carol: Person) -> None:
    body = b'{"model":"assistant","messages":[],"tools":[' + b"{}," * 2_600_000 + b"{}]}"
    status, _, answer = post(carol, body)
    assert (status, answer["error"]["param"]) == (400, "tools")
    assert "Expected `null`, got `object`" in answer["error"]["message"]  # not: the list's length
