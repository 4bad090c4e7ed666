"""The audit log's thread: acts and notes, a full disk, a flood, an end."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from core.audit.chain import Chain
from core.audit.desk import AuditDesk
from core.audit.files import AuditLog
from core.audit.lines import Line
from core.audit.records import AuditUnavailable, Record
from core.audit.search import Wanted, find
from core.audit.verify import verify
from core.metrics import EgressMetrics

KEY = bytes(32)
NOTE = Record("egress_allowed", "allowed", user="alice", on="example.org")
ACT = Record("credential_set", "asked", who="user:alice", user="alice", on="mail")


def with_desk(
    directory: Path, test: Callable[[AuditDesk, AuditLog], Awaitable[None]], most: int = 100
) -> list[Line]:
    """Run a test with a desk, stop it, and return the lines that are then in the log, which is whole."""

    async def run() -> None:
        log = AuditLog(directory / "audit", Chain(KEY), True, 1 << 20, 4, lambda: 1_796_212_800.0)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        desk = AuditDesk(log, most, lambda: void(loop.call_soon_threadsafe(ended.set)))
        try:
            await test(desk, log)
        finally:
            await desk.stop()
            await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(run())
    assert verify(directory / "audit", Chain(KEY)).faults == ()
    return find(directory / "audit", Wanted(most=1_000))[1:]


def void(_: object) -> None:
    pass


def test_an_act_is_on_disk_when_it_may_begin_and_says_who_reported_it(tmp_path: Path) -> None:
    async def test(desk: AuditDesk, _: AuditLog) -> None:
        await desk.act(ACT)
        await desk.act_by("core", Record("user_added", "asked", who="uid:0", user="bob"))
        lines = find(tmp_path / "audit", Wanted())
        assert [(line.by, line.kind) for line in lines[1:]] == [
            ("egress", "credential_set"),
            ("core", "user_added"),
        ]

    assert len(with_desk(tmp_path, test)) == 2


def test_notes_are_written_at_the_end_at_the_latest_in_their_order(tmp_path: Path) -> None:
    async def test(desk: AuditDesk, _: AuditLog) -> None:
        for number in range(20):
            desk.note(Record("credential_used", "allowed", user="alice", on=str(number)))

    assert [line.on for line in with_desk(tmp_path, test)] == [str(number) for number in range(20)]


def test_with_a_full_disk_acts_are_refused_and_lost_notes_are_counted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(desk: AuditDesk, log: AuditLog) -> None:
        def full(_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(log, "append", full)
        desk.note(NOTE)
        desk.note(NOTE)
        with pytest.raises(AuditUnavailable, match="disk full"):
            await desk.act(ACT)
        monkeypatch.undo()
        await desk.act(ACT)

    lines = with_desk(tmp_path, test)
    assert [(line.kind, line.count) for line in lines] == [("log_gap", 2), ("credential_set", 1)]


def test_a_flood_of_one_user_s_becomes_a_few_lines_and_their_acts_are_refused(tmp_path: Path) -> None:
    async def test(desk: AuditDesk, _: AuditLog) -> None:
        for _n in range(50):
            desk.note(NOTE)
        for _n in range(5):
            await desk.act(ACT)
        with pytest.raises(AuditUnavailable, match="wait a minute"):
            await desk.act(ACT)
        for _n in range(10):  # an administrator's are never
            await desk.act(Record("key_rotated", "asked", who="uid:0"))

    lines = with_desk(tmp_path, test, most=5)
    assert sum(line.kind == "egress_allowed" for line in lines) == 6
    assert sum(line.count for line in lines if line.kind == "egress_allowed") == 50
    assert sum(line.kind == "key_rotated" for line in lines) == 10


def test_what_the_log_writes_of_itself_is_counted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = EgressMetrics([], [])

    def counted(kind: str) -> float | None:
        return metrics.registry.get_sample_value("certosa_audit_records_total", {"kind": kind})

    async def run() -> None:
        # its key is kept and its files are gone: damage, as the log finds when it is opened
        log = AuditLog(tmp_path / "audit", Chain(KEY), False, 1 << 20, 4, lambda: 1_796_212_800.0)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        assert (counted("log_damaged"), counted("log_gap")) == (0, 0)
        desk = AuditDesk(log, 100, lambda: void(loop.call_soon_threadsafe(ended.set)), metrics)
        assert (counted("log_damaged"), counted("log_gap")) == (1, 0)

        def full(_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as during:
            during.setattr(log, "append", full)
            desk.note(NOTE)
            with pytest.raises(AuditUnavailable, match="disk full"):
                await desk.act(ACT)
        await desk.act(ACT)
        await desk.stop()
        await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(run())
    assert (counted("log_damaged"), counted("log_gap")) == (1, 1)
