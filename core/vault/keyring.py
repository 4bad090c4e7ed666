"""The open master key and what stands under it: users' data keys, credentials, and the change of key.

A change goes: the next key is durable; one transaction wraps everything anew and keeps the next key's
verifier; the next key takes the old one's place. Ended at any point, the next opening of the vault
sees by the verifier which key is right, and goes on from there.
"""

import os
from collections.abc import Callable
from pathlib import Path

import structlog

from core.audit.key import make_key, unwrap_key, wrap_key
from core.egress.credential_messages import (
    BoxKey,
    CredentialAnswer,
    CredentialKept,
    CredentialQuestion,
    Credentials,
    DeleteCredential,
    GetBoxKey,
    KeyRotated,
    ListCredentials,
    RotateKey,
    SetCredential,
)
from core.egress.messages import Ok
from core.errors import SealError
from core.oauth.grant import Grant
from core.vault.box import Box
from core.vault.cabinet import Cabinet, Credential
from core.vault.errors import VaultError, VaultRefusal
from core.vault.key_source import Keys, KeySource
from core.vault.keys import KEY_BYTES, SALT_BYTES, MasterKey
from core.vault.register import Register
from core.vault.sealing import seal, unseal
from core.vault.store import VaultStore
from core.vault.terms import CredentialTerms

OPERATOR = ""
"""The owner of what belongs to no user."""
_log = structlog.get_logger(__name__)


class Keyring:
    """Use from the vault's thread.

    Args:
        store: open.
        source: of the master key.
        keys: what it gave.
        where: the database's name, for messages.
        wall_s: the time as Unix seconds.
        step: told of each step of a change of key.

    Raises VaultError where no key is right.
    """

    def __init__(
        self,
        store: VaultStore,
        source: KeySource,
        keys: Keys,
        where: Path,
        wall_s: Callable[[], float],
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store, self._source, self._step = store, source, step
        self._box = Box()
        self._salt = store.operator_salt(os.urandom(SALT_BYTES))
        self._where, self._wall_s = where, wall_s
        self.register: Register
        self._cabinet: Cabinet
        self._master = self._right_key(keys, where)

    def new_data_key(self, user: str, salt: bytes) -> bytes:
        """A new user's data key, wrapped."""
        return _wrap(self._master, user, salt, os.urandom(KEY_BYTES))

    def data_key(self, user: str, salt: bytes, wrapped: bytes) -> bytes:
        """A user's data key (32 bytes). Raises VaultRefusal where the row was changed."""
        try:
            return _unwrap(self._master, user, salt, wrapped)
        except SealError:
            raise VaultRefusal("this user's key does not open; restore the vault from a backup") from None

    def audit_key(self) -> tuple[bytes, bool]:
        """The audit log's key, and whether it was made just now. VaultError where it does not open."""
        wrapping, wrapped = self._master.audit_wrapping(), self._store.audit_key()
        if wrapped is not None:
            return unwrap_key(wrapping, wrapped), False
        key = make_key()
        self._store.set_audit_key(wrap_key(wrapping, key))
        return key, True

    def open(self, owner: str, name: str) -> Credential | None:
        """A credential, for use now. Raises VaultRefusal where its record was changed."""
        try:
            return self._cabinet.open(self._master, owner, name)
        except SealError:
            raise VaultRefusal(f"the credential {name} does not open; set it again") from None

    def put_grant(self, owner: str, name: str, terms: CredentialTerms, grant: Grant) -> int:
        """Keep a new grant; its version. Raises VaultRefusal."""
        return self._cabinet.put_grant(self._master, owner, name, terms, grant)

    def renew_grant(self, owner: str, name: str, version: int, grant: Grant) -> int | None:
        """See core.vault.cabinet. Raises VaultRefusal where the record of before was changed."""
        try:
            return self._cabinet.renew_grant(self._master, owner, name, version, grant)
        except SealError:
            raise VaultRefusal(f"the credential {name} does not open; connect it again") from None

    def answer(self, question: CredentialQuestion) -> CredentialAnswer | Ok:
        """Answer one question. Raises VaultRefusal, sqlite3.Error."""
        match question:
            case SetCredential():
                return self._set(question)
            case DeleteCredential(id, owner, name):
                self._cabinet.remove(owner, name)
                _log.info("credential_deleted", user=owner, credential=name)
                return Ok(id)
            case ListCredentials(id, owner):
                return self._list(id, owner)
            case GetBoxKey(id):
                return BoxKey(id, self._box.public)
            case RotateKey(id):
                return self._rotate(id)

    def _set(self, ask: SetCredential) -> CredentialKept:
        value = self._box.open(ask.name, ask.sealed) if ask.sealed else ask.value
        version = self._cabinet.put(self._master, ask.owner, ask.name, ask.terms, value)
        _log.info("credential_set", user=ask.owner, credential=ask.name, version=version)
        return CredentialKept(ask.id, version)

    def _list(self, id: int, owner: str) -> Credentials:
        try:
            return Credentials(id, tuple(self._cabinet.list(self._master, owner)))
        except SealError as error:
            raise VaultRefusal(f"{error}; restore the vault from a backup") from None

    # -- the master key ---------------------------------------------------------------------------

    def _right_key(self, keys: Keys, where: Path) -> MasterKey:
        verifier = self._store.verifier()
        if verifier is None:
            self._store.set_verifier(keys.current.verifier())
        elif not keys.current.made(verifier):
            if keys.next is not None and keys.next.made(verifier):
                self._open_with(keys.next)
                self._settle()
                return keys.next
            raise VaultError(
                f"{where}: this master key did not make this vault; put master.key and vault.db"
                " of the same backup there"
            )
        self._open_with(keys.current)
        self._wrap_old_keys(keys.current)
        if keys.next is None:
            return keys.current
        try:
            self._rewrap(keys.current, keys.next)
        except VaultRefusal as refusal:
            _log.error("master_key_not_rotated", reason=str(refusal))
            return keys.current
        self._settle()
        return keys.next

    def _open_with(self, master: MasterKey) -> None:
        self.register = Register(self._store, master, self._where)
        self._cabinet = Cabinet(self._store.credentials, self.register, self._salt_of, self._wall_s)

    def _rotate(self, id: int) -> KeyRotated:
        following = self._source.make_next()
        self._step("made")
        users, credentials = self._rewrap(self._master, following)
        self._master = following
        self._settle()
        return KeyRotated(id, users, credentials)

    def _rewrap(self, old: MasterKey, new: MasterKey) -> tuple[int, int]:
        """All under the new key, or nothing. Raises VaultRefusal where a record does not open."""
        try:
            with self._store.transaction():
                users = self._store.user_keys()
                for user, salt, wrapped in users:
                    if wrapped is None:
                        raise SealError(f"the key of {user} is missing")
                    data_key = _unwrap(old, user, salt, wrapped)
                    self._store.set_user_key(user, _wrap(new, user, salt, data_key))
                    self._step("user")
                credentials = self._cabinet.rewrap(old, new, self._step)
                if (audit := self._store.audit_key()) is not None:
                    audit_key = unwrap_key(old.audit_wrapping(), audit)
                    self._store.set_audit_key(wrap_key(new.audit_wrapping(), audit_key))
                use_key = self.register.rekey(new)
                self._store.set_verifier(new.verifier())
                self._step("wrapped")
        except (SealError, VaultError) as error:
            self._source.discard_next()
            raise VaultRefusal(f"{error}: nothing was changed; restore the vault from a backup") from None
        use_key()
        self._step("committed")
        self._store.forget_log()
        self._store.forget_copies()  # they open with the old key
        _log.info("master_key_rotated", users=len(users), credentials=credentials)
        return len(users), credentials

    def _settle(self) -> None:
        self._source.settle()
        self._step("settled")

    def _wrap_old_keys(self, master: MasterKey) -> None:
        """Keys that were derived, in a vault of the first version, are kept as they are: wrapped."""
        with self._store.transaction():
            for user, salt, wrapped in self._store.user_keys():
                if wrapped is None:
                    data_key = master.data_key(user, salt)
                    self._store.set_user_key(user, _wrap(master, user, salt, data_key))

    def _salt_of(self, owner: str) -> bytes | None:
        return self._salt if owner == OPERATOR else self._store.salt(owner)


def _wrap(master: MasterKey, user: str, salt: bytes, data_key: bytes) -> bytes:
    return seal(master.wrapping_key(user, salt), _place(user), data_key)


def _unwrap(master: MasterKey, user: str, salt: bytes, wrapped: bytes) -> bytes:
    return unseal(master.wrapping_key(user, salt), _place(user), wrapped)


def _place(user: str) -> bytes:
    return f"certosa/1 data key\0{user}".encode()
