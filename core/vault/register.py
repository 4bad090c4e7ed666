"""What the vault's rows have to be: which tokens are live, who is disabled, which version a credential has,
what rules of their own users have for requests outside.

Each row of a token carries a MAC of its own, each credential is sealed with its version; so nobody without
the master key makes one. But a row that was right once could be put back: a revoked token, a credential that
was replaced; and a rule is plain text. Hence one hash over all of it, renewed with every change, and a copy
in memory that every use is held against. Only a whole ``vault.db`` of an earlier day is not told from a
backup restored.

The hash is the sum of a MAC of each entry, so that a change costs what it changes and not what there is,
under a mask that is another each time, so that two of them do not tell what an entry adds (MSet-Add-Hash:
Clarke and others, "Incremental Multiset Hash Functions", ASIACRYPT 2003).
"""

import hmac
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import structlog

from core.errors import SealError
from core.vault.errors import VaultError
from core.vault.files import create_private, open_private
from core.vault.keys import MasterKey
from core.vault.rule_store import RuleRow
from core.vault.store import VaultStore
from core.vault.tokens import TokenBound

BOUND_FILE = "vault.bound"
"""Beside vault.db: its rows are bound to the key, so one without is never taken for an old one again. Rules
are bound with the others where the file says so; where it is empty they are not yet."""

_WITH_RULES = b"rules\n"
_RULES_BOUND = "rules\0"
"""An entry of its own: a sum over a vault without any rule must not pass for one from before they counted."""

_NONCE_BYTES = 16
_SUM_BYTES = 32
_MODULUS = 1 << (8 * _SUM_BYTES)

_log = structlog.get_logger(__name__)

Entries = Mapping[str, str]
"""Each begins with what it is of, and names it; a token's value is its user, a credential's its version."""


def token_entry(at: str) -> str:
    """A live token's; ``at`` is :attr:`TokenBound.at`."""
    return f"token\0{at}"


def disabled_entry(user: str) -> str:
    """Of a user who is disabled."""
    return f"disabled\0{user}"


def credential_entry(owner: str, name: str) -> str:
    """The version of a credential that there is."""
    return f"credential\0{owner}\0{name}"


def version_entry(owner: str, name: str) -> str:
    """The last version ever of a credential, of a deleted one too."""
    return f"version\0{owner}\0{name}"


def rule_entry(user: str, rule_id: str) -> str:
    """A user's own rule for requests outside; its value is the rule's text."""
    return f"rule\0{user}\0{rule_id}"


def _entries_of(store: VaultStore) -> dict[str, str]:
    """What the database says."""
    found = {_RULES_BOUND: ""}
    found |= {token_entry(token.at): token.user for token in store.live_tokens()}
    found |= {disabled_entry(user): "" for user in store.disabled_users()}
    found |= {credential_entry(row.owner, row.name): str(row.version) for row in store.credentials.all()}
    found |= {version_entry(owner, name): str(last) for owner, name, last in store.credentials.versions()}
    found |= {rule_entry(row.user, row.rule_id): row.text for row in store.rules.all()}
    return found


class Change:
    """Entries that are to be others, once the transaction is committed."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self.wanted: dict[str, str | None] = {}

    def get(self, entry: str) -> str | None:
        """Its value as it is to be; None where there is to be none."""
        return self.wanted[entry] if entry in self.wanted else self._entries.get(entry)

    def set(self, entry: str, value: str = "") -> None:
        """Have it, with this value."""
        self.wanted[entry] = value

    def drop(self, entry: str) -> None:
        """Have it no more; nothing happens where there is none."""
        self.wanted[entry] = None

    def forget(self, user: str) -> None:
        """Drop all of a user's."""
        self.drop(disabled_entry(user))
        for entry, value in self._entries.items():
            kind, _, rest = entry.partition("\0")
            owner = value if kind == "token" else rest.partition("\0")[0]
            if owner == user:
                self.drop(entry)


class _Sum:
    """The sum over some entries, under a key."""

    def __init__(self, key: bytes, entries: Entries) -> None:
        self._key = key
        self._total = sum(self._term(*entry) for entry in entries.items()) % _MODULUS

    def changed(self, before: Entries, wanted: Mapping[str, str | None]) -> "_Sum":
        """As it is once some entries are others."""
        new = _Sum(self._key, {entry: value for entry, value in wanted.items() if value is not None})
        old = _Sum(self._key, {entry: before[entry] for entry in wanted if entry in before})
        new._total = (self._total + new._total - old._total) % _MODULUS
        return new

    def masked(self) -> bytes:
        """To be kept, where others may read it."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + ((self._total + self._mask(nonce)) % _MODULUS).to_bytes(_SUM_BYTES, "big")

    def is_in(self, kept: bytes) -> bool:
        """Whether it is what was kept."""
        nonce, masked = kept[:_NONCE_BYTES], kept[_NONCE_BYTES:]
        ours = (self._total + self._mask(nonce)) % _MODULUS
        return hmac.compare_digest(masked, ours.to_bytes(_SUM_BYTES, "big"))

    def _term(self, entry: str, value: str) -> int:
        said = f"certosa/1 register entry\0{entry}\0{value}".encode()  # no value has a NUL
        return int.from_bytes(hmac.digest(self._key, said, sha256), "big")

    def _mask(self, nonce: bytes) -> int:
        return int.from_bytes(hmac.digest(self._key, b"certosa/1 register mask\0" + nonce, sha256), "big")


class Register:
    """Use from the vault's thread, and change rows only through it.

    Args:
        store: open.
        master: the right key.
        where: the database's path.

    Raises VaultError where the rows are not as they were left.
    """

    def __init__(self, store: VaultStore, master: MasterKey, where: Path) -> None:
        self._store = store
        self._key = master.register_key()
        self._entries = _entries_of(store)
        self._sum = _Sum(self._key, self._entries)
        path = where.with_name(BOUND_FILE)
        kept, bound = store.register(), _read(path)
        if kept is None:
            right = bound is None
        else:
            right = self._sum.is_in(kept) or (bound != _WITH_RULES and self._without_rules().is_in(kept))
        if not right:
            raise VaultError(
                f"{where}: was changed by something other than Certosa, or is of another day in parts; put"
                " the whole vault.db of a backup there"
            )
        if bound != _WITH_RULES:
            with store.transaction():
                self._write(self._key, self._sum)
            path.unlink(missing_ok=True)
            create_private(path, _WITH_RULES)
            _log.info("vault_bound", entries=len(self._entries))

    @contextmanager
    def change(self) -> Iterator[Change]:
        """A transaction in which rows and entries change together or not at all."""
        change = Change(self._entries)
        with self._store.transaction():
            yield change
            total = self._sum.changed(self._entries, change.wanted)
            self._store.set_register(total.masked())
        self._sum = total
        for entry, value in change.wanted.items():
            if value is None:
                self._entries.pop(entry, None)
            else:
                self._entries[entry] = value

    def token_mac(self, token: TokenBound) -> bytes:
        """What the row of a token carries."""
        return token.mac(self._key)

    def accepts(self, token: TokenBound, mac: bytes | None) -> bool:
        """Whether a row is one of ours, and live."""
        fault = ""
        if not hmac.compare_digest(mac or b"", token.mac(self._key)):
            fault = "made by another"
        elif (
            self._entries.get(token_entry(token.at)) != token.user
            or disabled_entry(token.user) in self._entries
        ):
            fault = "put back"
        if fault:
            _log.error("token_row_refused", token_id=token.token_id, user=token.user, fault=fault)
        return not fault

    def check(self, owner: str, name: str, version: int) -> None:
        """SealError for a credential's row that is not the newest."""
        if self._entries.get(credential_entry(owner, name)) != str(version):
            raise SealError("a record of the vault is not the newest: an older one was put back")

    def has_rule(self, row: RuleRow) -> bool:
        """Whether a row is as its user left it."""
        good = self._entries.get(rule_entry(row.user, row.rule_id)) == row.text
        if not good:
            _log.error("rule_row_refused", rule_id=row.rule_id, user=row.user)
        return good

    def rekey(self, master: MasterKey) -> Callable[[], None]:
        """Bind all to another key, within the caller's transaction; to be called once that is committed."""
        key = master.register_key()
        total = _Sum(key, self._entries)
        self._write(key, total)

        def use() -> None:
            self._key, self._sum = key, total

        return use

    def _write(self, key: bytes, total: _Sum) -> None:
        for token in self._store.live_tokens():
            self._store.set_token_mac(token.kind, token.token_id, token.mac(key))
        self._store.set_register(total.masked())

    def _without_rules(self) -> _Sum:
        """As it was kept before rules were bound too."""
        later = ("rule\0", _RULES_BOUND)
        others = {at: value for at, value in self._entries.items() if not at.startswith(later)}
        return _Sum(self._key, others)


def _read(path: Path) -> bytes | None:
    """What a file begins with; None where there is none."""
    fd = open_private(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(len(_WITH_RULES) + 1)
