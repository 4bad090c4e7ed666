"""A client's place in a log: decisions alone, and the window they look into."""

from core.sessions.eventlog import LogPage
from core.sessions.events import Ended, SessionEvent
from core.sessions.feed import Window
from core.sessions.watching import Lost, Place
from jail.wire.schema import Delta

TURN = "turn_00000000000000aa"


def events(first: int, last: int, size: int = 20) -> tuple[SessionEvent, ...]:
    return tuple(SessionEvent(i, TURN, i, Delta("x"), size) for i in range(first, last + 1))


def end(number: int) -> tuple[SessionEvent, ...]:
    return (SessionEvent(number, TURN, number, Ended("stop"), 10),)


def window(*parts: tuple[SessionEvent, ...]) -> Window:
    found = Window()
    for part in parts:
        found.add(part)
    return found


def page(found: tuple[SessionEvent, ...], last: int, oldest: int = 1, running: str = TURN) -> LogPage:
    return LogPage(found, oldest, last, running)


def ids(found: object) -> list[int]:
    assert isinstance(found, tuple), found
    return [event.id for event in found]


# ---- the window -----------------------------------------------------------------------------------


def test_a_window_gives_what_follows_an_id_it_knows() -> None:
    found = window(events(5, 9))
    assert ids(found.past(4, 100)) == [5, 6, 7, 8, 9]
    assert ids(found.past(6, 2)) == [7, 8]
    assert ids(found.past(9, 100)) == []
    assert found.past(3, 100) is None
    assert Window().past(0, 100) is None
    assert found.last_id == 9


def test_a_window_is_bounded_by_number_and_by_bytes_and_keeps_the_newest() -> None:
    small = Window(max_events=3)
    small.add(events(1, 10))
    assert ids(small.all(100)) == [8, 9, 10]
    tight = Window(max_bytes=2_000)
    tight.add(events(1, 10, size=300))
    assert ids(tight.all(100)) == [9, 10]
    tight.add(events(11, 11, size=1 << 20))
    assert ids(tight.all(100)) == [11]


def test_a_window_with_a_gap_begins_behind_it() -> None:
    found = window(events(1, 3), events(7, 8))
    assert ids(found.all(100)) == [7, 8]
    assert found.past(3, 100) is None
    assert ids(found.past(6, 100)) == [7, 8]


# ---- a place --------------------------------------------------------------------------------------


def test_a_place_begins_on_the_disk_and_goes_on_in_the_window() -> None:
    place, recent = Place(0), window()
    assert place.next(recent) == "read"
    assert ids(place.take(page(events(1, 4), 4), recent)) == [1, 2, 3, 4]
    assert place.next(recent) == "wait"
    recent.add(events(5, 6))
    assert ids(place.next(recent)) == [5, 6]
    assert place.next(recent) == "wait"
    assert place.after == 6


def test_a_place_that_fell_out_of_the_window_reads_the_disk_until_it_is_back() -> None:
    place, recent = Place(2), window(events(100, 110))
    assert place.next(recent) == "read"
    assert ids(place.take(page(events(3, 50), 110), recent)) == list(range(3, 51))
    assert place.next(recent) == "read"
    assert ids(place.take(page(events(51, 99), 110), recent)) == list(range(51, 100))
    assert ids(place.next(recent)) == list(range(100, 111))


def test_what_is_published_while_a_page_is_read_is_given_once() -> None:
    place, recent = Place(0), window()
    assert place.next(recent) == "read"
    recent.add(events(3, 6))
    assert ids(place.take(page(events(1, 4), 4), recent)) == [1, 2, 3, 4]
    assert ids(place.next(recent)) == [5, 6]
    place, recent = Place(4), window()
    recent.add(events(3, 6))
    assert ids(place.take(page((), 4), recent)) == [5, 6]


def test_a_place_from_now_on_begins_after_the_newest_event() -> None:
    place, recent = Place(None), window()
    assert place.next(recent) == "read"
    assert place.reads_after > 1 << 50
    assert place.take(page((), 40), recent) == "wait"
    assert place.after == 40
    recent.add(events(41, 41))
    assert ids(place.next(recent)) == [41]


def test_a_place_whose_next_events_were_cut_is_behind_and_told_the_oldest() -> None:
    assert Place(5).take(page(events(8, 9), 9, oldest=8), window()) == Lost("behind", 8, 9)
    assert Place(5).take(page((), 9, oldest=10), window()) == Lost("behind", 10, 9)
    # whoever has all up to there has missed nothing
    assert ids(Place(7).take(page(events(8, 9), 9, oldest=8), window())) == [8, 9]
    assert Place(9).take(page((), 9, oldest=10), window()) == "wait"


def test_a_place_falls_behind_later_too() -> None:
    place, recent = Place(0), window()
    place.take(page(events(1, 4), 900), recent)
    assert place.take(page(events(500, 510), 900, oldest=500), recent) == Lost("behind", 500, 900)


def test_a_place_past_the_newest_event_is_ahead_unless_it_is_only_not_stored_yet() -> None:
    assert Place(50).take(page((), 9), window()) == Lost("ahead", 1, 9)
    assert Place(50).take(page((), 49), window(events(40, 50))) == "wait"
    place = Place(0)
    place.take(page(events(1, 9), 9), window())
    place.after = 12  # three came that the disk then did not take
    assert place.take(page((), 9), window()) == "wait"


def test_events_that_the_disk_did_not_take_come_from_the_window() -> None:
    place, recent = Place(2), window(events(6, 8))
    assert place.next(recent) == "read"
    assert ids(place.take(page((), 8), recent)) == [6, 7, 8]


def test_ids_that_go_on_past_a_gap_are_no_loss() -> None:
    place, recent = Place(3), window()
    assert ids(place.take(page(events(1_000_005, 1_000_006), 1_000_006), recent)) == [1_000_005, 1_000_006]


def test_a_place_is_at_the_end_when_no_turn_runs_or_the_last_event_ends_one() -> None:
    place, recent = Place(0), window()
    place.take(page(events(1, 3), 3), recent)
    seen = [place.at_end]
    for more in (events(4, 4) + end(5), events(6, 6)):
        recent.add(more)
        place.next(recent)
        seen.append(place.at_end)
    assert seen == [False, True, False]
    for running, at_end in (("", True), (TURN, False)):
        place = Place(6)
        place.take(page((), 6, running=running), window())
        assert place.at_end == at_end
