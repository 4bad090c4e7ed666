"""What core and egress say to each other over :mod:`core.link`.

``id`` pairs an answer with its question. Core's end of this carries tokens to be verified and
users' data keys; never a master key, a provider's key or a credential.
"""

import msgspec

from core.egress.credential_messages import CredentialAnswer, CredentialQuestion
from core.egress.message_base import LinkMessage as _Message
from core.egress.message_base import SecretLinkMessage as _Secretive
from jail.wire.schema import ChatCall, ChatDelta, ChatEnd, Failure, Message, Sampling, ToolSpec

# ---- core asks ------------------------------------------------------------------------------


class AddUser(_Message, frozen=True):
    """Make a user's key. Answer: Ok, also when there is one already."""

    user: str


class RemoveUser(_Message, frozen=True):
    """Forget a user's key and tokens: what was sealed never opens again. Answer: Ok."""

    user: str


class SetUserDisabled(_Message, frozen=True):
    """Tokens of a disabled user don't verify. Answer: Ok or Refused."""

    user: str
    disabled: bool


class NewToken(_Message, frozen=True):
    """Mint a token. Answer: TokenMade or Refused (no such user)."""

    user: str
    label: str


class ListTokens(_Message, frozen=True):
    """Answer: Tokens; of one user, or of all when ``user`` is empty."""

    user: str


class RevokeToken(_Message, frozen=True):
    """By its id. Answer: Ok or Refused (no such token)."""

    token_id: str


class VerifyToken(_Secretive, frozen=True):
    """Answer: HandleMinted or Refused; the reason is the same for every refusal."""

    token: str


class ChatStart(_Message, frozen=True):
    """Open a model stream. Answers: ChatItems within credit, then ChatDone or ChatFailed."""

    user: str
    provider: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    sampling: Sampling


class ChatCredit(_Message, frozen=True):
    """``count`` more items may come on stream ``id``."""

    count: int


class ChatCancel(_Message, frozen=True):
    """Stop stream ``id``; nothing needs to follow."""


class TryProvider(_Message, frozen=True):
    """Ask a provider for its models, and for a few words. Answer: ProviderTried or Refused.

    An empty ``model`` is the agents' own where this is their provider, else the first it lists.
    """

    provider: str
    model: str


class Ping(_Message, frozen=True):
    """Answer: Ok."""


ToEgress = (
    AddUser | RemoveUser | SetUserDisabled | NewToken | ListTokens | RevokeToken | VerifyToken
    | ChatStart | ChatCredit | ChatCancel | TryProvider | Ping
    | CredentialQuestion
)  # fmt: skip


# ---- egress answers ---------------------------------------------------------------------------


class Ok(_Message, frozen=True):
    """Done."""


class Refused(_Message, frozen=True):
    """Not done; ``message`` says why and what to do."""

    message: str


class HandleMinted(_Secretive, frozen=True):
    """A token was good: whose it is, and the key that opens what is stored for them."""

    user: str
    data_key: bytes  # 32 bytes


class TokenMade(_Secretive, frozen=True):
    """The only time the token itself is seen."""

    token_id: str
    token: str


class TokenInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token as lists show it; times are Unix seconds."""

    token_id: str
    user: str
    label: str
    created_s: int
    last_used_s: int | None


class Tokens(_Message, frozen=True):
    """Tokens that are not revoked."""

    tokens: tuple[TokenInfo, ...]


class ProviderTried(_Message, frozen=True):
    """How a test went; an empty ``..._error`` means well. ``answer_s`` is in seconds."""

    models: tuple[str, ...]
    models_error: str
    model: str
    chat_error: str
    answer_s: float


class ChatItem(_Message, frozen=True):
    """An item of stream ``id``; deltas were coalesced while there was no credit."""

    item: ChatDelta | ChatCall


class ChatDone(_Message, frozen=True):
    """Stream ``id`` ended well."""

    end: ChatEnd


class ChatFailed(_Message, frozen=True):
    """Stream ``id`` failed; the failure says how and what to do."""

    failure: Failure


FromEgress = (
    Ok | Refused | HandleMinted | TokenMade | Tokens | ProviderTried | ChatItem | ChatDone | ChatFailed
    | CredentialAnswer
)  # fmt: skip
