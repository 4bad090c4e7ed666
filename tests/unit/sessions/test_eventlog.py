"""A session's event log on a real file, in one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import msgpack

from core.sessions.database import Database
from core.sessions.errors import NoSuchSession
from core.sessions.eventlog import EventLog
from core.sessions.events import Accepted, Ended, EventRecord, Failed, Used, beginning, ending, ends_turn
from core.sessions.store import UserStore
from jail.wire.schema import Delta, Failure, Message, TurnEnd, Usage
from tests.fakes.token_book import handle_of

ALICE = handle_of("alice")
TURN = "turn_00000000000000aa"
BIG = 1 << 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    database = Database(tmp_path / "alice.db")
    store = database.bind(ALICE)
    store.ensure_session("s", "", 1)
    yield store
    database.close()


def fill(store: UserStore, count: int, size: int = 10, time_ms: int = 100_000) -> EventLog:
    log = EventLog(store)
    for number in range(count):
        log.add("s", TURN, [Delta("x" * size)], time_ms + number * 1_000)
    return log


def ids(log: EventLog, after: int = 0, most: int = 1_000, max_bytes: int = BIG) -> list[int]:
    return [event.id for event in log.read("s", after, most, max_bytes).events]


def test_events_come_back_as_they_were_with_their_time(store: UserStore) -> None:
    log = EventLog(store)
    items = (Accepted("assistant", 1, "hi"), Delta("a"), Used(Usage(1, 2)), Ended("stop"))
    added = log.add("s", TURN, items, 1_700_000_000_123)
    found = log.read("s", 0, 10, BIG).events
    assert [(e.id, e.turn, e.time_ms, e.item) for e in found] == [
        (number, TURN, 1_700_000_000_123, item) for number, item in enumerate(items, 1)
    ]
    assert [(e.id, e.item, e.size) for e in found] == [(e.id, e.item, e.size) for e in added]


def test_the_log_is_cut_by_bytes_and_by_age_and_ids_go_on(store: UserStore) -> None:
    log = fill(store, 10)
    size = log.read("s", 0, 1, BIG).events[0].size
    log.trim("s", 3 * size + 1, 0)
    assert ids(log) == [8, 9, 10]
    assert log.read("s", 0, 10, BIG).oldest == 8
    log.trim("s", BIG, 109)
    assert ids(log) == [10]
    log.trim("s", BIG, 1_000)
    page = log.read("s", 0, 10, BIG)
    assert (page.events, page.oldest, page.last) == ((), 11, 10)
    log.add("s", TURN, [Delta("y")], 1)
    assert ids(log, 10) == [11]


def test_a_page_has_its_bounds_and_one_event_at_least(store: UserStore) -> None:
    log = fill(store, 10)
    assert ids(log, 3, most=4) == [4, 5, 6, 7]
    size = log.read("s", 0, 1, BIG).events[0].size
    assert ids(log, 3, max_bytes=2 * size) == [4, 5]
    assert ids(log, 3, max_bytes=1) == [4]
    assert ids(log, 10) == []


def test_an_id_that_was_given_to_a_lost_event_is_not_given_again(store: UserStore) -> None:
    log = fill(store, 2)
    assert [e.id for e in log.add("s", TURN, [Delta("z")], 1, after_id=40)] == [41]


def test_after_an_interrupted_turn_ids_go_on_far_past_what_a_power_cut_may_have_taken(
    store: UserStore,
) -> None:
    log = fill(store, 2)
    log.interrupted("s", TURN, ending(Failure("internal", "interrupted")), 5)
    page = log.read("s", 2, 10, BIG)
    assert page.events[0].id > 1_000_000
    assert page.events[0].item == Failed("internal", "interrupted")
    # what is here was cut nowhere: whoever has event 2, or one that is lost, goes on
    assert page.oldest == 1


def test_a_page_says_which_turn_runs(store: UserStore) -> None:
    log = fill(store, 1)
    assert log.read("s", 0, 1, BIG).running == ""
    store.begin_turn(TURN, "s", 1)
    assert log.read("s", 0, 1, BIG).running == TURN
    store.ensure_session("other", "", 1)
    assert log.read("other", 0, 1, BIG).running == ""


def test_all_of_a_turn_is_past_the_id_before_its_first_event_that_is_kept(store: UserStore) -> None:
    log = fill(store, 3)
    log.add("s", "turn_2", [Delta("a"), Delta("b")], 200_000)
    assert log.before("s", "turn_2") == 3
    log.trim("s", BIG, 1_000)
    assert log.before("s", "turn_2") == 5


def test_there_is_no_log_without_a_session(store: UserStore) -> None:
    with pytest.raises(NoSuchSession):
        EventLog(store).read("none", 0, 10, BIG)
    with pytest.raises(NoSuchSession):
        EventLog(store).add("none", TURN, [Delta("a")], 1)


def test_an_event_of_the_earliest_logs_still_opens(store: UserStore) -> None:
    log = EventLog(store)
    log.append("s", [EventRecord(1, TURN, 7, msgpack.encode(Delta("old")))])
    (event,) = log.read("s", 0, 10, BIG).events
    assert (event.time_ms, event.item) == (7_000, Delta("old"))


def test_a_turn_begins_with_its_message_or_a_part_of_a_long_one() -> None:
    assert beginning("a", 3, Message("user", "hi")) == (Accepted("a", 3, "hi", False),)
    (long,) = beginning("a", 3, Message("user", "y" * 5_000))
    assert isinstance(long, Accepted)
    assert (len(long.text), long.cut) == (4_000, True)


def test_a_turn_ends_with_its_usage_and_how_or_with_its_failure(store: UserStore) -> None:
    assert ending(TurnEnd("rounds", Usage(3, 4))) == (Used(Usage(3, 4)), Ended("rounds"))
    assert ending(Failure("overloaded", "m", 5)) == (Failed("overloaded", "m", 5),)
    for outcome in (TurnEnd("stop"), Failure("timeout", "m")):
        assert ends_turn(EventLog(store).add("s", TURN, ending(outcome), 1))
    assert not ends_turn(EventLog(store).add("s", TURN, [Delta("a")], 1))
    assert not ends_turn([])
