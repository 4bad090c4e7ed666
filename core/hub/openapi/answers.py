"""What the API answers, as structs: schemas for the document, against which the tests hold real answers."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from actors.asking import Kind, Resolution
from core.egress.account_messages import UsageLine
from core.hub.agents import AgentFile
from core.ledger.metering import Dimension
from jail.wire.schema import Limits, PictureType


class _Answer(msgspec.Struct, frozen=True):
    pass


class ErrorDetail(_Answer, frozen=True):
    """``code`` is for programs, ``param`` the field or header that is wrong."""

    message: str
    type: str
    param: str | None
    code: str


class Error(_Answer, frozen=True):
    """OpenAI's shape."""

    error: ErrorDetail


class MessagesErrorDetail(_Answer, frozen=True):
    """The message begins with the field's name, where one is wrong."""

    type: str
    message: str


class MessagesError(_Answer, frozen=True):
    """Anthropic's shape."""

    type: Literal["error"]
    error: MessagesErrorDetail
    request_id: str


class Deleted(_Answer, frozen=True):
    """It is gone."""

    object: str
    deleted: Literal[True]


class Usage(_Answer, frozen=True):
    """Tokens as the provider counted them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatMessage(_Answer, frozen=True):
    """The answer."""

    role: Literal["assistant"]
    content: str
    refusal: None


class Choice(_Answer, frozen=True):
    """There is one."""

    index: Literal[0]
    message: ChatMessage
    logprobs: None
    finish_reason: Literal["stop", "length", "content_filter"]


class LimitNotice(_Answer, frozen=True):
    """Which limit of Certosa's ended the turn."""

    type: Literal["notice"]
    finish: str
    text: str


class ChatCompletion(_Answer, frozen=True):
    """An answer that is not streamed."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: Annotated[list[Choice], Meta(min_length=1, max_length=1)]
    usage: Usage
    certosa: LimitNotice | msgspec.UnsetType = msgspec.UNSET


class TextBlock(_Answer, frozen=True):
    """A block of text."""

    type: Literal["text"]
    text: str


class MessagesUsage(_Answer, frozen=True):
    """Tokens as the provider counted them."""

    input_tokens: int
    output_tokens: int


class MessagesMessage(_Answer, frozen=True):
    """An answer in Anthropic's shape."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock]
    stop_reason: Literal["end_turn", "refusal", "max_tokens"]
    stop_sequence: None
    usage: MessagesUsage
    certosa: LimitNotice | msgspec.UnsetType = msgspec.UNSET


class Model(_Answer, frozen=True):
    """An agent, as OpenAI's clients see a model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class Models(_Answer, frozen=True):
    """The user's agents."""

    object: Literal["list"]
    data: list[Model]


class MessagesModel(_Answer, frozen=True):
    """An agent, as Anthropic's clients see a model."""

    type: Literal["model"]
    id: str
    display_name: str
    created_at: str


class MessagesModels(_Answer, frozen=True):
    """The user's agents, in Anthropic's shape."""

    data: list[MessagesModel]
    has_more: Literal[False]
    first_id: str
    last_id: str


class StartedTurn(_Answer, frozen=True):
    """A turn that runs, or has run; ``events`` is where to watch it from its first event, past ``after``."""

    object: Literal["turn"]
    id: str
    session: str
    after: Annotated[int, Meta(ge=0)]
    events: str


class CancelledTurn(_Answer, frozen=True):
    """It was told to end."""

    id: str
    object: Literal["turn"]
    cancelled: Literal[True]


class File(_Answer, frozen=True):
    """What lies at a path of the home."""

    object: Literal["file"]
    path: str
    path_encoded: str
    kind: Literal["file", "directory", "link", "other"]
    size_bytes: int
    modified_s: int


class NamedFile(File, frozen=True, kw_only=True):
    """An entry of a directory."""

    name: str


class Directory(_Answer, frozen=True):
    """A directory's entries, by name."""

    object: Literal["list"]
    path: str
    path_encoded: str
    data: list[NamedFile]


class DeletedFile(Deleted, frozen=True):
    """A file, a link, or a directory and all in it."""

    path: str


class Session(_Answer, frozen=True):
    """A session; times are Unix seconds. ``user`` and ``metadata`` are the last request's."""

    object: Literal["session"]
    id: str
    title: str
    created_s: int
    updated_s: int
    messages: int
    user: str | msgspec.UnsetType = msgspec.UNSET
    metadata: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class Sessions(_Answer, frozen=True):
    """Some sessions, the latest first; ``next`` goes into ``after``."""

    object: Literal["list"]
    data: list[Session]
    next: str | None


class CalledFunction(_Answer, frozen=True):
    """``arguments`` is JSON text."""

    name: str
    arguments: str


class CalledTool(_Answer, frozen=True):
    """A tool call."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class AttachedFile(_Answer, frozen=True):
    """A file of the home that belongs to the message."""

    path: str
    media_type: str
    size_bytes: int


class ShownPicture(_Answer, frozen=True):
    """A picture of the home that a tool has shown; ``size`` is what it had then (in bytes)."""

    path: str
    media_type: PictureType
    size: int
    caption: str


class SessionMessage(_Answer, frozen=True):
    """One message; ``seq`` counts from 1."""

    seq: int
    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: list[CalledTool] | msgspec.UnsetType = msgspec.UNSET
    tool_call_id: str | msgspec.UnsetType = msgspec.UNSET
    attachments: list[AttachedFile] | msgspec.UnsetType = msgspec.UNSET
    picture: ShownPicture | msgspec.UnsetType = msgspec.UNSET


class SessionPage(Session, frozen=True, kw_only=True):
    """A session and some of its messages; ``next`` goes into ``after``."""

    data: list[SessionMessage]
    next: int | None


class DeletedSession(Deleted, frozen=True):
    """A session and all that belonged to it."""

    id: str


class Hit(_Answer, frozen=True):
    """Where a text was found; ``seq`` is 0 and ``role`` null in a title."""

    object: Literal["hit"]
    session: str
    title: str
    seq: int
    role: str | None
    snippet: str


class Hits(_Answer, frozen=True):
    """Some hits; not all where ``next`` is not null."""

    object: Literal["list"]
    data: list[Hit]
    next: str | None


class AgentRow(_Answer, frozen=True):
    """An agent in a list; ``error`` alone where its file will not do."""

    object: Literal["agent"]
    name: str
    provider: str | msgspec.UnsetType = msgspec.UNSET
    model: str | msgspec.UnsetType = msgspec.UNSET
    created_s: int | msgspec.UnsetType = msgspec.UNSET
    error: str | msgspec.UnsetType = msgspec.UNSET


class AgentRows(_Answer, frozen=True):
    """The user's agents."""

    object: Literal["list"]
    data: list[AgentRow]


class ShownAgent(_Answer, frozen=True):
    """An agent as turns use it; ``own`` is what its file says."""

    object: Literal["agent"]
    name: str
    prompt: str
    provider: str
    model: str
    tools: list[str]
    ask: list[str]
    fallbacks: list[str]
    limits: Limits
    own: AgentFile


class Approval(_Answer, frozen=True):
    """What the user is asked; ``session`` is null where the turn's is kept for nobody."""

    object: Literal["approval"]
    id: str
    turn: str
    session: str | None
    kind: Kind
    name: str
    arguments: str
    cut: bool
    step: int | None
    created_s: int
    expires_s: int
    outcome: Resolution | None


class Approvals(_Answer, frozen=True):
    """Those that wait, oldest first."""

    object: Literal["list"]
    data: list[Approval]


class DeletedAgent(Deleted, frozen=True):
    """An agent's file."""

    name: str


class EgressTerms(_Answer, frozen=True):
    """What a rule for requests outside says."""

    host: str
    origin: str
    scheme: Literal["https", "http"]
    port: int
    methods: list[str]
    path: str


class EgressRuleRow(EgressTerms, frozen=True, kw_only=True):
    """A rule of the user's own."""

    object: Literal["egress_rule"]
    id: str
    created_s: int


class OperatorsRules(_Answer, frozen=True):
    """What is allowed without a rule of the user's, and what the user's may allow at most."""

    allow: list[EgressTerms]
    ceiling: list[EgressTerms]


class EgressRules(_Answer, frozen=True):
    """Rules for requests outside."""

    object: Literal["list"]
    data: list[EgressRuleRow]
    operator: OperatorsRules


class AddedEgressRule(EgressTerms, frozen=True, kw_only=True):
    """A rule that is kept."""

    object: Literal["egress_rule"]
    id: str


class RemovedEgressRule(Deleted, frozen=True):
    """A rule."""

    id: str


class Sums(_Answer, frozen=True):
    """``used`` today, ``held`` for what runs, and the limits, null where there is none; money is decimal."""

    used: int | str
    held: int | str
    soft: int | str | None
    hard: int | str | None


class Standing(_Answer, frozen=True):
    """A user's day. ``own`` names the limits that are not the configuration's, as ``hard.tokens``."""

    user: str
    day: str
    resets_at_s: int
    currency: str
    zone: str
    dimensions: dict[Dimension, Sums]
    own: list[str]


class UsageReport(_Answer, frozen=True):
    """What was used, the latest days first; ``cut`` where there is more than fits."""

    object: Literal["usage"]
    data: list[UsageLine]
    cut: bool
    currency: str
    zone: str


class UsersUsage(UsageReport, frozen=True, kw_only=True):
    """What one user used, and how they stand today."""

    today: Standing


class Health(_Answer, frozen=True):
    """The process answers."""

    ok: Literal[True]


class Readiness(_Answer, frozen=True):
    """Whether turns can run, and what is missing for them."""

    ready: bool
    missing: list[str]


Anything = dict[str, Any]
"""An object that docs/api.md or docs/admin.md describes."""
