"""Credentials in agents' requests over real sockets: where a value goes, and what comes back."""

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import pytest

from core.egress.secret import STRUCK
from tests.fakes.outside_world import (
    LIMIT_S,
    Came,
    Names,
    Outsider,
    Respond,
    Upstream,
    answer,
    credential,
    in_chunks,
    opened,
    outsider,
    run,
    says,
    upstream,
)

VALUE = "canary+key/5f0e 1d2c&3b4a=~"
MARK = "{{credential:api}}"
BEARER = {"Authorization": f"Bearer {MARK}"}
_ALL = ("GET", "POST", "PUT")


def _seen(server: Upstream) -> bytes:
    return b"".join(came.raw_head + came.body for came in server.seen)


def _said(out: Outsider) -> str:
    return repr(out.notes.records)


@pytest.mark.parametrize(
    ("terms", "url", "headers", "sent"),
    [
        ({}, "/", BEARER, f"authorization: Bearer {VALUE}"),
        ({"parameter": "X-Api-Key"}, "/", {"x-api-key": MARK}, f"x-api-key: {VALUE}"),
        ({"place": "query", "parameter": "key"}, f"/?a=1&key={MARK}&b=2", {},
         f"key={quote(VALUE, safe='')}&b=2"),
        ({"place": "query", "parameter": "key"}, f"/?key={quote(MARK)}", {},
         f"key={quote(VALUE, safe='')} "),
        (
            {"kind": "basic", "place": "basic", "username": "robot"}, "/", {"Authorization": f"Basic {MARK}"},
            "authorization: Basic " + base64.b64encode(f"robot:{VALUE}".encode()).decode(),
        ),
        ({"path": "/v1"}, "/v1/x", BEARER, f"authorization: Bearer {VALUE}"),
        ({"kind": "oauth2"}, "/", BEARER, f"authorization: Bearer {VALUE}"),
    ],
)  # fmt: skip
def test_a_value_goes_where_its_credential_says(
    terms: dict[str, Any], url: str, headers: dict[str, str], sent: str
) -> None:
    async def work() -> None:
        async with (
            upstream(says(answer(b"in"))) as server,
            outsider([opened(server)], credentials=[credential(server, VALUE, **terms)]) as out,
        ):
            got = await out.fetch("GET", server.url + url, headers)
            assert got.body == b"in"
            assert sent.lower() in server.seen[0].raw_head.decode().lower()
            (record,) = out.notes.of("credential_used")
            assert (record.user, record.on, record.detail) == ("alice", "api", server.url)
            assert VALUE not in _said(out)

    run(work())


_BAD: list[tuple[dict[str, Any], str, dict[str, str], bytes]] = [
    ({}, "/", {"X-Other": MARK}, b""),
    ({}, f"/?key={MARK}", {}, b""),
    ({}, f"/{MARK}", {}, b""),
    ({}, f"/{quote(MARK)}/x", {}, b""),
    ({}, f"/?{MARK}=1", {}, b""),
    ({}, "/", BEARER, b"text " + MARK.encode()),
    ({}, "/", {"Authorization": "Bearer {{ credential:api }}"}, b""),
    ({}, "/", {"Authorization": "Bearer {{credential:other}}"}, b""),
    ({}, "/", {"Authorization": "Bearer {{credential:provider:main}}"}, b""),
    ({}, "/", {"Authorization": "Bearer {{credential:a{{credential:api}}}}"}, b""),
    ({}, "/", {**BEARER, "Range": "bytes=3-4"}, b""),
    ({"path": "/v1"}, "/", BEARER, b""),
    ({"path": "/v1"}, "/v10", BEARER, b""),
    ({"path": "/v1"}, "/v1%2f..%2fx", BEARER, b""),
    ({"port": 1}, "/", BEARER, b""),
    ({"scheme": "https"}, "/", BEARER, b""),
    ({"host": "api.example.com"}, "/", BEARER, b""),
    ({"host": "localhost"}, "/", BEARER, b""),
    ({"place": "query", "parameter": "key"}, f"/?other={MARK}", {}, b""),
    ({"place": "query", "parameter": "key"}, f"/?key=x{MARK}", {}, b""),
    ({"place": "query", "parameter": "key"}, "/", BEARER, b""),
    ({"kind": "basic", "place": "basic", "username": "robot"}, "/", BEARER, b""),
]


@pytest.mark.parametrize(("terms", "url", "headers", "body"), _BAD)
def test_a_placeholder_anywhere_else_is_refused_before_anything_is_sent(
    terms: dict[str, Any], url: str, headers: dict[str, str], body: bytes
) -> None:
    async def work() -> None:
        async with upstream(says(answer(b"in"))) as server:
            kept = [credential(server, VALUE, **terms)]
            async with outsider([opened(server, methods=_ALL)], credentials=kept) as out:
                got = await out.fetch("POST", server.url + url, headers, body)
                assert got.failure is not None
                assert got.code == "invalid"
                assert server.connections == 0
                assert VALUE not in got.failure.message + _said(out)
                assert out.notes.of("credential_used") == []
                if not body:
                    (record,) = out.notes.of("credential_refused")
                    assert (record.user, record.outcome) == ("alice", "refused")

    run(work())


def test_a_placeholder_in_a_later_piece_of_a_body_breaks_the_request_off() -> None:
    async def work() -> None:
        async with upstream(says(answer(b"in"))) as server:
            kept = [credential(server, VALUE)]
            async with outsider([opened(server, methods=_ALL)], credentials=kept) as out:
                id = out.start("POST", f"{server.url}/", {}, b"text {{cred", more=True)
                out.feed(id, b"ential:api}} more", last=True)
                assert (await out.finish(id)).code == "invalid"
                assert VALUE.encode() not in _seen(server)

    run(work())


def test_a_credential_is_its_owners_alone() -> None:
    async def work() -> None:
        async with (
            upstream(says(answer(b"in"))) as server,
            outsider([opened(server)], credentials=[credential(server, VALUE)]) as out,
        ):
            got = await out.fetch("GET", f"{server.url}/", BEARER, user="bob")
            assert got.failure is not None
            assert (got.code, "no credential 'api'" in got.failure.message) == ("invalid", True)
            assert server.connections == 0

    run(work())


def _cut(data: bytes, size: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def _forms() -> dict[str, bytes]:
    value = VALUE.encode()
    forms = {"plain": value, "percent": quote(VALUE, safe="").encode(), "json": json.dumps(VALUE).encode()}
    forms |= {"percent, lower": quote(VALUE, safe="").lower().encode()}
    for skipped in range(3):
        padded = b"abc"[:skipped] + value + b"xyz"
        forms[f"base64 at {skipped}"] = base64.b64encode(padded)
        forms[f"base64url at {skipped}"] = base64.urlsafe_b64encode(padded)
    forms |= {"hex": value.hex().encode(), "html": VALUE.replace("&", "&amp;").encode()}
    return forms


def _leaks(text: bytes) -> bool:
    """Whether a part of the value that says something is left, in any form that is undone here."""
    low = text.lower()
    kept = [VALUE[at : at + 6].encode() for at in range(len(VALUE) - 6)]
    if any(part.lower() in low for part in kept) or any(p.hex().encode() in low for p in kept):
        return True
    for skipped in range(4):
        rest = text.translate(bytes.maketrans(b"-_", b"+/"))[skipped:]
        rest = bytes(c for c in rest if chr(c).isalnum() or c in b"+/")
        found = base64.b64decode(rest[: len(rest) // 4 * 4])
        if any(part in found for part in kept):
            return True
    return False


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("form", _forms())
def test_a_value_that_a_server_gives_back_is_struck_out(form: str, size: int) -> None:
    text = _forms()[form]

    async def respond(_: Came, writer: asyncio.StreamWriter) -> None:
        await in_chunks(writer, _cut(b"<before>" + text + b"<after>", size))

    async def work() -> None:
        async with upstream(respond) as server:
            async with outsider([opened(server)], credentials=[credential(server, VALUE)]) as out:
                got = await out.fetch("GET", f"{server.url}/", BEARER)
                assert STRUCK.encode() in got.body
                assert got.body.startswith(b"<before>")
                assert got.body.endswith(b"<after>")
                assert not _leaks(got.body[8:-7])
                assert _leaks(text)
            async with outsider([opened(server)]) as out:  # where it is no secret it comes as it is
                assert (await out.fetch("GET", f"{server.url}/")).body == b"<before>" + text + b"<after>"

    run(work())


def test_a_value_in_a_header_an_error_page_or_a_url_is_struck_out() -> None:
    async def work() -> None:
        async with (
            upstream(says(b"")) as server,
            outsider([opened(server)], credentials=[credential(server, VALUE)]) as out,
        ):
            server.respond = says(answer(f"no such key {VALUE}".encode(), "401 No", x_echo=f"a {VALUE} b"))
            got = await out.fetch("GET", f"{server.url}/", BEARER)
            assert got.head is not None
            assert (got.head.status, got.body) == (401, f"no such key {STRUCK}".encode())
            assert got.headers["x-echo"] == f"a {STRUCK} b"

            async def loop(came: Came, writer: asyncio.StreamWriter) -> None:
                to = f"/{quote(VALUE, safe='')}"
                writer.write(answer(b"end") if came.path == to else answer(status="302 F", location=to))

            server.respond = loop
            got = await out.fetch("GET", f"{server.url}/", BEARER)
            assert got.failure is not None
            assert (got.code, "credential's value" in got.failure.message) == ("refused", True)
            assert VALUE not in repr(got)

    run(work())


def test_basic_credentials_are_struck_out_as_they_went_and_as_the_password() -> None:
    async def echo(came: Came, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(f"{came.headers['authorization']} {VALUE}".encode()))

    async def work() -> None:
        async with upstream(echo) as server:
            kept = credential(server, VALUE, kind="basic", place="basic", username="robot")
            async with outsider([opened(server)], credentials=[kept]) as out:
                got = await out.fetch("GET", f"{server.url}/", {"Authorization": f"Basic {MARK}"})
                assert got.body == f"Basic {STRUCK} {STRUCK}".encode()

    run(work())


def test_a_value_that_is_given_back_to_a_later_request_is_struck_out_too() -> None:
    async def work() -> None:
        async with (
            upstream(says(answer(b"kept"))) as server,
            outsider([opened(server)], credentials=[credential(server, VALUE)]) as out,
        ):
            assert (await out.fetch("GET", f"{server.url}/", BEARER)).body == b"kept"
            server.respond = says(answer(VALUE.encode()))
            assert (await out.fetch("GET", f"{server.url}/")).body == STRUCK.encode()

    run(work())


def _redirects(to: str) -> Respond:
    async def respond(came: Came, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"end") if came.path == "/end" else answer(status="307 T", location=to))

    return respond


def test_a_redirect_to_another_host_or_port_takes_no_credential_along() -> None:
    async def work() -> None:
        async with upstream(says(b"")) as server, upstream(_redirects("")) as other:
            names = Names(other_example=[["127.0.0.1"]])
            rules = [opened(server), opened(server, "other.example"), opened(other)]
            kept = [credential(server, VALUE)]
            async with outsider(rules, credentials=kept, names=names) as out:
                headers = {**BEARER, "Cookie": "session=1", "X-Mine": "1"}
                for to in (f"{other.url}/end", f"http://other.example:{server.port}/end"):
                    server.respond = _redirects(to)
                    assert (await out.fetch("GET", f"{server.url}/begin", headers)).body == b"end"
                moved = [other.seen[0], server.seen[-1]]
                for came in moved:
                    assert "authorization" not in came.headers
                    assert "cookie" not in came.headers
                    assert came.headers["x-mine"] == "1"
                server.respond = _redirects("/end")  # the same host and port: it goes along
                assert (await out.fetch("GET", f"{server.url}/begin", headers)).body == b"end"
                assert server.seen[-1].headers["authorization"] == f"Bearer {VALUE}"

    run(work())


def test_a_redirect_leads_no_credential_out_of_its_path_nor_into_a_placeholder() -> None:
    async def work() -> None:
        async with upstream(_redirects("/end")) as server:
            kept = [credential(server, VALUE, path="/begin")]
            async with outsider([opened(server)], credentials=kept) as out:
                got = await out.fetch("GET", f"{server.url}/begin", BEARER)
                assert (got.code, len(server.seen)) == ("invalid", 1)
                server.respond = _redirects(f"/end?key={MARK}")
                got = await out.fetch("GET", f"{server.url}/begin", BEARER)
                assert got.failure is not None
                assert (got.code, "placeholder" in got.failure.message) == ("refused", True)

    run(work())


def test_nothing_of_a_cancelled_fetch_goes_on_with_its_credential() -> None:
    async def work() -> None:
        began, go_on = asyncio.Event(), asyncio.Event()

        async def respond(came: Came, writer: asyncio.StreamWriter) -> None:
            began.set()
            await asyncio.wait_for(go_on.wait(), LIMIT_S)
            writer.write(answer(b"end") if came.path == "/end" else answer(status="307 T", location="/end"))

        async with (
            upstream(respond) as server,
            outsider([opened(server)], credentials=[credential(server, VALUE)]) as out,
        ):
            id = out.start("GET", f"{server.url}/begin", BEARER)
            await asyncio.wait_for(began.wait(), LIMIT_S)
            out.cancel(id)
            go_on.set()
            await asyncio.wait_for(server.gone.wait(), LIMIT_S)
            other = await out.fetch("GET", f"{server.url}/begin", BEARER)
            assert other.body == b"end"
            assert [came.path for came in server.seen] == ["/begin", "/begin", "/end"]

    run(work())
