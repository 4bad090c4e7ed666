"""The storage threads: order, groups, bounds, and failures that stay where they happen."""

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import CoreError, SealError
from core.sessions.errors import SessionsError, StorageError
from core.sessions.openturns import GoesOn, OpenTurns
from core.sessions.storage import _MAX_OPEN, _MAX_USER_JOBS, Storage
from core.sessions.store import UserStore
from core.vault.handle import UserHandle
from jail.wire.schema import Message
from tests.fakes.token_book import handle_of

WAIT_S = 10.0
ALICE = handle_of("alice")
BOB = handle_of("bob")


class Answers:
    """Collects what storage calls back."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def take(self) -> Any:
        return self.queue.get(timeout=WAIT_S)

    def __call__(self, value: Any) -> None:
        self.queue.put(value)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    storage = Storage(tmp_path / "sealed", 2)
    yield storage
    storage.stop()


def do(storage: Storage, handle: UserHandle, work: Callable[[UserStore], Any]) -> Any:
    """Submit and wait; returns the result, or the error as a value."""
    answers = Answers()
    storage.submit(handle, work, answers, answers)
    return answers.take()


def add(text: str, session: str = "s") -> Callable[[UserStore], int]:
    def work(store: UserStore) -> int:
        store.ensure_session(session, "", 1)
        return store.append_messages(session, [Message("user", text)], 1)

    return work


def texts(store: UserStore, session: str = "s") -> list[str]:
    page = store.read_messages(session, 0, 1_000_000, 1 << 30, 1_000_000)
    return [message.text for message in page.messages]


class Gate:
    """Holds a storage thread in a job, so that what is submitted meanwhile gathers."""

    def __init__(self, storage: Storage, handle: UserHandle) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.answers = Answers()

        def work(_: UserStore) -> str:
            self.entered.set()
            assert self.open.wait(WAIT_S)
            return "gate"

        storage.submit(handle, work, self.answers, self.answers)
        assert self.entered.wait(WAIT_S)


def test_what_is_asked_for_one_user_happens_in_order_and_in_groups(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(storage, ALICE)
    answers = Answers()
    for number in range(100):
        storage.submit(ALICE, add(str(number)), answers, answers)
    commits: list[str] = []
    do_trace = lambda store: store.connection.set_trace_callback(  # noqa: E731
        lambda sql: commits.append(sql) if sql == "COMMIT" else None
    )
    storage.submit(ALICE, do_trace, answers, answers)
    gate.open.set()
    assert [answers.take() for _ in range(101)] == [*range(1, 101), None]
    assert do(storage, ALICE, texts) == [str(number) for number in range(100)]
    assert len(commits) == 2  # the hundred and one together, then the reading


def named(name: str) -> Callable[[UserStore], str]:
    return lambda _: name


def test_a_user_with_much_to_store_is_served_in_shares_and_a_neighbour_between(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "sealed", 1)
    try:
        gate = Gate(storage, ALICE)
        order: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for number in range(100):
            storage.submit(ALICE, named(f"alice{number}"), order.put, order.put, size_bytes=256 << 10)
        storage.submit(BOB, named("bob"), order.put, order.put)
        gate.open.set()
        done_in_order = [order.get(timeout=WAIT_S) for _ in range(101)]
    finally:
        storage.stop()
    # a job of alice's costs 17 of 128: eight are a share, the gate's one among them
    assert done_in_order.index("bob") <= 2 * 8
    assert [name for name in done_in_order if name != "bob"] == [f"alice{number}" for number in range(100)]


def test_a_failing_job_is_undone_alone(storage: Storage) -> None:
    gate = Gate(storage, ALICE)
    answers = Answers()

    def half(store: UserStore) -> None:
        add("half")(store)
        raise SessionsError("changed my mind")

    def bug(store: UserStore) -> None:
        add("bug")(store)
        raise ZeroDivisionError

    def wrong(store: UserStore) -> None:
        add("wrong")(store)
        store._execute("INSERT INTO nowhere VALUES (1)")

    for work in (add("before"), half, bug, wrong, add("after")):
        storage.submit(ALICE, work, answers, answers)
    gate.open.set()
    first, second, third, fourth, fifth = (answers.take() for _ in range(5))
    assert (first, fifth) == (1, 2)
    assert isinstance(second, SessionsError)
    assert str(second) == "changed my mind"
    assert isinstance(third, StorageError)
    assert isinstance(fourth, StorageError)
    assert do(storage, ALICE, texts) == ["before", "after"]


def test_a_full_disk_is_a_clear_failure_and_the_thread_and_the_file_live_on(
    storage: Storage,
) -> None:
    assert do(storage, ALICE, add("kept")) == 1
    do(storage, ALICE, lambda store: store._execute("PRAGMA max_page_count=30") and None)
    failure = do(storage, ALICE, add("x" * 500_000))
    assert isinstance(failure, StorageError)
    assert failure.code == "unavailable"
    assert "disk is full" in str(failure)
    # the disk has room again: the file was opened anew or the limit lifted, nothing is lost
    do(storage, ALICE, lambda store: store._execute("PRAGMA max_page_count=100000") and None)
    assert do(storage, ALICE, add("more")) == 2
    assert do(storage, ALICE, texts) == ["kept", "more"]
    check = do(storage, ALICE, lambda s: s._execute("PRAGMA integrity_check").fetchall())
    assert check == [("ok",)]


def failing(times: int) -> Callable[[UserStore], int]:
    """Work that the disk refuses so often."""
    left = iter(range(times))

    def work(store: UserStore) -> int:
        if next(left, None) is not None:
            raise sqlite3.OperationalError("database or disk is full")
        return add("owed")(store)

    return work


@pytest.mark.parametrize("insists", [False, True])
def test_work_that_insists_is_done_before_what_is_asked_for_next(storage: Storage, insists: bool) -> None:
    answers = Answers()
    storage.submit(ALICE, failing(1), answers, answers, insists=insists)
    assert isinstance(answers.take(), StorageError)
    assert do(storage, ALICE, add("next")) == (2 if insists else 1)
    assert do(storage, ALICE, texts) == (["owed", "next"] if insists else ["next"])
    if insists:
        assert answers.take() == 1
    assert answers.queue.empty()


def test_work_that_insists_is_tried_again_by_itself_and_told_once_that_it_failed(storage: Storage) -> None:
    answers = Answers()
    storage.submit(ALICE, failing(2), answers, answers, insists=True)
    assert isinstance(answers.take(), StorageError)
    assert answers.take() == 1
    assert answers.queue.empty()
    assert do(storage, ALICE, texts) == ["owed"]


def test_work_that_insists_is_tried_again_however_much_others_ask_for(tmp_path: Path) -> None:
    storage, answers, busy = Storage(tmp_path / "sealed", 1), Answers(), True

    def more(_: Any) -> None:
        if busy:
            storage.submit(BOB, lambda _: None, more, answers)

    for _ in range(4):
        more(None)
    storage.submit(ALICE, failing(1), answers, answers, insists=True)
    assert isinstance(answers.take(), StorageError)
    assert answers.take() == 1
    busy = False
    storage.stop()


def test_work_that_insists_is_done_once_though_it_and_its_group_failed(storage: Storage) -> None:
    def fail_the_group(store: UserStore) -> None:
        store.connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    assert do(storage, ALICE, add("first")) == 1
    gate, answers = Gate(storage, ALICE), Answers()
    storage.submit(ALICE, failing(1), answers, answers, insists=True)
    storage.submit(ALICE, fail_the_group, lambda _: None, lambda _: None)
    gate.open.set()
    assert isinstance(answers.take(), StorageError)
    assert answers.take() == 2
    assert do(storage, ALICE, texts) == ["first", "owed"]
    assert answers.queue.empty()


def test_what_nobody_foresaw_in_one_users_file_fails_that_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recover(turns: OpenTurns, now_s: float, may_go_on: bool) -> tuple[list[GoesOn], int]:
        if turns._store.handle is ALICE:
            raise ValueError("a bug")
        return [], 0

    storage = Storage(tmp_path / "sealed", 1)
    with monkeypatch.context() as patch:
        patch.setattr(OpenTurns, "recover", recover)
        failure = do(storage, ALICE, add("x"))
        assert isinstance(failure, StorageError)
        assert "bug" in str(failure)
        assert do(storage, BOB, add("x")) == 1
    assert do(storage, ALICE, add("x")) == 1
    storage.stop()


def test_work_that_insists_has_a_last_try_at_the_end(tmp_path: Path) -> None:
    storage, answers = Storage(tmp_path / "sealed", 1), Answers()
    storage.submit(ALICE, failing(1), answers, answers, insists=True)
    assert isinstance(answers.take(), StorageError)
    storage.stop()
    assert answers.take() == 1


def test_what_is_owed_to_a_user_who_was_deleted_is_forgotten(storage: Storage, tmp_path: Path) -> None:
    answers = Answers()
    storage.submit(ALICE, failing(1), answers, answers, insists=True)
    assert isinstance(answers.take(), StorageError)
    storage.remove("alice", answers, answers)
    assert answers.take() is None
    assert do(storage, ALICE, lambda store: store.list_sessions()) == []
    assert answers.queue.empty()


def test_a_file_that_is_no_database_fails_its_user_and_nobody_else(storage: Storage, tmp_path: Path) -> None:
    path = tmp_path / "sealed" / "alice.db"
    path.write_bytes(b"not a database at all, but long enough to be looked at" * 100)
    path.chmod(0o600)
    assert isinstance(do(storage, ALICE, add("x")), StorageError)
    assert do(storage, BOB, add("x")) == 1
    path.unlink()
    assert do(storage, ALICE, add("x")) == 1


def test_too_much_waiting_is_refused_at_once_and_only_for_that_user(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "sealed", 1)
    gate = Gate(storage, ALICE)
    answers, refused = Answers(), Answers()
    for _ in range(_MAX_USER_JOBS):
        storage.submit(ALICE, lambda _: "done", answers, answers)
    storage.submit(ALICE, lambda _: "done", answers, refused)
    refusal = refused.queue.get_nowait()
    assert isinstance(refusal, StorageError)
    assert refusal.code == "overloaded"
    storage.submit(BOB, lambda _: "bob", answers, answers)
    storage.submit(BOB, lambda _: "large", answers, refused, size_bytes=1 << 30)
    assert refused.queue.get_nowait().code == "overloaded"
    gate.open.set()
    # bob had his turn before alice's second group: nobody waits for all that another one asked
    order = [answers.take() for _ in range(_MAX_USER_JOBS + 1)]
    assert order.index("bob") < len(order) - 1
    storage.stop()


def test_a_mixed_up_handle_fails_its_own_job_and_gives_nothing(storage: Storage) -> None:
    assert do(storage, ALICE, add("secret")) == 1
    imposter = UserHandle("alice", b"\7" * 32)
    answer = do(storage, imposter, texts)
    assert isinstance(answer, SealError)
    assert "secret" not in str(answer)
    assert do(storage, ALICE, texts) == ["secret"]


def test_another_users_session_is_as_if_it_did_not_exist(storage: Storage) -> None:
    assert do(storage, ALICE, add("secret", "shared-name")) == 1
    missing = do(storage, BOB, lambda store: store.last_seq("shared-name"))
    assert isinstance(missing, SessionsError)
    assert do(storage, BOB, add("mine", "shared-name")) == 1
    assert do(storage, BOB, lambda store: texts(store, "shared-name")) == ["mine"]
    assert do(storage, ALICE, lambda store: texts(store, "shared-name")) == ["secret"]


def test_turns_left_running_by_an_earlier_process_are_marked_once_at_the_first_opening(
    tmp_path: Path,
) -> None:
    def begin(store: UserStore) -> None:
        add("x")(store)
        store.begin_turn("turn_1", "s", 1)

    first = Storage(tmp_path / "sealed", 1)
    assert do(first, ALICE, begin) is None
    assert do(first, ALICE, lambda store: store.turn_state("turn_1")) == ("started", None)
    first.stop()
    second = Storage(tmp_path / "sealed", 1)
    state, outcome = do(second, ALICE, lambda store: store.turn_state("turn_1"))
    assert state == "failed"
    assert "interrupted" in outcome.failure.message

    def begin_again(store: UserStore) -> None:
        store.begin_turn("turn_2", "s", 1)

    assert do(second, ALICE, begin_again) is None
    for number in range(_MAX_OPEN + 1):  # so many that alice's file is closed, and opened again
        assert do(second, handle_of(f"u{number}"), add("x")) == 1
    assert do(second, ALICE, lambda store: store.turn_state("turn_2")) == ("started", None)
    second.stop()


def test_no_more_databases_are_open_than_the_bound(storage: Storage) -> None:
    for number in range(3 * _MAX_OPEN):
        assert do(storage, handle_of(f"u{number}"), add("x")) == 1
    assert all(len(thread._open) <= _MAX_OPEN for thread in storage._threads)


def test_stop_finishes_what_waits_and_refuses_what_comes_later(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "sealed", 1)
    gate = Gate(storage, ALICE)
    answers = Answers()
    storage.submit(ALICE, add("last"), answers, answers)
    stopping = threading.Thread(target=storage.stop)
    stopping.start()
    gate.open.set()
    stopping.join(WAIT_S)
    assert answers.take() == 1
    late = do(storage, ALICE, add("late"))
    assert isinstance(late, StorageError)
    assert late.code == "unavailable"
    assert [path.name for path in (tmp_path / "sealed").iterdir()] == ["alice.db"]
    connection = sqlite3.connect(tmp_path / "sealed" / "alice.db")
    assert connection.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    connection.close()


def test_a_removed_users_database_is_gone_and_a_namesake_begins_anew(
    storage: Storage, tmp_path: Path
) -> None:
    assert do(storage, ALICE, add("old")) == 1
    answers = Answers()
    storage.submit(ALICE, add("older"), answers, answers)
    storage.remove("alice", answers, answers)
    assert answers.take() == 2
    assert answers.take() is None
    assert not list((tmp_path / "sealed").iterdir())
    namesake = UserHandle("alice", b"\3" * 32)
    assert do(storage, namesake, add("new")) == 1
    assert isinstance(do(storage, ALICE, texts), SealError)


def test_a_handle_whose_user_was_deleted_makes_no_database(storage: Storage) -> None:
    gone = handle_of("alice")
    assert do(storage, gone, add("old")) == 1
    answers = Answers()
    gone.standing.end()
    assert do(storage, gone, add("what ran to its end")) == 2
    storage.remove("alice", answers, answers)
    assert answers.take() is None
    assert isinstance(do(storage, gone, add("late")), SessionsError)
    assert do(storage, UserHandle("alice", b"\3" * 32), add("new")) == 1


def test_a_callback_that_raises_does_not_end_the_thread(storage: Storage) -> None:
    def explode(_: object) -> None:
        raise ZeroDivisionError

    storage.submit(ALICE, add("x"), explode, explode)
    assert do(storage, ALICE, add("y")) == 2


def test_an_error_keeps_its_kind(storage: Storage) -> None:
    def work(_: UserStore) -> None:
        raise CoreError("mine")

    answer = do(storage, ALICE, work)
    assert type(answer) is CoreError
