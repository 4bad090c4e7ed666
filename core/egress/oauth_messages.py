"""What core asks of egress about connecting users' accounts elsewhere by OAuth 2.

Core passes a code and a state on; it sees neither a verifier nor a token.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from core.egress.message_base import LinkMessage, SecretLinkMessage

Flow = Literal["browser", "device"]
ConnectStatus = Literal["waiting", "done", "failed"]


class BeginConnect(LinkMessage, frozen=True):
    """Begin to connect a credential. Answer: ConnectBegun or Refused.

    Args:
        owner: a user; ``name`` the credential, which is replaced once it is done.
        provider: of [oauth.NAME].
        flow: None takes the browser where that is configured.
        host: what its tokens are bound to; empty: the provider's first.
        path: the prefix of paths.
        scopes: of the provider's; empty: all of them.
    """

    owner: str
    name: str
    provider: str
    flow: Flow | None = None
    host: Annotated[str, Meta(max_length=253)] = ""
    path: Annotated[str, Meta(max_length=1_024)] = "/"
    scopes: Annotated[tuple[str, ...], Meta(max_length=64)] = ()


class AskConnect(LinkMessage, frozen=True):
    """How far it is. Answer: ConnectTold, or Refused where nothing was begun of late."""

    owner: str
    name: str


class LookConnect(SecretLinkMessage, frozen=True):
    """Whose account a browser that came back would connect. Answer: ConnectSeen or Refused."""

    provider: str
    state: Annotated[str, Meta(max_length=256)]


class FinishConnect(SecretLinkMessage, frozen=True):
    """A browser came back: with a code, or with ``error``. Answer: Ok or Refused. Once for each state."""

    provider: str
    state: Annotated[str, Meta(max_length=256)]
    code: Annotated[str, Meta(max_length=8_192)] = ""
    error: Annotated[str, Meta(max_length=128)] = ""


class ListOAuth(LinkMessage, frozen=True):
    """Answer: OAuthListed: what a user may connect with; of the operator (empty), all."""

    owner: str


class ConnectBegun(SecretLinkMessage, frozen=True):
    """Where its owner goes; ``user_code`` is typed in there (device), or empty (browser)."""

    flow: Flow
    url: str
    user_code: str
    expires_in_s: int


class ConnectSeen(LinkMessage, frozen=True):
    """Whose and which credential it is."""

    owner: str
    name: str


class ConnectTold(LinkMessage, frozen=True):
    """``message`` says why it failed."""

    provider: str
    status: ConnectStatus
    message: str


class OAuthInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An authorization server as users see it; ``ready``: the vault has the secret that it wants."""

    name: str
    flows: tuple[Flow, ...]
    hosts: tuple[str, ...]
    scopes: tuple[str, ...]
    ready: bool


class OAuthListed(LinkMessage, frozen=True):
    """By name."""

    providers: tuple[OAuthInfo, ...]


OAuthQuestion = BeginConnect | AskConnect | LookConnect | FinishConnect | ListOAuth
OAuthAnswer = ConnectBegun | ConnectSeen | ConnectTold | OAuthListed
