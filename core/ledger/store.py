"""``_keys/ledger.db``: what was used, what is held, and whose limits are their own."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from core.database import migrate, transaction
from core.kept_copy import CopyFailed
from core.ledger.limits import Price, Sums
from core.ledger.metering import Amount, Dimension, Kind, Level
from core.ledger.schema import MIGRATIONS
from core.vault.errors import VaultError
from core.vault.files import create_private, open_private

_BUSY_S = 5.0
MOST_COUNT, MOST_COST = 10**16, 10**17
"""No column of a row grows past these: the sum of a user's rows of a day stays an integer of SQLite's."""
_SUMS = (
    "SELECT coalesce(sum(input_tokens + output_tokens), 0), coalesce(sum(requests), 0),"
    " coalesce(sum(CASE kind WHEN 'fetch' THEN bytes ELSE 0 END), 0), coalesce(sum(cost), 0)"
    " FROM {table} WHERE user = ? AND day = ?"
)
_ADD = """
    INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
        requests = min(requests + excluded.requests, ?13),
        input_tokens = min(input_tokens + excluded.input_tokens, ?13),
        output_tokens = min(output_tokens + excluded.output_tokens, ?13),
        bytes = min(bytes + excluded.bytes, ?13),
        cost = min(cost + excluded.cost, ?14),
        estimated = estimated + excluded.estimated,
        unpriced = unpriced + excluded.unpriced
"""
_USED = _SUMS.format(table="usage")
_HELD = _SUMS.format(table="reservations")


class Place(NamedTuple):
    """A row of the ledger: whose, when, and of what."""

    user: str
    day: str
    kind: Kind
    provider: str
    model: str


class Held(NamedTuple):
    """A reservation."""

    id: int
    place: Place
    amount: Amount
    price: Price | None


class UsageRow(NamedTuple):
    """A row as it is read; ``cost`` in pico units, ``estimated`` and ``unpriced`` count requests."""

    user: str
    day: str
    kind: str
    provider: str
    model: str
    requests: int
    input_tokens: int
    output_tokens: int
    bytes: int
    cost: int
    estimated: int
    unpriced: int


class LedgerStore:
    """The database; one thread at a time. Raises sqlite3.Error where the disk fails.

    VaultError at opening, where the file is damaged, newer than this code, or open to others.
    """

    def __init__(self, path: Path) -> None:
        fd = open_private(path)
        if fd is None:
            create_private(path, b"")
        else:
            os.close(fd)
        self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._migrate(path)
        except sqlite3.Error as error:
            self._db.close()
            raise VaultError(f"{path}: {error}; restore it from a backup") from None
        except VaultError:
            self._db.close()
            raise

    def _migrate(self, path: Path) -> None:
        self.sync(True)
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > len(MIGRATIONS):
            raise VaultError(
                f"{path}: has schema version {version}, this Certosa knows {len(MIGRATIONS)};"
                " start the newer Certosa that made it, or restore a backup"
            )
        try:
            migrate(self._db, path, version, MIGRATIONS)
        except CopyFailed as error:
            raise VaultError(f"{path}: is not migrated: {error}") from None

    def close(self) -> None:
        """Close the database; harmless twice."""
        self._db.close()

    def sync(self, on: bool) -> None:
        """Whether a commit waits for the disk; otherwise it outlives this process, not a power failure."""
        self._db.execute(f"PRAGMA synchronous = {'FULL' if on else 'NORMAL'}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block or nothing of it."""
        with transaction(self._db):
            yield

    def used(self, user: str, day: str) -> Sums:
        """What a user used that day."""
        return Sums(*self._db.execute(_USED, (user, day)).fetchone())

    def held(self, user: str, day: str) -> Sums:
        """What is reserved for a user that day."""
        return Sums(*self._db.execute(_HELD, (user, day)).fetchone())

    def knows(self, place: Place, most_models: int) -> bool:
        """Whether there is such a row, or room for one more of this user's that day."""
        if self._db.execute(
            "SELECT 1 FROM usage WHERE user = ? AND day = ? AND kind = ? AND provider = ? AND model = ?",
            place,
        ).fetchone():
            return True
        (count,) = self._db.execute(
            "SELECT (SELECT count(*) FROM usage WHERE user = ?1 AND day = ?2) +"
            " (SELECT count(*) FROM reservations WHERE user = ?1 AND day = ?2)",
            (place.user, place.day),
        ).fetchone()
        return bool(count < most_models)

    def hold(self, place: Place, amount: Amount, cost: int, price: Price | None) -> int:
        """Keep a reservation; returns its id, which no other ever had."""
        row = self._db.execute(
            "INSERT INTO reservations (user, day, kind, provider, model, requests, input_tokens,"
            " output_tokens, bytes, cost, input_price, output_price)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*place, *amount, min(cost, MOST_COST), *(price or (None, None))),
        )
        assert row.lastrowid is not None
        return row.lastrowid

    def release(self, held_id: int) -> Held | None:
        """Take a reservation away; None where there is none."""
        row = self._db.execute("DELETE FROM reservations WHERE id = ? RETURNING *", (held_id,)).fetchone()
        return None if row is None else _held(row)

    def all_held(self) -> list[Held]:
        """Every reservation."""
        return [_held(row) for row in self._db.execute("SELECT * FROM reservations")]

    def add(self, place: Place, amount: Amount, cost: int, estimated: int, unpriced: int) -> None:
        """Add to what was used."""
        values = [*(min(value, MOST_COUNT) for value in amount), min(cost, MOST_COST), estimated, unpriced]
        self._db.execute(_ADD, (*place, *values, MOST_COUNT, MOST_COST))

    def tell(self, user: str, day: str, level: Level, dimension: Dimension) -> bool:
        """Note that a limit was reached that day; whether it had not been noted yet."""
        row = self._db.execute(
            "INSERT INTO told VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", (user, day, level, dimension)
        )
        return row.rowcount == 1

    def overrides(self) -> dict[str, dict[Level, dict[Dimension, int | None]]]:
        """Everybody's own limits."""
        found: dict[str, dict[Level, dict[Dimension, int | None]]] = {}
        for user, level, dimension, most in self._db.execute(
            "SELECT user, level, dimension, most FROM limits"
        ):
            found.setdefault(user, {}).setdefault(level, {})[dimension] = most
        return found

    def override(self, user: str, level: Level, dimension: Dimension, most: int | None) -> None:
        """Give a user a limit of their own."""
        self._db.execute("INSERT OR REPLACE INTO limits VALUES (?, ?, ?, ?)", (user, level, dimension, most))

    def reset(self, user: str, level: Level, dimension: Dimension) -> None:
        """Let the configuration's limit count again."""
        self._db.execute(
            "DELETE FROM limits WHERE user = ? AND level = ? AND dimension = ?", (user, level, dimension)
        )

    def forget(self, user: str) -> None:
        """Everything of a user's: the next of that name begins anew."""
        for table in ("usage", "reservations", "limits", "told"):
            self._db.execute(f"DELETE FROM {table} WHERE user = ?", (user,))  # noqa: S608 - names of ours

    def purge(self, before: str) -> None:
        """Forget the days before one."""
        for table in ("usage", "told"):
            self._db.execute(f"DELETE FROM {table} WHERE day < ?", (before,))  # noqa: S608 - names of ours

    def purged_until_s(self) -> int | None:
        """What the clock of purges said last, as Unix time; None before the first."""
        row = self._db.execute("SELECT until_s FROM purged").fetchone()
        return None if row is None else int(row[0])

    def note_purged(self, until_s: int) -> None:
        """Remember what the clock of purges said."""
        self._db.execute("INSERT OR REPLACE INTO purged VALUES (1, ?)", (until_s,))

    def rows(self, user: str, since: str, until: str, most: int) -> list[UsageRow]:
        """At most that many rows of the days ``since`` to ``until``, the latest first; "" is everybody."""
        found = self._db.execute(
            "SELECT * FROM usage WHERE (?1 = '' OR user = ?1) AND day >= ?2 AND day <= ?3"
            " ORDER BY day DESC, user, kind, provider, model LIMIT ?4",
            (user, since, until, most),
        )
        return [UsageRow(*row) for row in found]


def _held(row: Any) -> Held:
    price = Price(row[11], row[12]) if row[11] is not None else None
    return Held(row[0], Place(*row[1:6]), Amount(*row[6:10]), price)
