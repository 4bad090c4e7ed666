"""A provider whose requests are counted and timed: each try by itself, below retries and fallbacks."""

from time import monotonic

from core.acting import current_request
from core.egress.messages import ChatStart
from core.egress.providers import Outlet, Provider, ProviderError
from core.metrics import EgressMetrics
from jail.wire.schema import ChatEnd, ToolCall


class Observed:
    """See core.egress.providers.Provider."""

    def __init__(self, name: str, provider: Provider, metrics: EgressMetrics) -> None:
        self._name = name
        self._provider = provider
        self._metrics = metrics

    async def chat(self, ask: ChatStart, out: Outlet) -> ChatEnd:
        """Answer ``ask`` through ``out``. Raises what the provider raises."""
        metrics, began_s = self._metrics, monotonic()
        metrics.request_began(self._name)
        outcome = "cancelled"  # what ends it without a word was ended from outside
        try:
            end = await self._provider.chat(ask, _First(out, self._name, metrics, began_s))
            outcome = "ok"
            return end
        except ProviderError as error:
            outcome = error.failure.code
            raise
        except Exception:
            outcome = "internal"
            raise
        finally:
            metrics.request_ended(self._name, outcome, monotonic() - began_s, current_request())

    async def close(self) -> None:
        """Close the provider's connections."""
        await self._provider.close()


class _First:
    """An outlet that tells when the first piece comes."""

    def __init__(self, out: Outlet, name: str, metrics: EgressMetrics, began_s: float) -> None:
        self._out = out
        self._name = name
        self._metrics = metrics
        self._began_s: float | None = began_s

    async def text(self, text: str) -> None:
        """Pass it on."""
        self._came()
        await self._out.text(text)

    async def reasoning(self, text: str) -> None:
        """Pass it on."""
        self._came()
        await self._out.reasoning(text)

    async def call(self, call: ToolCall) -> None:
        """Pass it on."""
        self._came()
        await self._out.call(call)

    def _came(self) -> None:
        if self._began_s is not None:
            self._metrics.request_answered(self._name, monotonic() - self._began_s, current_request())
            self._began_s = None
