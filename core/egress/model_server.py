"""The client of a model server: one POST, its answer read as it streams, in whichever format.

The server is outside and may do anything: every step has a limit in time or in bytes, nothing it
sends is taken for granted, and what it says of itself is cut, cleaned and free of our keys.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import aiohttp
import msgspec

from core.acting import current_traceparent
from core.config import ProviderSection
from core.egress.failures import MAX_ERROR_BODY_BYTES, error_detail, sanitise, status_error
from core.egress.messages import ChatStart
from core.egress.provider_keys import FindKey
from core.egress.providers import Again, Counter, Outlet, ProviderError, Spent, UpstreamSaid
from core.egress.secret import Secret, Striker
from core.egress.sse import SseError, SseParser
from jail.wire.schema import ChatEnd, ToolCall, Usage

_KEEPALIVE_S = 4.0  # below the 5 s after which common servers close: a POST must not race that
_READ_BUFFER_BYTES = 64 << 10  # beyond twice this the upstream's TCP pauses
_ERROR_BODY_S = 5.0
_AFTER_FINISH_S = 5.0  # for the usage that follows a finish reason
_MAX_JSON_BYTES = 4 << 20
_MODELS_S = 8.0
_MAX_MODELS = 1_000
_STREAM_TYPES = ("text/event-stream", "text/plain", "application/octet-stream", "")


Key = Secret | FindKey | None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


_decode_models = msgspec.json.Decoder(_Models).decode


class Assembly(Protocol):
    """One answer in the making, out of a stream's events."""

    done: bool
    """Whether the upstream said that nothing more comes."""

    @property
    def usage(self) -> Usage:
        """What the upstream said was used, so far."""
        ...

    @property
    def finished(self) -> bool:
        """Whether it said why it ended; at most its usage still follows."""
        ...

    @property
    def moves(self) -> int:
        """How many events brought the answer on; what only keeps a connection alive does not count."""
        ...

    def take(self, data: bytes) -> tuple[str, str]:
        """Take one event's data; returns (reasoning, text). Raises ProviderError, UpstreamSaid."""
        ...

    def end(self) -> tuple[list[ToolCall], ChatEnd]:
        """The calls and the end, once no more comes. Raises ProviderError where it was cut."""
        ...


class Dialect(NamedTuple):
    """A wire format: where a chat is posted below base_url, as what, and how its answer is read."""

    path: str
    body: Callable[[ChatStart], bytes]  # raises ProviderError ``invalid``
    assembly: Callable[[str], Assembly]  # of the provider's name
    headers: Mapping[str, str]
    key_headers: Callable[[Secret], Mapping[str, str]]  # what a key goes into


class ModelServer:
    """One configured model server. Make it within a running event loop.

    Args:
        name: the provider's name, for messages.
        section: its configuration.
        dialect: its wire format.
        key: what is sent with every request, or who finds what a user's chats send; None: nothing.
        striker: knows every key, so that none comes back in an error.
    """

    def __init__(
        self, name: str, section: ProviderSection, dialect: Dialect, key: Key, striker: Striker
    ) -> None:
        self._name = name
        self._section = section
        self._dialect = dialect
        self._key = key
        self._striker = striker
        self._url = section.base_url.rstrip("/") + dialect.path
        self._session = aiohttp.ClientSession(
            headers={
                "Content-Type": "application/json",
                "Accept": "text/event-stream",
                "Accept-Encoding": "identity",
                "User-Agent": "certosa",
                **dialect.headers,
            },
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=section.connect_s),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=_READ_BUFFER_BYTES,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def chat(self, ask: ChatStart, out: Counter) -> ChatEnd:
        """Answer ``ask`` through ``out``. Raises ProviderError whatever the server does."""
        try:
            body = self._dialect.body(ask)
            headers = {**await self._key_headers(ask.user), **_trace_header()}
        except ProviderError as error:
            error.spent = "nothing"
            raise
        try:
            return await self._chat(body, headers, out)
        except UpstreamSaid as error:
            detail = error_detail(error.raw, self._striker)
            said = f" It said: {detail}" if detail else ""
            message = f"{self._name} failed in mid-answer.{said}"
            raise ProviderError(error.failure.code, message, again=error.again) from None
        except SseError as error:
            message = f"{self._name} sent a broken stream: {error}."
            raise ProviderError("upstream", message, again="elsewhere") from None
        except aiohttp.ClientError as error:
            # "from None": these carry our request, and its headers the key
            raise self._client_error(error) from None

    async def models(self) -> list[str]:
        """The models it says it has, in its order, at most 1,000. Raises ProviderError."""
        url = self._section.base_url.rstrip("/") + "/models"
        headers = await self._key_headers("")
        try:
            async with (
                asyncio.timeout(_MODELS_S),
                self._session.get(
                    url, allow_redirects=False, headers={"Accept": "application/json", **headers}
                ) as response,
            ):
                if response.status != 200:
                    raise await self._status_error(response)
                body = bytearray()
                async for data in response.content.iter_any():
                    body += data
                    self._check_length(len(body), _MAX_JSON_BYTES)
        except TimeoutError:
            raise self._late("did not list its models", _MODELS_S) from None
        except aiohttp.ClientError as error:
            raise self._client_error(error) from None
        try:
            listed = _decode_models(bytes(body)).data[:_MAX_MODELS]
        except (msgspec.MsgspecError, RecursionError):
            raise ProviderError("upstream", f"{self._name} sent no list of models.") from None
        return [sanitise(model.id, self._striker)[:128] for model in listed]

    async def _key_headers(self, user: str) -> Mapping[str, str]:
        key = self._key if isinstance(self._key, Secret | None) else await self._key(user)
        return {} if key is None else self._dialect.key_headers(key)

    async def _chat(self, body: bytes, headers: Mapping[str, str], out: Counter) -> ChatEnd:
        section = self._section
        loop = asyncio.get_running_loop()
        begin_at_s = loop.time() + section.connect_s + section.first_byte_s
        async with self._post(body, headers, begin_at_s) as response:
            if response.status != 200:
                raise await self._status_error(response)
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise ProviderError(
                    "upstream",
                    f"{self._name} sent a compressed answer although we asked for a plain one:"
                    " have the operator turn compression off there.",
                    again="elsewhere",
                )
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if kind == "application/json":
                return await self._read_json(response, out, begin_at_s)
            if kind not in _STREAM_TYPES:
                raise ProviderError(
                    "upstream",
                    f"{self._name} did not answer with a stream of events: have the operator check"
                    " base_url, which ends with /v1 on most servers.",
                    again="elsewhere",
                )
            return await self._read_stream(response, out, begin_at_s)

    @asynccontextmanager
    async def _post(
        self, body: bytes, headers: Mapping[str, str], begin_at_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with asyncio.timeout_at(begin_at_s):
                response = await self._session.post(
                    self._url, data=body, headers=headers, allow_redirects=False
                )
        except aiohttp.ConnectionTimeoutError:
            raise self._unreached() from None
        except TimeoutError:
            raise self._late("did not begin to answer", self._section.first_byte_s) from None
        try:
            yield response
        finally:
            # not read to its end: the connection is closed, which is what stops the upstream
            response.release()

    async def _read_stream(
        self, response: aiohttp.ClientResponse, out: Counter, begin_at_s: float
    ) -> ChatEnd:
        assembly = self._dialect.assembly(self._name)
        try:
            await self._read_events(response, assembly, out, begin_at_s)
        finally:
            out.usage(assembly.usage)
        return await _finish(assembly, out)

    async def _read_events(
        self, response: aiohttp.ClientResponse, assembly: Assembly, out: Outlet, begin_at_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        sse = SseParser()
        deadline_s, began, read_bytes = begin_at_s, False, 0
        while not assembly.done:
            try:
                async with asyncio.timeout_at(deadline_s):
                    data = await response.content.readany()
            except TimeoutError:
                if assembly.finished:
                    break
                if began:
                    raise self._late("stalled in mid-answer", self._section.idle_s) from None
                raise self._late("did not begin to answer", self._section.first_byte_s) from None
            except aiohttp.ClientPayloadError:
                data = b""
            if not data:
                break
            read_bytes += len(data)
            self._check_length(read_bytes)
            before = assembly.moves
            for event in sse.feed(data):
                await _pass_on(assembly.take(event), out)
            if assembly.moves > before:
                # counted in whole events, so neither comments nor a trickle of bytes keep it alive,
                # and from after they were passed on: waiting for credit is not the server's fault
                began = True
                wait_s = _AFTER_FINISH_S if assembly.finished else self._section.idle_s
                deadline_s = loop.time() + wait_s

    async def _read_json(self, response: aiohttp.ClientResponse, out: Counter, begin_at_s: float) -> ChatEnd:
        """A server that does not stream: its whole answer is taken as one chunk."""
        body = bytearray()
        try:
            async with asyncio.timeout_at(begin_at_s):
                async for data in response.content.iter_any():
                    body += data
                    self._check_length(len(body), _MAX_JSON_BYTES)
        except TimeoutError:
            raise self._late("did not finish its answer", self._section.first_byte_s) from None
        assembly = self._dialect.assembly(self._name)
        try:
            await _pass_on(assembly.take(bytes(body)), out)
        finally:
            out.usage(assembly.usage)
        return await _finish(assembly, out)

    def _check_length(self, read_bytes: int, limit_bytes: int | None = None) -> None:
        limit = min(self._section.max_answer_bytes, limit_bytes or self._section.max_answer_bytes)
        if read_bytes > limit:
            raise ProviderError(
                "upstream",
                f"{self._name} sent more than {limit} bytes in one answer; the operator may raise"
                " max_answer_bytes.",
            )

    async def _status_error(self, response: aiohttp.ClientResponse) -> ProviderError:
        body = bytearray()
        plain = response.headers.get("Content-Encoding", "identity").lower() == "identity"
        try:
            async with asyncio.timeout(_ERROR_BODY_S):
                while plain and len(body) < MAX_ERROR_BODY_BYTES:
                    data = await response.content.read(MAX_ERROR_BODY_BYTES - len(body))
                    if not data:
                        break
                    body += data
        except (TimeoutError, aiohttp.ClientError):
            body.clear()  # the status says enough
        return status_error(
            self._name,
            response.status,
            response.headers.get("Retry-After"),
            error_detail(bytes(body), self._striker),
            datetime.now(UTC),
        )

    def _late(self, what: str, limit_s: float) -> ProviderError:
        return ProviderError(
            "upstream_timeout",
            f"{self._name} {what} within {limit_s:g} s. Try again later.",
            again="elsewhere",
        )

    def _unreached(self) -> ProviderError:
        error = self._late("could not be reached", self._section.connect_s)
        error.spent = "nothing"
        return error

    def _client_error(self, error: aiohttp.ClientError) -> ProviderError:
        check = "have the operator check base_url and that the server runs."
        again: Again = "retry"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            what = f"has a TLS certificate that does not verify: {check}"
            again = "elsewhere"
        elif isinstance(error, aiohttp.ClientConnectorDNSError):
            what = f"has a name that could not be resolved: {check}"
        elif isinstance(error, aiohttp.ClientConnectorError):
            reason = os.strerror(error.os_error.errno) if error.os_error.errno else "no connection"
            what = f"could not be reached ({reason}): {check}"
        elif isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
            what = "closed the connection too early. Try again."
        elif isinstance(error, aiohttp.ClientPayloadError):
            what = "broke off: the answer was cut before its end. Try again."
        elif isinstance(error, aiohttp.ServerTimeoutError):
            return self._unreached()
        else:
            what = f"did not answer in proper HTTP ({type(error).__name__}): {check}"
            again = "elsewhere"
        spent: Spent = "nothing" if isinstance(error, aiohttp.ClientConnectorError) else "perhaps"
        return ProviderError("upstream", f"{self._name} {what}", again=again, spent=spent)


def _trace_header() -> Mapping[str, str]:
    """The trace that the chat belongs to, for the server's own logs (W3C Trace Context)."""
    traceparent = current_traceparent()
    return {"traceparent": traceparent} if traceparent else {}


async def _pass_on(pieces: tuple[str, str], out: Outlet) -> None:
    reasoning, text = pieces
    if reasoning:
        await out.reasoning(reasoning)
    if text:
        await out.text(text)


async def _finish(assembly: Assembly, out: Outlet) -> ChatEnd:
    calls, end = assembly.end()
    for call in calls:
        await out.call(call)
    return end
