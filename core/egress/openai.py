"""Servers that speak OpenAI's chat completions: their address, their header, their format."""

from core.config import ProviderSection
from core.egress.body import request_body
from core.egress.chunks import Assembly
from core.egress.model_server import Dialect, ModelServer
from core.egress.secret import Secret, Striker


class OpenAiProvider(ModelServer):
    """One configured server. Make it within a running event loop.

    Args:
        name: the provider's name, for messages.
        section: its configuration.
        key: goes into the Authorization header and nowhere else; None sends none.
        striker: knows every key, so that none comes back in an error.
    """

    def __init__(self, name: str, section: ProviderSection, key: Secret | None, striker: Striker) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {key.reveal()}"}
        dialect = Dialect("/chat/completions", lambda ask: request_body(ask, section), Assembly, headers)
        super().__init__(name, section, dialect, striker)
