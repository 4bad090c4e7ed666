"""The store, in one thread, with real files: what goes in comes out, and only for its owner."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.errors import SealError
from core.sessions.database import MIGRATIONS, Database
from core.sessions.errors import SessionNameError, SessionsError, StorageError
from core.sessions.eventlog import EventLog
from core.sessions.recovery import StepCall
from core.sessions.store import check_session_id
from jail.wire.schema import Delta, Failure, Message, ToolCall
from tests.fakes.token_book import handle_of

ALICE = handle_of("alice")
BOB = handle_of("bob")
SECRET = "the combination is 12-34-56"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "alice.db")
    yield database
    database.close()


def fill(database: Database) -> None:
    """A session of Alice's with a record of every kind."""
    store = database.bind(ALICE)
    store.ensure_session("diary", SECRET, 10)
    store.append_messages("diary", [Message("user", SECRET), Message("assistant", "noted")], 11)
    store.begin_turn("turn_1", "diary", 11)
    store.begin_step("turn_1", 1, StepCall("write_file", SECRET), 12)
    EventLog(store).add("diary", "turn_1", [Delta(SECRET)], 12_000)
    store.end_turn("turn_1", Failure("worker", SECRET), 13)


def test_messages_come_back_as_they_were_in_order(database: Database) -> None:
    store = database.bind(ALICE)
    messages = [
        Message("system", "be brief"),
        Message("user", "käse \x00 \U0001f9c0"),
        Message("assistant", "", (ToolCall("c1", "run", '{"a": 1}'),)),
        Message("tool", "ok", (), "c1"),
    ]
    store.ensure_session("s", "t", 1)
    assert store.append_messages("s", messages[:1], 2) == 1
    assert store.append_messages("s", messages[1:], 3) == 4
    page = store.read_messages("s", 0, 4, 1 << 20, 256)
    assert (list(page.messages), page.last_seq, page.more) == (messages, 4, False)


def test_a_page_is_bounded_by_bytes_and_by_messages_but_never_empty(database: Database) -> None:
    store = database.bind(ALICE)
    store.ensure_session("s", "", 1)
    store.append_messages("s", [Message("user", "x" * 1_000) for _ in range(5)], 2)
    assert len(store.read_messages("s", 0, 5, 2_500, 256).messages) == 2
    assert len(store.read_messages("s", 0, 5, 1 << 20, 3).messages) == 3
    page = store.read_messages("s", 4, 5, 1, 256)
    assert (len(page.messages), page.more) == (1, False)


def test_nothing_of_what_was_said_is_readable_in_the_file(database: Database) -> None:
    fill(database)
    database.close()
    files = sorted(database.path.parent.iterdir())
    assert files
    for file in files:
        assert SECRET.encode() not in file.read_bytes()
        assert b"noted" not in file.read_bytes()


def test_the_file_is_its_owners_alone(database: Database) -> None:
    fill(database)
    for file in database.path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_another_users_handle_opens_nothing_of_the_file_not_even_its_names(
    database: Database,
) -> None:
    fill(database)
    with pytest.raises(SealError):
        database.bind(BOB)
    assert database.bind(ALICE).list_sessions()[0].title == SECRET  # the same act, with her handle


def test_a_handle_of_the_same_name_but_another_key_opens_nothing(database: Database) -> None:
    fill(database)
    with pytest.raises(SealError):
        database.bind(type(ALICE)("alice", b"\1" * 32))
    assert database.bind(handle_of("alice")).last_seq("diary") == 2


def test_a_whole_file_put_in_anothers_place_does_not_open(tmp_path: Path) -> None:
    alice = Database(tmp_path / "alice.db")
    fill(alice)
    alice.close()
    os.rename(tmp_path / "alice.db", tmp_path / "bob.db")
    stolen = Database(tmp_path / "bob.db")
    with pytest.raises(SealError):
        stolen.bind(BOB)
    assert stolen.bind(ALICE).last_seq("diary") == 2
    stolen.close()


@pytest.mark.parametrize(
    ("move", "read"),
    [
        ("UPDATE messages SET seq = seq + 10", "messages"),
        ("UPDATE messages SET session = 'other'", "messages"),
        ("UPDATE messages SET sealed = (SELECT sealed FROM steps)", "messages"),
        ("UPDATE sessions SET sealed = (SELECT sealed FROM events)", "sessions"),
        ("UPDATE events SET id = 7", "events"),
        ("UPDATE steps SET step = 9", "steps"),
        ("UPDATE turns SET sealed = (SELECT sealed FROM steps)", "turns"),
        ("UPDATE messages SET sealed = zeroblob(40)", "messages"),
        ("UPDATE messages SET sealed = x'00'", "messages"),
    ],
)
def test_a_record_in_another_place_does_not_open(database: Database, move: str, read: str) -> None:
    fill(database)
    store = database.bind(ALICE)
    store.ensure_session("other", "", 1)
    session = "other" if "'other'" in move else "diary"
    reads: dict[str, Callable[[], object]] = {
        "messages": lambda: store.read_messages(session, 0, 100, 1 << 20, 256),
        "sessions": store.list_sessions,
        "events": lambda: EventLog(store).read("diary", 0, 10, 1 << 20),
        "steps": lambda: store.read_steps("turn_1"),
        "turns": lambda: store.turn_state("turn_1"),
    }
    assert reads[read]()  # before it was moved it opens
    database.connection.execute(move)
    with pytest.raises(SealError) as error:
        reads[read]()
    assert SECRET not in str(error.value)


def test_a_record_copied_from_another_users_file_does_not_open(tmp_path: Path) -> None:
    ours, theirs = Database(tmp_path / "alice.db"), Database(tmp_path / "bob.db")
    fill(ours)
    store = theirs.bind(BOB)
    store.ensure_session("diary", "", 1)
    store.append_messages("diary", [Message("user", "mine")], 1)
    assert store.read_messages("diary", 0, 1, 1_000, 10).messages[0].text == "mine"
    (row,) = ours.connection.execute("SELECT sealed FROM messages WHERE seq = 1").fetchone()
    theirs.connection.execute("UPDATE messages SET sealed = ?", (row,))
    with pytest.raises(SealError):
        store.read_messages("diary", 0, 1, 1_000, 10)
    ours.close()
    theirs.close()


def test_a_file_that_lost_its_owners_mark_is_refused(database: Database) -> None:
    fill(database)
    database.connection.execute("DELETE FROM meta")
    database.close()
    again = Database(database.path)
    with pytest.raises(SealError):
        again.bind(BOB)
    again.close()


def test_steps_are_begun_once_and_ended_once(database: Database) -> None:
    fill(database)
    store = database.bind(ALICE)
    with pytest.raises(SessionsError):
        store.begin_step("turn_1", 1, StepCall("x", ""), 13)
    store.end_step("turn_1", 1, True, 14)
    with pytest.raises(SessionsError):
        store.end_step("turn_1", 1, False, 15)
    with pytest.raises(SessionsError):
        store.end_step("turn_1", 2, True, 15)
    assert [(s.step, s.state, s.call.tool) for s in store.read_steps("turn_1")] == [(1, "ok", "write_file")]


def test_a_newer_schema_is_refused_and_left_alone(database: Database) -> None:
    fill(database)
    newer = len(MIGRATIONS) + 1
    database.connection.execute(f"PRAGMA user_version={newer}")
    database.close()
    with pytest.raises(StorageError, match="newer"):
        Database(database.path)
    connection = sqlite3.connect(database.path)
    assert connection.execute("PRAGMA user_version").fetchone() == (newer,)
    connection.close()


def test_an_older_schema_is_brought_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "alice.db")
    fill(database)
    database.close()
    step = "ALTER TABLE sessions ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0"
    monkeypatch.setattr("core.sessions.database.MIGRATIONS", (*MIGRATIONS, step))
    newer = Database(tmp_path / "alice.db")
    assert newer.connection.execute("SELECT id, pinned FROM sessions").fetchall() == [("diary", 0)]
    assert newer.bind(ALICE).last_seq("diary") == 2
    newer.close()


def test_a_failing_migration_leaves_the_file_at_the_version_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database(tmp_path / "alice.db").close()
    steps = (*MIGRATIONS, "CREATE TABLE half (x); INSERT INTO missing VALUES (1)")
    with monkeypatch.context() as patch:
        patch.setattr("core.sessions.database.MIGRATIONS", steps)
        with pytest.raises(sqlite3.Error):
            Database(tmp_path / "alice.db")
    again = Database(tmp_path / "alice.db")
    assert not again.connection.execute("SELECT 1 FROM sqlite_master WHERE name='half'").fetchall()
    again.close()


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "open_to_all", "foreign"])
def test_what_is_not_a_database_of_ours_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "alice.db"
    match kind:
        case "link":
            (tmp_path / "real").touch(0o600)
            path.symlink_to(tmp_path / "real")
        case "fifo":
            os.mkfifo(path, 0o600)
        case "directory":
            path.mkdir()
        case "open_to_all":
            path.touch()
            path.chmod(0o644)
        case "foreign":
            path.touch(0o600)
            other = sqlite3.connect(path)
            other.execute("CREATE TABLE x (y)")
            other.close()
    with pytest.raises(StorageError):
        Database(path)


@pytest.mark.parametrize("good", ["a", "A.b_c-9", "0", "x" * 64])
def test_a_session_id_people_may_choose_is_taken(good: str) -> None:
    assert check_session_id(good) == good


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../x", "a/b", "a b", "-a", "x" * 65, "ä", "a\n", "a\0", "a%2f"]
)
def test_a_session_id_that_could_name_something_else_is_refused(bad: str) -> None:
    with pytest.raises(SessionNameError):
        check_session_id(bad)
