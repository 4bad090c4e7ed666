"""The providers that a configuration names, each on its terms, with its fallbacks behind it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from core.config import Config, ProviderSection
from core.egress.anthropic import AnthropicProvider
from core.egress.builtin import BuiltinProvider
from core.egress.fallbacks import WithFallbacks, behind
from core.egress.metered import Chatting, Metered
from core.egress.model_server import Key, ModelServer
from core.egress.observed import Observed
from core.egress.openai import OpenAiProvider
from core.egress.providers import Provider
from core.egress.secret import Striker
from core.egress.upstream import Terms, Upstream
from core.ledger.metering import Met, Meter
from core.metrics import EgressMetrics

_BUILTIN_TOKENS = 8_192


class Registry(NamedTuple):
    """All providers by name: as chats use them, ``builtin`` too, the same without their fallbacks, the bare
    servers, for tests, and between these what knows how each is.
    """

    chat: dict[str, Provider]
    single: dict[str, Provider]
    servers: dict[str, ModelServer]
    upstreams: dict[str, Upstream]


def make_providers(
    config: Config,
    keys: Mapping[str, Key],
    striker: Striker,
    meter: Meter,
    told: Callable[[int, Met], None],
    metrics: EgressMetrics,
) -> Registry:
    """Make them within a running event loop; those of ``chat`` are to be closed by the caller.

    Args:
        meter: the ledger, by which every try of a chat goes.
        told: called with a chat's id and a limit that its user reached.
        metrics: count every try.
    """

    def metered(name: str, provider: Chatting, output_tokens: int) -> Observed:
        per_token = config.usage.bytes_per_token
        return Observed(name, Metered(provider, meter, told, output_tokens, per_token, metrics.used), metrics)

    servers = {
        name: _server(name, section, keys.get(name), striker) for name, section in config.providers.items()
    }
    upstreams = {
        name: Upstream(
            name,
            metered(name, servers[name], section.max_tokens),
            Terms.of(section),
            partial(metrics.retried, name),
        )
        for name, section in config.providers.items()
    }
    single: dict[str, Provider] = dict(upstreams)
    single["builtin"] = metered("builtin", BuiltinProvider(), _BUILTIN_TOKENS)
    found = dict(single)
    for name, section in config.providers.items():
        if section.fallbacks:
            found[name] = WithFallbacks(
                name, single[name], behind(section.fallbacks, single), partial(metrics.fell_back, name)
            )
    return Registry(found, single, servers, upstreams)


def _server(name: str, section: ProviderSection, key: Key, striker: Striker) -> ModelServer:
    kind = AnthropicProvider if section.kind == "anthropic" else OpenAiProvider
    return kind(name, section, key, striker)
