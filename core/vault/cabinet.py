"""The credentials in the vault: sealed one by one under a key of their owner's. No thread here."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from core.egress.credential_messages import CredentialInfo, GrantInfo
from core.egress.secret import Secret
from core.oauth.grant import Grant
from core.vault.credential_store import CredentialRow, CredentialStore
from core.vault.errors import VaultRefusal
from core.vault.keys import MasterKey
from core.vault.register import Register, credential_entry, version_entry
from core.vault.sealing import seal, unseal
from core.vault.terms import CredentialTerms, check_name, check_terms, check_value, is_client_secret

_MAX_PER_OWNER = 64


class Credential(NamedTuple):
    """One, open: for the egress process's own use.

    ``secret`` is the value; of a grant, the access token as it was got last, which may be over by now:
    core.oauth.renewing says the one to send. ``version`` counts values.
    """

    name: str
    terms: CredentialTerms
    secret: Secret
    grant: Grant | None = None
    version: int = 0


class _Record(msgspec.Struct, frozen=True):
    """What is sealed: the terms too, so that nobody who can write the file can widen them."""

    terms: CredentialTerms
    value: str
    grant: Grant | None = None

    def __repr__(self) -> str:
        return "_Record()"


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Record).decode


class Cabinet:
    """Keeps, lists and opens credentials. One thread at a time.

    Args:
        store: their rows.
        register: which versions they have to have.
        salt_of: an owner's salt, None where there is no such owner.
        wall_s: the time as Unix seconds.
    """

    def __init__(
        self,
        store: CredentialStore,
        register: Register,
        salt_of: Callable[[str], bytes | None],
        wall_s: Callable[[], float],
    ) -> None:
        self._store, self._register, self._salt_of, self._wall_s = store, register, salt_of, wall_s

    def put(self, master: MasterKey, owner: str, name: str, terms: CredentialTerms, value: str) -> int:
        """Keep one, or another in its place; returns its version. Raises VaultRefusal."""
        check_name(name)
        check_terms(name, terms)
        check_value(name, value)
        if terms.kind == "oauth2":
            raise VaultRefusal("kind: an oauth2 credential is connected, not set")
        if is_client_secret(name) and owner:
            raise VaultRefusal("a client's secret is the operator's to keep")
        return self._put(master, owner, name, _Record(terms, value))

    def put_grant(
        self, master: MasterKey, owner: str, name: str, terms: CredentialTerms, grant: Grant
    ) -> int:
        """Keep a grant as a credential, or in the place of one; returns its version. Raises VaultRefusal."""
        check_name(name)
        check_terms(name, terms)
        return self._put(master, owner, name, _Record(terms, "", grant))

    def renew_grant(self, master: MasterKey, owner: str, name: str, version: int, grant: Grant) -> int | None:
        """Keep a grant in the place of the one it came of; returns its version.

        None, and nothing is kept, where the credential was deleted or is another by now. The old grant
        is there until the new one is on the disk: one transaction replaces it. Raises SealError.
        """
        row = self._store.get(owner, name)
        if row is None or row.version != version:
            return None
        record = _Record(self._open(master, row).terms, "", grant)
        return self._keep(master, row, record)

    def _put(self, master: MasterKey, owner: str, name: str, record: _Record) -> int:
        before = self._store.get(owner, name)
        if before is None and self._store.count(owner) >= _MAX_PER_OWNER:
            raise VaultRefusal(f"there are {_MAX_PER_OWNER} credentials already; delete some")
        row = CredentialRow(owner, name, 0, b"", int(self._wall_s()), None)
        return self._keep(master, row, record)

    def _keep(self, master: MasterKey, row: CredentialRow, record: _Record) -> int:
        owner, name = row.owner, row.name
        with self._register.change() as change:
            version = int(change.get(version_entry(owner, name)) or 0) + 1
            sealed = self._seal(master, owner, name, version, _encode(record))
            self._store.put(row._replace(version=version, sealed=sealed))
            self._store.note_version(owner, name, version)
            change.set(version_entry(owner, name), str(version))
            change.set(credential_entry(owner, name), str(version))
        self._store.forget_log()
        return version

    def remove(self, owner: str, name: str) -> None:
        """Forget one. Raises VaultRefusal where there is none."""
        with self._register.change() as change:
            if not self._store.remove(owner, name):
                raise VaultRefusal("no such credential")
            change.drop(credential_entry(owner, name))
        self._store.forget_log()

    def list(self, master: MasterKey, owner: str) -> list[CredentialInfo]:
        """An owner's, by name, without values. Raises SealError for a row that was changed."""
        return [self._info(row, self._open(master, row)) for row in self._store.of(owner)]

    def open(self, master: MasterKey, owner: str, name: str) -> Credential | None:
        """One for use, now. Raises SealError for a row that was changed."""
        row = self._store.get(owner, name)
        if row is None:
            return None
        record = self._open(master, row)
        value = record.grant.access if record.grant else record.value
        return Credential(name, record.terms, Secret(value), record.grant, row.version)

    def rewrap(self, old: MasterKey, new: MasterKey, step: Callable[[str], None]) -> int:
        """Seal all anew, within the caller's transaction; how many there were. Raises SealError."""
        count = 0
        for row in self._store.all():
            self._register.check(row.owner, row.name, row.version)
            data = unseal(self._key(old, row.owner), _place(row.owner, row.name, row.version), row.sealed)
            sealed = self._seal(new, row.owner, row.name, row.version, data)
            self._store.reseal(row.owner, row.name, sealed)
            count += 1
            step("credential")
        return count

    @staticmethod
    def _info(row: CredentialRow, record: _Record) -> CredentialInfo:
        grant = record.grant
        shown = GrantInfo(grant.provider, grant.expires_s, grant.lost, bool(grant.refresh)) if grant else None
        return CredentialInfo(row.name, record.terms, row.version, row.created_s, row.used_s, shown)

    def _seal(self, master: MasterKey, owner: str, name: str, version: int, data: bytes) -> bytes:
        return seal(self._key(master, owner), _place(owner, name, version), data)

    def _open(self, master: MasterKey, row: CredentialRow) -> _Record:
        self._register.check(row.owner, row.name, row.version)
        data = unseal(self._key(master, row.owner), _place(row.owner, row.name, row.version), row.sealed)
        return _decode(data)

    def _key(self, master: MasterKey, owner: str) -> bytes:
        salt = self._salt_of(owner)
        if salt is None:
            raise VaultRefusal("no such user")
        return master.credential_key(owner, salt)


def _place(owner: str, name: str, version: int) -> bytes:
    return f"certosa/1 credential\0{owner}\0{name}\0{version}".encode()
