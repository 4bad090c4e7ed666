"""The rule of retention: when a database is opened, and for users who never come."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.sessions import retention as retention_module
from core.sessions.shelf import Shelf
from core.sessions.storage import Storage
from core.sessions.store import UserStore
from jail.wire.schema import Message
from tests.actor.sessions.test_storage import ALICE, BOB, WAIT_S, do

_DAY_S = 86_400


def old_and_new(store: UserStore) -> None:
    now_s = int(time.time())
    for name, age_s in (("old", 40 * _DAY_S), ("new", 20 * _DAY_S)):
        store.ensure_session(name, "", now_s - age_s)
        store.append_messages(name, [Message("user", "x")], now_s - age_s)


def ids(store: UserStore) -> list[str]:
    return [row.id for row in Shelf(store).page(99, None)]


def fill(directory: Path) -> None:
    storage = Storage(directory, 1)
    for handle in (ALICE, BOB):
        assert do(storage, handle, old_and_new) is None
    storage.stop()


def in_file(directory: Path, user: str) -> int:
    import sqlite3

    connection = sqlite3.connect(f"file:{directory / user}.db?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM sessions").fetchone()[0])
    finally:
        connection.close()


def until(look: Callable[[], Any]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not look():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_without_a_rule_everything_is_kept(tmp_path: Path) -> None:
    fill(tmp_path)
    storage = Storage(tmp_path, 1)
    assert do(storage, ALICE, ids) == ["new", "old"]
    storage.stop()


def test_what_is_too_old_is_gone_for_whoever_opens_it(tmp_path: Path) -> None:
    fill(tmp_path)
    storage = Storage(tmp_path, 2, keep_days=30)
    assert do(storage, ALICE, ids) == ["new"]
    storage.stop()


def test_it_is_gone_too_where_the_user_never_comes(tmp_path: Path) -> None:
    fill(tmp_path)
    storage = Storage(tmp_path, 2, keep_days=30)
    until(lambda: in_file(tmp_path, "alice") == in_file(tmp_path, "bob") == 1)
    storage.stop()


def test_the_rule_is_applied_again_every_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_module, "_DAY_S", 0.2)  # keep_days 5 becomes a second, a day 0.2 s
    storage = Storage(tmp_path, 1, keep_days=5)

    def work(store: UserStore) -> None:
        store.ensure_session("soon", "", int(time.time()))

    assert do(storage, ALICE, work) is None
    assert in_file(tmp_path, "alice") == 1
    until(lambda: in_file(tmp_path, "alice") == 0)
    storage.stop()


def test_more_than_one_transaction_takes_is_deleted_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Storage(tmp_path, 1)

    def many(store: UserStore) -> None:
        for number in range(25):
            store.ensure_session(f"s{number}", "", 1)

    assert do(storage, ALICE, many) is None
    storage.stop()
    monkeypatch.setattr(retention_module, "_AT_ONCE", 10)
    storage = Storage(tmp_path, 1, keep_days=1)
    until(lambda: in_file(tmp_path, "alice") == 0)
    storage.stop()


def test_a_file_that_is_no_database_stops_nobody_elses(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "aaa.db").write_bytes(b"not a database" * 100)
    (tmp_path / "aaa.db").chmod(0o600)
    storage = Storage(tmp_path, 1, keep_days=30)
    until(lambda: in_file(tmp_path, "bob") == 1)
    assert do(storage, ALICE, ids) == ["new"]
    storage.stop()


def test_a_clock_that_jumped_ahead_purges_nothing_that_is_not_due_and_a_right_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    Storage(tmp_path, 1, keep_days=60).stop()
    wall_s = time.time
    for ahead_days, left in ((3_650, ["new", "old"]), (0, ["new", "old"])):
        monkeypatch.setattr(time, "time", lambda ahead=ahead_days: wall_s() + ahead * _DAY_S)
        storage = Storage(tmp_path, 1, keep_days=60)
        assert do(storage, ALICE, ids) == left
        storage.stop()
    monkeypatch.undo()
    storage = Storage(tmp_path, 1, keep_days=30)
    assert do(storage, ALICE, ids) == ["new"]
    storage.stop()
