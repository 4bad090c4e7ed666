"""Connecting an account: by a browser and by a device, against a server that plays along or does not."""

import asyncio
import re
import urllib.parse
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.egress.messages import Ok, Refused
from core.egress.oauth_messages import (
    AskConnect,
    BeginConnect,
    ConnectBegun,
    ConnectSeen,
    ConnectTold,
    FinishConnect,
    ListOAuth,
    LookConnect,
    OAuthListed,
)
from core.oauth.grant import challenge
from core.vault.terms import CredentialTerms
from tests.fakes.auth_server import SECRET, FakeAuthServer, Misbehaviour
from tests.fakes.oauth_world import PUBLIC_URL, World, world


async def _told(here: World, name: str = "mail", owner: str = "alice") -> tuple[str, str]:
    told = await here.connecting.answer(AskConnect(8, owner, name))
    assert isinstance(told, ConnectTold), told
    return told.status, told.message


async def _until_told(here: World, status: str) -> str:
    for _ in range(4_000):
        found, message = await _told(here)
        if found != "waiting":
            assert found == status, message
            return message
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("client_auth", ["basic", "body", "none"])
def test_a_browser_that_comes_back_connects_a_credential(tmp_path: Path, client_auth: str) -> None:
    async def run() -> None:
        async with world(tmp_path, FakeAuthServer(client_auth)) as here:
            begun = await here.begin(path="/v1/api", scopes=("read",))
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(begun.url).query))
            assert query["redirect_uri"] == f"{PUBLIC_URL}/v1/oauth/acme/callback"
            assert (query["scope"], query["code_challenge_method"]) == ("read", "S256")
            assert (begun.flow, begun.user_code, begun.expires_in_s) == ("browser", "", 600)
            assert await _told(here) == ("waiting", "")
            came = await here.consent(begun)
            assert await here.connecting.answer(LookConnect(3, "acme", came.state)) == ConnectSeen(
                3, "alice", "mail"
            )
            assert await here.connecting.answer(came) == Ok(2)
            assert await _told(here) == ("done", "")
            found = await here.renewing.open("alice", "mail")
            assert found is not None
            assert found.secret.reveal() == here.server.families[0].access[0]
            assert found.terms == CredentialTerms(kind="oauth2", host="127.0.0.1", path="/v1/api")
            assert challenge(here.server.forms[0]["code_verifier"]) == query["code_challenge"]
            assert here.notes.said == [("credential_set", "done")]
            assert await here.renewing.open("bob", "mail") is None

    asyncio.run(run())


def test_a_state_counts_once_and_for_its_provider_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            here.connecting.use({**here.sections, "other": here.sections["acme"]}, PUBLIC_URL)
            came = await here.consent(await here.begin())
            forged = ("", "x" * 43, came.state[:-1], came.state + "A", came.state.swapcase())
            for state in forged:
                answer = await here.connecting.answer(FinishConnect(4, "acme", state, came.code))
                assert isinstance(answer, Refused), state
            other = await here.connecting.answer(FinishConnect(4, "other", came.state, came.code))
            assert isinstance(other, Refused)
            assert here.server.forms == []
            assert await here.connecting.answer(came) == Ok(2)
            again = await here.connecting.answer(came)
            assert isinstance(again, Refused)
            assert isinstance(await here.connecting.answer(LookConnect(5, "acme", came.state)), Refused)
            assert len(here.server.forms) == 1

    asyncio.run(run())


def test_a_state_runs_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            came = await here.consent(await here.begin())
            here.now_s += 599
            assert isinstance(await here.connecting.answer(LookConnect(5, "acme", came.state)), ConnectSeen)
            here.now_s += 1
            assert isinstance(await here.connecting.answer(came), Refused)
            assert here.server.forms == []
            assert (await _told(here))[0] == "failed"

    asyncio.run(run())


def test_beginning_anew_makes_the_link_of_before_worthless(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            first = await here.consent(await here.begin())
            second = await here.consent(await here.begin())
            assert isinstance(await here.connecting.answer(first), Refused)
            assert await here.connecting.answer(second) == Ok(2)

    asyncio.run(run())


def test_a_code_of_somebody_elses_link_is_not_taken(tmp_path: Path) -> None:
    """A code is bound to the verifier of the link that it came of (RFC 7636): mixing them gets nothing."""

    async def run() -> None:
        async with world(tmp_path) as here:
            of_alice = await here.consent(await here.begin())
            of_bob = await here.consent(await here.begin(owner="bob"))
            mixed = FinishConnect(4, "acme", of_bob.state, of_alice.code)
            answer = await here.connecting.answer(mixed)
            assert isinstance(answer, Refused)
            assert "invalid_grant" in answer.message
            assert await here.renewing.open("bob", "mail") is None
            assert await here.connecting.answer(of_alice) == Ok(2)

    asyncio.run(run())


def test_a_removed_users_link_comes_to_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            came = await here.consent(await here.begin())
            kept = await here.consent(await here.begin(owner="bob"))
            here.connecting.forget("alice")
            assert isinstance(await here.connecting.answer(came), Refused)
            assert await here.connecting.answer(kept) == Ok(2)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "words"), [("access_denied", "by its owner"), ("server_error", "by the provider")]
)
def test_what_a_browser_says_went_wrong_is_not_repeated(tmp_path: Path, error: str, words: str) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            came = await here.consent(await here.begin())
            answer = await here.connecting.answer(FinishConnect(2, "acme", came.state, "", error))
            assert isinstance(answer, Refused)
            assert words in answer.message
            assert await _told(here) == ("failed", answer.message)
            assert ("credential_refused", "refused") in here.notes.said
            assert isinstance(await here.connecting.answer(came), Refused)

    asyncio.run(run())


@pytest.mark.parametrize("how", ["refuse", "echo", "fail", "huge", "not_json", "redirect", "cut", "mac"])
def test_a_server_that_misbehaves_connects_nothing(tmp_path: Path, how: Misbehaviour) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            came = await here.consent(await here.begin())
            here.server.misbehave(how)
            answer = await here.connecting.answer(came)
            assert isinstance(answer, Refused)
            assert answer.message.startswith("acme ")
            assert len(answer.message) < 600
            for secret in (SECRET, came.code, here.server.forms[0]["code_verifier"]):
                assert secret not in answer.message
            assert await here.renewing.open("alice", "mail") is None
            await here.connect()

    asyncio.run(run())


def test_a_wrong_client_secret_is_the_operators_to_hear_of(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, FakeAuthServer("body")) as here:
            sections = {"acme": msgspec.structs.replace(here.sections["acme"], client_id="another")}
            here.connecting.use(sections, PUBLIC_URL)
            answer = await here.connecting.answer(BeginConnect(1, "alice", "tv", "acme", "device"))
            assert isinstance(answer, Refused)
            assert "tell the operator" in answer.message
            here.connecting.use(here.sections, PUBLIC_URL)
            await here.begin("tv", flow="device")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"provider": "nobody"}, "no 'nobody'"),
        ({"host": "evil.example"}, "go to 127.0.0.1 alone"),
        ({"scopes": ("read", "admin")}, "may not be asked for admin"),
        ({"path": "/a/../b"}, "path"),
        ({"name": "provider:acme"}, "choose another"),
        ({"name": "oauth:acme"}, "choose another"),
        ({"name": "Mail"}, "name"),
    ],
)
def test_what_may_not_be_connected_is_refused_at_once(
    tmp_path: Path, asked: dict[str, Any], words: str
) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            ask = msgspec.structs.replace(BeginConnect(1, "alice", "mail", "acme"), **asked)
            answer = await here.connecting.answer(ask)
            assert isinstance(answer, Refused)
            assert words in answer.message
            assert isinstance(await here.connecting.answer(AskConnect(2, "alice", "mail")), Refused)

    asyncio.run(run())


def test_a_provider_is_for_whom_it_says_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, users=["bob"]) as here:
            refused = await here.connecting.answer(BeginConnect(1, "alice", "mail", "acme"))
            assert isinstance(refused, Refused)
            assert await here.connecting.answer(ListOAuth(2, "alice")) == OAuthListed(2, ())
            listed = await here.connecting.answer(ListOAuth(2, "bob"))
            assert isinstance(listed, OAuthListed)
            (one,) = listed.providers
            assert (one.name, one.flows, one.ready) == ("acme", ("browser", "device"), True)
            await here.connect(owner="bob")

    asyncio.run(run())


def test_without_a_public_address_there_is_the_device_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            here.connecting.use(here.sections, "")
            refused = await here.connecting.answer(BeginConnect(1, "alice", "mail", "acme", "browser"))
            assert isinstance(refused, Refused)
            assert (await here.begin()).flow == "device"
            only = {"acme": msgspec.structs.replace(here.sections["acme"], device_url="")}
            here.connecting.use(only, "")
            none = await here.connecting.answer(BeginConnect(1, "alice", "mail", "acme"))
            assert isinstance(none, Refused)
            assert "public_url" in none.message

    asyncio.run(run())


def test_a_device_is_polled_until_the_person_says_yes(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            begun = await here.begin(flow="device")
            assert re.fullmatch(r"[0-9A-F]{4}-[0-9A-F]{4}", begun.user_code)
            assert begun.url == f"{here.server.url}/activate"
            for _ in range(3):  # it asks, and goes on asking
                await asyncio.to_thread(here.server.came.acquire)
            assert await _told(here) == ("waiting", "")
            here.server.decide(begun.user_code)
            await _until_told(here, "done")
            assert await here.value() == here.server.families[0].access[0]

    asyncio.run(run())


def test_a_server_that_says_slow_down_is_asked_less_often(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            here.server.misbehave("slow_down", "slow_down")
            begun = await here.begin(flow="device")
            here.server.decide(begun.user_code)
            await _until_told(here, "done")
            first, second, third = here.server.came_s
            # a second lasts 5 ms here: after one of them at first, then after 6 and 11
            assert second - first >= 0.029
            assert third - second >= 0.054

    asyncio.run(run())


@pytest.mark.parametrize(("yes", "words"), [(False, "by its owner"), (None, "run out")])
def test_a_device_that_is_refused_or_left_lying_connects_nothing(
    tmp_path: Path, yes: bool | None, words: str
) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            begun = await here.begin(flow="device")
            if yes is None:
                here.now_s += 601
            else:
                here.server.decide(begun.user_code, yes)
            assert words in await _until_told(here, "failed")
            assert await here.renewing.open("alice", "mail") is None

    asyncio.run(run())


def test_a_device_goes_on_being_polled_while_its_server_is_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            here.server.misbehave("fail", "cut")
            begun = await here.begin(flow="device")
            here.server.decide(begun.user_code)
            await _until_told(here, "done")
            assert len(here.server.forms) == 3

    asyncio.run(run())


def test_nobody_begins_without_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            for number in range(8):
                await here.begin(f"n{number}")
            full = await here.connecting.answer(BeginConnect(1, "alice", "n8", "acme"))
            assert isinstance(full, Refused)
            assert "already" in full.message
            for _ in range(21):
                await here.begin("n0")
            often = await here.connecting.answer(BeginConnect(1, "alice", "n0", "acme"))
            assert isinstance(often, Refused)
            assert "too often" in often.message
            assert isinstance(
                await here.connecting.answer(BeginConnect(1, "bob", "n0", "acme")), ConnectBegun
            )
            here.now_s += 601
            await here.begin("n0")

    asyncio.run(run())


def test_a_name_that_is_for_a_key_in_the_jail_is_not_connected(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            refused = await here.connecting.answer(BeginConnect(1, "alice", "signing-key", "acme"))
            assert isinstance(refused, Refused)
            assert "choose another name" in refused.message
            await here.begin("signing-key", owner="bob")
            await here.begin("mail")

    asyncio.run(run())


def test_a_key_that_is_mounted_since_the_link_was_made_is_not_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path) as here:
            first = await here.consent(await here.begin())
            here.mounted["alice"] = ("mail",)
            refused = await here.connecting.answer(first)
            assert isinstance(refused, Refused)
            assert "choose another name" in refused.message
            assert await here.access.open("alice", "mail") is None
            here.mounted.clear()
            assert await here.connecting.answer(await here.consent(await here.begin())) == Ok(2)

    asyncio.run(run())
