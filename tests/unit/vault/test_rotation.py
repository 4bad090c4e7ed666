"""The master key is changed whole or not at all, wherever it is interrupted."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from core.egress.credential_messages import CredentialKept, KeyRotated, RotateKey, SetCredential
from core.egress.messages import AddUser, HandleMinted, NewToken, Refused, TokenMade, VerifyToken
from core.vault.errors import VaultError
from core.vault.handle import UserHandle
from core.vault.key_source import HandedKeys
from core.vault.keys import MasterKey
from core.vault.terms import CredentialTerms
from core.vault.vault import Vault

ROOT = Path(__file__).resolve().parents[3]
VALUE = "canary-5f0e1d2c3b4a"
TERMS = CredentialTerms(host="api.example.com")
# of two users with two credentials, and two of the operator's
STEPS = ["made", "user", "user", *["credential"] * 6, "wrapped", "committed", "settled"]
_KILLED = """\
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from core.egress.credential_messages import RotateKey
from core.vault.vault import Vault
left = int(sys.argv[3])
def step(name):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
Vault(Path(sys.argv[2]), step=step).answer(RotateKey(1))
"""


class Filled:
    """A vault with two users, who have a sealed letter and two credentials each."""

    def __init__(self, directory: Path, source: HandedKeys | None = None) -> None:
        self.directory = directory
        self.tokens: dict[str, str] = {}
        self.letters: dict[str, bytes] = {}
        vault = Vault(directory, source=source)
        try:
            self.audit_key = vault.audit_key()[0]
            for user in ("alice", "bob", ""):
                if user:
                    vault.answer(AddUser(1, user))
                    made = vault.answer(NewToken(1, user, ""))
                    assert isinstance(made, TokenMade)
                    self.tokens[user] = made.token
                    self.letters[user] = self.handle(vault, user).seal("place", user.encode())
                for name in ("one", "two"):
                    kept = vault.answer(SetCredential(1, user, name, TERMS, f"{VALUE}-{user}-{name}"))
                    assert isinstance(kept, CredentialKept)
        finally:
            vault.close()

    def handle(self, vault: Vault, user: str) -> UserHandle:
        minted = vault.answer(VerifyToken(1, self.tokens[user]))
        assert isinstance(minted, HandleMinted)
        return UserHandle(minted.user, minted.data_key)

    def check(self, vault: Vault) -> None:
        """Everything is there, and opens."""
        assert vault.audit_key() == (self.audit_key, False)
        for user in ("alice", "bob", ""):
            if user:
                assert self.handle(vault, user).open("place", self.letters[user]) == user.encode()
            for name in ("one", "two"):
                found = vault.open(user, name)
                assert found is not None
                assert found.secret.reveal() == f"{VALUE}-{user}-{name}"


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path / "_keys")


def test_a_rotation_replaces_the_key_and_keeps_everything(filled: Filled) -> None:
    key = filled.directory / "master.key"
    old = key.read_bytes()
    steps: list[str] = []
    vault = Vault(filled.directory, step=steps.append)
    sealed = _sealed(filled.directory)
    try:
        assert vault.answer(RotateKey(1)) == KeyRotated(1, 2, 6)
        filled.check(vault)
    finally:
        vault.close()
    assert steps == STEPS
    assert key.read_bytes() != old
    assert not key.with_name("master.key.next").exists()
    left = b"".join(path.read_bytes() for path in filled.directory.glob("vault.db*"))
    assert [record for record in sealed if record in left] == []
    vault = Vault(filled.directory)
    filled.check(vault)
    vault.close()
    new = key.read_bytes()
    key.write_bytes(old)
    with pytest.raises(VaultError, match="did not make this vault"):
        Vault(filled.directory)
    key.write_bytes(new)


def _sealed(directory: Path) -> list[bytes]:
    db = sqlite3.connect(directory / "vault.db")
    try:
        rows = db.execute("SELECT sealed FROM credentials UNION SELECT data_key FROM users").fetchall()
    finally:
        db.close()
    return [row[0] for row in rows]


@pytest.mark.parametrize("at", range(len(STEPS)))
def test_killed_at_any_step_nothing_is_lost_and_the_next_start_finishes_it(filled: Filled, at: int) -> None:
    key = filled.directory / "master.key"
    old = key.read_bytes()
    done = subprocess.run(
        [sys.executable, "-I", "-c", _KILLED, str(ROOT), str(filled.directory), str(at)],
        check=False, capture_output=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    for _ in range(2):
        vault = Vault(filled.directory)
        filled.check(vault)
        vault.close()
    assert key.read_bytes() != old  # the next key was on the disk at every step
    assert sorted(path.name for path in filled.directory.glob("master*")) == ["master.key"]


def test_a_record_that_does_not_open_stops_a_rotation_before_anything_changed(filled: Filled) -> None:
    db = sqlite3.connect(filled.directory / "vault.db")
    with db:
        db.execute("UPDATE credentials SET sealed = zeroblob(80) WHERE owner = 'bob' AND name = 'two'")
    db.close()
    old = (filled.directory / "master.key").read_bytes()
    vault = Vault(filled.directory)
    try:
        assert isinstance(vault.answer(RotateKey(1)), Refused)
        assert vault.open("alice", "one") is not None
    finally:
        vault.close()
    assert (filled.directory / "master.key").read_bytes() == old
    vault = Vault(filled.directory)
    assert vault.open("alice", "one") is not None
    vault.close()


def test_a_key_of_a_vault_of_the_first_version_goes_on(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "_keys")
    key = MasterKey((filled.directory / "master.key").read_bytes())
    db = sqlite3.connect(filled.directory / "vault.db")
    with db:
        (salt,) = db.execute("SELECT salt FROM users WHERE user = 'alice'").fetchone()
        db.execute("UPDATE users SET data_key = NULL WHERE user = 'alice'")
    db.close()
    letter = UserHandle("alice", key.data_key("alice", salt)).seal("place", b"old")
    vault = Vault(filled.directory)
    try:
        assert isinstance(vault.answer(RotateKey(1)), KeyRotated)
        assert filled.handle(vault, "alice").open("place", letter) == b"old"
    finally:
        vault.close()


# ---- a key kept elsewhere --------------------------------------------------------------------------


def _given(*keys: bytes) -> HandedKeys:
    fds = []
    for key in keys:
        fd = os.memfd_create("key")
        os.write(fd, key)
        fds.append(fd)
    return HandedKeys(fds[0], fds[1] if len(fds) > 1 else None)


def test_a_key_from_outside_is_used_and_none_is_made(tmp_path: Path) -> None:
    key = os.urandom(32)
    filled = Filled(tmp_path / "_keys", _given(key))
    assert not (filled.directory / "master.key").exists()
    vault = Vault(filled.directory, source=_given(key))
    filled.check(vault)
    answer = vault.answer(RotateKey(1))
    assert isinstance(answer, Refused)
    assert "from outside" in answer.message
    filled.check(vault)
    vault.close()
    for wrong, words in ((os.urandom(32), "did not make"), (key[:31], "only 31"), (key + b"\n", "more")):
        with pytest.raises(VaultError, match=words):
            Vault(filled.directory, source=_given(wrong))


def test_a_next_key_from_outside_is_taken_over_at_the_start(tmp_path: Path) -> None:
    old, new = os.urandom(32), os.urandom(32)
    filled = Filled(tmp_path / "_keys", _given(old))
    for keys in ((old, new), (old, new), (new,)):  # rotated; again the same two; then the new one alone
        vault = Vault(filled.directory, source=_given(*keys))
        filled.check(vault)
        vault.close()
    with pytest.raises(VaultError, match="did not make"):
        Vault(filled.directory, source=_given(old))
    with pytest.raises(VaultError, match="only 3"):
        Vault(filled.directory, source=_given(new, b"bad"))
