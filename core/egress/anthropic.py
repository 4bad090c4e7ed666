"""Servers that speak Anthropic's Messages API: their address, their headers, their format."""

from core.config import ProviderSection
from core.egress.anthropic_body import request_body
from core.egress.anthropic_events import MessageAssembly
from core.egress.model_server import Dialect, Key, ModelServer
from core.egress.secret import Secret, Striker

VERSION = "2023-06-01"
"""The API's version, which is older than its newest features (docs.anthropic.com, "Versions")."""


class AnthropicProvider(ModelServer):
    """One configured server. Make it within a running event loop.

    Args:
        name: the provider's name, for messages.
        section: its configuration.
        key: goes into the x-api-key header and nowhere else; None sends none, a finder finds each user's.
        striker: knows every key, so that none comes back in an error.
    """

    def __init__(self, name: str, section: ProviderSection, key: Key, striker: Striker) -> None:
        headers = {"anthropic-version": VERSION}
        dialect = Dialect(
            "/messages", lambda ask: request_body(ask, section), MessageAssembly, headers, _key_headers
        )  # fmt: skip
        super().__init__(name, section, dialect, key, striker)


def _key_headers(key: Secret) -> dict[str, str]:
    return {"x-api-key": key.reveal()}
