"""OAuth in the egress process: made, asked, closed."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from core.audit.records import Auditor
from core.config import Config
from core.egress.messages import Refused
from core.egress.oauth_messages import OAuthQuestion
from core.egress.secret import Secret
from core.egress.vault_access import VaultAccess
from core.oauth.client import OAuthClient
from core.oauth.connecting import Connecting
from core.oauth.renewing import Renewing

_STOP_S = 5.0
"""What renewals under way get at the end."""
_MAX_QUESTIONS = 256
_log = structlog.get_logger(__name__)


class OAuthDesk:
    """Made and used on the event loop. ``credentials.open`` is for whoever sends a credential out.

    Args:
        vault: keeps grants and clients' secrets.
        auditor: of what happens.
        config: the whole.
        send: takes a message for core.
        mounts: see Connecting.
    """

    def __init__(
        self,
        vault: VaultAccess,
        auditor: Auditor,
        config: Config,
        send: Callable[[msgspec.Struct], None],
        mounts: Callable[[str], tuple[str, ...]],
    ) -> None:
        async def secret(name: str) -> Secret | None:
            found = await vault.open("", f"oauth:{name}")
            return found.secret if found is not None else None

        self._send = send
        self._client = OAuthClient(secret)
        self.credentials = Renewing(vault, self._client, config.oauth, auditor)
        self._connecting = Connecting(
            vault, self._client, auditor, config.oauth, config.hub.public_url, mounts=mounts
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def use(self, config: Config) -> None:
        """Use another configuration."""
        self.credentials.use(config.oauth)
        self._connecting.use(config.oauth, config.hub.public_url)

    def forget(self, user: str) -> None:
        """A user is removed: the next of that name begins anew."""
        self.credentials.forget(user)
        self._connecting.forget(user)

    def take(self, question: OAuthQuestion) -> None:
        """Take a question of core's; the answer is sent when it is there."""
        if len(self._tasks) >= _MAX_QUESTIONS:
            self._send(Refused(question.id, "many are connecting accounts just now; try again in a moment"))
            return

        async def answer() -> None:
            self._send(await self._connecting.answer(question))

        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Come to an end; what a server has given by then is kept."""
        ending = [*self._tasks, *self._connecting.stop()]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=_STOP_S)
        await self.credentials.close(_STOP_S)
        await self._client.close()
