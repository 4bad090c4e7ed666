"""A provider behind its gate, its breaker and its retries.

Only a chat of which nothing has come yet is tried again: what a person has read stays said.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import structlog
from msgspec import UNSET

from core.config import ProviderSection
from core.egress.breaker import Breaker
from core.egress.messages import ChatStart, ProviderState
from core.egress.providers import Outlet, Provider, ProviderError, Watched
from core.egress.retries import Retries
from jail.wire.schema import ChatEnd

_BUSY_RETRY_AFTER_S = 2
_log = structlog.get_logger(__name__)


class Terms(NamedTuple):
    """On which terms a provider is used; see core.config.ProviderSection."""

    retries: Retries
    breaker_failures: int
    breaker_open_s: float
    max_streams: int
    max_streams_per_user: int
    users: frozenset[str] | None  # None: everybody

    @classmethod
    def of(cls, section: ProviderSection) -> "Terms":
        """A configured provider's."""
        return cls(
            Retries(section.retries, section.retry_base_s, section.retry_cap_s),
            section.breaker_failures,
            section.breaker_open_s,
            section.max_streams,
            section.max_streams_per_user,
            None if section.users is UNSET else frozenset(section.users),
        )


class Upstream:
    """A provider that may be tried again, left alone, or full (see core.egress.providers.Provider).

    Args:
        retries: called whenever a chat is tried again.
    """

    def __init__(
        self, name: str, provider: Provider, terms: Terms, retries: Callable[[], None] = lambda: None
    ) -> None:
        self._retries = retries
        self.name = name
        self._provider = provider
        self._terms = terms
        self._breaker = Breaker(terms.breaker_failures, terms.breaker_open_s)
        self._running = 0
        self._per_user: Counter[str] = Counter()

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        """Answer, trying again where that may help. Raises ProviderError, which tells of the tries.

        Its ``again`` is ``no`` once anything of the answer has come.
        """
        watched, tried, began_s = Watched(out), 0, asyncio.get_running_loop().time()
        while True:
            tried += 1
            try:
                return await self._try(ask, watched)
            except ProviderError as error:
                pause_s = self._pause_s(error, watched, tried)
                if pause_s is None:
                    took_s = asyncio.get_running_loop().time() - began_s
                    raise _told(error, watched.began, tried, took_s) from None
                _log.warning(
                    "chat_retried", provider=self.name, user=ask.user, tried=tried,
                    code=error.failure.code, pause_s=round(pause_s, 3),
                )  # fmt: skip
            self._retries()
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """Close the provider's connections."""
        await self._provider.close()

    def state(self, now_s: float, key: bool) -> ProviderState:
        """How it is; ``now_s`` is the loop's time, ``key`` whether it was given one."""
        breaker = self._breaker
        return ProviderState(self.name, breaker.state(now_s), breaker.failures, self._running, key)

    def _pause_s(self, error: ProviderError, watched: Watched, tried: int) -> float | None:
        if watched.began or error.again != "retry":
            return None
        if self._breaker.state(asyncio.get_running_loop().time()) != "closed":
            return None  # this failure opened it, and the next try would be refused
        # jitter is against crowds, not against guesses
        return self._terms.retries.pause_s(tried, error.failure.retry_after_s, random.random)

    async def _try(self, ask: ChatStart, out: Watched) -> ChatEnd:
        with self._place(ask.user):
            self._pass_breaker()
            judged = False
            try:
                end = await self._provider.chat(ask, out)
                judged = True
                if self._breaker.succeeded():
                    _log.info("breaker_closed", provider=self.name)
                return end
            except ProviderError as error:
                if _sick(error):
                    judged = True
                    if self._breaker.failed(asyncio.get_running_loop().time()):
                        _log.warning(
                            "breaker_opened", provider=self.name, failures=self._breaker.failures,
                            code=error.failure.code, open_s=self._terms.breaker_open_s,
                        )  # fmt: skip
                raise
            finally:
                if not judged:
                    self._breaker.abandoned()

    def _pass_breaker(self) -> None:
        now_s = asyncio.get_running_loop().time()
        state = self._breaker.state(now_s)
        if not self._breaker.admit(now_s):
            wait_s = max(1, math.ceil(self._breaker.wait_s(now_s)))
            raise ProviderError(
                "unavailable",
                f"{self.name} failed {self._breaker.failures} times in a row and is left alone for a while."
                f" Try again in {wait_s} s.",
                wait_s,
                "elsewhere",
            )
        if state == "half_open":
            _log.info("breaker_half_opened", provider=self.name)

    @contextmanager
    def _place(self, user: str) -> Iterator[None]:
        """A place among the chats at once, for as long as the block runs, for who may have one."""
        users = self._terms.users
        if users is not None and user not in users:
            raise ProviderError(
                "refused", f"you may not use {self.name}: ask the operator, or choose another provider"
            )
        if self._running >= self._terms.max_streams:
            raise self._full("too many chats run", "max_streams")
        if self._per_user[user] >= self._terms.max_streams_per_user:
            raise self._full("too many of your chats run", "max_streams_per_user")
        self._running += 1
        self._per_user[user] += 1
        try:
            yield
        finally:
            self._running -= 1
            self._per_user[user] -= 1
            if not self._per_user[user]:
                del self._per_user[user]

    def _full(self, what: str, key: str) -> ProviderError:
        return ProviderError(
            "overloaded",
            f"{what} at {self.name} at once (its limit is {key}). Try again in a moment.",
            _BUSY_RETRY_AFTER_S,
            "elsewhere",
        )


def _sick(error: ProviderError) -> bool:
    """Whether a failure tells something of the provider's health: not a refusal, a limit or a key."""
    return error.again != "no" and error.failure.code in ("upstream", "upstream_timeout")


def _told(error: ProviderError, began: bool, tried: int, took_s: float) -> ProviderError:
    failure = error.failure
    message = failure.message
    if tried > 1:
        message = f"{message} It was tried {tried} times in {took_s:.1f} s."
    return ProviderError(failure.code, message, failure.retry_after_s, "no" if began else error.again)
