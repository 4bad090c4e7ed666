"""The conversation over one edge, without a socket: frames in, events out, and the other way.

Either side asks and answers. A request is opened by its asker, answered by any number of items
that the asker granted credit for, and closed by one REPLY or ERROR:

    asker                        answerer
    REQUEST ------------------>            open: STREAM_WINDOW items may come
            <------------------ ITEM       one credit less
    CREDIT  ------------------>            that many more
    CANCEL  ------------------>            no more is wanted; the closing frame still comes
            <------------------ REPLY or ERROR

Ids are each asker's own and only grow, so an id seen before is a replay, whatever became of it.
What the peer does wrong raises PeerFault, after which the connection is of no more use; what we
do wrong raises LocalFault. The caller passes the time in (seconds, monotonic): no clock here.
"""

from typing import Any, Literal

import msgspec

from jail.wire.errors import LocalFault, PeerFault
from jail.wire.frames import MAX_FRAME_BYTES, Kind, decode_frame, encode_frame
from jail.wire.schema import (
    FROM_JAIL,
    RESERVED_FROM_JAIL,
    RESERVED_TO_JAIL,
    TO_JAIL,
    Body,
    ErrorCode,
    Failure,
    Hello,
    Verb,
    Welcome,
    from_wire,
    to_wire,
)

STREAM_WINDOW = 16
"""Items an answerer may send before any CREDIT."""
MAX_OPEN = 64
"""Requests one side may have open at once; a turn needs about three."""
_MAX_CREDIT = 4 * STREAM_WINDOW

Side = Literal["core", "worker"]


class PeerReady(msgspec.Struct, frozen=True):
    """The handshake is done; ``software`` is what the worker calls itself ("" at the worker)."""

    software: str


class Asked(msgspec.Struct, frozen=True):
    """The peer opened request ``id``; answer it with item, reply and error."""

    id: int
    verb: str
    body: Any


class ItemCame(msgspec.Struct, frozen=True):
    """An item of our request ``id``. Grant credit again once it has been dealt with."""

    id: int
    body: Any


class Replied(msgspec.Struct, frozen=True):
    """Our request ``id`` is closed with a result."""

    id: int
    body: Any


class Failed(msgspec.Struct, frozen=True):
    """Our request ``id`` is closed with an error."""

    id: int
    failure: Failure


class CreditCame(msgspec.Struct, frozen=True):
    """``count`` more items may be sent for the peer's request ``id``."""

    id: int
    count: int


class CancelCame(msgspec.Struct, frozen=True):
    """The peer no longer wants its request ``id``; close it soon."""

    id: int


Event = PeerReady | Asked | ItemCame | Replied | Failed | CreditCame | CancelCame


class _Ours(msgspec.Struct):
    """A request we opened: what the peer may still send."""

    verb: Verb
    granted: int
    deadline_s: float | None
    cancelled: bool = False


class _Theirs(msgspec.Struct):
    """A request the peer opened: what we may still send."""

    verb: Verb
    credit: int
    cancelled: bool = False


class Connection:
    """The protocol's state on one side.

    Args:
        side: which end this is; the worker says HELLO, core answers WELCOME.
        now_s: the time at the start, for the handshake's deadline.
        handshake_timeout_s: how long the peer may take to say its first frame.
    """

    def __init__(self, side: Side, now_s: float, handshake_timeout_s: float) -> None:
        core = side == "core"
        self._side = side
        self._asks, self._answers = (TO_JAIL, FROM_JAIL) if core else (FROM_JAIL, TO_JAIL)
        self._reserved = RESERVED_FROM_JAIL if core else RESERVED_TO_JAIL
        self._handshake_deadline_s: float | None = now_s + handshake_timeout_s
        self._ours: dict[int, _Ours] = {}
        self._theirs: dict[int, _Theirs] = {}
        self._last_ours = 0
        self._last_theirs = 0
        self._refused: list[bytes] = []

    # -- what we send: each returns one frame's bytes ---------------------------------------------

    def hello(self, software: str) -> bytes:
        """The worker's first frame."""
        self._require(self._side == "worker", "only a worker says HELLO")
        return encode_frame(Kind.HELLO, 0, to_wire(Hello(software)))

    def request(self, body: Body, deadline_s: float | None = None) -> tuple[int, bytes]:
        """Open a request; ``deadline_s`` is when :meth:`expired` names it. Returns its id too."""
        self._require(self.ready, "a request before the handshake")
        verb = self._asks[str(body.__struct_config__.tag)]
        request_id = self._last_ours + 1
        data = encode_frame(Kind.REQUEST, request_id, to_wire(body))
        self._last_ours = request_id
        self._ours[request_id] = _Ours(verb, STREAM_WINDOW if verb.item else 0, deadline_s)
        return request_id, data

    def grant(self, request_id: int, count: int) -> bytes:
        """Let the peer send ``count`` more items for our open request."""
        ours = self._ours.get(request_id)
        self._require(ours is not None, "credit for a request that is not open")
        assert ours is not None
        ours.granted += count
        return encode_frame(Kind.CREDIT, request_id, count)

    def cancel(self, request_id: int) -> bytes:
        """Say that our open request is no longer wanted."""
        ours = self._ours.get(request_id)
        self._require(ours is not None, "cancel of a request that is not open")
        assert ours is not None
        ours.cancelled = True
        return encode_frame(Kind.CANCEL, request_id, None)

    def item(self, request_id: int, body: Body) -> bytes:
        """One item for the peer's request; there must be credit (see :meth:`credit`)."""
        theirs = self._theirs.get(request_id)
        self._require(theirs is not None and theirs.credit > 0, "an item without credit")
        assert theirs is not None
        data = encode_frame(Kind.ITEM, request_id, to_wire(body))
        theirs.credit -= 1
        return data

    def reply(self, request_id: int, body: Body) -> bytes:
        """Close the peer's request with a result."""
        theirs = self._theirs.get(request_id)
        self._require(theirs is not None, "reply to a request that is not open")
        data = encode_frame(Kind.REPLY, request_id, to_wire(body))
        del self._theirs[request_id]
        return data

    def error(
        self, request_id: int, code: ErrorCode, message: str, retry_after_s: int | None = None
    ) -> bytes:
        """Close the peer's request with an error."""
        self._require(request_id in self._theirs, "error for a request that is not open")
        del self._theirs[request_id]
        failure = Failure(code, message[:2_000], retry_after_s)
        return encode_frame(Kind.ERROR, request_id, to_wire(failure))

    # -- what we know -----------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether the handshake is done."""
        return self._handshake_deadline_s is None

    @property
    def open_asks(self) -> tuple[int, ...]:
        """Ids of our own open requests."""
        return tuple(self._ours)

    @property
    def open_answers(self) -> tuple[int, ...]:
        """Ids of the peer's requests that we still have to close."""
        return tuple(self._theirs)

    def credit(self, request_id: int) -> int:
        """How many items may be sent for the peer's request now (0 where it is closed)."""
        theirs = self._theirs.get(request_id)
        return theirs.credit if theirs else 0

    def next_deadline_s(self) -> float | None:
        """When :meth:`expired` should next be called, or None."""
        times = [ours.deadline_s for ours in self._ours.values() if ours.deadline_s is not None]
        if self._handshake_deadline_s is not None:
            times.append(self._handshake_deadline_s)
        return min(times, default=None)

    def expired(self, now_s: float) -> list[int]:
        """Ids of our requests past their deadline, each named once; the caller decides.

        Raises PeerFault ``deadline`` when the handshake is what is late.
        """
        if self._handshake_deadline_s is not None and now_s >= self._handshake_deadline_s:
            raise PeerFault("deadline", "no handshake in time")
        late: list[int] = []
        for request_id, ours in self._ours.items():
            if ours.deadline_s is not None and now_s >= ours.deadline_s:
                ours.deadline_s = None
                late.append(request_id)
        return late

    # -- what comes -------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """Take one frame and return what it means; at most one event today."""
        frame = decode_frame(data)
        if not self.ready:
            return [self._on_handshake(frame.kind, frame.id, frame.body)]
        handler = _HANDLERS.get(frame.kind)
        if handler is None:
            raise PeerFault("order", f"{frame.kind.name} after the handshake")
        event: Event | None = getattr(self, handler)(frame.id, frame.body)
        return [event] if event is not None else []

    def take_answers(self) -> list[bytes]:
        """Frames this side owes for what :meth:`receive` settled alone; send them, in order."""
        answers, self._refused = self._refused, []
        return answers

    def _on_handshake(self, kind: Kind, request_id: int, body: Any) -> PeerReady:
        wanted = Kind.HELLO if self._side == "core" else Kind.WELCOME
        if kind is not wanted or request_id != 0:
            raise PeerFault("order", f"{kind.name} where {wanted.name} has to come first")
        software = ""
        if self._side == "core":
            software = from_wire(body, Hello).software
            welcome = to_wire(Welcome(MAX_FRAME_BYTES))
            self._refused.append(encode_frame(Kind.WELCOME, 0, welcome))
        else:
            from_wire(body, Welcome)
        self._handshake_deadline_s = None
        return PeerReady(software)

    def _on_request(self, request_id: int, body: Any) -> Asked | None:
        if request_id <= self._last_theirs:
            raise PeerFault("replay", "a request's id has to be greater than all before")
        self._last_theirs = request_id
        if len(self._theirs) >= MAX_OPEN:
            raise PeerFault("flood", f"more than {MAX_OPEN} requests open")
        name = body.get("verb") if type(body) is dict else None
        verb = self._answers.get(name) if type(name) is str else None
        if verb is None:
            self._on_unserved(request_id, name)
            return None
        parsed = from_wire(body, verb.request)
        self._theirs[request_id] = _Theirs(verb, STREAM_WINDOW if verb.item else 0)
        return Asked(request_id, str(name), parsed)

    def _on_unserved(self, request_id: int, name: Any) -> None:
        if type(name) is not str or name not in self._reserved:
            raise PeerFault("schema", "unknown verb")
        failure = Failure("unavailable", f"nobody serves {name} on this server yet")
        self._refused.append(encode_frame(Kind.ERROR, request_id, to_wire(failure)))

    def _on_item(self, request_id: int, body: Any) -> ItemCame | None:
        ours = self._open(request_id)
        if ours.granted <= 0:
            raise PeerFault("credit", "an item past the credit granted")
        ours.granted -= 1
        parsed = from_wire(body, ours.verb.item)
        return None if ours.cancelled else ItemCame(request_id, parsed)

    def _on_reply(self, request_id: int, body: Any) -> Replied:
        ours = self._open(request_id)
        parsed = from_wire(body, ours.verb.reply)
        del self._ours[request_id]
        return Replied(request_id, parsed)

    def _on_error(self, request_id: int, body: Any) -> Failed:
        self._open(request_id)
        failure = from_wire(body, Failure)
        del self._ours[request_id]
        return Failed(request_id, failure)

    def _on_credit(self, request_id: int, body: Any) -> CreditCame | None:
        if type(body) is not int or not 1 <= body <= _MAX_CREDIT:
            raise PeerFault("schema", f"credit is an integer from 1 to {_MAX_CREDIT}")
        theirs = self._asked(request_id)
        if theirs is None:
            return None
        if theirs.verb.item is None or theirs.credit + body > _MAX_CREDIT:
            raise PeerFault("credit", f"more than {_MAX_CREDIT} items granted ahead")
        theirs.credit += body
        return CreditCame(request_id, body)

    def _on_cancel(self, request_id: int, body: Any) -> CancelCame | None:
        if body is not None:
            raise PeerFault("schema", "CANCEL has no body")
        theirs = self._asked(request_id)
        if theirs is None or theirs.cancelled:
            return None
        theirs.cancelled = True
        return CancelCame(request_id)

    def _open(self, request_id: int) -> _Ours:
        ours = self._ours.get(request_id)
        if ours is None:
            raise PeerFault("order", "an answer to a request that is not open")
        return ours

    def _asked(self, request_id: int) -> _Theirs | None:
        """The peer's request, or None where we closed it while this frame was on its way."""
        if not 1 <= request_id <= self._last_theirs:
            raise PeerFault("order", "a frame for a request never made")
        return self._theirs.get(request_id)

    @staticmethod
    def _require(condition: bool, what: str) -> None:
        if not condition:
            raise LocalFault(what)


_HANDLERS = {
    Kind.REQUEST: "_on_request",
    Kind.ITEM: "_on_item",
    Kind.REPLY: "_on_reply",
    Kind.ERROR: "_on_error",
    Kind.CREDIT: "_on_credit",
    Kind.CANCEL: "_on_cancel",
}
