"""What core and egress say to each other over :mod:`core.link`.

``id`` pairs an answer with its question. Core's end of this carries tokens to be verified and
users' data keys; never a master key, a provider's key or a credential.
"""

from typing import Literal

import msgspec

from core.egress.account_messages import AccountAnswer, AccountQuestion
from core.egress.credential_messages import CredentialAnswer, CredentialQuestion
from core.egress.fetch_messages import FetchAnswer, FetchQuestion
from core.egress.message_base import LinkMessage as _Message
from core.egress.message_base import SecretLinkMessage as _Secretive
from core.egress.oauth_messages import OAuthAnswer, OAuthQuestion
from core.egress.rule_messages import RuleAnswer, RuleQuestion
from core.families import Family
from core.ledger.metering import Dimension, Level
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


class NewAdminToken(_Message, frozen=True):
    """Mint an administrator's token. Answer: TokenMade or Refused."""

    label: str


class ListAdminTokens(_Message, frozen=True):
    """Answer: Tokens, whose ``user`` is empty."""


class RevokeToken(_Message, frozen=True):
    """By its id, a user's or an administrator's. Answer: Ok or Refused (no such token)."""

    token_id: str


class VerifyToken(_Secretive, frozen=True):
    """Answer: HandleMinted, TokenRejected, or Refused where it cannot be told."""

    token: str


class VerifyAdminToken(_Secretive, frozen=True):
    """Answer: AdminVerified, TokenRejected, or Refused where it cannot be told."""

    token: str


class ChatFile(_Secretive, frozen=True):
    """A piece of a file for the stream ``id`` that is about to begin. Answer: ChatFileTaken, or ChatFailed.

    The next piece comes after that answer, so that little is ever on its way.
    """

    path: str
    data: bytes


class ChatStart(_Message, frozen=True):
    """Open a model stream. Answers: ChatItems within credit, then ChatDone or ChatFailed.

    ``files`` is filled in by egress, from the ChatFiles before: what is attached to the messages, by path.
    ``fallbacks`` are the agent's own, PROVIDER/MODEL, in place of the provider's.
    ``turn`` and ``request`` are ids for the log, ``traceparent`` the trace that the model server is sent.
    """

    user: str
    provider: str
    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    sampling: Sampling
    files: dict[str, bytes] = msgspec.field(default_factory=dict)
    fallbacks: tuple[str, ...] = ()
    turn: str = ""
    request: str = ""
    traceparent: str = ""


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


class ListProviders(_Message, frozen=True):
    """Answer: ProvidersListed."""


class Ping(_Message, frozen=True):
    """Answer: Ok."""


class AskMetrics(_Message, frozen=True):
    """Answer: MetricsTold."""


ToEgress = (
    AddUser | RemoveUser | SetUserDisabled | NewToken | ListTokens | RevokeToken | VerifyToken
    | NewAdminToken | ListAdminTokens | VerifyAdminToken
    | AccountQuestion
    | ChatFile | ChatStart | ChatCredit | ChatCancel | TryProvider | ListProviders | Ping | AskMetrics
    | CredentialQuestion | FetchQuestion | RuleQuestion
    | OAuthQuestion
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


class TokenRejected(_Message, frozen=True):
    """It is no token of this kind, or revoked, or of a disabled user: the same for all of these."""


class AdminVerified(_Message, frozen=True):
    """An administrator's token was good."""

    token_id: str


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


class ChatFileTaken(_Message, frozen=True):
    """The piece is there; the next may come."""


class ProviderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a provider is: its breaker, failures in a row, chats that run, whether it has a key."""

    name: str
    breaker: Literal["closed", "open", "half_open"]
    failures: int
    chats: int
    key: bool


class ProvidersListed(_Message, frozen=True):
    """All of them, ``builtin`` too, by name."""

    providers: tuple[ProviderState, ...]


class MetricsTold(_Message, frozen=True):
    """Egress's metrics as they are now."""

    families: tuple[Family, ...]


class ChatItem(_Message, frozen=True):
    """An item of stream ``id``; deltas were coalesced while there was no credit."""

    item: ChatDelta | ChatCall


class LimitMet(_Message, frozen=True):
    """The user of stream ``id`` has reached a limit: of a soft one they are told, of a hard one
    ChatFailed tells.
    """

    level: Level
    dimension: Dimension
    text: str


class ChatDone(_Message, frozen=True):
    """Stream ``id`` ended well."""

    end: ChatEnd


class ChatFailed(_Message, frozen=True):
    """Stream ``id`` failed; the failure says how and what to do."""

    failure: Failure


FromEgress = (
    Ok | Refused | HandleMinted | TokenRejected | AdminVerified | TokenMade | Tokens | ProviderTried
    | ProvidersListed | MetricsTold | ChatFileTaken | ChatItem | LimitMet | ChatDone | ChatFailed
    | AccountAnswer | CredentialAnswer | FetchAnswer | RuleAnswer | OAuthAnswer
)  # fmt: skip
