"""What every message between core and egress is made of."""

import msgspec


class LinkMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    """``id`` pairs an answer with its question."""

    id: int


class SecretLinkMessage(LinkMessage, frozen=True):
    """A message with a secret in it, which its repr leaves out."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id})"
