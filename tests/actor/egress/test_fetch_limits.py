"""Requests of agents over real sockets: servers without an end, bombs, silence; bodies both ways; ends."""

import asyncio
import gzip
import itertools
import zlib
from typing import Any

import pytest

from core.egress.fetch_messages import FetchCredit, FetchDone, FetchFailed, FetchItem, FetchTaken
from jail.wire.connection import STREAM_WINDOW
from jail.wire.schema import HttpData
from tests.fakes.outside_world import (
    LIMIT_S,
    Came,
    Respond,
    answer,
    in_chunks,
    opened,
    outsider,
    run,
    says,
    upstream,
)

_MB = 1 << 20


def _never(_: Came, __: asyncio.StreamWriter) -> Any:
    return asyncio.sleep(LIMIT_S)


def _endless(**headers: str) -> Respond:
    async def respond(_: Came, writer: asyncio.StreamWriter) -> None:
        await in_chunks(writer, itertools.repeat(b"x" * 32_768), **headers)

    return respond


async def _half(_: Came, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"x" * 10).replace(b"content-length: 10", b"content-length: 20"))
    await writer.drain()
    await asyncio.sleep(LIMIT_S)


async def _drip(_: Came, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(transfer_encoding="chunked"))
    while True:
        writer.write(b"1\r\nx\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def _endless_head(_: Came, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        writer.write(b"x-%d: %b\r\n" % (number, b"y" * 8_000))
        await writer.drain()


@pytest.mark.parametrize(
    ("respond", "limits", "code", "words"),
    [
        (_endless(), {"max_answer_bytes": _MB}, "limit", "longer than"),
        (says(answer(b"x" * 2_000)), {"max_answer_bytes": 1_000}, "limit", "longer than"),
        (says(answer(gzip.compress(bytes(50 * _MB)), content_encoding="gzip")), {}, "limit", "grows more"),
        (says(answer(zlib.compress(bytes(50 * _MB)), content_encoding="deflate")), {}, "limit", "grows"),
        (
            says(answer(gzip.compress(gzip.compress(bytes(50 * _MB))), content_encoding="gzip, gzip")),
            {}, "limit", "not asked for",
        ),
        (says(answer(b"x", content_encoding="br")), {}, "limit", "not asked for"),
        (says(answer(b"no gzip", content_encoding="gzip")), {}, "limit", "not compressed as it says"),
        (says(answer(gzip.compress(b"x" * 999)[:-9], content_encoding="gzip")), {}, "limit", "cut short"),
        (_never, {"first_byte_s": 0.2, "connect_s": 0.2}, "upstream_timeout", "no answer began"),
        (_half, {"idle_s": 0.2}, "upstream_timeout", "stalled"),
        (_drip, {"total_s": 0.5}, "upstream_timeout", "longer than"),
        (_endless_head, {}, "upstream", "headers are too long"),
        (
            says(answer(b"", **{f"x_{n}": "y" * 100 for n in range(100)})),
            {"max_header_bytes": 4_096}, "limit", "headers are longer",
        ),
        (says(b"SSH-2.0-OpenSSH\r\n\r\n"), {}, "upstream", "not as HTTP has it"),
        (says(b""), {}, "upstream", "too early"),
        (says(answer(b"x" * 10)[:-5]), {}, "upstream", "too early"),
        (says(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"), {}, "upstream", ""),
    ],
)  # fmt: skip
def test_a_server_that_does_not_end_or_is_none_is_left(
    respond: Respond, limits: dict[str, Any], code: str, words: str
) -> None:
    async def work() -> None:
        async with upstream(respond) as server, outsider([opened(server)], **limits) as out:
            got = await out.fetch("GET", f"{server.url}/")
            assert got.failure is not None, got.body[:100]
            assert (got.code, words in got.failure.message) == (code, True), got.failure
            server.respond = says(answer(b"good"))
            good = await out.fetch("GET", f"{server.url}/")
            assert (good.body, good.failure) == (b"good", None)

    run(work())


def test_what_is_compressed_in_earnest_comes_whole() -> None:
    text = b"".join(b"line %d of a text\n" % n for n in range(100_000))
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    forms = {
        "gzip": gzip.compress(text),
        "deflate": zlib.compress(text),
        "x-gzip": gzip.compress(text),
        "Deflate": raw.compress(text) + raw.flush(),
    }

    async def work() -> None:
        async with upstream(says(b"")) as server, outsider([opened(server)]) as out:
            for encoding, data in forms.items():
                server.respond = says(answer(data, content_encoding=encoding))
                got = await out.fetch("GET", f"{server.url}/")
                assert got.body == text
                assert "content-encoding" not in got.headers
                assert "content-length" not in got.headers

    run(work())


def test_more_than_the_window_comes_only_with_credit_and_the_server_is_held_up() -> None:
    async def work() -> None:
        sent = 0

        async def respond(_: Came, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            writer.write(answer(transfer_encoding="chunked"))
            for _number in range(64):
                writer.write(b"100000\r\n" + bytes(_MB) + b"\r\n")
                await writer.drain()
                sent += 1
            writer.write(b"0\r\n\r\n")

        async with upstream(respond) as server, outsider([opened(server)]) as out:
            id = out.start("GET", f"{server.url}/")
            first = [await out.next(id) for _ in range(STREAM_WINDOW)]
            assert all(isinstance(message, FetchItem) for message in first)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await out.next(id)
            assert sent < 40
            out.fetches.take(FetchCredit(id, STREAM_WINDOW))
            got = await out.finish(id)
            have = sum(len(m.item.data) for m in first if isinstance(m.item, HttpData))
            assert have + len(got.body) == 64 * _MB

    run(work())


def test_a_body_goes_out_piece_by_piece_as_it_comes() -> None:
    async def echo(came: Came, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(came.body))

    async def work() -> None:
        async with (
            upstream(echo) as server,
            outsider([opened(server, methods=("PUT",))], first_byte_s=LIMIT_S) as out,
        ):
            id = out.start("PUT", f"{server.url}/", {}, b"first ", more=True)
            for number in range(20):
                part = out.feed(id, b"%d " % number, last=number == 19)
                assert isinstance(await out.next(part), FetchTaken)
            got = await out.finish(id)
            assert got.body == b"first " + b"".join(b"%d " % number for number in range(20))
            assert server.seen[0].headers["transfer-encoding"] == "chunked"
            after = out.feed(id, b"late", last=True)
            assert isinstance(await out.next(after), FetchFailed)

    run(work())


def test_a_body_past_its_limit_is_refused_and_nobody_waits_for_the_rest() -> None:
    async def work() -> None:
        async with (
            upstream(says(answer(b"in"))) as server,
            outsider([opened(server, methods=("POST",))], max_request_bytes=1_000) as out,
        ):
            id = out.start("POST", f"{server.url}/", {}, b"x" * 900, more=True)
            out.feed(id, b"x" * 200, last=False)
            got = await out.finish(id)
            assert got.code == "limit"
            small = out.start("POST", f"{server.url}/", {}, b"x" * 900, more=True)
            out.feed(small, b"x" * 100, last=True)
            assert (await out.finish(small)).body == b"in"

    run(work())


def test_a_cancelled_fetch_leaves_its_server_and_says_nothing_more() -> None:
    async def work() -> None:
        async with upstream(_endless()) as server, outsider([opened(server)]) as out:
            id = out.start("GET", f"{server.url}/")
            assert isinstance(await out.next(id), FetchItem)
            out.cancel(id)
            await asyncio.wait_for(server.gone.wait(), LIMIT_S)
            server.respond = says(answer(b"next"))
            other = out.start("GET", f"{server.url}/")
            assert (await out.finish(other)).body == b"next"
            assert out.book.used.requests == 2  # what was moved before is counted

    run(work())


def test_what_runs_is_described_without_its_address() -> None:
    async def work() -> None:
        async with upstream(_endless()) as server, outsider([opened(server)]) as out:
            assert out.fetches.describe() == []
            id = out.start("GET", f"{server.url}/private")
            assert isinstance(await out.next(id), FetchItem)
            (one,) = out.fetches.describe()
            assert one == {"id": id, "user": "alice", "turn": "turn_1", "method": "GET"}
            out.cancel(id)
            assert out.fetches.describe() == []

    run(work())


def test_a_users_bytes_of_the_day_end_a_fetch_in_the_middle() -> None:
    async def work() -> None:
        async with upstream(_endless()) as server, outsider([opened(server)], left=20 * _MB) as out:
            got = await out.fetch("GET", f"{server.url}/")
            assert got.code == "quota"
            assert 19 * _MB < len(got.body) <= 21 * _MB
            server.respond = says(answer(b"in"))
            assert (await out.fetch("GET", f"{server.url}/")).code == "quota"
            assert server.connections == 1
        async with upstream(says(answer(b"in"))) as server, outsider([opened(server)], left=_MB) as out:
            assert (await out.fetch("GET", f"{server.url}/")).body == b"in"

    run(work())


def test_more_at_once_than_a_user_may_are_refused_and_others_go_on() -> None:
    async def work() -> None:
        async with (
            upstream(_never) as server,
            outsider([opened(server)], max_fetches_per_user=2, max_fetches=3) as out,
        ):
            ids = [out.start("GET", f"{server.url}/") for _ in range(2)]
            assert (await out.fetch("GET", f"{server.url}/")).code == "overloaded"
            third = out.start("GET", f"{server.url}/", user="bob")
            assert (await out.fetch("GET", f"{server.url}/", user="carol")).code == "overloaded"
            for id in (*ids, third):
                out.cancel(id)
            server.respond = says(answer(b"in"))
            async with asyncio.timeout(LIMIT_S):
                while (got := await out.fetch("GET", f"{server.url}/")).code == "overloaded":
                    await asyncio.sleep(0.01)
            assert got.body == b"in"

    run(work())


def test_a_server_that_answers_before_it_read_all_is_heard() -> None:
    async def work() -> None:
        async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(b"too much", status="413 Content Too Large"))
            await writer.drain()
            await reader.read()
            writer.close()

        async with upstream(says(b"")) as unused:
            listening = await asyncio.start_server(early, "127.0.0.1", 0)
            port = listening.sockets[0].getsockname()[1]
            try:
                async with outsider([opened(unused, port=port, methods=("POST",))]) as out:
                    id = out.start("POST", f"http://127.0.0.1:{port}/", {}, b"x" * 1_000, more=True)
                    got = await out.finish(id)
                    assert got.head is not None
                    assert (got.head.status, got.body) == (413, b"too much")
            finally:
                listening.close()

    run(work())


def test_a_head_request_has_a_head_and_nothing_else() -> None:
    async def work() -> None:
        async with (
            upstream(says(answer(b"")[:-2] + b"content-encoding: gzip\r\n\r\n")) as server,
            outsider([opened(server)]) as out,
        ):
            id = out.start("HEAD", f"{server.url}/")
            assert isinstance(await out.next(id), FetchItem)
            assert isinstance(await out.next(id), FetchDone)

    run(work())
