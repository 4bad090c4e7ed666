"""A turn that goes on without whoever starts it."""

import hashlib
import secrets
import time
from typing import NamedTuple

from core.hub.agents import Agents
from core.hub.delivery import find_agent
from core.hub.live.requests import TurnAsked
from core.hub.request import check_length
from core.hub.turns import Starter
from core.sessions import TurnExists
from core.vault.handle import UserHandle
from jail.wire.schema import Message


class Began(NamedTuple):
    """A turn, whose events are past ``after``; ``fresh`` unless the same start came before."""

    turn: str
    after: int
    fresh: bool


class Starting:
    """Starts turns in kept sessions. Used on the loop."""

    def __init__(self, agents: Agents, starter: Starter) -> None:
        self._agents = agents
        self._starter = starter

    async def start(self, handle: UserHandle, session: str, asked: TurnAsked) -> Began:
        """Start a turn, or find the one that the same key started; HubError where it cannot be."""
        asked_s = time.monotonic()
        check_length(asked.text, "text")
        agent = find_agent(self._agents, handle.user, asked.agent, "agent")
        turn = _keyed(handle.user, session, asked.key) if asked.key is not None else _fresh()
        messages = [Message("user", asked.text)]
        try:
            running = await self._starter.start(
                handle, agent, messages, session, asked.sampling, asked_s, turn=turn, window=False
            )
        except TurnExists as found:
            return Began(found.turn, found.after, False)
        return Began(running.id, running.began_at - 1, True)


def _fresh() -> str:
    return f"turn_{secrets.token_hex(8)}"


def _keyed(user: str, session: str, key: str) -> str:
    # the id is the memory: the journal has it as long as it has the turn, over any restart
    said = "\0".join((user, session, key)).encode()
    return f"turn_{hashlib.blake2b(said, digest_size=8, person=b'certosa turn').hexdigest()}"
