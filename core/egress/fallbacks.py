"""A provider with others to turn to, in order, as long as nothing of the answer has come."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from core.egress.messages import ChatStart
from core.egress.providers import Outlet, Provider, ProviderError, Watched
from jail.wire.schema import ChatEnd

_MAX_TOLD_CHARACTERS = 200
_log = structlog.get_logger(__name__)


class Fallback(NamedTuple):
    """Where to turn to; ``provider`` has no fallbacks of its own, so there is no circle."""

    name: str
    provider: Provider
    model: str


def behind(names: Iterable[str], providers: Mapping[str, Provider]) -> list[Fallback]:
    """What a list of PROVIDER/MODEL leads to; one that is gone since it was checked is passed over.

    Args:
        providers: by name, without fallbacks of their own.
    """
    found = [(name, model) for name, _, model in (at.partition("/") for at in names)]
    return [Fallback(name, providers[name], model) for name, model in found if name in providers]


class WithFallbacks:
    """The first provider, and what stands behind it (see core.egress.providers.Provider).

    Args:
        name: the first provider's.
        provider: its ProviderErrors say whether another one may help.
        fallbacks: in order; closed by whoever made them.
        falls_back: called whenever a chat goes on to one of them.
    """

    def __init__(
        self,
        name: str,
        provider: Provider,
        fallbacks: Sequence[Fallback],
        falls_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._falls_back = falls_back
        self._name = name
        self._provider = provider
        self._fallbacks = tuple(fallbacks)

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        """Answer by the first that can. Raises the first's ProviderError, which tells of the others."""
        watched = Watched(out)
        try:
            return await self._provider.chat(ask, watched)
        except ProviderError as error:
            if watched.began or error.again == "no" or not self._fallbacks:
                raise
            first = error
        told: list[str] = []
        for to in self._fallbacks:
            self._falls_back()
            _log.warning(
                "chat_fell_back", provider=self._name, to=to.name, user=ask.user, code=first.failure.code
            )
            other = msgspec.structs.replace(ask, provider=to.name, model=to.model)
            try:
                return await to.provider.chat(other, watched)
            except ProviderError as error:
                told.append(_short(error))
                if watched.began:
                    raise _all(first, told, error) from None
        raise _all(first, told, first)

    async def close(self) -> None:
        """Close the first; the others are somebody's firsts too."""
        await self._provider.close()


def _all(first: ProviderError, told: list[str], last: ProviderError) -> ProviderError:
    """What was tried, in one failure with the code of the one that counts."""
    text = f"{first.failure.message[:600]} Fallbacks: {' '.join(told)}"
    return ProviderError(last.failure.code, text, last.failure.retry_after_s)


def _short(error: ProviderError) -> str:
    text = error.failure.message
    return text if len(text) <= _MAX_TOLD_CHARACTERS else text[: _MAX_TOLD_CHARACTERS - 1] + "…"
