"""Opens the ledger as the configuration says, and settles what a crash left."""

import sqlite3
from pathlib import Path

import structlog

from core.config import Config
from core.ledger.book import Book, Terms
from core.ledger.days import Days
from core.ledger.limits import Limits, price_of
from core.ledger.store import LedgerStore
from core.vault.errors import VaultError

_log = structlog.get_logger(__name__)


def terms_of(config: Config) -> Terms:
    """What a configuration that was checked says of usage."""
    usage = config.usage
    return Terms(
        Days(usage.zone),
        usage.currency,
        usage.keep_days,
        Limits.of(usage.soft),
        Limits.of(usage.hard),
        {name: price_of(section.prices) for name, section in config.providers.items()},
    )


def open_ledger(directory: Path, config: Config) -> tuple[LedgerStore, Book]:
    """Open ``ledger.db`` in a directory of ours; VaultError where it cannot be."""
    store = LedgerStore(directory / "ledger.db")
    try:
        book = Book(store, terms_of(config))
        with store.transaction():
            left = book.recover()
    except sqlite3.Error as error:
        store.close()
        raise VaultError(f"{directory / 'ledger.db'}: {error}; is the disk full?") from None
    except BaseException:
        store.close()
        raise
    if left:
        _log.warning("reservations_settled_in_full", requests=left)
    return store, book
