"""Core's end of the link to egress: questions to the vault, and model streams.

An actor owns the link's life (up, lost, up again). Streams do not pass through it: their items go
from the edge's thread to the user actor that asked, and credit goes back on the asker's thread.
"""

import itertools
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors.base import Actor, Ref, tell
from actors.edge import Channel, Edge
from actors.observer import Observer
from actors.service import RequestKey, VerbRequest
from core.egress.fetch_messages import FetchDone, FetchFailed, FetchItem, FetchTaken
from core.egress.messages import (
    AdminVerified,
    ChatCancel,
    ChatCredit,
    ChatDone,
    ChatFailed,
    ChatFileTaken,
    ChatItem,
    ChatStart,
    FromEgress,
    HandleMinted,
    LimitMet,
    Refused,
    TokenRejected,
    VerifyAdminToken,
    VerifyToken,
)
from core.errors import CoreError, LinkError
from core.fetch_link import FetchLink
from core.gathering import Gatherings, wanted_files
from core.hub.jail_call import JailCalls
from core.ledger.metering import Dimension, Level
from core.link import LinkReader, encode_message
from core.promise import promised
from core.vault.handle import UserHandle
from core.vault.standing import Standings
from jail.wire.errors import CertosaError
from jail.wire.schema import Failure, Notice, ProviderChat

# A question to the vault is a row read or written; under emulation still well below this.
_ASK_TIMEOUT_S = 20.0
# Credits bound the items; this bounds answers to questions on their way through the edge.
_MAX_UNACKED = 256
_LOST = "the egress process ended and is being restarted; try again"
_RETRY_AFTER_S = 2


class VaultRefused(CoreError):
    """The vault said no; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class LinkUp:
    """Egress runs; ``sock`` is core's end of the link to it."""

    sock: socket.socket


@dataclass(frozen=True, slots=True)
class _LinkLost:
    channel: Channel
    error: CertosaError | None


class _Framer:
    """The link's framing, as the edge wants it."""

    def __init__(self) -> None:
        self.feed = LinkReader(FromEgress).feed
        self.encode = encode_message

    def outgoing(self) -> bytes:
        return b""


class EgressLink:
    """The pending questions and streams; thread-safe. Serves the verb ``provider.chat``.

    Args:
        standings: what the handles of verified tokens get; used on the loop.
        calls: asks jails for what is attached to messages.
        limit_met: called on the edge's thread when a user reached a limit.
        timed_out: told "egress" when it does not answer a question in time.
    """

    def __init__(
        self,
        standings: Standings,
        calls: JailCalls,
        limit_met: Callable[[Level, Dimension], None] = lambda *_: None,
        timed_out: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._timed_out = timed_out
        self._limit_met = limit_met
        self._gatherings = Gatherings(calls)
        self._standings = standings
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._channel: Channel | None = None
        self._streams: dict[int, VerbRequest] = {}
        self._by_key: dict[RequestKey, int] = {}
        self._questions: dict[int, Callable[[Any], None]] = {}
        self.fetches = FetchLink(lambda: next(self._ids), self._send)

    @property
    def up(self) -> bool:
        """Whether there is an egress process to talk to."""
        return self._channel is not None

    def describe(self) -> dict[str, int | bool]:
        """How much is under way, for a dump of states."""
        with self._lock:
            found = {"up": self.up, "streams": len(self._streams), "questions": len(self._questions)}
        return {**found, "fetches": len(self.fetches)}

    # -- the vault ----------------------------------------------------------------------------------

    async def ask(self, make: Callable[[int], Any]) -> Any:
        """Ask a question; ``make`` gets its id and returns the message. Returns the answer.

        Raises VaultRefused with the vault's reason, LinkError when egress is down or silent.
        """
        question_id = next(self._ids)

        def put(settle: Callable[[Any], None]) -> None:
            with self._lock:
                self._questions[question_id] = settle
            self._send(make(question_id))

        try:
            message = await promised(put, _ASK_TIMEOUT_S, "egress", lambda: self._timed_out("egress"))
        finally:
            with self._lock:
                self._questions.pop(question_id, None)
        if message is None:
            raise LinkError(_LOST)
        if isinstance(message, Refused):
            raise VaultRefused(message.message)
        return message

    def tell(self, make: Callable[[int], Any]) -> None:
        """Send what has no answer; thread-safe. Raises LinkError when egress is down."""
        self._send(make(next(self._ids)))

    async def verify(self, token: str) -> UserHandle | None:
        """The handle of the user a token belongs to, or None.

        Raises LinkError where it cannot be told: egress is down, the vault overloaded or its disk failing.
        """
        minted = await self._verified(lambda i: VerifyToken(i, token))
        if minted is None:
            return None
        if not isinstance(minted, HandleMinted):
            raise LinkError("egress answered something else than a handle")
        # the vault answers in order: a user removed or disabled since is barred after this line
        return UserHandle(minted.user, minted.data_key, self._standings.of(minted.user))

    async def verify_admin(self, token: str) -> str | None:
        """The id of an administrator's token, or None; raises as :meth:`verify`."""
        found = await self._verified(lambda i: VerifyAdminToken(i, token))
        if found is not None and not isinstance(found, AdminVerified):
            raise LinkError("egress answered something else than an administrator")
        return found.token_id if found is not None else None

    async def _verified(self, make: Callable[[int], Any]) -> Any:
        try:
            found = await self.ask(make)
        except VaultRefused as error:
            # nothing is known of the token: that is no reason to call it bad
            raise LinkError(str(error)) from None
        return None if isinstance(found, TokenRejected) else found

    # -- provider.chat --------------------------------------------------------------------------------

    def serve(self, request: VerbRequest) -> None:
        """Open a model stream for a turn; provider and model are its agent's, not the jail's."""
        body, agent = request.body, request.turn.agent
        if not isinstance(body, ProviderChat):
            raise TypeError(f"{request.verb} is not served here")
        stream_id = next(self._ids)
        message = ChatStart(
            stream_id,
            request.handle.user,
            agent.provider,
            agent.model,
            body.messages,
            body.tools,
            request.turn.sampling,
            fallbacks=agent.fallbacks,
            turn=request.turn.turn,
            request=request.turn.request,
            traceparent=request.turn.traceparent,
        )
        with self._lock:
            self._streams[stream_id] = request
            self._by_key[request.key] = stream_id

        send = partial(self._send_or_fail, stream_id)
        files = wanted_files(body.messages)
        if not files:
            send(message)
            return

        def failed(failure: Failure) -> None:
            send(ChatCancel(stream_id))  # what came of the files so far is dropped there
            self._fail(stream_id, failure)

        self._gatherings.begin(stream_id, request.handle, files, send, partial(send, message), failed)

    def _fail(self, stream_id: int, failure: Failure) -> None:
        if (request := self._close(stream_id)) is not None:
            request.reply.fail(failure.code, failure.message, failure.retry_after_s)

    def _send_or_fail(self, stream_id: int, message: Any) -> None:
        try:
            self._send(message)
        except LinkError:
            self._fail(stream_id, Failure("unavailable", _LOST, _RETRY_AFTER_S))

    def credit(self, key: RequestKey, count: int) -> None:
        """Pass credit on."""
        with self._lock:
            stream_id = self._by_key.get(key)
            channel = self._channel
        if stream_id is not None and channel is not None:
            channel.send(ChatCredit(stream_id, count))

    def cancel(self, key: RequestKey) -> None:
        """Stop the upstream request."""
        with self._lock:
            stream_id = self._by_key.get(key)
            channel = self._channel
        if stream_id is not None:
            self._close(stream_id)
            if channel is not None:
                channel.send(ChatCancel(stream_id))

    # -- the link ---------------------------------------------------------------------------------------

    def attach(self, channel: Channel) -> None:
        """Use this link from now on."""
        self._channel = channel

    def lose(self) -> None:
        """The link is gone: everything that waits for an answer fails, to be tried again."""
        with self._lock:
            self._channel = None
            streams, self._streams = self._streams, {}
            questions, self._questions = self._questions, {}
            self._by_key.clear()
        self._gatherings.end_all()
        self.fetches.lose()
        for request in streams.values():
            request.reply.fail("unavailable", _LOST, _RETRY_AFTER_S)
        for settle in questions.values():
            settle(None)

    def deliver(self, messages: list[Any]) -> None:
        """What egress says, on the edge's thread."""
        for message in messages:
            match message:
                case ChatFileTaken(stream_id):
                    self._gatherings.taken(stream_id)
                case ChatItem(stream_id, item):
                    with self._lock:
                        request = self._streams.get(stream_id)
                    if request is not None:
                        request.reply.item(item)
                case LimitMet(stream_id, level, dimension, text):
                    self._on_limit(stream_id, level, dimension, text)
                case ChatDone(stream_id, end):
                    if (request := self._close(stream_id)) is not None:
                        request.reply.done(end)
                case ChatFailed(stream_id, failure):
                    self._fail(stream_id, failure)
                case FetchItem() | FetchDone() | FetchTaken() | FetchFailed():
                    self.fetches.deliver(message)
                case _:
                    with self._lock:
                        settle = self._questions.get(message.id)
                    if settle is not None:
                        settle(message)

    def _on_limit(self, stream_id: int, level: Level, dimension: Dimension, text: str) -> None:
        self._limit_met(level, dimension)
        with self._lock:
            request = self._streams.get(stream_id)
        request = request or self.fetches.request(stream_id)
        if request is not None and level == "soft":
            request.turn.sink.append(Notice(text, "usage"), _nothing_waits)

    def _close(self, stream_id: int) -> VerbRequest | None:
        with self._lock:
            request = self._streams.pop(stream_id, None)
            if request is not None:
                self._by_key.pop(request.key, None)
        self._gatherings.end(stream_id)
        return request

    def _send(self, message: Any) -> None:
        channel = self._channel
        if channel is None:
            raise LinkError(_LOST)
        channel.send(message)


def _nothing_waits() -> None:
    """A notice has no credit that goes back."""


class EgressActor(Actor):
    """Owns the link: attaches each one the spawner hands over, and clears up after each."""

    def __init__(
        self, name: str, parent: Ref | None, observer: Observer, *, edge: Edge, link: EgressLink
    ) -> None:
        super().__init__(name, parent, observer)
        self._edge = edge
        self._link = link
        self._channel: Channel | None = None

    def handle(self, message: Any) -> None:
        """LinkUp, and the loss of one."""
        match message:
            case LinkUp(sock):
                self._drop()
                self._attach(sock)
            case _LinkLost(channel, error):
                if channel is self._channel:
                    self.observer.warn("egress_link_lost", error=str(error) if error else "")
                    self._drop()
            case _:
                raise TypeError(f"unknown message {type(message).__name__}")

    def teardown(self) -> None:
        """Whoever waits is told."""
        self._drop()

    def _attach(self, sock: socket.socket) -> None:
        me = self.actor_ref

        def deliver(channel: Channel, messages: list[Any]) -> None:
            self._link.deliver(messages)
            channel.ack(len(messages))

        def closed(channel: Channel, error: CertosaError | None) -> None:
            tell(me, _LinkLost(channel, error))

        self._channel = self._edge.attach(sock, _Framer(), deliver, closed, _MAX_UNACKED)
        self._link.attach(self._channel)
        self.observer.note("egress_link_up")

    def _drop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._link.lose()
