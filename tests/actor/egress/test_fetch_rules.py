"""Requests of agents over real sockets: who may go where, to which addresses, and where redirects lead."""

import asyncio
import ssl
from typing import Any

import pytest

from core.config import EgressRule, OpenRule
from tests.fakes.certificates import make_certificate
from tests.fakes.outside_world import LOOPBACK, Came, Names, answer, opened, outsider, run, says, upstream


def test_without_a_rule_nothing_is_sent_and_the_answer_says_which_is_missing() -> None:
    async def work() -> None:
        async with upstream(says(answer(b"hello"))) as server, outsider() as out:
            got = await out.fetch("GET", f"{server.url}/a/b?secret=1")
            assert got.code == "refused"
            assert got.failure is not None
            assert f"GET {server.url}/a/b" in got.failure.message
            assert '[[egress.allow]] or [[egress.ceiling]] with host = "127.0.0.1"' in got.failure.message
            assert "secret" not in got.failure.message
            assert server.connections == 0
            assert out.names.asked == []
            (record,) = out.notes.of("egress_refused")
            assert (record.user, record.on) == ("alice", server.url)
            assert out.book.used.requests == 0

    run(work())


def test_with_a_rule_it_is_sent_counted_and_audited() -> None:
    async def work() -> None:
        async with (
            upstream(says(answer(b"hello", x_kept="yes"))) as server,
            outsider([opened(server)]) as out,
        ):
            got = await out.fetch("GET", f"{server.url}/a?b=c", {"X-Mine": "1"})
            assert (got.body, got.headers["x-kept"], got.failure) == (b"hello", "yes", None)
            assert got.head is not None
            assert (got.head.status, got.head.url) == (200, f"{server.url}/a")
            (came,) = server.seen
            assert (came.method, came.path, came.headers["x-mine"]) == ("GET", "/a?b=c", "1")
            assert came.headers["host"] == f"127.0.0.1:{server.port}"
            assert out.book.used.requests == 1
            assert out.book.used.bytes > len(b"hello") + len(came.raw_head) // 2
            (record,) = out.notes.of("egress_allowed")
            assert (record.user, record.on, record.outcome) == ("alice", server.url, "allowed")

    run(work())


@pytest.mark.parametrize(
    ("terms", "method", "path", "fits"),
    [
        ({}, "GET", "/x", True),
        ({}, "POST", "/x", False),
        ({"methods": ("POST",)}, "POST", "/x", True),
        ({"path": "/v1"}, "GET", "/v1/x", True),
        ({"path": "/v1"}, "GET", "/v1", True),
        ({"path": "/v1"}, "GET", "/v10", False),
        ({"path": "/v1"}, "GET", "/v1%2fx", False),
        ({"path": "/v1"}, "GET", "/%761/x", True),
        ({"path": "/v1"}, "GET", "//v1/x", False),
        ({"port": 1}, "GET", "/x", False),
        ({"scheme": "https"}, "GET", "/x", False),
        ({"host": "10.0.0.1"}, "GET", "/x", False),
        ({"users": ("alice",)}, "GET", "/x", True),
        ({"users": ("bob",)}, "GET", "/x", False),
        ({"users": ()}, "GET", "/x", False),
        ({"origin": "skill:notes"}, "GET", "/x", False),
    ],
)
def test_a_rule_holds_for_its_host_port_methods_path_user_and_origin_alone(
    terms: dict[str, Any], method: str, path: str, fits: bool
) -> None:
    async def work() -> None:
        async with upstream(says(answer(b"in"))) as server:
            rule = opened(server, **terms)
            async with outsider([rule]) as out:
                got = await out.fetch(method, server.url + path)
                assert (got.body == b"in", server.connections) == (fits, int(fits))

    run(work())


def test_a_users_own_rule_counts_below_the_ceiling_for_that_user_and_origin_alone() -> None:
    async def work() -> None:
        async with upstream(says(answer(b"in"))) as server:
            own = EgressRule("127.0.0.1", scheme="http", port=server.port, methods=("GET", "POST"))
            skill = EgressRule("127.0.0.1", "skill:notes", scheme="http", port=server.port, path="/notes")
            top = opened(server), opened(server, origin="skill:notes")
            url = f"{server.url}/x"
            async with outsider(ceiling=top, own=[own, skill]) as out:
                assert (await out.fetch("GET", url)).body == b"in"
                above = await out.fetch("POST", url)
                assert above.failure is not None
                assert (above.code, "ceiling does not" in above.failure.message) == ("refused", True)
                others = await out.fetch("GET", url, user="bob")
                assert others.failure is not None
                assert f"certosa egress allow 127.0.0.1 --port {server.port} --http" in others.failure.message
                assert (await out.fetch("GET", url, origin="skill:notes")).code == "refused"
                assert (await out.fetch("GET", f"{server.url}/notes/a", origin="skill:notes")).body == b"in"
                out.own.clear()
                assert (await out.fetch("GET", url)).code == "refused"
            async with outsider(own=[own]) as out:
                assert (await out.fetch("GET", url)).code == "refused"

    run(work())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "169.254.169.254",
        "100.100.100.200", "192.0.0.192", "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::",
        "fe80::1", "fc00::1",
        "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1", "2002:7f00:1::", "2001:0:7f00:1::", "::ffff:0:127.0.0.1", "2001:db8::1",
        "2606:4700::5efe:7f00:1",
    ],
)  # fmt: skip
def test_no_name_or_literal_leads_to_an_address_that_is_not_public(address: str) -> None:
    async def work() -> None:
        names = Names(evil_example=[[address]], mixed_example=[["93.184.216.34", address]])
        async with outsider([OpenRule("*", scheme="http", port=8080)], names=names, connect_s=1.0) as out:
            literal = f"[{address}]" if ":" in address else address
            for host in ("evil.example", "mixed.example", literal):
                got = await out.fetch("GET", f"http://{host}:8080/")
                assert got.failure is not None
                assert (got.code, "may not be connected to" in got.failure.message) == ("refused", True)
            assert out.notes.of("egress_allowed") == []
            assert len(out.notes.of("egress_refused")) == 3

    run(work())


@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433/", "http://0177.0.0.1/", "http://0x7f.0.0.1/", "http://127.1/", "http://0/",
        "http://127.0.0.1.:80x/", "http://user@127.0.0.1/", "http://user:pw@host.example/", "file:///etc/passwd",
        "ftp://host.example/", "gopher://host.example/", "//host.example/", "http:/host.example/", "http://",
        "http://[::1%25lo]/", "http://[fe80::1%lo]/", "http://ho st.example/", "http://host.example/\r\nX: y",
        "http://host.example/a\nb", "http://host.example\\@127.0.0.1/", "http://host.example:0/", "http://host.example:99999/",
        "http://host.example/../x", "http://host.example/%2e%2e/x", "http://host.example/%zz", "http://\uff11\uff12\uff17.0.0.1/",
        "http://host.example\x00.other/", "http://" + "a" * 9_000,
    ],
)  # fmt: skip
def test_a_url_that_two_programs_could_read_differently_is_refused(url: str) -> None:
    async def work() -> None:
        names = Names(host_example=[["127.0.0.1"]])
        async with outsider([OpenRule("*", scheme="http", networks=LOOPBACK)], names=names) as out:
            got = await out.fetch("GET", url)
            assert got.code == "invalid"
            assert out.names.asked == []

    run(work())


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "b\r\nX-Evil: 1"}, {"X-A": "b\nc"}, {"X-A\r\nX-Evil": "1"}, {"X A": "b"}, {"": "b"},
        {"X-A": "b\x00c"},
        {"Host": "other.example"}, {"Content-Length": "3"}, {"Transfer-Encoding": "chunked"},
        {"Connection": "upgrade"},
        {"X-Ä": "b"}, {"X-A": "\u0416"},
    ],
)  # fmt: skip
def test_a_header_that_would_be_another_or_ours_is_refused(headers: dict[str, str]) -> None:
    async def work() -> None:
        async with upstream(says(answer(b"in"))) as server, outsider([opened(server)]) as out:
            assert (await out.fetch("GET", f"{server.url}/", headers)).code == "invalid"
            assert server.connections == 0
            assert (await out.fetch("GET", f"{server.url}/", {"X-A": "b c"})).body == b"in"

    run(work())


def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_the_one_connected_to() -> None:
    async def work() -> None:
        async with (
            upstream(says(answer(b"right"))) as server,
            upstream(says(answer(b"trap")), "127.0.0.2", server.port) as trap,
        ):
            names = Names(twice_example=[["127.0.0.1"], ["127.0.0.2"]])
            rule = opened(server, "twice.example", networks=("127.0.0.1/32",))
            async with outsider([rule], names=names) as out:
                url = f"http://twice.example:{server.port}/"
                got = await out.fetch("GET", url)
                assert (got.body, out.names.asked) == (b"right", ["twice.example"])
                assert server.seen[0].headers["host"] == f"twice.example:{server.port}"
                # a request later looks it up afresh, and what it leads to now is not open
                assert (await out.fetch("GET", url)).code == "refused"
                assert trap.connections == 0

    run(work())


def test_a_redirect_is_decided_upon_like_a_request() -> None:
    async def work() -> None:
        async def respond(came: Came, writer: asyncio.StreamWriter) -> None:
            to = {"/rule": "/private/x", "/there": "/open/end?q=1", "/out": "http://elsewhere.example/"}
            to |= {"/file": "file:///etc/passwd", "/meta": "http://169.254.169.254/latest", "/self": "/self"}
            found = to.get(came.path)
            writer.write(answer(status="302 Found", location=found) if found else answer(b"end"))

        async with upstream(respond) as server:
            rules = [
                opened(server, path=path) for path in ("/open", "/rule", "/there", "/out", "/file", "/self")
            ]
            rules += [
                opened(server, path="/meta"),
                OpenRule("169.254.169.254", scheme="http", networks=("0.0.0.0/0",)),
            ]
            async with outsider(rules) as out:
                good = await out.fetch("GET", f"{server.url}/there")
                assert good.head is not None
                assert (good.body, good.head.url) == (b"end", f"{server.url}/open/end")
                for path in ("/rule", "/out", "/file", "/meta"):
                    assert (await out.fetch("GET", server.url + path)).code == "refused", path
                assert (await out.fetch("GET", f"{server.url}/self")).code == "limit"
                assert {came.path for came in server.seen} == {
                    "/there", "/open/end?q=1", "/rule", "/out", "/file", "/meta", "/self",
                }  # fmt: skip

    run(work())


def test_a_redirect_that_leads_to_another_address_of_the_same_name_is_checked_again() -> None:
    async def work() -> None:
        async def respond(came: Came, writer: asyncio.StreamWriter) -> None:
            writer.write(
                answer(status="307 Temporary Redirect", location="/two")
                if came.path == "/one"
                else answer(b"in")
            )

        async with upstream(respond) as server:
            url = f"http://twice.example:{server.port}/one"
            rule = opened(server, "twice.example")
            async with outsider([rule], names=Names(twice_example=[["127.0.0.1"], ["10.0.0.1"]])) as out:
                assert (await out.fetch("GET", url)).code == "refused"
            async with outsider([rule], names=Names(twice_example=[["127.0.0.1"]])) as out:
                assert (await out.fetch("GET", url)).body == b"in"

    run(work())


def test_post_becomes_get_at_303_and_keeps_its_body_at_307() -> None:
    async def work() -> None:
        async def respond(came: Came, writer: asyncio.StreamWriter) -> None:
            if came.path == "/end":
                writer.write(answer(f"{came.method} {len(came.body)}".encode()))
            else:
                writer.write(answer(status=f"{came.path[1:]} Moved", location="/end"))

        async with upstream(respond) as server, outsider([opened(server, methods=("GET", "POST"))]) as out:
            assert (await out.fetch("POST", f"{server.url}/303", {}, b"abc")).body == b"GET 0"
            assert (await out.fetch("POST", f"{server.url}/307", {}, b"abc")).body == b"POST 3"

    run(work())


def test_a_certificate_that_nobody_known_signed_is_refused() -> None:
    async def work() -> None:
        made = make_certificate()
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trusting = ssl.create_default_context(cadata=made.certificate.decode())
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory() as directory:
            serving.load_cert_chain(*made.write(Path(directory)))
        async with upstream(says(answer(b"in")), tls=serving) as server:
            url = f"https://127.0.0.1:{server.port}/"
            rule = opened(server, "*", scheme="https")
            async with outsider([rule]) as out:
                got = await out.fetch("GET", url)
                assert got.failure is not None
                assert (got.code, "does not verify" in got.failure.message) == ("upstream", True)
            names = Names(other_example=[["127.0.0.1"]])
            async with outsider([rule], tls=trusting, names=names) as out:
                assert (await out.fetch("GET", url)).body == b"in"
                got = await out.fetch("GET", f"https://other.example:{server.port}/")
                assert got.failure is not None
                assert "does not verify" in got.failure.message
            assert len(server.seen) == 1

    run(work())


def test_proxies_and_netrc_of_the_environment_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with upstream(says(answer(b"in"))) as server, outsider([opened(server)]) as out:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, "http://127.0.0.1:9")
            assert (await out.fetch("GET", f"{server.url}/")).body == b"in"

    run(work())
