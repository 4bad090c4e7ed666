"""What is known of common model servers, so that adding one takes a name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple


class OAuthPreset(NamedTuple):
    """An authorization server: the keys of its section, without what is this server's own."""

    settings: Mapping[str, object]
    wants_secret: bool = True


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


_MICROSOFT = "https://login.microsoftonline.com/common/oauth2/v2.0"
OAUTH_PRESETS = {
    "github": OAuthPreset(
        MappingProxyType(
            {
                "authorize_url": "https://github.com/login/oauth/authorize",
                "token_url": "https://github.com/login/oauth/access_token",
                "device_url": "https://github.com/login/device/code",
                "client_auth": "body",
                "hosts": ["api.github.com"],
            }
        )
    ),
    "gitlab": OAuthPreset(
        MappingProxyType(
            {
                "authorize_url": "https://gitlab.com/oauth/authorize",
                "token_url": "https://gitlab.com/oauth/token",
                "device_url": "https://gitlab.com/oauth/authorize_device",
                "hosts": ["gitlab.com"],
                "scopes": ["read_api"],
            }
        )
    ),
    "google": OAuthPreset(
        MappingProxyType(
            {
                "authorize_url": "https://accounts.google.com/o/oauth2/v2/auth",
                "token_url": "https://oauth2.googleapis.com/token",
                "client_auth": "body",
                # without these there is no refresh token
                "authorize_parameters": ["access_type=offline", "prompt=consent"],
                "hosts": ["www.googleapis.com", "gmail.googleapis.com"],
            }
        )
    ),
    "microsoft": OAuthPreset(
        MappingProxyType(
            {
                "authorize_url": f"{_MICROSOFT}/authorize",
                "token_url": f"{_MICROSOFT}/token",
                "device_url": f"{_MICROSOFT}/devicecode",
                "client_auth": "body",
                "hosts": ["graph.microsoft.com"],
                "scopes": ["offline_access", "User.Read"],
            }
        )
    ),
}
