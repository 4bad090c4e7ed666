"""What a person does with their sessions, on a real file in one thread."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import SealError
from core.sessions import shelf as shelf_module
from core.sessions.database import Database
from core.sessions.errors import NoSuchSession, SessionExists, SessionNameError, SessionTooLong
from core.sessions.eventlog import EventLog
from core.sessions.recovery import StepCall
from core.sessions.shelf import Budget, Cursor, Found, Hit, Shelf, expire
from jail.wire.schema import Delta, Message
from tests.fakes.token_book import handle_of

ALICE, BOB = handle_of("alice"), handle_of("bob")
PLENTY = (1_000, 1 << 20, 1_000)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "alice.db")
    yield database
    database.close()


@pytest.fixture
def shelf(database: Database) -> Shelf:
    return Shelf(database.bind(ALICE))


def add(database: Database, session: str, updated_s: int, *texts: str) -> None:
    store = database.bind(ALICE)
    store.ensure_session(session, texts[0] if texts else "", updated_s)
    store.append_messages(session, [Message("user", text) for text in texts], updated_s)


def test_pages_go_from_the_latest_to_the_oldest_and_miss_none(database: Database, shelf: Shelf) -> None:
    for number in range(7):
        add(database, f"s{number}", 100 + number // 2, "x")  # pairs at the same second

    seen: list[str] = []
    after: Cursor | None = None
    while rows := shelf.page(3, after):
        seen += [row.id for row in rows]
        after = Cursor(rows[-1].updated_s, rows[-1].id)

    assert seen == ["s6", "s4", "s5", "s2", "s3", "s0", "s1"]


def test_a_session_that_is_not_there_is_said_so(shelf: Shelf) -> None:
    for ask in (
        lambda: shelf.find("none"),
        lambda: shelf.rename("none", "x"),
        lambda: shelf.delete("none"),
        lambda: shelf.fork("none", 1, "new", 1),
    ):
        with pytest.raises(NoSuchSession):
            ask()


def test_a_new_title_stays_sealed_and_leaves_the_order(database: Database, shelf: Shelf) -> None:
    add(database, "a", 1, "old title")
    assert shelf.rename("a", "the new one").title == "the new one"
    assert shelf.find("a").title == "the new one"
    assert shelf.find("a").updated_s == 1
    assert b"the new one" not in database.path.read_bytes()


def test_deleting_takes_everything_of_the_session_along(database: Database, shelf: Shelf) -> None:
    add(database, "a", 1, "x")
    add(database, "b", 1, "y")
    store = database.bind(ALICE)
    store.begin_turn("turn_1", "a", 1)
    store.begin_step("turn_1", 1, StepCall("t", "{}"), 1)
    EventLog(store).add("a", "turn_1", [Delta("e")], 1_000)

    shelf.delete("a")

    for table in ("messages", "events", "turns", "steps"):
        (left,) = database.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert left == (1 if table == "messages" else 0)
    assert [row.id for row in shelf.page(10, None)] == ["b"]


def test_a_fork_has_the_first_messages_and_goes_its_own_way(database: Database, shelf: Shelf) -> None:
    add(database, "a", 1, "one", "two", "three")

    made = shelf.fork("a", 2, "b", 9)
    database.bind(ALICE).append_messages("b", [Message("user", "other")], 10)

    assert (made.id, made.title, made.messages, made.created_s) == ("b", "one", 2, 9)
    read = database.bind(ALICE).read_messages
    assert [m.text for m in read("b", 0, 9, 1 << 20, 9).messages] == ["one", "two", "other"]
    assert [m.text for m in read("a", 0, 9, 1 << 20, 9).messages] == ["one", "two", "three"]
    assert shelf.fork("a", 0, "empty", 9).messages == 0
    assert shelf.fork("a", 99, "all", 9).messages == 3


def test_a_fork_is_refused_onto_another_with_a_bad_name_or_too_long(
    database: Database, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(database, "a", 1, "one", "two")
    add(database, "b", 1, "x")
    with pytest.raises(SessionExists):
        shelf.fork("a", 1, "b", 1)
    with pytest.raises(SessionNameError):
        shelf.fork("a", 1, "../b", 1)
    monkeypatch.setattr(shelf_module, "FORK_MESSAGES", 1)
    with pytest.raises(SessionTooLong):
        shelf.fork("a", 2, "c", 1)


def test_a_search_finds_in_any_case_latest_first_with_titles(database: Database, shelf: Shelf) -> None:
    add(database, "old", 1, "a word about Straße", "nothing", "ÉTÉ again: the WORD")
    add(database, "new", 2, "first", "Word")

    found = shelf.search("word", None, Budget(*PLENTY))

    assert [(h.session, h.seq) for h in found.hits] == [("new", 2), ("old", 0), ("old", 3), ("old", 1)]
    assert found.next is None
    assert [h.seq for h in shelf.search("STRASSE", None, Budget(*PLENTY)).hits] == [0, 1]
    assert shelf.search("été", None, Budget(*PLENTY)).hits[0].seq == 3
    assert shelf.search("absent", None, Budget(*PLENTY)) == Found([], None)


@pytest.mark.parametrize("budget", [(1, 1 << 20, 99), (3, 1 << 20, 99), (99, 10, 99), (99, 1 << 20, 1)])
def test_a_search_in_steps_finds_the_same_once(
    database: Database, shelf: Shelf, budget: tuple[int, int, int]
) -> None:
    for number in range(4):
        add(database, f"s{number}", number // 2, *(f"word {i}" if i % 2 else "no" for i in range(5)))
    whole = shelf.search("word", None, Budget(*PLENTY)).hits
    assert len(whole) == 8

    hits: list[Hit] = []
    at: Cursor | None = None
    for _ in range(200):
        step = shelf.search("word", at, Budget(*budget))
        hits += step.hits
        at = step.next
        if at is None:
            break

    assert at is None
    assert hits == whole


def test_a_long_message_is_shown_around_what_was_found(database: Database, shelf: Shelf) -> None:
    add(database, "a", 1, "title", "x" * 5_000 + "NEEDLE" + "y" * 5_000)
    (hit,) = shelf.search("needle", None, Budget(*PLENTY)).hits
    assert "NEEDLE" in hit.snippet
    assert len(hit.snippet) <= 170
    assert hit.snippet.startswith("…")


def test_only_the_owner_opens_what_is_there(database: Database) -> None:
    add(database, "a", 1, "x")
    with pytest.raises(SealError):
        Shelf(database.bind(BOB)).find("a")


def test_what_nobody_used_expires_without_a_key_some_at_a_time(database: Database, shelf: Shelf) -> None:
    for number in range(5):
        add(database, f"s{number}", number, "x")
    assert expire(database.connection, 3, 2) == 2
    assert expire(database.connection, 3, 2) == 1
    assert expire(database.connection, 3, 2) == 0
    assert [row.id for row in shelf.page(9, None)] == ["s4", "s3"]
