"""A server's data directory as one leaves it: real vault, users and sessions, odd things in homes."""

import os
import socket
from pathlib import Path

from core.backup.archive import Place
from core.egress.messages import AddUser, HandleMinted, NewToken, TokenMade, VerifyToken
from core.sessions.database import Database
from core.users import Users
from core.vault.handle import UserHandle
from core.vault.vault import Vault
from jail.host.layout import Layout, Owners
from jail.host.process import Identity
from jail.wire.schema import Message

UID_BASE = 1_940_000_000
KEY = "sk-a-key-of-a-provider"


def place_at(data_dir: Path) -> Place:
    """With owners where we are root."""
    owners = None
    if os.geteuid() == 0:
        owners = Owners(Identity(UID_BASE, UID_BASE), Identity(UID_BASE + 1, UID_BASE + 1))
    return Place(data_dir, owners, range(UID_BASE + 1_000, 2**31 - 2))


def fill(data_dir: Path) -> dict[str, str]:
    """Make alice and bob with a session, an agent and a home each; returns their tokens."""
    place = place_at(data_dir)
    layout = Layout(data_dir, place.owners)
    layout.prepare()
    users = Users(data_dir / "_system" / "core.db", UID_BASE)
    vault = Vault(data_dir / "_other") if place.owners else Vault(data_dir / "_keys")
    tokens: dict[str, str] = {}
    for name in ("alice", "bob"):
        user = users.add(name)
        layout.prepare_user(name, user.host_uid if place.owners else 0)
        vault.answer(AddUser(1, name))
        made = vault.answer(NewToken(1, name, ""))
        assert isinstance(made, TokenMade)
        tokens[name] = made.token
        _write_session(data_dir / "sealed" / f"{name}.db", handle_of(vault, made.token))
        _write_home(data_dir / "users" / name, name)
    users.close()
    vault.close()
    if place.owners:
        for path in (data_dir / "_other").iterdir():
            path.rename(data_dir / "_keys" / path.name)
        (data_dir / "_other").rmdir()
    keys = data_dir / "_keys" / "provider-keys.toml"
    keys.write_text(f'fake = "{KEY}"\n')
    keys.chmod(0o600)
    (data_dir / "_keys" / "first-admin-token").write_text("cta_left\n")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(data_dir / "_system" / "admin.sock"))
    if place.owners:
        _give_away(data_dir, place.owners)
    return tokens


def handle_of(vault: Vault, token: str) -> UserHandle:
    """As the vault mints it for a token."""
    minted = vault.answer(VerifyToken(1, token))
    assert isinstance(minted, HandleMinted)
    return UserHandle(minted.user, minted.data_key)


def said(path: Path, handle: UserHandle) -> list[str]:
    """The messages of the session ``notes``."""
    database = Database(path)
    try:
        page = database.bind(handle).read_messages("notes", 0, 10, 1 << 20, 10)
        return [message.text for message in page.messages]
    finally:
        database.close()


def _write_session(path: Path, handle: UserHandle) -> None:
    database = Database(path)
    store = database.bind(handle)
    database.connection.execute("BEGIN")
    store.ensure_session("notes", "t", 1)
    store.append_messages("notes", [Message("user", f"I am {handle.user}")], 1)
    database.connection.execute("COMMIT")
    database.close()


def _write_home(user: Path, name: str) -> None:
    (user / "agents" / "pirate.toml").write_text('prompt = "Arr"\n')
    (user / "agents" / "pirate.toml").chmod(0o640)
    home = user / "home"
    (home / "notes").mkdir(mode=0o755)
    (home / "notes" / "hello.txt").write_text(f"hello {name}")
    os.utime(home / "notes" / "hello.txt", ns=(1_600_000_000_123_456_789,) * 2)
    (home / "big.bin").write_bytes(name.encode() * 700_000)
    (home / "run.sh").write_text("#!/bin/sh\n")
    (home / "run.sh").chmod(0o4755)
    os.link(home / "run.sh", home / "again.sh")
    (home / "empty").touch()
    Path(os.fsdecode(bytes(home) + b"/caf\xe9\n.txt")).write_text("odd")
    (home / "passwd").symlink_to("/etc/passwd")
    (home / "up").symlink_to("../../bob/home")
    os.mkfifo(home / "pipe")
    (home / "shut").mkdir(mode=0o500)


def _give_away(data_dir: Path, owners: Owners) -> None:
    """What core, egress and users would have written themselves."""
    who = {"_system": owners.core, "sealed": owners.core, "_keys": owners.egress}
    for name, identity in who.items():
        for path in (data_dir / name).iterdir():
            os.chown(path, identity.uid, identity.gid, follow_symlinks=False)
    for user in (data_dir / "users").iterdir():
        theirs = (user / "home").stat().st_uid
        for path in (user / "home").rglob("*"):
            os.chown(path, theirs, theirs, follow_symlinks=False)
        os.chmod(user / "home" / "run.sh", 0o4755)
        for path in (user / "agents").iterdir():
            os.chown(path, owners.core.uid, theirs)
