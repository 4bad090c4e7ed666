"""Servers outside that do as they like, over real sockets, and fetches that meet them as egress has them."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec

from core.config import EgressRule, EgressSection, OpenRule
from core.egress.fetch_messages import FetchBody, FetchCancel, FetchCredit, FetchFailed, FetchItem, FetchStart
from core.egress.fetches import Fetches
from core.egress.outside import Outside, SentValues
from core.egress.policy import Policy
from core.egress.secret import Secret
from core.ledger.metering import Amount, Claim, Grant, LimitReached
from core.metrics import EgressMetrics
from core.vault.cabinet import Credential
from core.vault.terms import CredentialTerms
from jail.wire.schema import Failure, Header, HttpData, HttpHead
from tests.fakes.auditor import Notes

LIMIT_S = 30.0
LOOPBACK = ("127.0.0.0/8",)


@dataclass
class Came:
    """A request as it came; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    raw_head: bytes


Respond = Callable[[Came, asyncio.StreamWriter], Awaitable[None]]


class Upstream:
    """A server on 127.0.0.1, or another address of loopback, that answers as ``respond`` does."""

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.seen: list[Came] = []
        self.connections = 0
        self.gone = asyncio.Event()
        """Set whenever a client has left."""
        self.port = 0

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        self.connections += 1
        try:
            came = await _read(reader)
            self.seen.append(came)
            await self.respond(came, writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # a client that leaves early is what some tests are about
        finally:
            writer.close()
            self.gone.set()


@asynccontextmanager
async def upstream(
    respond: Respond, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Upstream]:
    """Serve as long as the block runs."""
    made = Upstream(respond)
    server = await asyncio.start_server(made.serve, host, port, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader) -> Came:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines if line)}
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Came(method, path, headers, body, head)


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """An answer as bytes; underscores in headers' names stand for hyphens."""
    lines = [f"HTTP/1.1 {status}", *(f"{n.replace('_', '-')}: {v}" for n, v in headers.items())]
    if "transfer_encoding" not in headers:
        lines.append(f"content-length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def says(data: bytes) -> Respond:
    """Answers always the same."""

    async def respond(_: Came, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return respond


async def in_chunks(writer: asyncio.StreamWriter, pieces: Iterable[bytes], **headers: str) -> None:
    """A chunked answer, a piece a chunk, each sent by itself."""
    writer.write(answer(b"", transfer_encoding="chunked", **headers))
    for piece in pieces:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(0)
    writer.write(b"0\r\n\r\n")


class Names:
    """A resolver: each name has the answers it gives, one after the other, the last for ever."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self.answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def resolve(self, user: str, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.answers:
            if host.replace(".", "").isdigit() or ":" in host:
                return [host]
            raise OSError("no such name")
        given = self.answers[host]
        return given.pop(0) if len(given) > 1 else given[0]


class Book:
    """A meter; ``left`` bytes may be used in all."""

    def __init__(self, left: int = 1 << 40) -> None:
        self.left = left
        self.claims: list[Claim] = []
        self.settled: list[Amount] = []

    async def reserve(self, claim: Claim) -> Grant:
        self.claims.append(claim)
        if claim.least.bytes > self.left:
            raise LimitReached("bytes", Failure("quota", "today's bytes are used up", 60))
        amount = claim.most._replace(bytes=min(claim.most.bytes, self.left))
        self.left -= amount.bytes
        return Grant(len(self.claims), amount, False, ())

    def settle(self, grant_id: int, used: Amount, estimated: bool = False) -> None:
        self.settled.append(used)

    @property
    def used(self) -> Amount:
        return Amount(sum(a.requests for a in self.settled), bytes=sum(a.bytes for a in self.settled))


@dataclass
class Got:
    """What a fetch came to."""

    head: HttpHead | None = None
    pieces: list[bytes] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def body(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case."""
        return {h.name.lower(): h.value for h in self.head.headers} if self.head else {}

    @property
    def code(self) -> str:
        """Of the failure; empty where there is none."""
        return self.failure.code if self.failure else ""


class Outsider:
    """Core's part: starts fetches, gives credit, collects what comes."""

    def __init__(
        self,
        allow: Sequence[OpenRule] = (),
        *,
        ceiling: Sequence[OpenRule] = (),
        own: Sequence[EgressRule] = (),
        credentials: Iterable[Credential] = (),
        names: Names | None = None,
        left: int = 1 << 40,
        tls: ssl.SSLContext | None = None,
        **limits: Any,
    ) -> None:
        section = EgressSection(tuple(allow), tuple(ceiling), **limits)
        self.names, self.book, self.notes = names or Names(), Book(left), Notes()
        self.own = list(own)
        self.credentials = {one.name: one for one in credentials}
        self.metrics = EgressMetrics(["builtin"], [])
        self._queues: dict[int, asyncio.Queue[Any]] = {}
        self._last = 0
        self.fetches = Fetches(
            Outside(
                section, Policy(section), self._credential, self._rules, self.names.resolve, self.book,
                self.notes, lambda *_: None, SentValues(), tls,
            ),
            self._send,
            self.metrics.fetches,
        )  # fmt: skip

    def start(
        self, method: str, url: str, headers: dict[str, str] | None = None, body: bytes = b"",
        more: bool = False, user: str = "alice", origin: str = "agent",
    ) -> int:  # fmt: skip
        """Begin a fetch; its id."""
        self._last += 1
        self._queues[self._last] = asyncio.Queue()
        listed = tuple(Header(name, value) for name, value in (headers or {}).items())
        ask = FetchStart(self._last, user, "agent", "turn_1", method, url, listed, body, more)
        # installed skills' jails are still to come; the type says so, the rules know them
        self.fetches.take(msgspec.structs.replace(ask, origin=origin))
        return self._last

    async def finish(self, id: int, credit: bool = True) -> Got:
        """Wait for a fetch's end, taking what comes."""
        got = Got()
        async with asyncio.timeout(LIMIT_S):
            while True:
                message = await self.next(id)
                if isinstance(message, FetchFailed):
                    got.failure = message.failure
                    return got
                if not isinstance(message, FetchItem):
                    return got
                if isinstance(message.item, HttpHead):
                    got.head = message.item
                elif isinstance(message.item, HttpData):
                    got.pieces.append(message.item.data)
                if credit:
                    self.fetches.take(FetchCredit(id, 1))

    async def next(self, id: int) -> Any:
        """The next message about an id."""
        return await self._queues[id].get()

    async def fetch(self, method: str, url: str, *arguments: Any, **more: Any) -> Got:
        """A whole fetch."""
        return await self.finish(self.start(method, url, *arguments, **more))

    def feed(self, fetch: int, data: bytes, last: bool) -> int:
        """Send a piece of a body; the id its answer will have."""
        self._last += 1
        self._queues[self._last] = asyncio.Queue()
        self.fetches.take(FetchBody(self._last, fetch, data, last))
        return self._last

    def cancel(self, id: int) -> None:
        """As the end of its turn does."""
        self.fetches.take(FetchCancel(id))

    def _send(self, message: Any) -> None:
        self._queues[message.id].put_nowait(message)

    async def _credential(self, owner: str, name: str) -> Credential | None:
        return self.credentials.get(name) if owner == "alice" else None

    async def _rules(self, user: str) -> Sequence[EgressRule]:
        return self.own if user == "alice" else ()


@asynccontextmanager
async def outsider(*arguments: Any, **more: Any) -> AsyncIterator[Outsider]:
    """One that closes its fetches."""
    made = Outsider(*arguments, **more)
    try:
        yield made
    finally:
        await made.fetches.close()


def opened(server: Upstream, host: str = "127.0.0.1", **terms: Any) -> OpenRule:
    """A rule of the operator's that lets requests go to a server here."""
    given: dict[str, Any] = {"scheme": "http", "port": server.port, "networks": LOOPBACK, **terms}
    return OpenRule(host, **given)


def credential(server: Upstream, value: str, name: str = "api", **terms: Any) -> Credential:
    """A credential that is bound to a server here."""
    given: dict[str, Any] = {"host": "127.0.0.1", "port": server.port, "scheme": "http", **terms}
    return Credential(name, CredentialTerms(**given), Secret(value))


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test's work within a limit."""

    async def limited() -> None:
        async with asyncio.timeout(2 * LIMIT_S):
            await work

    asyncio.run(limited())
