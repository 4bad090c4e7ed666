"""A test of a provider for its operator: which models it has, and whether one of them says a word.

It goes to the bare server: neither who may use it nor an open breaker stands in an operator's way.
"""

import asyncio
import time
from collections.abc import Mapping

from core.config import AgentSection
from core.egress.messages import ChatStart, ProviderTried, Refused, TryProvider
from core.egress.model_server import ModelServer
from core.egress.providers import ProviderError
from jail.wire.schema import Message, Sampling, ToolCall, Usage

_CHAT_S = 10.0  # with the list's own limit below what core waits for an answer
_MAX_TOKENS = 16


class _Nowhere:
    """An outlet for an answer that nobody reads."""

    async def text(self, text: str) -> None:
        """Dropped."""

    async def reasoning(self, text: str) -> None:
        """Dropped."""

    async def call(self, call: ToolCall) -> None:
        """Dropped."""

    def usage(self, usage: Usage) -> None:
        """Not counted: a test is the operator's own."""


async def try_provider(
    asked: TryProvider, servers: Mapping[str, ModelServer], agent: AgentSection
) -> ProviderTried | Refused:
    """List a provider's models and ask one of them for a few words; never raises for what it does."""
    server = servers.get(asked.provider)
    if asked.provider == "builtin":
        return Refused(asked.id, "builtin needs no test: it has no server behind it")
    if server is None:
        return Refused(
            asked.id,
            f"the running server has no provider {asked.provider[:96]!r} to test: after a change of the"
            " configuration send the server SIGHUP, or restart it",
        )
    models: list[str] = []
    models_error = ""
    try:
        models = await server.models()
    except ProviderError as error:
        models_error = error.failure.message
    model = asked.model or (agent.model if agent.provider == asked.provider else next(iter(models), ""))
    began_s = time.monotonic()
    chat_error = await _say_a_word(server, asked, model)
    took_s = time.monotonic() - began_s
    return ProviderTried(asked.id, tuple(models), models_error, model, chat_error, round(took_s, 3))


async def _say_a_word(server: ModelServer, asked: TryProvider, model: str) -> str:
    """Empty where it did."""
    if not model:
        return "it lists no model: name one with --model"
    question = (Message("user", "Say the word ok."),)
    ask = ChatStart(
        asked.id, "", asked.provider, model, question, (), Sampling(max_tokens=_MAX_TOKENS)
    )  # fmt: skip
    try:
        async with asyncio.timeout(_CHAT_S):
            await server.chat(ask, _Nowhere())
    except ProviderError as error:
        return error.failure.message
    except TimeoutError:
        return f"{asked.provider} did not finish a few words within {_CHAT_S:g} s"
    return ""
