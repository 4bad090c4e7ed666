"""What the administrators' API answers, beside what it shares with the public one."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from core.audit.lines import Line
from core.egress.messages import ProviderState, TokenInfo

Bytes = Annotated[int, Meta(ge=0)]
Link = Literal["up", "down"]


class _Answer(msgspec.Struct, frozen=True):
    pass


class AnyUser(_Answer, frozen=True):
    """A user; ``host_uid`` is theirs for good, ``created_s`` is Unix seconds."""

    name: str
    host_uid: int
    created_s: int
    disabled: bool


class AllUsers(_Answer, frozen=True):
    """By name."""

    users: list[AnyUser]


class DeletedUser(_Answer, frozen=True):
    """Who is gone."""

    deleted: str


class DisabledUser(_Answer, frozen=True):
    """Whose tokens are none any more."""

    disabled: str


class EnabledUser(_Answer, frozen=True):
    """Whose tokens are some again."""

    enabled: str


class AllTokens(_Answer, frozen=True):
    """Those that are not revoked; ``user`` is empty in an administrator's."""

    tokens: list[TokenInfo]


class RevokedToken(_Answer, frozen=True):
    """The id of what is no token any more."""

    revoked: str


class ServerHealth(_Answer, frozen=True):
    """What an operator looks at first. ``missing`` is what the server still waits for."""

    missing: list[str]
    egress: Link
    stopping: bool
    turns_running: int
    loop_lag_s: float
    uptime_s: float
    disk_low: bool
    disk_free_bytes: Bytes
    disk_bytes: Bytes


class Jail(_Answer, frozen=True):
    """A user's jail; ``pid`` is its first process (0: none yet), ``memory_bytes`` null until measured."""

    user: str
    life: int
    state: str
    pid: int
    age_s: float
    in_state_s: float
    start_s: float
    uses: int
    memory_bytes: Bytes | None
    processes: int
    cpu_s: float


class ServerStatus(_Answer, frozen=True):
    """What runs."""

    egress: Link
    jails: list[Jail]


class PoolJail(Jail, frozen=True, kw_only=True):
    """The same with how many messages were read of it, and how often that was slowed down."""

    frames: int
    slowed: int


class HeldJail(_Answer, frozen=True):
    """A user whose jail died at once, ``deaths`` times, and is not started for so long."""

    user: str
    deaths: int
    reason: str
    for_s: float


class Pool(_Answer, frozen=True):
    """Users' jails, whose are held, what they use and what is left; the bounds are the configuration's."""

    start: Literal["fork", "exec"]
    max_jails: int
    idle_s: float
    max_waiting: int
    wait_s: float
    memory_limit_bytes: Bytes
    free_bytes: Bytes
    jails: list[PoolJail]
    held: list[HeldJail]
    draining: bool
    memory_bytes: Bytes
    available_bytes: Bytes


class Draining(_Answer, frozen=True):
    """Whether jails are given up and none taken."""

    draining: bool


class EvictedJail(_Answer, frozen=True):
    """Whose jail goes as soon as nothing runs in it."""

    evicted: str


class KilledJail(_Answer, frozen=True):
    """Whose jail is ended."""

    killed: str


class ReleasedJail(_Answer, frozen=True):
    """Whose jail is started again when it is wanted."""

    released: str


class Stored(_Answer, frozen=True):
    """What one user's sessions take on the disk."""

    user: str
    bytes: Bytes


class AllStored(_Answer, frozen=True):
    """By user."""

    users: list[Stored]


class StoredInDetail(Stored, frozen=True, kw_only=True):
    """And how many there are of what."""

    sessions: int
    messages: int
    message_bytes: Bytes
    event_bytes: Bytes
    turns: int


class Provider(ProviderState, frozen=True, kw_only=True):
    """A provider of the running server. ``users`` null: everybody may use it."""

    kind: Literal["openai", "anthropic", "builtin"]
    base_url: str
    users: list[str] | None
    fallbacks: list[str]
    default: bool


class Providers(_Answer, frozen=True):
    """By name, ``builtin`` too."""

    providers: list[Provider]


class TriedProvider(_Answer, frozen=True):
    """How a test went; an empty ``..._error`` means well."""

    models: list[str]
    models_error: str
    model: str
    chat_error: str
    answer_s: float


class AuditLines(_Answer, frozen=True):
    """In the order they were written."""

    lines: list[Line]
