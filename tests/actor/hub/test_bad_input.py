"""Whatever a client sends, the answer is a clear error in OpenAI's shape and never a 5xx."""

import http.client
import json
import os
import socket
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.fakes.hub_process import HubProcess
from tests.fakes.plain_client import TIMEOUT_S, PlainClient

CHAT = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
GOOD: dict[str, Any] = {"model": "assistant", "messages": [USER]}


def test_the_request_that_the_others_are_made_from_is_answered(plain: PlainClient) -> None:
    answer = plain.ask("POST", CHAT, GOOD)
    assert answer.status == 200
    assert answer.json["choices"][0]["message"]["content"] == "Hello alice"
    assert answer.headers["x-request-id"].startswith("req_")
    assert answer.headers["server"] == "certosa"
    assert answer.headers["x-content-type-options"] == "nosniff"


BODIES: list[tuple[str, bytes]] = [
    ("empty", b""),
    ("not_json", b"hello"),
    ("cut", b'{"model": "assistant", "messages": ['),
    ("trailing", json.dumps(GOOD).encode() + b"{}"),
    ("an_array", b"[]"),
    ("null", b"null"),
    ("deep_arrays", b"[" * 100_000),
    ("deep_objects", b'{"messages":' * 50_000),
    ("deep_in_unknown", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    ("deep_in_metadata", b'{"metadata":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_001),
    ("nan", b'{"model":"assistant","messages":[],"temperature":NaN}'),
    ("infinity", b'{"model":"assistant","messages":[],"temperature":Infinity}'),
    ("huge_float", b'{"model":"assistant","messages":[],"temperature":1e999}'),
    ("huge_int", b'{"model":"assistant","messages":[],"max_tokens":' + b"9" * 5_000 + b"}"),
    ("negative", b'{"model":"assistant","messages":[],"max_tokens":-1}'),
    ("bool_as_int", b'{"model":"assistant","messages":[],"max_tokens":true}'),
    ("float_as_int", b'{"model":"assistant","messages":[],"max_tokens":1.5}'),
    ("invalid_utf8", b'{"model":"assistant","messages":[{"role":"user","content":"\xff\xfe"}]}'),
    ("utf16", json.dumps(GOOD).encode("utf-16")),
    ("lone_surrogate", b'{"model":"assistant","messages":[{"role":"user","content":"\\ud800 x"}]}'),
    ("low_surrogate", b'{"model":"assistant","messages":[{"role":"user","content":"\\udc00"}]}'),
    ("control", b'{"model":"assistant","messages":[{"role":"user","content":"a\nb"}]}'),
    ("nul_bytes", b"\0" * 1_000),
    ("random", os.urandom(5_000)),
]


@pytest.mark.parametrize("body", [b for _, b in BODIES], ids=[name for name, _ in BODIES])
def test_a_body_that_is_no_request_is_a_400(plain: PlainClient, hub: HubProcess, body: bytes) -> None:
    answer = plain.ask("POST", CHAT, body)
    assert answer.status == 400
    assert answer.error["type"] == "invalid_request_error"
    assert answer.error["message"]
    assert not hub.turns.turns
    assert plain.ask("POST", CHAT, GOOD).status == 200


FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"nonsense": 1}, "nonsense"),
    ({"Model": "x"}, "Model"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"n": 2}, "n"),
    ({"n": True}, "n"),
    ({"seed": 1}, "seed"),
    ({"logprobs": True}, "logprobs"),
    ({"logit_bias": {"50256": 1}}, "logit_bias"),
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"response_format": {"type": "grammar"}}, "response_format.type"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": [1]}}},
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": {"a": "x" * 70_000}}
        }},
        "response_format.json_schema.schema",
    ),
    ({"store": True}, "store"),
    ({"modalities": ["audio"]}, "modalities[0]"),
    ({"temperature": 3}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": [1]}, "stop[0]"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"stream_options": {"other": 1}}, "stream_options.other"),
    ({"user": 5}, "user"),
    ({"metadata": {"k": 1}}, "metadata[...]"),
    ({"metadata": {str(n): "v" for n in range(17)}}, "metadata"),
    ({"model": 5}, "model"),
    ({"model": ""}, "model"),
    ({"model": None}, "model"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [5]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
    ({"messages": [USER, {"role": "tool", "content": "x", "tool_call_id": "c"}]}, "messages[1].role"),
    ({"messages": [USER, {**USER, "name": "x"}]}, "messages[1].name"),
    (
        {"messages": [USER, {"role": "assistant", "tool_calls": [{"id": "c"}]}]},
        "messages[1].tool_calls",
    ),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
    ({"messages": [USER] * 1_001}, "messages"),
    ({"messages": [{"role": "user", "content": "x" * 900_001}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "ä" * 460_000}]}, "messages[0].content"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "param"), FIELDS, ids=[f"{n}-{param}" for n, (_, param) in enumerate(FIELDS)]
)
def test_a_field_that_will_not_do_is_refused_by_name(
    plain: PlainClient, hub: HubProcess, change: dict[str, Any], param: str
) -> None:
    answer = plain.ask("POST", CHAT, {**GOOD, **change})
    assert answer.status == 400
    assert answer.error["param"] == param
    assert len(answer.error["message"]) < 500
    assert not hub.turns.turns


NOTHING: dict[str, Any] = {
    "stream": None, "stream_options": None, "temperature": None, "top_p": None, "max_tokens": None,
    "stop": None, "n": 1, "user": None, "metadata": {}, "presence_penalty": 0,
    "frequency_penalty": 0.0, "logprobs": False, "store": False, "tools": [], "tool_choice": None,
    "response_format": {"type": "text"}, "logit_bias": None, "seed": None, "functions": None,
    "service_tier": "auto", "modalities": ["text"], "parallel_tool_calls": None,
}  # fmt: skip


@pytest.mark.parametrize("field", NOTHING)
def test_a_known_field_that_asks_for_nothing_is_accepted(plain: PlainClient, field: str) -> None:
    assert plain.ask("POST", CHAT, {**GOOD, field: NOTHING[field]}).status == 200


def test_the_longest_message_and_the_most_messages_are_taken(plain: PlainClient) -> None:
    long = {"role": "user", "content": "x" * 900_000}
    assert plain.ask("POST", CHAT, {**GOOD, "messages": [long]}).status == 200
    assert plain.ask("POST", CHAT, {**GOOD, "messages": [USER] * 1_000}).status == 200


@pytest.mark.parametrize("name", ["nobody", "../../bob/agents/x", "a/b", "..", "ä", "x" * 128, "a\0b"])
def test_an_unknown_model_is_not_found_and_names_no_file(
    plain: PlainClient, hub: HubProcess, name: str
) -> None:
    hub.write_agent("bob", "x", 'prompt = "y"')
    answer = plain.ask("POST", CHAT, {**GOOD, "model": name})
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert str(hub.directory) not in answer.error["message"]


@pytest.mark.parametrize("session", ["", "..", "../x", "a/b", "a b", "x" * 65, "-x"])
def test_a_session_that_cannot_be_one_is_a_400(plain: PlainClient, session: str) -> None:
    answer = plain.ask("POST", CHAT, GOOD, {"X-Certosa-Session": session})
    assert (answer.status, answer.error["param"]) == (400, "X-Certosa-Session")


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ([], 401, "missing_token"),
        ([("Authorization", "")], 401, "invalid_token"),
        ([("Authorization", "Bearer ")], 401, "invalid_token"),
        ([("Authorization", "Basic dG9rZW4=")], 401, "invalid_token"),
        ([("Authorization", "Bearer token-alice extra")], 401, "invalid_token"),
        ([("Authorization", "token-alice")], 401, "invalid_token"),
        ([("Authorization", "Bearer " + "x" * 600)], 401, "invalid_token"),
        ([("Authorization", "Bearer token-mallory")], 401, "invalid_token"),
        ([("Authorization", "Bearer token-alice"), ("Authorization", "Bearer token-bob")], 400,
         "duplicate_header"),
        ([("Authorization", "Bearer token-alice"), ("authorization", "Bearer token-alice")], 400,
         "duplicate_header"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/models/assistant"])
def test_a_request_without_one_good_token_is_refused(
    hub: HubProcess, path: str, headers: list[tuple[str, str]], status: int, code: str
) -> None:
    method = "POST" if path == CHAT else "GET"
    body = GOOD if path == CHAT else None
    nobody = PlainClient(hub.url)
    answer = nobody.ask(method, path, body, headers)
    assert (answer.status, answer.error["code"]) == (status, code)
    if status == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert nobody.ask(method, path, body, [("authorization", "bearer token-alice")]).status == 200


@pytest.mark.parametrize(
    ("headers", "param"),
    [
        ([("X-Certosa-Events", "maybe")], "X-Certosa-Events"),
        ([("X-Certosa-Events", "on"), ("X-Certosa-Events", "off")], "X-Certosa-Events"),
        ([("X-Certosa-Session", "a"), ("X-Certosa-Session", "b")], "X-Certosa-Session"),
    ],
)
def test_a_header_of_ours_that_makes_no_sense_is_refused(
    plain: PlainClient, headers: list[tuple[str, str]], param: str
) -> None:
    answer = plain.ask("POST", CHAT, GOOD, headers)
    assert (answer.status, answer.error["param"]) == (400, param)


def test_a_body_past_the_limit_is_a_413_and_nobody_else_notices(plain: PlainClient, hub: HubProcess) -> None:
    answer = plain.ask("POST", CHAT, b" " * (int(hub.config.hub.max_body_bytes) + 1))
    assert (answer.status, answer.error["code"]) == (413, "body_too_large")
    assert plain.ask("POST", CHAT, GOOD).status == 200


def test_a_compressed_body_is_refused_rather_than_blown_up(plain: PlainClient) -> None:
    answer = plain.ask("POST", CHAT, b"\x1f\x8b", {"Content-Encoding": "gzip"})
    assert (answer.status, answer.error["code"]) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/metrics", 404),
        ("GET", "/v1/users", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("PATCH", CHAT, 405),
        ("GET", "/v1/models/..%2f..%2fetc", 404),
    ],
)
def test_an_address_or_method_that_is_not_there_says_so(
    plain: PlainClient, method: str, path: str, status: int
) -> None:
    answer = plain.ask(method, path)
    assert (answer.status, bool(answer.error["message"])) == (status, True)


def test_an_agent_file_that_is_broken_names_the_file_and_the_key(plain: PlainClient, hub: HubProcess) -> None:
    hub.write_agent("alice", "typo", 'promt = "x"')
    hub.write_agent("alice", "mine", 'prompt = "x"')
    answer = plain.ask("POST", CHAT, {**GOOD, "model": "typo"})
    assert (answer.status, answer.error["code"]) == (400, "invalid_agent")
    assert "typo.toml" in answer.error["message"]
    assert "promt" in answer.error["message"]
    assert plain.ask("POST", CHAT, {**GOOD, "model": "mine"}).status == 200


SECRET = b"cts_canary"
MALFORMED = [
    b"GET /v1/models HTTP/1.1\nHost: x\nAuthorization: Bearer " + SECRET + b"\n\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + SECRET + b"\0\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + SECRET + b"x" * 9_000 + b"\r\n\r\n",
    b"GET http://x:" + SECRET + b"/ HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: " + SECRET + b"\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + SECRET + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n" + SECRET + b": x\r\n y\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
]


@pytest.mark.parametrize("request_", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_no_request_is_answered_as_all_errors_are_and_not_quoted(
    hub: HubProcess, request_: bytes
) -> None:
    for address in (hub.url, hub.admin_url):
        port = urlsplit(address).port
        assert port is not None
        with closing(socket.create_connection(("127.0.0.1", port), TIMEOUT_S)) as sock:
            sock.sendall(request_)
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            body = answer.read()
            with suppress(ConnectionResetError):
                assert sock.recv(1) == b""
        assert answer.status == 400
        assert json.loads(body)["error"]["code"] == "malformed_request"
        assert SECRET not in body
        assert answer.getheader("Server") == "certosa"
        assert str(answer.getheader("X-Request-Id")).startswith("req_")


def _raw(hub: HubProcess, *lines: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """A POST of a chat with these header lines, and its answer."""
    with closing(socket.create_connection(hub.address[:2], timeout=TIMEOUT_S)) as sock:
        head = [f"POST {CHAT} HTTP/1.1", "Host: x", "Authorization: Bearer token-alice", *lines]
        sock.sendall("\r\n".join([*head, "", ""]).encode() + body)
        response = http.client.HTTPResponse(sock)
        response.begin()
        answer = response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        if answer[0] != 200:
            assert not sock.recv(1), "and the connection ends: where the next request begins is not known"
        return answer


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)


def test_an_expectation_that_nobody_knows_is_refused_as_everything_is(hub: HubProcess) -> None:
    status, headers, body = _raw(hub, "Expect: 200-maybe", "Content-Length: 0")
    error = json.loads(body)["error"]
    assert (status, error["code"], error["type"]) == (417, "unsupported_expectation", "certosa_error")
    assert headers["content-type"].startswith("application/json")
    assert headers["x-request-id"].startswith("req_")
    data = json.dumps(GOOD).encode()
    status, _, _ = _raw(hub, "Expect: 100-continue", f"Content-Length: {len(data)}", body=data)
    assert status == 200


@pytest.mark.parametrize(
    "lines",
    [
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked, chunked"],
        ["Transfer-Encoding: identity, chunked"],
    ],
)
def test_a_body_in_another_coding_than_chunked_is_refused(hub: HubProcess, lines: list[str]) -> None:
    data = json.dumps(GOOD).encode()
    status, _, body = _raw(hub, *lines, body=_chunked(data))
    assert status == 400
    assert json.loads(body)["error"]["code"] in ("unsupported_encoding", "malformed_request")
    status, _, body = _raw(hub, "Transfer-Encoding: Chunked", body=_chunked(data))
    assert (status, json.loads(body)["object"]) == (200, "chat.completion")
