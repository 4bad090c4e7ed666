"""The value to send now: renewed ahead of its end, once however many ask, and never lost on the way."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.egress.credential_messages import CredentialInfo, Credentials, DeleteCredential, ListCredentials
from core.egress.vault_access import VaultUnavailable
from core.oauth.grant import Grant, basic
from core.oauth.renewing import GrantLost
from core.vault.vault import Vault
from tests.fakes.auth_server import CLIENT, SECRET, FakeAuthServer, Misbehaviour
from tests.fakes.oauth_world import World, world

HOUR_S = 3_600


def test_a_good_token_is_sent_as_it_is_and_renewed_ahead_of_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            first = await here.value()
            (family,) = here.server.families
            assert first == family.access[0]
            here.now_s += HOUR_S - 121
            assert await here.value() == first
            assert len(here.server.forms) == 1
            here.now_s += 2  # good for two minutes less a second, and yet
            second = await here.value()
            assert second == family.access[1] != first
            assert here.server.forms[-1]["refresh_token"] == family.refresh[0]
            here.now_s += HOUR_S
            assert await here.value() == family.access[2]
            assert here.server.forms[-1]["refresh_token"] == family.refresh[1]
            assert not family.ended
            assert here.notes.said == [("credential_set", "done"), *[("credential_renewed", "done")] * 2]

    asyncio.run(run())


def test_fifty_who_ask_at_once_make_one_renewal(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            await here.connect(owner="bob")
            here.now_s += HOUR_S
            here.server.held = asyncio.Event()
            asking = [asyncio.create_task(here.value()) for _ in range(50)]
            others = [asyncio.create_task(here.value(owner="bob")) for _ in range(3)]
            asking[7].cancel()  # one of them gives up
            await asyncio.to_thread(here.server.came.acquire)
            here.server.held.set()
            del asking[7]
            values, bobs = set(await asyncio.gather(*asking)), set(await asyncio.gather(*others))
            assert len(values) == len(bobs) == 1
            assert values != bobs
            assert [form["grant_type"] for form in here.server.forms].count("refresh_token") == 2
            assert not any(family.ended for family in here.server.families)

    asyncio.run(run())


def test_who_asked_first_may_leave_and_the_grant_is_kept_all_the_same(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.now_s += HOUR_S
            here.server.held = asyncio.Event()
            asking = asyncio.create_task(here.value())
            await asyncio.to_thread(here.server.came.acquire)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            here.server.held.set()
            await here.renewing.close(20.0)
            found = here.vault.open("alice", "mail")
            assert found is not None
            assert found.secret.reveal() == here.server.families[0].access[-1]
            assert len(here.server.families[0].access) == 2

    asyncio.run(run())


def test_a_rotated_refresh_token_is_on_the_disk_before_its_access_token_is_used(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.now_s += HOUR_S
            value = await here.value()
            # another process opens a copy of what is there now, as after a crash
            copy = tmp_path / "copy"
            copy.mkdir(mode=0o700)
            for path in (tmp_path / "_keys").iterdir():
                if path.is_file():
                    (copy / path.name).write_bytes(path.read_bytes())
                    (copy / path.name).chmod(0o600)
            after = Vault(copy)
            try:
                found = after.open("alice", "mail")
            finally:
                after.close()
            assert found is not None
            assert found.grant is not None
            family = here.server.families[0]
            assert (found.grant.refresh, found.secret.reveal()) == (family.refresh[1], value)

    asyncio.run(run())


def test_a_grant_that_cannot_be_written_is_held_and_written_first_thing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.now_s += HOUR_S
            fails = True
            keep = here.vault.renew_grant

            def full(*arguments: Any) -> int | None:
                if fails:
                    raise sqlite3.OperationalError("database or disk is full")
                return keep(*arguments)

            monkeypatch.setattr(here.vault, "renew_grant", full)
            for _ in range(3):
                with pytest.raises(VaultUnavailable, match="disk"):
                    await here.value()
            family = here.server.families[0]
            assert len(family.access) == 2  # asked for once: the old refresh token is worth nothing now
            fails = False
            assert await here.value() == family.access[1]
            here.now_s += HOUR_S
            assert await here.value() == family.access[2]
            assert not family.ended

    asyncio.run(run())


def test_a_revoked_grant_says_connect_it_again_and_is_asked_for_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.server.revoke()
            here.now_s += HOUR_S
            for _ in range(3):
                with pytest.raises(GrantLost, match=r"certosa credential connect mail --with acme"):
                    await here.value()
            assert len(here.server.forms) == 2
            (shown,) = _list(here)
            assert shown.grant is not None
            assert (shown.grant.provider, shown.grant.lost) == ("acme", True)
            assert ("credential_renewed", "failed") in here.notes.said
            stored = b"".join(path.read_bytes() for path in (tmp_path / "_keys").glob("vault.db*"))
            assert here.server.families[0].refresh[0].encode() not in stored
            await here.connect()
            assert await here.value() == here.server.families[1].access[0]

    asyncio.run(run())


def test_a_stolen_refresh_token_that_was_used_elsewhere_ends_the_grant_clearly(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            family = here.server.families[0]
            family.refresh.append("another-that-the-thief-has")
            here.now_s += HOUR_S
            with pytest.raises(GrantLost):
                await here.value()
            assert family.ended

    asyncio.run(run())


@pytest.mark.parametrize("how", ["refuse", "fail", "huge", "not_json", "redirect", "cut", "mac", "short"])
def test_a_server_that_fails_does_not_end_a_token_that_is_still_good(
    tmp_path: Path, how: Misbehaviour
) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            first = await here.value()
            here.now_s += HOUR_S - 60
            here.server.misbehave(how)
            assert await here.value() == first
            assert await here.value() == first  # and it is left alone for a while
            assert len(here.server.forms) == 2
            here.now_s += 61
            here.server.misbehave(how)
            with pytest.raises(VaultUnavailable, match="acme") as raised:
                await here.value()
            assert not isinstance(raised.value, GrantLost)
            with pytest.raises(VaultUnavailable):
                await here.value()
            assert len(here.server.forms) == 3
            here.now_s += 4
            assert await here.value() == here.server.families[0].access[-1]

    asyncio.run(run())


def test_an_answer_that_was_lost_on_its_way_ends_in_a_clear_word(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.now_s += HOUR_S
            here.server.misbehave("lost")
            with pytest.raises(VaultUnavailable, match="cannot be reached"):
                await here.value()
            here.now_s += 4
            with pytest.raises(GrantLost, match="connect it again"):
                await here.value()

    asyncio.run(run())


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.client._answer_s = 0.05
            here.now_s += HOUR_S
            here.server.misbehave("slow")
            with pytest.raises(VaultUnavailable, match=r"did not answer in 0\.05 s"):
                await here.value()

    asyncio.run(run())


def test_what_a_server_echoes_has_no_secret_in_it_any_more(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.now_s += HOUR_S
            here.server.misbehave("echo")
            with pytest.raises(VaultUnavailable, match="struck out") as raised:
                await here.value()
            said = f"{raised.value} {here.notes.records}"
            sent = basic(CLIENT, SECRET).removeprefix("Basic ")
            for secret in (sent, SECRET, here.server.families[0].refresh[0]):
                assert secret not in said
                assert secret[:20] not in said

    asyncio.run(run())


def test_a_credential_that_was_deleted_during_its_renewal_does_not_come_back(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            await here.connect()
            here.now_s += HOUR_S
            here.server.held = asyncio.Event()
            asking = asyncio.create_task(here.renewing.open("alice", "mail"))
            await asyncio.to_thread(here.server.came.acquire)
            here.vault.answer(DeleteCredential(5, "alice", "mail"))
            here.server.held.set()
            assert await asking is None
            assert _list(here) == ()

    asyncio.run(run())


def test_a_token_without_an_end_or_without_a_refresh_token_is_used_until_it_ends(tmp_path: Path) -> None:
    async def run(server: FakeAuthServer, name: str) -> None:
        async with world(tmp_path / name, server) as here:
            await here.connect()
            first = await here.value()
            here.now_s += 10 * 365 * 86_400
            assert await here.value() == first

    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    asyncio.run(run(FakeAuthServer(life_s=None), "one"))

    async def over() -> None:
        async with world(tmp_path / "two", FakeAuthServer(life_s=600)) as here:
            await here.connect()
            family = here.server.families[0]
            found = here.vault.open("alice", "mail")
            assert found is not None
            assert found.grant is not None
            here.vault.renew_grant(
                "alice", "mail", found.version, _without_refresh(found.grant)
            )  # fmt: skip
            here.now_s += 599
            assert await here.value() == family.access[0]
            here.now_s += 1
            with pytest.raises(GrantLost):
                await here.value()
            assert len(here.server.forms) == 1

    asyncio.run(over())


def test_another_credential_passes_through_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            assert await here.renewing.open("alice", "none") is None
            assert await here.value("oauth:acme", "") == SECRET

    asyncio.run(run())


def _without_refresh(grant: Grant) -> Grant:
    return msgspec.structs.replace(grant, refresh="")


def _list(here: World) -> tuple[CredentialInfo, ...]:
    listed = here.vault.answer(ListCredentials(9, "alice"))
    assert isinstance(listed, Credentials)
    return listed.credentials
