"""[oauth.NAME]: an authorization server, and this server as its client."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?|\[[0-9a-f:.]+\]", re.ASCII)
# scope-token of RFC 6749, 3.3
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")
_PARAMETER = re.compile(r"[A-Za-z0-9_.-]{1,64}=[\x21-\x7e]{0,256}", re.ASCII)
_OURS = frozenset({
    "response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method",
})  # fmt: skip

CALLBACK = "/v1/oauth/{provider}/callback"
"""Below hub.public_url: each provider has its own, so that none can pass for another (RFC 9700, 4.4)."""
Url = Annotated[str, Meta(pattern=r"^(https?://[^\s@#]+)?\Z", max_length=1_024)]


class OAuthSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[oauth.NAME]; the client's secret stands in the vault (`certosa oauth add` asks for it)."""

    client_id: Annotated[
        str,
        Meta(pattern=r"^[\x20-\x7e]{1,512}\Z", description="as the authorization server knows this server"),
    ]
    token_url: Annotated[Url, Meta(min_length=1, description="where codes and grants become tokens")]
    authorize_url: Annotated[Url, Meta(description="where a browser asks; empty: not by browser")] = ""
    device_url: Annotated[Url, Meta(description="where a device code is asked for; empty: none")] = ""
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1, max_length=32,
            description="the only hosts that its tokens may be bound to; the first where nobody says",
        ),
    ]  # fmt: skip
    scopes: Annotated[
        tuple[str, ...], Meta(max_length=64, description="what is asked for; users may ask for less")
    ] = ()
    client_auth: Annotated[
        Literal["basic", "body", "none"],
        Meta(description="how the client's secret is sent: in a header, in the form, or there is none"),
    ] = "basic"
    authorize_parameters: Annotated[
        tuple[str, ...],
        Meta(max_length=16, description='more parameters of authorize_url: "access_type=offline"'),
    ] = ()
    users: (
        Annotated[
            tuple[Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}\Z")], ...],
            Meta(max_length=10_000, description="who may connect; left out: everybody; empty: nobody"),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET

    def admits(self, user: str) -> bool:
        """Whether a user may connect with it."""
        return self.users is msgspec.UNSET or user in self.users


def oauth_fault(section: OAuthSection) -> tuple[str, str] | None:
    """The key that makes no sense and why; None where all do."""
    for key in ("token_url", "authorize_url", "device_url"):
        if (url := getattr(section, key)) and not is_safe(url):
            return key, "has to be https: tokens and secrets go there (http only to this machine itself)"
    if not (section.authorize_url or section.device_url):
        return "authorize_url", "set this or device_url: there is no other way to connect"
    for host in section.hosts:
        if _HOST.fullmatch(host) is None:
            return "hosts", f"{host!r} is not a host's name in lower case, without a port"
    for scope in section.scopes:
        if _SCOPE.fullmatch(scope) is None:
            return "scopes", f"{scope!r} is not one scope"
    for parameter in section.authorize_parameters:
        if _PARAMETER.fullmatch(parameter) is None:
            return "authorize_parameters", f"{parameter!r} is not NAME=VALUE"
        if (name := parameter.partition("=")[0]) in _OURS:
            return "authorize_parameters", f"{name} is set by the server itself"
    return None


def is_safe(url: str) -> bool:
    """Whether what is sent there is encrypted, or does not leave this machine."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.hostname) and (parts.scheme == "https" or parts.hostname in _LOOPBACK)
