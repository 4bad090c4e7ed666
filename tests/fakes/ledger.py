"""A ledger on a file of a test's own, with limits and prices as given; the time is what the test says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.ledger.book import Book, Terms
from core.ledger.days import Days
from core.ledger.limits import PICO, Limits, Price, Sums
from core.ledger.metering import Amount, Claim, Grant, LimitReached
from core.ledger.store import LedgerStore

NOON_S = 1_796_212_800.0  # 2026-12-02 12:00 UTC
PRICES = {"acme": {"m1": Price(PICO // 1_000_000, 2 * PICO // 1_000_000), "*": Price(PICO // 1_000, 0)}}


def terms(soft: Limits = Limits(), hard: Limits = Limits(), zone: str = "UTC", keep_days: int = 31) -> Terms:  # noqa: B008
    return Terms(Days(zone), "USD", keep_days, soft, hard, PRICES)


def chat(
    user: str = "alice", input: int = 100, output: int = 100, least: int = 10, model: str = "m1"
) -> Claim:
    return Claim(user, "chat", "acme", model, Amount(1, input, least), Amount(1, input, output))


def fetch(user: str = "alice", least: int = 10, most: int = 1_000) -> Claim:
    return Claim(user, "fetch", "http", "", Amount(1, bytes=least), Amount(1, bytes=most))


class Ledger:
    """A book over a store, each call in a transaction of its own."""

    def __init__(self, path: Path, given: Terms) -> None:
        self._path, self._terms = path, given
        self.now_s = NOON_S
        self._open()

    def _open(self) -> None:
        self.store = LedgerStore(self._path)
        self.store.sync(False)
        self.book = Book(self.store, self._terms)

    def crash(self) -> int:
        """End without a word and start again; returns how many reservations were left."""
        self.store.close()
        self._open()
        with self.store.transaction():
            return self.book.recover()

    def reserve(self, claim: Claim) -> Grant | LimitReached:
        with self.store.transaction():
            try:
                return self.book.reserve(claim, self.now_s)
            except LimitReached as reached:
                return reached

    def grant(self, claim: Claim) -> Grant:
        found = self.reserve(claim)
        assert isinstance(found, Grant), found
        return found

    def refusal(self, claim: Claim) -> LimitReached:
        found = self.reserve(claim)
        assert isinstance(found, LimitReached), found
        return found

    def settle(self, grant: Grant, used: Amount, estimated: bool = False) -> None:
        with self.store.transaction():
            self.book.settle(grant.id, used, estimated)

    def use(self, claim: Claim) -> None:
        """Reserve, and settle in full."""
        grant = self.grant(claim)
        self.settle(grant, grant.amount)

    def used(self, user: str = "alice") -> Sums:
        return self.book.standing(user, self.now_s).used

    def held(self, user: str = "alice") -> Sums:
        return self.book.standing(user, self.now_s).held


@contextmanager
def ledger(directory: Path, given: Terms) -> Iterator[Ledger]:
    directory.chmod(0o700)
    opened = Ledger(directory / "ledger.db", given)
    try:
        yield opened
    finally:
        opened.store.close()
