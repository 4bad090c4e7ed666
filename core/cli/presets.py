"""What is known of common model servers, so that adding one takes a name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class Preset(NamedTuple):
    """A server's wire format, its usual address, whether it wants a key, and what else it differs in."""

    kind: Literal["openai", "anthropic"]
    base_url: str
    wants_key: bool
    settings: Mapping[str, str] = MappingProxyType({})
    """Keys of its section besides, with their values."""


_ALL = {"attachments": "all"}
_OPENAI = {"max_tokens_field": "max_completion_tokens", **_ALL}

PRESETS = {
    "openai": Preset("openai", "https://api.openai.com/v1", True, MappingProxyType(_OPENAI)),
    "anthropic": Preset("anthropic", "https://api.anthropic.com/v1", True, MappingProxyType(_ALL)),
    "openrouter": Preset("openai", "https://openrouter.ai/api/v1", True),
    "ollama": Preset("openai", "http://127.0.0.1:11434/v1", False),
    "lmstudio": Preset("openai", "http://127.0.0.1:1234/v1", False),
    "vllm": Preset("openai", "http://127.0.0.1:8000/v1", False),
    "llamacpp": Preset("openai", "http://127.0.0.1:8080/v1", False),
}
