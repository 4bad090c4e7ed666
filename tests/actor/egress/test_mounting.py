"""Egress's end of a mount: the spawner is given what the configuration allows, and what is there."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pykka
import pytest

from core.config import parse_config
from core.egress.credential_messages import SetCredential
from core.egress.messages import AddUser
from core.egress.mounting import Mounting
from core.egress.spawner_end import SpawnerEnd
from core.egress.vault_access import VaultAccess, VaultUnavailable
from core.metrics import EgressMetrics
from core.mounts import Mounts
from core.oauth.grant import Grant
from core.vault.actor import VaultActor
from core.vault.terms import CredentialTerms
from core.vault.vault import Vault
from jail.host.messages import (
    MAX_MOUNTS,
    AskMounts,
    FromEgress,
    MountsGiven,
    MountsRefused,
    Ping,
    Pong,
    receive_with_fds,
    send_message,
)
from tests.fakes.auditor import Notes

MOUNTS = "".join(
    f'[[vault.mount]]\ncredential = "{name}"\nusers = ["alice"]\n'
    for name in ("signing-key", "robot", "account", "unset")
)
KEY = CredentialTerms(host="api.example.com")
BASIC = CredentialTerms(kind="basic", place="basic", host="wiki.example.com", username="robot")


class World:
    """A vault with two users, and the spawner's end of the pair."""

    def __init__(self, directory: Path, broken: bool = False) -> None:
        vault = Vault(directory / "_keys")
        for user in ("alice", "bob"):
            vault.answer(AddUser(1, user))
            for name, terms in (("signing-key", KEY), ("robot", BASIC), ("private", KEY)):
                vault.answer(SetCredential(1, user, name, terms, f"{name} of {user}"))
        account = CredentialTerms(kind="oauth2", host="api.example.com")
        vault.put_grant("alice", "account", account, Grant("acme", "access-token", "refresh-token", 0))
        self.actor: pykka.ActorRef[VaultActor] = VaultActor.start(vault, lambda: None, EgressMetrics([], []))
        self.notes = Notes()

        async def fail(_owner: str, _name: str) -> None:
            raise VaultUnavailable("the disk is full")

        opening: Any = fail if broken else VaultAccess(self.actor).open
        mounting = Mounting(Mounts(parse_config(MOUNTS).vault), opening, self.notes)
        self.spawner, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.spawner.setblocking(False)
        self.end = SpawnerEnd(ours, lambda _: None, mounting.answer)

    async def hear(self) -> tuple[object, tuple[int, ...]]:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.spawner, readable.set)
        await asyncio.wait_for(readable.wait(), 30)
        loop.remove_reader(self.spawner)
        received = receive_with_fds(self.spawner, FromEgress, MAX_MOUNTS)
        assert received is not None
        return received

    async def ask(self, user: str, *names: str) -> tuple[object, tuple[int, ...]]:
        send_message(self.spawner, AskMounts(7, user, names))
        return await self.hear()

    def close(self) -> None:
        self.end.close()
        self.spawner.close()
        self.actor.stop()


def within(directory: Path, act: Callable[[World], Coroutine[Any, Any, None]], broken: bool = False) -> None:
    async def run() -> None:
        world = World(directory, broken)
        try:
            await act(world)
        finally:
            world.close()

    asyncio.run(run())


def read_and_close(fd: int) -> str:
    with os.fdopen(fd) as file:
        return file.read()


def test_a_key_and_a_password_are_given_and_recorded(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        answer, fds = await world.ask("alice", "robot", "signing-key")
        assert answer == MountsGiven(7, ("robot", "signing-key"))
        with pytest.raises(PermissionError):
            os.write(fds[0], b"changed")
        assert [read_and_close(fd) for fd in fds] == ["robot of alice", "signing-key of alice"]
        assert [(r.kind, r.outcome, r.user, r.on) for r in world.notes.records] == [
            ("credential_mounted", "done", "alice", "robot"),
            ("credential_mounted", "done", "alice", "signing-key"),
        ]

    within(tmp_path, act)


def test_what_is_not_set_yet_is_not_there(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        assert await world.ask("alice", "unset") == (MountsGiven(7, ()), ())
        assert world.notes.records == []

    within(tmp_path, act)


@pytest.mark.parametrize(
    ("user", "name"),
    [("bob", "signing-key"), ("alice", "private"), ("alice", "account"), ("nobody", "signing-key")],
)
def test_what_the_configuration_does_not_have_or_changes_is_left_out(
    tmp_path: Path, user: str, name: str
) -> None:
    async def act(world: World) -> None:
        assert await world.ask(user, name) == (MountsGiven(7, ()), ())
        (record,) = world.notes.records
        assert (record.kind, record.user, record.on) == ("credential_refused", user, name)
        _, fds = await world.ask("alice", "signing-key")
        assert read_and_close(fds[0]) == "signing-key of alice"

    within(tmp_path, act)


def test_a_vault_that_does_not_answer_is_a_refusal_and_no_absence(tmp_path: Path) -> None:
    async def act(world: World) -> None:
        assert await world.ask("alice", "signing-key") == (MountsRefused(7, "the disk is full"), ())
        send_message(world.spawner, Ping())
        assert await world.hear() == (Pong(), ())

    within(tmp_path, act, broken=True)
