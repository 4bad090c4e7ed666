"""Every message that crosses a jail's edge, as a frozen struct that refuses unknown fields.

A verb is a request one side makes of the other; its answer is a stream of items (where the verb
has an item type), then one reply or one error. Nothing here names a user, a session's owner or a
skill: who speaks is the connection (design.md 4). JSON that nobody on the wire needs to read
(tool arguments, parameter schemas) travels as text, so no message nests.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from jail.wire.errors import PeerFault

# patterns end in \Z: "$" would let a newline through at the end
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/-]{0,95}\Z")]
"""An agent's, a provider's, a model's or a tool's name."""
TurnId = Annotated[str, Meta(pattern=r"^turn_[0-9a-f]{16}\Z")]
CallId = Annotated[str, Meta(max_length=128)]
Text = Annotated[str, Meta(max_length=900_000)]
"""Free text; in bytes the frame's own limit holds."""
Short = Annotated[str, Meta(max_length=2_000)]
Count = Annotated[int, Meta(ge=0, le=2**53)]
Step = Annotated[int, Meta(ge=1, le=100_000)]


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What every part of a message is made of."""


# ---- parts ----------------------------------------------------------------------------------


class ToolCall(Body, frozen=True):
    """A tool call a model asked for; ``arguments`` is JSON text as the model wrote it."""

    id: CallId
    name: Annotated[str, Meta(max_length=128)]
    arguments: Text


Path = Annotated[str, Meta(min_length=1, max_length=4_096)]
"""A path as the worker resolves it: relative to the user's home. Nothing outside resolves it.

Spelled as :mod:`jail.wire.paths` says."""
PictureType = Literal["image/png", "image/jpeg", "image/gif", "image/webp"]
MediaType = Literal[PictureType, "application/pdf", "text/plain"]


class Attachment(Body, frozen=True):
    """A file of the user's home that belongs to a message; it is read whenever a model is to see it.

    Neither a frame nor a stored message ever holds its bytes. ``detail`` is OpenAI's, of a picture.
    """

    path: Path
    media_type: MediaType
    size_bytes: Count
    detail: Literal["", "auto", "low", "high"] = ""


MAX_ATTACHMENTS = 32
"""Of one message."""
TEXT_SHOWN_BYTES = 32_768
"""A model is shown so much of a text that is attached; the file has all of it."""


MAX_PICTURE_BYTES = 16 << 20
MAX_CAPTION = 500  # characters
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"
PicturePath = Annotated[Path, Meta(pattern=rf"^(?!/)(?!(?:[^{_CONTROL}]*/)?\.\.(?:/|\Z))[^{_CONTROL}]+\Z")]
"""A path below the home that any client can say: no ``..``, no control character, nothing but UTF-8."""


class Picture(Body, frozen=True):
    """A picture of the user's home that they were shown; ``size`` in bytes, ``caption`` "" for none.

    What the file holds may have changed since. Neither a frame nor a stored message has its bytes.
    """

    path: PicturePath
    media_type: PictureType
    size: Annotated[int, Meta(ge=1, le=MAX_PICTURE_BYTES)]
    caption: Annotated[str, Meta(max_length=MAX_CAPTION, pattern=rf"^[^{_CONTROL}]*\Z")]


class Message(Body, frozen=True):
    """One message of a conversation, as models see it; but for ``picture``, which is for people."""

    role: Literal["system", "user", "assistant", "tool"]
    text: Text = ""
    tool_calls: Annotated[tuple[ToolCall, ...], Meta(max_length=64)] = ()
    tool_call_id: CallId = ""
    attachments: Annotated[tuple[Attachment, ...], Meta(max_length=MAX_ATTACHMENTS)] = ()
    picture: Picture | None = None
    """What the tool whose result this is has shown."""


def attached(path: str) -> str:
    """How a message's text cites a file that is attached to it, at its place."""
    return f"[attached: {path}]"


_CUT = "[cut short: "


def cut_short(text: str, why: str) -> str:
    """An answer that its model did not come to the end of, marked as that."""
    return f"{text}\n\n{_CUT}{why}]"


def is_cut_short(text: str) -> bool:
    """Whether an answer is marked so."""
    return text.rpartition("\n\n")[2].startswith(_CUT)


class ToolSpec(Body, frozen=True):
    """A tool offered to a model; ``parameters`` is its JSON Schema as text."""

    name: Name
    description: Short
    parameters: Annotated[str, Meta(max_length=16_384)]


class Usage(Body, frozen=True):
    """Tokens as the provider counted them."""

    input_tokens: Count = 0
    output_tokens: Count = 0


class Limits(Body, frozen=True):
    """What ends a turn before the model does. Rounds, tokens and time are counted in core too."""

    rounds: Annotated[int, Meta(ge=1, le=200)] = 24
    output_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    wall_s: Annotated[int, Meta(ge=1, le=86_400)] = 900
    repeats: Annotated[int, Meta(ge=1, le=50)] = 3  # the same call with the same arguments
    failing_rounds: Annotated[int, Meta(ge=1, le=50)] = 5  # rounds in a row whose tools all failed
    context_bytes: Annotated[int, Meta(ge=4_096, le=700_000)] = 400_000
    context_messages: Annotated[int, Meta(ge=4, le=1_000)] = 600
    tool_result_bytes: Annotated[int, Meta(ge=1_024, le=200_000)] = 32_768
    tool_s: Annotated[int, Meta(ge=1, le=3_600)] = 120  # one tool call


Fallback = Annotated[str, Meta(min_length=3, max_length=224, description="PROVIDER/MODEL")]


class Agent(Body, frozen=True):
    """What the worker needs to be this agent."""

    name: Name
    prompt: Annotated[str, Meta(max_length=64_000)]
    provider: Name
    model: Annotated[str, Meta(max_length=128)]
    tools: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()
    limits: Limits = Limits()
    ask: Annotated[tuple[Name, ...], Meta(max_length=64)] = ()
    """Those of the tools that act only once a person has allowed it."""
    fallbacks: Annotated[tuple[Fallback, ...], Meta(max_length=8)] = ()
    """Asked in order where the provider fails. Core's affair: the worker needs none of them."""


class ResponseFormat(Body, frozen=True):
    """The shape a client wants the answer to have; ``schema`` is a JSON Schema as text, "" for any JSON."""

    name: Annotated[str, Meta(max_length=64)] = ""
    description: Annotated[str, Meta(max_length=2_000)] = ""
    schema: Annotated[str, Meta(max_length=65_536)] = ""
    strict: bool | None = None


class Sampling(Body, frozen=True):
    """What a client may ask of the model; None leaves it to the provider."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    stop: Annotated[tuple[Annotated[str, Meta(max_length=256)], ...], Meta(max_length=4)] = ()
    format: ResponseFormat | None = None


# ---- the handshake and what closes a request --------------------------------------------------


class Hello(Body, frozen=True):
    """The worker's first frame."""

    software: Annotated[str, Meta(max_length=64)]


class Welcome(Body, frozen=True):
    """Core's answer: from now on requests may go both ways."""

    max_frame_bytes: Count


ErrorCode = Literal[
    "unavailable",  # nobody serves this verb, or its service is down: try later
    "refused",  # the policy says no
    "approval_required",  # a person has to be asked first
    "not_found",
    "invalid",  # the request makes no sense: mend it
    "limit",  # a limit of the turn's is reached
    "quota",  # what the user may use in a day is used up
    "overloaded",  # try again after retry_after_s
    "timeout",
    "cancelled",
    "upstream",  # the model's server failed; the message says how
    "upstream_auth",
    "upstream_rate_limit",
    "upstream_timeout",
    "worker",  # the worker failed inside the jail
    "internal",  # a bug of ours
]


class Failure(Body, frozen=True):
    """The body of an ERROR: a code for programs, a sentence for people that says what to do."""

    code: ErrorCode
    message: Short
    retry_after_s: Annotated[int, Meta(ge=0, le=86_400)] | None = None


class Done(Body, frozen=True):
    """The reply of a verb that has nothing to tell."""


# ---- verbs from the jail ----------------------------------------------------------------------


class FromJail(Body, frozen=True, tag_field="verb"):
    """A request of the worker's; every one belongs to a turn that core started."""

    turn: TurnId


class ProviderChat(FromJail, frozen=True, tag="provider.chat"):
    """Ask the turn's model for the next message. Items: ChatItem; reply: ChatEnd."""

    messages: Annotated[tuple[Message, ...], Meta(min_length=1, max_length=1_024)]
    tools: Annotated[tuple[ToolSpec, ...], Meta(max_length=64)] = ()


class SessionLoad(FromJail, frozen=True, tag="session.load"):
    """Ask for the session's messages, oldest first. Items: History; reply: Done."""


class SessionAppend(FromJail, frozen=True, tag="session.append"):
    """Add messages to the session. Reply: Done, once they are durable."""

    messages: Annotated[tuple[Message, ...], Meta(min_length=1, max_length=64)]


class StepBegin(FromJail, frozen=True, tag="step.begin"):
    """Journal a tool call before it acts; it may act once Done has come."""

    step: Step
    tool: Name
    arguments: Text


class StepEnd(FromJail, frozen=True, tag="step.end"):
    """Journal how a tool call ended. Reply: Done."""

    step: Step
    ok: bool


class ApprovalAsk(FromJail, frozen=True, tag="approval.ask"):
    """Have a person asked whether a tool may act, now. Reply: Done where it may; ``refused`` if not."""

    step: Step
    tool: Name
    arguments: Text


class LogLine(FromJail, frozen=True, tag="log"):
    """A line for the operator's log (bounded per turn). Reply: Done."""

    level: Literal["info", "warning", "error"]
    event: Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
    detail: Annotated[str, Meta(max_length=500)] = ""


FetchId = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
Chunk = Annotated[bytes, Meta(max_length=262_144)]


class Header(Body, frozen=True):
    """One header of HTTP."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    value: Annotated[str, Meta(max_length=16_384)]


class HttpFetch(FromJail, frozen=True, tag="http.fetch"):
    """Make a request of a server outside. Items: HttpItem, the head first; reply: HttpEnd.

    ``fetch`` names it, anew each time. With ``more`` the rest of the body follows as ``http.body``, each
    once the one before was answered. A value ``{{credential:NAME}}`` is filled in outside the jail.
    """

    fetch: FetchId
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    url: Annotated[str, Meta(min_length=1, max_length=8_192)]
    headers: Annotated[tuple[Header, ...], Meta(max_length=64)] = ()
    body: Chunk = b""
    more: bool = False


class HttpBody(FromJail, frozen=True, tag="http.body"):
    """The next piece of a running fetch's body. Reply: Done, when there is room for another."""

    fetch: FetchId
    data: Chunk
    last: bool


class HttpHead(Body, frozen=True, tag="head"):
    """How the answer begins, after redirects; ``url`` is where it came from, without its query."""

    status: Annotated[int, Meta(ge=100, le=999)]
    url: Annotated[str, Meta(max_length=16_384)]
    headers: Annotated[tuple[Header, ...], Meta(max_length=256)] = ()


class HttpData(Body, frozen=True, tag="data"):
    """A piece of the answer's body, decompressed."""

    data: Chunk


HttpItem = HttpHead | HttpData


class HttpEnd(Body, frozen=True):
    """The answer is whole; ``body_bytes`` of it came."""

    body_bytes: Count


class ChatDelta(Body, frozen=True, tag="delta"):
    """A piece of the model's answer, or of its reasoning."""

    text: Text = ""
    reasoning: Text = ""


class ChatCall(Body, frozen=True, tag="call"):
    """A whole tool call of the model's."""

    call: ToolCall


ChatItem = ChatDelta | ChatCall


class ChatEnd(Body, frozen=True):
    """How the model's message ended."""

    finish: Literal["stop", "tool_calls", "length", "content_filter"]
    usage: Usage = Usage()


class History(Body, frozen=True):
    """Some of the session's messages; as many items as it takes."""

    messages: Annotated[tuple[Message, ...], Meta(max_length=256)]


# ---- verbs to the jail ------------------------------------------------------------------------


class ToJail(Body, frozen=True, tag_field="verb"):
    """A request of core's."""


class TurnStart(ToJail, frozen=True, tag="turn.start"):
    """Run a turn. Items: TurnItem; reply: TurnEnd. CANCEL ends it early.

    ``request`` is the id under which core's log has it; tools are given it.
    Its steps are counted from ``first_step``: past 1 where the turn goes on after an interruption.
    """

    turn: TurnId
    agent: Agent
    request: Annotated[str, Meta(pattern=r"^(req_[0-9a-f]{24})?\Z")] = ""
    first_step: Step = 1


class TurnHold(ToJail, frozen=True, tag="turn.hold"):
    """A person is asked something: while ``held`` the turn's time stands still. Reply: Done."""

    turn: TurnId
    held: bool


class Drain(ToJail, frozen=True, tag="drain"):
    """Finish what runs, take nothing new; the worker exits after its Done."""


class Ping(ToJail, frozen=True, tag="ping"):
    """Are you there? Reply: Done."""


Mark = Annotated[str, Meta(pattern=r"^[0-9a-f-]{0,80}\Z")]
"""Differs whenever a file's content may; "" where nobody asked."""
UploadId = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]


class FileList(ToJail, frozen=True, tag="file.list"):
    """List a directory. Items: FileEntries; reply: Done."""

    path: Path


class FileStat(ToJail, frozen=True, tag="file.stat"):
    """What lies at a path. Reply: FileInfo."""

    path: Path


class FileRead(ToJail, frozen=True, tag="file.read"):
    """Read ``length`` bytes (None: to the end) from ``offset``. Items: FileChunk; reply: FileInfo.

    With ``mark`` only the file that still has it is read; another is ``invalid``.
    """

    path: Path
    offset: Count = 0
    length: Count | None = None
    mark: Mark = ""


class FileWrite(ToJail, frozen=True, tag="file.write"):
    """A chunk of an upload, in order. With ``last`` the whole becomes the file, atomically.

    Reply: Done. The old file or the new one stands at ``path``, never a part. An upload that is
    not continued for some minutes is forgotten, and so is, at once, one that is to be dropped.
    """

    path: Path
    upload: UploadId
    offset: Count
    data: Chunk
    last: bool
    drop: bool = False


class FileDelete(ToJail, frozen=True, tag="file.delete"):
    """Delete a file, or with ``recursive`` a directory and all in it. Reply: Done."""

    path: Path
    recursive: bool = False


class FileInfo(Body, frozen=True):
    """What lies at a path; ``modified_s`` is Unix time."""

    kind: Literal["file", "directory", "link", "other"]
    size_bytes: Count
    modified_s: Count
    mark: Mark = ""


class FileEntry(Body, frozen=True):
    """One entry of a directory."""

    name: Annotated[str, Meta(max_length=1_024)]
    info: FileInfo


class FileEntries(Body, frozen=True):
    """Some entries of a directory; as many items as it takes."""

    entries: Annotated[tuple[FileEntry, ...], Meta(max_length=256)]


class FileChunk(Body, frozen=True):
    """Bytes of a file, in order."""

    data: Chunk


class Delta(Body, frozen=True, tag="delta"):
    """A piece of the answer, or of the model's reasoning, for the client."""

    text: Text = ""
    reasoning: Text = ""


class ToolStarted(Body, frozen=True, tag="tool_call"):
    """A tool begins to act; ``arguments`` is JSON text."""

    step: Step
    name: Annotated[str, Meta(max_length=128)]
    arguments: Text


class ToolProgress(Body, frozen=True, tag="tool_progress"):
    """Output of a running tool, as it comes (bounded)."""

    step: Step
    text: Text


class ToolEnded(Body, frozen=True, tag="tool_result"):
    """A tool's result as the model sees it."""

    step: Step
    ok: bool
    text: Text


class PictureShown(Picture, frozen=True, tag="picture"):
    """A tool shows the user a picture of their home."""

    step: Step


class Notice(Body, frozen=True, tag="notice"):
    """Something the person should know: context was dropped, a limit is near.

    ``kind`` is ``usage`` where core says that a soft limit of the day's was reached.
    """

    text: Short
    kind: Literal["", "usage"] = ""


TurnItem = Delta | ToolStarted | ToolProgress | ToolEnded | PictureShown | Notice


class TurnEnd(Body, frozen=True):
    """How a turn ended in the worker: by itself, or at which limit."""

    finish: Literal["stop", "length", "rounds", "repeats", "failing", "wall", "content_filter"]
    usage: Usage = Usage()


# ---- the table --------------------------------------------------------------------------------


class Verb(NamedTuple):
    """A verb's types: its request, its items (None: not a stream) and its reply."""

    request: type[Body]
    item: Any
    reply: type[Body]


def _by_tag(*verbs: Verb) -> dict[str, Verb]:
    return {str(verb.request.__struct_config__.tag): verb for verb in verbs}


FROM_JAIL = _by_tag(
    Verb(ProviderChat, ChatItem, ChatEnd),
    Verb(SessionLoad, History, Done),
    Verb(SessionAppend, None, Done),
    Verb(StepBegin, None, Done),
    Verb(StepEnd, None, Done),
    Verb(ApprovalAsk, None, Done),
    Verb(LogLine, None, Done),
    Verb(HttpFetch, HttpItem, HttpEnd),
    Verb(HttpBody, None, Done),
)
TO_JAIL = _by_tag(
    Verb(TurnStart, TurnItem, TurnEnd),
    Verb(TurnHold, None, Done),
    Verb(FileList, FileEntries, Done),
    Verb(FileStat, None, FileInfo),
    Verb(FileRead, FileChunk, FileInfo),
    Verb(FileWrite, None, Done),
    Verb(FileDelete, None, Done),
    Verb(Drain, None, Done),
    Verb(Ping, None, Done),
)
# Verbs of the design that nobody serves yet: answered ``unavailable``, whatever they carry.
RESERVED_FROM_JAIL = frozenset({
    "session.list", "credential.list", "task.add", "task.list", "task.cancel",
    "watch.add", "watch.list", "watch.cancel", "watch.report", "doc.share", "doc.list",
    "doc.open", "agent.ask", "mcp.list", "mcp.call", "skill.call",
})  # fmt: skip
RESERVED_TO_JAIL = frozenset({
    "tick", "tool.call", "skill.reload",
})  # fmt: skip


def to_wire(body: Body) -> Any:
    """A struct as the builtin objects that a frame's body is made of."""
    return msgspec.to_builtins(body, builtin_types=(bytes,))


def from_wire(raw: Any, kind: Any) -> Any:
    """Builtin objects as a struct of ``kind``, or PeerFault ``schema`` naming the field."""
    try:
        return msgspec.convert(raw, kind, strict=True)
    except msgspec.ValidationError as error:
        # msgspec names types and paths; a wrong tag or field name would be the peer's own words, which
        # stand in double quotes where they hold a single one
        said = str(error).replace('"', "'")
        if said.startswith("Object contains unknown field"):
            said = "Object contains unknown field"
        raise PeerFault("schema", said.split(" '", 1)[0][:200]) from None
