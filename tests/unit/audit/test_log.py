import os
from pathlib import Path

import pytest

from core.audit.chain import Chain
from core.audit.files import AuditLog, file_name, file_numbers
from core.audit.records import Record
from core.audit.search import Wanted, find
from core.audit.verify import Verdict, verify
from core.vault.errors import VaultError

KEY = bytes(range(32))
FILE_BYTES = 2_000


def opened(directory: Path, fresh: bool = False, keep_files: int = 100, key: bytes = KEY) -> AuditLog:
    return AuditLog(directory, Chain(key), fresh, FILE_BYTES, keep_files, lambda: 1_796_212_800.0)


def write(log: AuditLog, *users: str) -> None:
    for user in users:
        log.append([("core", Record("token_made", "done", who="uid:0", user=user, on="tok_1"))])
        log.sync()


def checked(directory: Path) -> Verdict:
    return verify(directory, Chain(KEY))


def made(directory: Path, lines: int = 30, keep_files: int = 100) -> Path:
    log = opened(directory, fresh=True, keep_files=keep_files)
    write(log, *(f"user{number}" for number in range(lines)))
    log.close()
    return directory


def test_a_log_that_was_only_written_is_whole_over_all_its_files(tmp_path: Path) -> None:
    made(tmp_path / "audit")
    verdict = checked(tmp_path / "audit")
    assert verdict.faults == ()
    assert verdict.files > 2
    assert verdict.lines == 30 + verdict.files  # each begins with a line of its own


def test_a_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    made(tmp_path / "audit", 5)
    log = opened(tmp_path / "audit")
    write(log, "later")
    log.close()
    assert checked(tmp_path / "audit").faults == ()
    assert [line.user for line in find(tmp_path / "audit", Wanted(most=2))] == ["user4", "later"]


def test_its_files_are_its_owner_s_alone(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit")
    for path in [directory, *directory.iterdir()]:
        assert path.stat().st_mode & 0o077 == 0
    (directory / "anchor").chmod(0o644)
    with pytest.raises(VaultError, match="lets others in"):
        opened(directory)


def test_only_so_many_files_are_kept_and_what_is_kept_is_whole(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit", 60, keep_files=3)
    assert len(file_numbers(directory)) == 3
    assert file_numbers(directory)[0] > 1
    assert checked(directory).faults == ()


def test_deleting_an_old_file_by_hand_is_found(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit", 60, keep_files=4)
    oldest = file_name(file_numbers(directory)[0])
    (directory / oldest).unlink()
    assert checked(directory).faults[0] == f"{oldest} is missing"


def test_cutting_off_the_last_lines_is_found_even_a_whole_file_of_them(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit")
    newest = directory / file_name(file_numbers(directory)[-1])
    lines = newest.read_bytes().splitlines(keepends=True)
    newest.write_bytes(b"".join(lines[:-1]))
    assert "the last lines are missing" in checked(directory).faults[-1]
    newest.unlink()
    assert checked(directory).faults[0] == f"{newest.name} is missing"


def test_a_log_rewritten_whole_under_another_key_is_found(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit")
    forged = opened(tmp_path / "forged", fresh=True, key=bytes(32))
    write(forged, "nobody")
    forged.close()
    for path in directory.iterdir():
        path.unlink()
    for path in (tmp_path / "forged").iterdir():
        path.rename(directory / path.name)
    assert checked(directory).faults == (
        "the anchor is missing, or was changed: how far the log went is not known",
    )


def test_an_older_state_of_the_anchor_does_not_hide_a_missing_middle(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    log = opened(directory, fresh=True)
    write(log, "one")
    old = (directory / "anchor").read_bytes()
    write(log, "two", "three")
    log.close()
    (directory / "anchor").write_bytes(old)
    assert checked(directory) == Verdict(4, 1, 2, ())  # nothing is lost: the lines are there and right
    path = directory / file_name(1)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[3]]))
    assert checked(directory).faults != ()


def test_half_a_line_that_a_crash_left_is_cut_off_and_nothing_is_said_of_damage(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit", 2)
    with (directory / file_name(1)).open("ab") as file:
        file.write(b'{"seq":4,"at":"2026')
    log = opened(directory)
    write(log, "later")
    log.close()
    assert checked(directory).faults == ()
    assert not find(directory, Wanted(kind="log_damaged"))


def test_whole_lines_past_the_anchor_stay_after_a_crash(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit", 2)
    log = opened(directory)
    log.append([("egress", Record("egress_allowed", "allowed", user="alice", on="example.org"))])
    log.close()  # without sync
    again = opened(directory)
    write(again, "later")
    again.close()
    assert checked(directory).faults == ()
    assert len(find(directory, Wanted(kind="egress_allowed"))) == 1


def test_a_crash_while_a_file_is_begun_leaves_a_whole_log(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit", 2)
    for left in (b"", b'{"seq":'):
        (directory / file_name(2)).write_bytes(left)
        (directory / file_name(2)).chmod(0o600)
        log = opened(directory)
        write(log, "later")
        log.close()
        assert checked(directory).faults == ()
        assert file_numbers(directory) == [1]


def test_a_damaged_log_is_left_as_it_was_found_says_so_itself_and_goes_on(tmp_path: Path) -> None:
    directory = made(tmp_path / "audit", 4)
    path = directory / file_name(1)
    changed = path.read_bytes().replace(b"user2", b"userX")
    path.write_bytes(changed)
    log = opened(directory)
    write(log, "later")
    log.close()
    assert path.read_bytes() == changed
    (said,) = find(directory, Wanted(kind="log_damaged"))
    assert "changed" in said.detail
    faults = checked(directory).faults
    assert faults[0].startswith(f"{path.name}:4 was changed")
    assert find(directory, Wanted(most=1))[0].user == "later"


def test_a_log_whose_key_is_kept_and_whose_files_are_gone_is_damaged(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit", fresh=False)
    log.close()
    assert len(find(tmp_path / "audit", Wanted(kind="log_damaged"))) == 1


def test_a_full_disk_writes_nothing_and_the_next_line_follows_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "audit"
    log = opened(directory, fresh=True)
    write(log, "before")
    real = os.pwrite

    def half(fd: int, data: bytes, at: int) -> int:
        if len(data) > 10:
            return real(fd, data[:10], at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: half(fd, data, at) if len(data) > 20 else _full())
    with pytest.raises(OSError, match="No space"):
        write(log, "lost" * 10)
    monkeypatch.undo()
    write(log, "after")
    log.close()
    assert checked(directory).faults == ()
    assert [line.user for line in find(directory, Wanted(kind="token_made"))] == ["before", "after"]


def _full() -> int:
    raise OSError(28, "No space left on device")


def test_filters_find_by_user_kind_and_time_the_latest_first_of_all(tmp_path: Path) -> None:
    directory = tmp_path / "audit"
    log = opened(directory, fresh=True)
    log.append([
        ("core", Record("user_added", "done", who="uid:0", user="alice")),
        ("egress", Record("credential_set", "done", who="user:alice", on="mail")),
        ("egress", Record("egress_refused", "refused", user="bob", on="10.0.0.1")),
    ])  # fmt: skip
    log.sync()
    log.close()
    assert [line.kind for line in find(directory, Wanted(user="alice"))] == ["user_added", "credential_set"]
    assert [line.by for line in find(directory, Wanted(kind="egress_refused"))] == ["egress"]
    assert find(directory, Wanted(since="2026-12-02T12:00:00.001Z")) == []
    assert find(directory, Wanted(until="2026-12-01T24")) == []
    assert len(find(directory, Wanted(since="2026-12-02"))) == 4
