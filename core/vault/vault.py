"""The vault's decisions: typed questions in, typed answers out. No thread and no socket here."""

import fcntl
import hmac
import os
import re
import sqlite3
from collections.abc import Callable
from functools import singledispatchmethod
from io import FileIO
from pathlib import Path
from time import monotonic, time
from typing import Any

import structlog

from core.egress.credential_messages import CredentialAnswer, CredentialQuestion
from core.egress.messages import (
    AddUser,
    AdminVerified,
    HandleMinted,
    ListAdminTokens,
    ListTokens,
    NewAdminToken,
    NewToken,
    Ok,
    Refused,
    RemoveUser,
    RevokeToken,
    SetUserDisabled,
    TokenInfo,
    TokenMade,
    TokenRejected,
    Tokens,
    VerifyAdminToken,
    VerifyToken,
)
from core.egress.rule_messages import (
    AddEgressRule,
    EgressRuleAdded,
    EgressRules,
    ListEgressRules,
    RemoveEgressRule,
    RuleAnswer,
    RuleQuestion,
)
from core.oauth.grant import Grant
from core.vault.cabinet import Credential
from core.vault.errors import VaultError, VaultRefusal
from core.vault.files import prepare_directory
from core.vault.key_source import KeyFile, KeySource
from core.vault.keyring import Keyring
from core.vault.keys import SALT_BYTES
from core.vault.register import disabled_entry, rule_entry, token_entry
from core.vault.store import VaultStore
from core.vault.terms import CredentialTerms
from core.vault.tokens import KINDS, FreshToken, Kind, TokenBound, hash_token, is_token, make_token, token_at

Question = (
    AddUser | RemoveUser | SetUserDisabled | NewToken | ListTokens | RevokeToken | VerifyToken
    | NewAdminToken | ListAdminTokens | VerifyAdminToken | CredentialQuestion | RuleQuestion
)  # fmt: skip
Answer = (
    Ok | Refused | HandleMinted | TokenRejected | AdminVerified | TokenMade | Tokens | CredentialAnswer
    | RuleAnswer
)  # fmt: skip

_USER = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)
_MAX_LABEL = 64
_MAX_TOKENS_PER_USER = 256
_MAX_ADMIN_TOKENS = 64
_MAX_LISTED = 8_000  # stays below the link's largest message with the longest labels
_log = structlog.get_logger(__name__)
_USED_FLUSH_S = 60.0  # a token's last use is written at most this often, not at every request


class Vault:
    """The open vault. Use from one thread at a time.

    Args:
        directory: ``DATA/_keys``; made when missing.
        wall_s: the time as Unix seconds, for what is stored.
        clock_s: a monotonic time, for what is measured.
        source: where the master key comes from; ``master.key`` in ``directory`` by default.
        step: told of each step of a rotation.

    Raises VaultError where the key or the database is not as it has to be, or another process
    has the vault open.
    """

    def __init__(
        self,
        directory: Path,
        wall_s: Callable[[], float] = time,
        clock_s: Callable[[], float] = monotonic,
        source: KeySource | None = None,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._wall_s, self._clock_s = wall_s, clock_s
        prepare_directory(directory)
        self._lock = _lock(directory)
        try:
            database = directory / "vault.db"
            exists = os.path.lexists(database)
            source = source or KeyFile(directory / "master.key")
            keys = source.load(exists)  # before there is a database to be without a key
            self._store = VaultStore(database)
        except BaseException:
            self._lock.close()
            raise
        try:
            self._keys = Keyring(self._store, source, keys, database, wall_s, step)
        except BaseException:
            self._store.close()
            self._lock.close()
            raise
        self._used: dict[str, int] = {}
        self._used_credentials: dict[tuple[str, str], int] = {}
        self._flush_at_s = clock_s() + _USED_FLUSH_S

    def close(self) -> None:
        """Write what is pending and let go of the files; harmless twice."""
        try:
            self._flush_used()
        finally:
            self._store.close()
            self._lock.close()

    def audit_key(self) -> tuple[bytes, bool]:
        """The audit log's key, and whether it was made just now. VaultError where it does not open."""
        return self._keys.audit_key()

    def answer(self, question: Question) -> Answer:
        """Answer one question. Raises sqlite3.Error where the disk fails."""
        try:
            if isinstance(question, CredentialQuestion):
                return self._keys.answer(question)
            answer: Answer = self._answer(question)
        except VaultRefusal as refusal:
            return Refused(question.id, str(refusal))
        return answer

    def open(self, owner: str, name: str) -> Credential | None:
        """A credential of a user's, or of the operator's (an empty ``owner``), for use at once.

        Raises VaultRefusal where its record does not open, sqlite3.Error where the disk fails.
        """
        found = self._keys.open(owner, name)
        if found is not None:
            self._used_credentials[owner, name] = int(self._wall_s())
            self._flush_if_due()
        return found

    def put_grant(self, owner: str, name: str, terms: CredentialTerms, grant: Grant) -> int:
        """Keep what a user granted; its version. Raises VaultRefusal, sqlite3.Error."""
        return self._keys.put_grant(owner, name, terms, grant)

    def renew_grant(self, owner: str, name: str, version: int, grant: Grant) -> int | None:
        """Keep a renewed grant in the place of ``version``; its own version, None where that is gone.

        Raises VaultRefusal, sqlite3.Error.
        """
        return self._keys.renew_grant(owner, name, version, grant)

    @singledispatchmethod
    def _answer(self, question: Any) -> Answer:
        raise TypeError(f"not a question for the vault: {type(question).__name__}")

    @_answer.register
    def _add_user(self, ask: AddUser) -> Answer:
        if _USER.fullmatch(ask.user) is None:
            raise VaultRefusal(
                "a user id has 1 to 32 of the characters a-z, 0-9, _ and -, and begins with a"
                " letter or a digit"
            )
        salt = os.urandom(SALT_BYTES)
        data_key = self._keys.new_data_key(ask.user, salt)
        self._store.add_user(ask.user, salt, data_key, int(self._wall_s()))
        return Ok(ask.id)

    @_answer.register
    def _remove_user(self, ask: RemoveUser) -> Answer:
        with self._keys.register.change() as change:
            self._store.remove_user(ask.user)
            change.forget(ask.user)
        self._store.forget_log()
        self._store.forget_copies()
        return Ok(ask.id)

    @_answer.register
    def _set_disabled(self, ask: SetUserDisabled) -> Answer:
        with self._keys.register.change() as change:
            if not self._store.set_disabled(ask.user, ask.disabled):
                raise VaultRefusal("no such user")
            (change.set if ask.disabled else change.drop)(disabled_entry(ask.user))
        return Ok(ask.id)

    @_answer.register
    def _new_token(self, ask: NewToken) -> Answer:
        _check_label(ask.label)
        if not self._store.has_user(ask.user):
            raise VaultRefusal("no such user")
        if self._store.count_tokens(ask.user) >= _MAX_TOKENS_PER_USER:
            raise VaultRefusal(f"a user has at most {_MAX_TOKENS_PER_USER} tokens; revoke some")
        fresh = self._make_token("user", ask.user, ask.label)
        return TokenMade(ask.id, fresh.token_id, fresh.token)

    @_answer.register
    def _list_tokens(self, ask: ListTokens) -> Answer:
        self._flush_used()
        rows = self._store.tokens(ask.user, _MAX_LISTED + 1)
        if len(rows) > _MAX_LISTED:
            raise VaultRefusal(f"more than {_MAX_LISTED} tokens; list them by user")
        return Tokens(ask.id, tuple(TokenInfo(*row) for row in rows))

    @_answer.register
    def _revoke_token(self, ask: RevokeToken) -> Answer:
        with self._keys.register.change() as change:
            if not self._store.revoke_token(ask.token_id, int(self._wall_s())):
                raise VaultRefusal("no such token, or it is revoked already")
            for kind in KINDS:
                change.drop(token_entry(token_at(kind, ask.token_id)))
        return Ok(ask.id)

    @_answer.register
    def _verify_token(self, ask: VerifyToken) -> Answer:
        # Looked up by hash: what the index's timing tells is about a hash nobody can steer.
        hash_ = hash_token(ask.token)
        claim = self._store.claim(hash_)
        same = hmac.compare_digest(claim.hash if claim else bytes(32), hash_)
        if claim is None or not (same and claim.valid and is_token(ask.token)):
            return TokenRejected(ask.id)
        if not self._keys.register.accepts(claim.bound, claim.mac):
            return TokenRejected(ask.id)
        self._note_use(claim.token_id)
        return HandleMinted(ask.id, claim.user, self._keys.data_key(claim.user, claim.salt, claim.data_key))

    @_answer.register
    def _new_admin_token(self, ask: NewAdminToken) -> Answer:
        _check_label(ask.label)
        if len(self._store.admin_tokens()) >= _MAX_ADMIN_TOKENS:
            raise VaultRefusal(f"there are at most {_MAX_ADMIN_TOKENS} tokens of administrators; revoke some")
        fresh = self._make_token("admin", "", ask.label)
        return TokenMade(ask.id, fresh.token_id, fresh.token)

    @_answer.register
    def _list_admin_tokens(self, ask: ListAdminTokens) -> Answer:
        self._flush_used()
        return Tokens(ask.id, tuple(TokenInfo(*row) for row in self._store.admin_tokens()))

    @_answer.register
    def _verify_admin_token(self, ask: VerifyAdminToken) -> Answer:
        hash_ = hash_token(ask.token)
        found = self._store.admin_claim(hash_)
        same = hmac.compare_digest(found[0].hash if found else bytes(32), hash_)
        if found is None or not (same and is_token(ask.token, "admin")):
            return TokenRejected(ask.id)
        token, mac = found
        if not self._keys.register.accepts(token, mac):
            return TokenRejected(ask.id)
        self._note_use(token.token_id)
        return AdminVerified(ask.id, token.token_id)

    @_answer.register
    def _add_rule(self, ask: AddEgressRule) -> Answer:
        with self._keys.register.change() as change:
            row, new = self._store.rules.add(ask.user, ask.rule, int(self._wall_s()))
            change.set(rule_entry(row.user, row.rule_id), row.text)
        return EgressRuleAdded(ask.id, row.rule_id, new)

    @_answer.register
    def _remove_rule(self, ask: RemoveEgressRule) -> Answer:
        with self._keys.register.change() as change:
            if not self._store.rules.remove(ask.user, ask.rule_id):
                raise VaultRefusal("no such rule")
            change.drop(rule_entry(ask.user, ask.rule_id))
        return Ok(ask.id)

    @_answer.register
    def _list_rules(self, ask: ListEgressRules) -> Answer:
        rows = filter(self._keys.register.has_rule, self._store.rules.of(ask.user))
        return EgressRules(ask.id, tuple(row.kept() for row in rows))

    def first_admin_token(self) -> FreshToken | None:
        """An administrator's token where there never was one; to be shown once, here and now.

        Raises sqlite3.Error.
        """
        return None if self._store.ever_had_admin_token() else self._make_token("admin", "", "first start")

    def _make_token(self, kind: Kind, user: str, label: str) -> FreshToken:
        fresh = make_token(kind)
        bound = TokenBound(kind, fresh.token_id, user, fresh.hash)
        register = self._keys.register
        with register.change() as change:
            self._store.add_token(bound, register.token_mac(bound), label, int(self._wall_s()))
            change.set(token_entry(bound.at), user)
        return fresh

    def _note_use(self, token_id: str) -> None:
        self._used[token_id] = int(self._wall_s())
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        if self._clock_s() < self._flush_at_s:
            return
        try:
            self._flush_used()
        except sqlite3.Error as error:
            # a full disk must not make good tokens fail: who they are is known all the same
            _log.warning("token_use_not_stored", error=type(error).__name__)

    def _flush_used(self) -> None:
        self._flush_at_s = self._clock_s() + _USED_FLUSH_S
        if self._used:
            self._store.note_used(self._used.items())
            self._used.clear()
        if self._used_credentials:
            self._store.credentials.note_used(
                (owner, name, used_s) for (owner, name), used_s in self._used_credentials.items()
            )
            self._used_credentials.clear()


def _check_label(label: str) -> None:
    if len(label) > _MAX_LABEL or not label.isprintable():
        raise VaultRefusal(f"a label is at most {_MAX_LABEL} printable characters")


def _lock(directory: Path) -> FileIO:
    """Take the vault for this process: two would make keys and tokens behind each other's back."""
    path = directory / "lock"
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = FileIO(os.open(path, flags, 0o600), "rb+")
    except OSError as error:
        raise VaultError(f"{path}: cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise VaultError(
            f"{directory}: another process has this vault open; is a Certosa server running"
            " on this data directory already?"
        ) from None
    return lock
