"""How turns of kept sessions begin and end, on disk and for those who watch.

A turn's first event is written with its row and the message it answers, its last with its end: the
journal and the event log never disagree.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from core.acting import current_request
from core.errors import CoreError
from core.sessions.asking import ask_storage
from core.sessions.errors import SessionBusy, TurnExists
from core.sessions.eventlog import EventLog
from core.sessions.events import SessionEvent, beginning, encode_event, ending
from core.sessions.feed import Feeds
from core.sessions.openturns import GoesOn, OpenTurns
from core.sessions.recovery import Asked, Close
from core.sessions.storage import Storage
from core.sessions.store import UserStore
from core.sessions.turns import message_bytes
from core.vault.handle import UserHandle
from jail.wire.schema import Failure, Message, TurnEnd

_log = structlog.get_logger()


class TurnPlace(NamedTuple):
    """A turn of a kept session."""

    handle: UserHandle
    session: str
    turn: str


class Journal:
    """Writes turns' beginnings and ends. Beginnings on the hub's loop, ends on any thread."""

    def __init__(self, storage: Storage, feeds: Feeds) -> None:
        self._storage = storage
        self._feeds = feeds
        self._floors: dict[tuple[str, str], int] = {}
        """Ids that were given to events whose storing failed: not to be given again."""

    async def begin(
        self,
        place: TurnPlace,
        agent: str,
        messages: Sequence[Message],
        asked: Asked | None,
        still: Callable[[], bool],
    ) -> int:
        """Write down a turn with its messages; returns its first event's id.

        TurnExists where it was begun before; SessionBusy where the session is not this turn's ``still``
        when it comes to that: opening the database may have found one that goes on.
        """
        title = messages[-1].text.partition("\n")[0] if messages else ""
        request = current_request()
        floor = self._floors.get((place.handle.user, place.session), 0)

        def work(store: UserStore) -> list[SessionEvent]:
            now_s = time.time()
            if (session := store.session_of(place.turn)) is not None:
                raise TurnExists(place.turn, EventLog(store).before(session, place.turn))
            if not still():
                raise SessionBusy(place.session)
            store.ensure_session(place.session, title, int(now_s))
            seq = store.append_messages(place.session, messages, int(now_s))
            store.begin_turn(place.turn, place.session, int(now_s))
            if asked is not None:
                OpenTurns(store).remember(place.turn, asked)
            items = beginning(agent, seq, messages[-1] if messages else None, request)
            return EventLog(store).add(place.session, place.turn, items, int(now_s * 1_000), floor)

        size = sum(message_bytes(message) for message in messages)
        events = await ask_storage(self._storage, place.handle, work, size)
        self._feeds.publish(place.handle.user, place.session, lambda: events)
        return events[-1].id

    async def find(self, place: TurnPlace) -> None:
        """Raise TurnExists if the turn was begun before."""

        def work(store: UserStore) -> None:
            if (session := store.session_of(place.turn)) is not None:
                raise TurnExists(place.turn, EventLog(store).before(session, place.turn))

        await ask_storage(self._storage, place.handle, work)

    def lost(
        self,
        place: TurnPlace,
        why: Failure,
        again: bool,
        done: Callable[[GoesOn | Close], None],
        failed: Callable[[CoreError], None],
    ) -> None:
        """Judge a turn whose jail is gone; answers on a storage thread.

        What is to be said in the session is; its end is for :meth:`end` to write.
        """

        def work(store: UserStore) -> GoesOn | Close:
            return OpenTurns(store).judge(place.turn, place.session, why, time.time(), again)

        self._storage.submit(place.handle, work, done, failed)

    def end(self, place: TurnPlace, outcome: TurnEnd | Failure, last_id: int = 0) -> None:
        """Write down a turn's end, past the event ``last_id``; nothing where it has ended."""
        self._end(place, outcome, last_id, lambda _: outcome)

    def give_up(self, place: TurnPlace, why: Failure, last_id: int) -> None:
        """Write down the end of a turn that was found, and does not go on after all, with a report of its
        steps; what is to be said in the session is."""

        def decide(store: UserStore) -> TurnEnd | Failure:
            if store.session_of(place.turn) is None:
                return why  # its session was deleted meanwhile
            fate = OpenTurns(store).judge(place.turn, place.session, why, time.time(), False)
            return fate.outcome if isinstance(fate, Close) else why

        self._end(place, why, last_id, decide)

    def _end(
        self,
        place: TurnPlace,
        outcome: TurnEnd | Failure,
        last_id: int,
        decide: Callable[[UserStore], TurnEnd | Failure],
    ) -> None:
        """``outcome`` is what is told at once where the decision cannot be stored."""
        items = ending(outcome)
        key = place.handle.user, place.session
        time_ms = int(time.time() * 1_000)  # however often it is tried: those who watch know it by that

        def work(store: UserStore) -> list[SessionEvent]:
            decided = decide(store)
            if not store.end_turn(place.turn, decided, time_ms // 1_000):
                return []
            return EventLog(store).add(place.session, place.turn, ending(decided), time_ms, last_id)

        def done(events: list[SessionEvent]) -> None:
            self._floors.pop(key, None)
            if events:
                self._feeds.publish(*key, lambda: events)

        def failed(error: CoreError) -> None:
            _log.error("turn_end_not_stored", turn=place.turn, error=str(error))
            if not last_id:
                return  # it never began
            self._floors[key] = last_id + len(items)
            # those who watch are told all the same; were the server killed before it can be stored after
            # all, it would be an interrupted turn
            self._feeds.publish(
                *key,
                lambda: [
                    SessionEvent(last_id + n, place.turn, time_ms, item, len(encode_event(time_ms, item)))
                    for n, item in enumerate(items, 1)
                ],
            )

        self._storage.submit(place.handle, work, done, failed, insists=True)
