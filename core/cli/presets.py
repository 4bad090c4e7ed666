"""What is known of common model servers, so that adding one takes a name."""

from typing import Literal, NamedTuple


class Preset(NamedTuple):
    """A server's wire format, its usual address, and whether it wants a key."""

    kind: Literal["openai", "anthropic"]
    base_url: str
    wants_key: bool


PRESETS = {
    "openai": Preset("openai", "https://api.openai.com/v1", True),
    "anthropic": Preset("anthropic", "https://api.anthropic.com/v1", True),
    "openrouter": Preset("openai", "https://openrouter.ai/api/v1", True),
    "ollama": Preset("openai", "http://127.0.0.1:11434/v1", False),
    "lmstudio": Preset("openai", "http://127.0.0.1:1234/v1", False),
    "vllm": Preset("openai", "http://127.0.0.1:8000/v1", False),
    "llamacpp": Preset("openai", "http://127.0.0.1:8080/v1", False),
}
