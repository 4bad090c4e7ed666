"""What core and egress say to each other about credentials and keys.

An owner is a user, or empty: the operator. Values go one way only, into the vault.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from core.egress.message_base import LinkMessage, SecretLinkMessage
from core.vault.terms import CredentialTerms


class SetCredential(SecretLinkMessage, frozen=True):
    """Keep a credential, or another in its place. Answer: CredentialKept or Refused.

    Args:
        owner: a user, or empty for the operator.
        name: ``NAME``, or ``provider:NAME`` for a model provider's key.
        terms: what it is and where it may go.
        value: the secret in the clear, or empty where ``sealed`` has it.
        sealed: the secret sealed to BoxKey's key (see core.vault.box); only egress opens it.
    """

    owner: str
    name: str
    terms: CredentialTerms
    value: Annotated[str, Meta(max_length=8_192)] = ""
    sealed: Annotated[bytes, Meta(max_length=16_384)] = b""


class DeleteCredential(LinkMessage, frozen=True):
    """Forget one. Answer: Ok or Refused."""

    owner: str
    name: str


class ListCredentials(LinkMessage, frozen=True):
    """Answer: Credentials, of this owner alone."""

    owner: str


class GetBoxKey(LinkMessage, frozen=True):
    """Answer: BoxKey."""


class RotateKey(LinkMessage, frozen=True):
    """Make a new master key and wrap everything anew under it. Answer: KeyRotated or Refused."""


class GrantInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a grant: who gave it; when its access token ends (Unix seconds, 0: not said); whether it is
    lost, so that its owner has to connect again; and whether it can be renewed.
    """

    provider: str
    expires_s: int
    lost: bool
    renewable: bool


class CredentialInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A credential as lists show it: never its value. Times are Unix seconds."""

    name: str
    terms: CredentialTerms
    version: int
    created_s: int
    used_s: int | None
    grant: GrantInfo | None = None


class CredentialKept(LinkMessage, frozen=True):
    """It is in the vault; ``version`` counts from 1 with each value."""

    version: int


class Credentials(LinkMessage, frozen=True):
    """An owner's, by name."""

    credentials: tuple[CredentialInfo, ...]


class BoxKey(LinkMessage, frozen=True):
    """An X25519 public key (32 bytes) of this egress process; it changes with each start."""

    key: bytes


class KeyRotated(LinkMessage, frozen=True):
    """How much was wrapped anew."""

    users: int
    credentials: int


CredentialQuestion = SetCredential | DeleteCredential | ListCredentials | GetBoxKey | RotateKey
CredentialAnswer = CredentialKept | Credentials | BoxKey | KeyRotated
