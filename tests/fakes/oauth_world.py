"""A vault, an authorization server and egress's OAuth between them, on one event loop."""

import asyncio
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pykka

from core.egress.credential_messages import SetCredential
from core.egress.messages import AddUser, Ok
from core.egress.oauth_messages import BeginConnect, ConnectBegun, FinishConnect
from core.egress.secret import Secret
from core.egress.vault_access import VaultAccess
from core.metrics import EgressMetrics
from core.oauth.client import OAuthClient
from core.oauth.connecting import Connecting
from core.oauth.renewing import Renewing
from core.oauth.section import OAuthSection
from core.vault.actor import VaultActor
from core.vault.terms import CredentialTerms
from core.vault.vault import Vault
from tests.fakes.auditor import Notes
from tests.fakes.auth_server import SECRET, FakeAuthServer

PUBLIC_URL = "http://127.0.0.1:8700"
START_S = 1_800_000_000.0


class World:
    """``now_s`` is the time of all, wall and monotonic; tests move it."""

    def __init__(self, directory: Path, server: FakeAuthServer, **section: Any) -> None:
        self.server, self.notes, self.now_s = server, Notes(), START_S
        server.redirect_uri = f"{PUBLIC_URL}/v1/oauth/acme/callback"
        self.vault = Vault(directory / "_keys", wall_s=lambda: self.now_s)
        for user in ("alice", "bob"):
            self.vault.answer(AddUser(1, user))
        if server.client_auth != "none":
            terms = CredentialTerms()
            kept = self.vault.answer(SetCredential(1, "", "oauth:acme", terms, SECRET))
            assert type(kept).__name__ == "CredentialKept"
        self.actor: pykka.ActorRef[VaultActor] = VaultActor.start(
            self.vault, lambda: None, EgressMetrics([], [])
        )
        self.access = VaultAccess(self.actor)
        self.sections = {"acme": msgspec.convert(server.section(**section), OAuthSection)}
        self.client = OAuthClient(self._secret, answer_s=5.0, wall_s=lambda: self.now_s)
        self.renewing = Renewing(
            self.access, self.client, self.sections, self.notes, lambda: self.now_s
        )  # fmt: skip
        self.mounted = {"alice": ("signing-key",)}
        self.connecting = Connecting(
            self.access, self.client, self.notes, self.sections, PUBLIC_URL, lambda: self.now_s, 0.005,
            lambda user: self.mounted.get(user, ()),
        )  # fmt: skip

    async def _secret(self, name: str) -> Secret | None:
        found = await self.access.open("", f"oauth:{name}")
        return found.secret if found else None

    async def begin(self, name: str = "mail", owner: str = "alice", **more: Any) -> ConnectBegun:
        """Begin to connect; fails where it is refused."""
        begun = await self.connecting.answer(BeginConnect(1, owner, name, "acme", **more))
        assert isinstance(begun, ConnectBegun), begun
        return begun

    async def consent(self, begun: ConnectBegun) -> FinishConnect:
        """What a browser brings back from the server's page."""
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(begun.url, allow_redirects=False) as answer,
        ):
            assert answer.status == 302, await answer.text()
            came = urllib.parse.urlsplit(answer.headers["Location"])
        assert came._replace(query="").geturl() == self.server.redirect_uri
        query = dict(urllib.parse.parse_qsl(came.query))
        return FinishConnect(2, "acme", query["state"], query["code"])

    async def connect(self, name: str = "mail", owner: str = "alice", **more: Any) -> None:
        """A grant, kept."""
        done = await self.connecting.answer(await self.consent(await self.begin(name, owner, **more)))
        assert isinstance(done, Ok), done
        while self.server.came.acquire(blocking=False):
            pass

    async def value(self, name: str = "mail", owner: str = "alice") -> str:
        """The value to send now."""
        found = await self.renewing.open(owner, name)
        assert found is not None
        return found.secret.reveal()


@asynccontextmanager
async def world(
    directory: Path, server: FakeAuthServer | None = None, **section: Any
) -> AsyncIterator[World]:
    """All of it, for as long as the block runs."""
    async with server or FakeAuthServer() as running:
        made = World(directory, running, **section)
        try:
            async with asyncio.timeout(60):
                yield made
        finally:
            if running.held is not None:
                running.held.set()
            tasks = made.connecting.stop()
            if tasks:
                await asyncio.wait(tasks)
            await made.renewing.close(10.0)
            await made.client.close()
            await asyncio.to_thread(made.actor.stop)
