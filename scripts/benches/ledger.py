"""What the ledger adds to a request: to reserve and to settle it, beside a bare SQLite transaction.

The floor is one row written and committed with a wait for the disk, as a reservation under a hard limit
needs. ``at_once`` is how many reserve together: they share that wait.
"""

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from core.audit.records import Record
from core.ledger.book import Book, Terms
from core.ledger.days import Days
from core.ledger.desk import LedgerDesk
from core.ledger.limits import PICO, Limits, Price
from core.ledger.metering import Amount, Claim
from core.ledger.store import LedgerStore
from scripts.benches.result import Result, median_and_p99

_ROUNDS = 300
_CLAIM = Claim("alice", "chat", "acme", "m1", Amount(1, 1_000, 64), Amount(1, 1_000, 4_096))


class _NoAuditor:
    def note(self, record: Record) -> None:
        pass

    async def act(self, record: Record) -> None:
        pass


def measure() -> Iterator[Result]:
    """Reserve and settle, one at a time and many at once, with a hard limit and without."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        floor, _ = median_and_p99(_bare(directory / "bare.db"))
        for limited in (True, False):
            for at_once in (1, 16):
                where = directory / f"{limited}-{at_once}"
                where.mkdir(mode=0o700)
                samples = asyncio.run(_desk(where, limited, at_once))
                median, p99 = median_and_p99(samples)
                varied: dict[str, str | int | float] = {
                    "hard_limit": "yes" if limited else "no", "at_once": at_once
                }  # fmt: skip
                yield Result("ledger", varied, median, p99, "us", floor)


def _bare(path: Path) -> list[float]:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)")
    samples = []
    for _ in range(_ROUNDS):
        begin_s = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO rows (text) VALUES ('a row of about the same size as a reservation has')")
        db.execute("COMMIT")
        samples.append((time.perf_counter() - begin_s) * 1e6)
    db.close()
    return samples


async def _desk(directory: Path, limited: bool, at_once: int) -> list[float]:
    """Microseconds a request, of reserving and settling; those at once are taken together."""
    store = LedgerStore(directory / "ledger.db")
    hard = Limits(tokens=10**15) if limited else Limits()
    prices = {"acme": {"m1": Price(PICO // 10**6, PICO // 10**6)}}
    book = Book(store, Terms(Days("UTC"), "USD", 400, Limits(), hard, prices))
    desk = LedgerDesk(store, book, _NoAuditor(), lambda: None)
    samples = []
    for _ in range(_ROUNDS // at_once + 1):
        begin_s = time.perf_counter()
        grants = await asyncio.gather(*(desk.reserve(_CLAIM) for _ in range(at_once)))
        for grant in grants:
            desk.settle(grant.id, Amount(1, 900, 200, 10_000))
        samples.append((time.perf_counter() - begin_s) * 1e6 / at_once)
    await desk.stop()
    return samples
