"""The providers that a configuration names, each on its terms, with its fallbacks behind it."""

from collections.abc import Mapping

from core.config import Config, ProviderSection
from core.egress.anthropic import AnthropicProvider
from core.egress.builtin import BuiltinProvider
from core.egress.fallbacks import Fallback, WithFallbacks
from core.egress.openai import OpenAiProvider
from core.egress.providers import Provider
from core.egress.secret import Secret, Striker
from core.egress.upstream import Terms, Upstream


def make_providers(config: Config, keys: Mapping[str, Secret], striker: Striker) -> dict[str, Provider]:
    """All of them by name, ``builtin`` too. Within a running event loop; to be closed by the caller."""
    single: dict[str, Provider] = {
        name: Upstream(name, _server(name, section, keys.get(name), striker), Terms.of(section))
        for name, section in config.providers.items()
    }
    single["builtin"] = BuiltinProvider()
    found = dict(single)
    for name, section in config.providers.items():
        if section.fallbacks:
            behind = [_fallback(at, single) for at in section.fallbacks]
            found[name] = WithFallbacks(name, single[name], behind)
    return found


def _server(name: str, section: ProviderSection, key: Secret | None, striker: Striker) -> Provider:
    kind = AnthropicProvider if section.kind == "anthropic" else OpenAiProvider
    return kind(name, section, key, striker)


def _fallback(at: str, providers: Mapping[str, Provider]) -> Fallback:
    """PROVIDER/MODEL, which the configuration was checked for."""
    name, _, model = at.partition("/")
    return Fallback(name, providers[name], model)
