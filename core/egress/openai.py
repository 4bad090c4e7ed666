"""Servers that speak OpenAI's chat completions: their address, their header, their format."""

from core.config import ProviderSection
from core.egress.body import request_body
from core.egress.chunks import Assembly
from core.egress.model_server import Dialect, Key, ModelServer
from core.egress.secret import Secret, Striker


class OpenAiProvider(ModelServer):
    """One configured server. Make it within a running event loop.

    Args:
        name: the provider's name, for messages.
        section: its configuration.
        key: goes into the Authorization header and nowhere else; None sends none, a finder finds each user's.
        striker: knows every key, so that none comes back in an error.
    """

    def __init__(self, name: str, section: ProviderSection, key: Key, striker: Striker) -> None:
        dialect = Dialect(
            "/chat/completions", lambda ask: request_body(ask, section), Assembly, {}, _key_headers
        )
        super().__init__(name, section, dialect, key, striker)


def _key_headers(key: Secret) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.reveal()}"}
