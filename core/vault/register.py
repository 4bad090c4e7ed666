"""What the vault's rows have to be: which tokens are live, who is disabled, which version a credential has.

Each row of a token carries a MAC of its own, each credential is sealed with its version; so nobody without
the master key makes one. But a row that was right once could be put back: a revoked token, a credential that
was replaced. Hence one MAC over all of it, renewed with every change, and a copy in memory that every use is
held against. Only a whole ``vault.db`` of an earlier day is not told from a backup restored.
"""

import hmac
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec
import structlog

from core.errors import SealError
from core.vault.errors import VaultError
from core.vault.files import create_private, open_private
from core.vault.keys import MasterKey
from core.vault.store import VaultStore
from core.vault.tokens import TokenBound

BOUND_FILE = "vault.bound"
"""Beside vault.db: its rows are bound to the key, so one without is never taken for an old one again."""

_log = structlog.get_logger(__name__)
_encode = msgspec.msgpack.Encoder(order="sorted").encode


@dataclass(slots=True)
class State:
    """The rows that there are: ``owner NUL name`` says whose credential, ``kind NUL id`` which token."""

    tokens: dict[str, str] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    credentials: dict[str, int] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)  # the last ever, of deleted ones too

    @classmethod
    def of(cls, store: VaultStore) -> "State":
        """What the database says."""
        return cls(
            {token.at: token.user for token in store.live_tokens()},
            set(store.disabled_users()),
            {place(row.owner, row.name): row.version for row in store.credentials.all()},
            {place(owner, name): version for owner, name, version in store.credentials.versions()},
        )

    def copy(self) -> "State":
        """Another, to be changed."""
        return State(dict(self.tokens), set(self.disabled), dict(self.credentials), dict(self.versions))

    def mac(self, key: bytes) -> bytes:
        """Over all of it."""
        parts = (self.tokens, sorted(self.disabled), self.credentials, self.versions)
        return hmac.digest(key, b"certosa/1 register\0" + _encode(parts), sha256)

    def drop_token(self, token_id: str) -> None:
        """One that was revoked, of either kind."""
        self.tokens = {at: user for at, user in self.tokens.items() if at.partition("\0")[2] != token_id}

    def forget(self, user: str) -> None:
        """All of a user's."""
        self.disabled.discard(user)
        self.tokens = {at: owner for at, owner in self.tokens.items() if owner != user}
        for kept in (self.credentials, self.versions):
            for at in [at for at in kept if at.partition("\0")[0] == user]:
                del kept[at]


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
        self._state = State.of(store)
        kept, bound = store.register(), _exists(where.with_name(BOUND_FILE))
        if kept is None and not bound:
            with store.transaction():
                self._write(self._key, self._state)
            _log.info("vault_bound", tokens=len(self._state.tokens))
        elif kept is None or not hmac.compare_digest(kept, self._state.mac(self._key)):
            raise VaultError(
                f"{where}: was changed by something other than Certosa, or is of another day in parts; put"
                " the whole vault.db of a backup there"
            )
        if not bound:
            create_private(where.with_name(BOUND_FILE), b"")

    @contextmanager
    def change(self) -> Iterator[State]:
        """A transaction in which rows and the state, which is given, change together or not at all."""
        state = self._state.copy()
        with self._store.transaction():
            yield state
            self._store.set_register(state.mac(self._key))
        self._state = state

    def token_mac(self, token: TokenBound) -> bytes:
        """What the row of a token carries."""
        return token.mac(self._key)

    def accepts(self, token: TokenBound, mac: bytes | None) -> bool:
        """Whether a row is one of ours, and live."""
        fault = ""
        if not hmac.compare_digest(mac or b"", token.mac(self._key)):
            fault = "made by another"
        elif self._state.tokens.get(token.at) != token.user or token.user in self._state.disabled:
            fault = "put back"
        if fault:
            _log.error("token_row_refused", token_id=token.token_id, user=token.user, fault=fault)
        return not fault

    def check(self, owner: str, name: str, version: int) -> None:
        """SealError for a credential's row that is not the newest."""
        if self._state.credentials.get(place(owner, name)) != version:
            raise SealError("a record of the vault is not the newest: an older one was put back")

    def rekey(self, master: MasterKey) -> Callable[[], None]:
        """Bind all to another key, within the caller's transaction; to be called once that is committed."""
        key = master.register_key()
        self._write(key, self._state)

        def use() -> None:
            self._key = key

        return use

    def _write(self, key: bytes, state: State) -> None:
        for token in self._store.live_tokens():
            self._store.set_token_mac(token.kind, token.token_id, token.mac(key))
        self._store.set_register(state.mac(key))


def place(owner: str, name: str) -> str:
    """Where the state has a credential."""
    return f"{owner}\0{name}"


def _exists(path: Path) -> bool:
    fd = open_private(path)
    if fd is not None:
        os.close(fd)
    return fd is not None
