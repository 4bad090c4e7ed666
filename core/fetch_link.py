"""Core's part of agents' requests to servers outside: the verbs ``http.fetch`` and ``http.body``.

What a jail framed ends here: egress gets messages of our own making. Whose request it is, and for which
turn, is the connection's and core's to say.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from actors.service import RequestKey, VerbRequest
from core.egress.fetch_messages import (
    FetchAnswer,
    FetchBody,
    FetchCancel,
    FetchCredit,
    FetchDone,
    FetchFailed,
    FetchItem,
    FetchStart,
    FetchTaken,
)
from core.errors import LinkError
from jail.wire.schema import Done, HttpBody, HttpFetch

_LOST = "the egress process ended and is being restarted; try again"
_RETRY_AFTER_S = 2


class _Named(NamedTuple):
    """What a worker's name for a fetch belongs to."""

    user: str
    life: int
    turn: str
    fetch: str


class FetchLink:
    """The fetches that are not over; thread-safe. Serves ``http.fetch`` and ``http.body``.

    Args:
        next_id: an id that nothing else on the link has.
        send: sends to egress; LinkError where it is gone.
    """

    def __init__(self, next_id: Callable[[], int], send: Callable[[Any], None]) -> None:
        self._next_id, self._send = next_id, send
        self._lock = threading.Lock()
        self._requests: dict[int, VerbRequest] = {}
        self._by_key: dict[RequestKey, int] = {}
        self._by_name: dict[_Named, int] = {}

    def serve(self, request: VerbRequest) -> None:
        """Begin a fetch, or go on with its body."""
        match request.body:
            case HttpFetch():
                self._fetch(request, request.body)
            case HttpBody():
                self._body(request, request.body)
            case _:
                raise TypeError(f"{request.verb} is not served here")

    def credit(self, key: RequestKey, count: int) -> None:
        """Pass credit on."""
        with self._lock:
            found = self._by_key.get(key)
        if found is not None:
            self._try(FetchCredit(found, count))

    def cancel(self, key: RequestKey) -> None:
        """Stop the request outside; a piece of a body goes with its fetch."""
        with self._lock:
            found = self._by_key.get(key)
        request = self._close(found) if found is not None else None
        if request is not None and found is not None and isinstance(request.body, HttpFetch):
            self._try(FetchCancel(found))

    def request(self, id: int) -> VerbRequest | None:
        """The fetch of that id, while it runs."""
        with self._lock:
            return self._requests.get(id)

    def deliver(self, message: FetchAnswer) -> None:
        """What egress says, on the edge's thread."""
        match message:
            case FetchItem(id, item):
                with self._lock:
                    found = self._requests.get(id)
                if found is not None:
                    found.reply.item(item)
            case FetchDone(id, end):
                if (found := self._close(id)) is not None:
                    found.reply.done(end)
            case FetchTaken(id):
                if (found := self._close(id)) is not None:
                    found.reply.done(Done())
            case FetchFailed(id, failure):
                if (found := self._close(id)) is not None:
                    found.reply.fail(failure.code, failure.message, failure.retry_after_s)

    def __len__(self) -> int:
        """How many run."""
        with self._lock:
            return len(self._by_name)

    def lose(self) -> None:
        """The link is gone: everything that waits for an answer fails."""
        with self._lock:
            requests, self._requests = self._requests, {}
            self._by_key.clear()
            self._by_name.clear()
        for request in requests.values():
            request.reply.fail("unavailable", _LOST, _RETRY_AFTER_S)

    def _fetch(self, request: VerbRequest, body: HttpFetch) -> None:
        name, fetch_id = _name(request, body.fetch), self._next_id()
        with self._lock:
            taken = name in self._by_name
            if not taken:
                self._requests[fetch_id] = request
                self._by_key[request.key] = fetch_id
                self._by_name[name] = fetch_id
        if taken:
            request.reply.fail("invalid", "a fetch of that name runs already")
            return
        self._send_or_fail(
            fetch_id,
            FetchStart(
                fetch_id, request.handle.user, request.origin, request.turn.turn, body.method, body.url,
                body.headers, body.body, body.more, request.turn.request, request.turn.traceparent,
            ),
        )  # fmt: skip

    def _body(self, request: VerbRequest, body: HttpBody) -> None:
        part_id = self._next_id()
        with self._lock:
            fetch_id = self._by_name.get(_name(request, body.fetch))
            if fetch_id is not None:
                self._requests[part_id] = request
                self._by_key[request.key] = part_id
        if fetch_id is None:
            request.reply.fail("not_found", "this fetch is over")
            return
        self._send_or_fail(part_id, FetchBody(part_id, fetch_id, body.data, body.last))

    def _close(self, id: int) -> VerbRequest | None:
        with self._lock:
            request = self._requests.pop(id, None)
            if request is not None:
                self._by_key.pop(request.key, None)
                if isinstance(request.body, HttpFetch):
                    self._by_name.pop(_name(request, request.body.fetch), None)
        return request

    def _send_or_fail(self, id: int, message: Any) -> None:
        try:
            self._send(message)
        except LinkError:
            if (request := self._close(id)) is not None:
                request.reply.fail("unavailable", _LOST, _RETRY_AFTER_S)

    def _try(self, message: Any) -> None:
        """Send what means nothing to an egress process that is gone."""
        try:
            self._send(message)
        except LinkError:
            return


def _name(request: VerbRequest, fetch: str) -> _Named:
    return _Named(request.handle.user, request.life, request.turn.turn, fetch)
