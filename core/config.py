"""The typed configuration: one TOML file, every key with a default, a unit and a line of help.

Unknown keys, wrong types and values out of range are refused with the key and its line.
"""

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from msgspec import Meta

from core.audit.section import AuditSection
from core.errors import ConfigError
from core.ledger.section import PriceSection, UsageSection, cost_fault, price_fault
from core.oauth.section import OAuthSection, is_safe, oauth_fault
from jail.host.messages import MAX_MOUNTS, CredentialName
from jail.wire.schema import FROM_JAIL, RESERVED_FROM_JAIL, Limits, Name

Port = Annotated[int, Meta(ge=0, le=65_535)]
# empty would be every interface
Host = Annotated[str, Meta(min_length=1, max_length=253)]
Seconds = Annotated[float, Meta(ge=0.01, le=86_400)]
Bytes = Annotated[int, Meta(ge=1, le=2**50)]
MemoryBytes = Annotated[int, Meta(ge=0, le=2**50)]
UserName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}\Z")]
# a browser writes an origin in lower case and without the scheme's own port (RFC 6454)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*A-Z]+")
_MIN_MEMORY_BYTES = 32 << 20  # below that not even the worker runs for long
Url = Annotated[str, Meta(pattern=r"^https?://[^\s@]+\Z")]


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class ServerSection(_Section, frozen=True):
    """[server]"""

    data_dir: Annotated[str, Meta(description="where everything is kept; default as in the README")] = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"],
        Meta(description="auto: JSON unless a terminal looks on"),
    ] = "auto"
    grace_s: Annotated[Seconds, Meta(description="what running turns get at SIGTERM (in seconds)")] = 10.0
    core_cpus: Annotated[
        Literal["all", "one"],
        Meta(description="one: core's threads share a CPU, as they share an interpreter; docs/benchmarks.md"),
    ] = "all"


class HubSection(_Section, frozen=True):
    """[hub]"""

    host: Host = "127.0.0.1"
    port: Annotated[Port, Meta(description="0 takes a free one")] = 8700
    public_url: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[^\s@?#]+)?\Z",
            max_length=512,
            description="where browsers reach this; accounts are connected by browser only with it",
        ),
    ] = ""
    max_body_bytes: Annotated[Bytes, Meta(description="a longer request body answers 413")] = 16 << 20
    max_attachments: Annotated[
        int, Meta(ge=0, le=32, description="pictures and files in one request; more are refused")
    ] = 16
    max_attachment_bytes: Annotated[
        int, Meta(ge=1, le=16 << 20, description="one picture or file in a request")
    ] = 8 << 20
    max_upload_bytes: Annotated[
        Bytes,
        Meta(description="a longer upload to a home answers 413; jail.file_bytes bounds it too"),
    ] = 1 << 30
    tls_certificate: Annotated[str, Meta(description="PEM, with its chain; with tls_key: HTTPS here")] = ""
    tls_key: Annotated[str, Meta(description="its key, PEM, not encrypted, readable by no others")] = ""
    max_connections: Annotated[
        int, Meta(ge=16, le=100_000, description="connections at once; for more, idle ones are closed")
    ] = 4_096
    max_turns: Annotated[
        int,
        Meta(ge=1, le=100_000, description="turns at once on the whole server; more answer 429"),
    ] = 400
    min_free_bytes: Annotated[
        int,
        Meta(ge=0, le=2**50, description="with less free on the data directory's disk new turns answer 507"),
    ] = 64 << 20
    max_turns_per_user: Annotated[int, Meta(ge=1, le=32, description="more answer 429")] = 4
    max_lag_s: Annotated[
        Seconds, Meta(description="the hub's loop is later than this: new turns answer 429 (in seconds)")
    ] = 2.0


class LiveSection(_Section, frozen=True):
    """[live]: connections that watch turns, /v1/ws and /v1/sessions/ID/events"""

    per_user: Annotated[int, Meta(ge=1, le=1_000, description="at once of one user; more answer 429")] = 32
    watches: Annotated[int, Meta(ge=1, le=1_000, description="sessions that one WebSocket may watch")] = 32
    message_bytes: Annotated[
        int,
        Meta(ge=1_024, le=16 << 20, description="a longer message from a client ends its WebSocket (1009)"),
    ] = 1 << 20
    requests_per_s: Annotated[
        float,
        Meta(ge=0.1, le=10_000, description="on one WebSocket, twice as many at once; more are refused"),
    ] = 20.0
    ping_s: Annotated[
        Seconds, Meta(description="a WebSocket silent this long is pinged; no pong in half of it ends it")
    ] = 20.0
    idle_s: Annotated[
        Seconds, Meta(description="one without requests or events this long is closed (in seconds)")
    ] = 3_600.0


class AdminSection(_Section, frozen=True):
    """[admin]"""

    host: Host = "127.0.0.1"
    port: Annotated[Port, Meta(description="/admin/v1, metrics and health; 0 takes a free one")] = 8701
    tls_certificate: Annotated[str, Meta(description="as in [hub]")] = ""
    tls_key: str = ""
    allow_plain: Annotated[
        bool, Meta(description="listen on other addresses than loopback without TLS: tokens go unencrypted")
    ] = False
    open_metrics: Annotated[bool, Meta(description="answer /metrics without a token")] = True


class AccessSection(_Section, frozen=True):
    """[access]: of both listeners, except origins, which are the hub's alone."""

    trusted_proxies: Annotated[
        tuple[str, ...],
        Meta(max_length=256, description="addresses or networks whose X-Forwarded-For is believed"),
    ] = ()
    origins: Annotated[
        tuple[str, ...],
        Meta(max_length=256, description='web pages that may call: "https://chat.example.org", or "*"'),
    ] = ()
    credentials: Annotated[
        bool, Meta(description="let those pages send cookies, as a proxy may want; never with *")
    ] = False
    free_failures: Annotated[
        int, Meta(ge=1, le=1_000, description="wrong tokens from an address before it has to wait")
    ] = 10
    first_wait_s: Annotated[
        Seconds, Meta(description="for so long, then twice as long with each (in seconds)")
    ] = 1.0
    longest_wait_s: Annotated[Seconds, Meta(description="and never longer (in seconds)")] = 300.0
    forget_s: Annotated[
        Seconds, Meta(description="after so long without one all is forgotten (in seconds)")
    ] = 3_600.0


class JailUserSection(_Section, frozen=True):
    """[jail.users.NAME]: other limits for one user's jail; what is left out is as for everybody."""

    processes: Annotated[int, Meta(ge=8, le=4_096)] | None = None
    open_files: Annotated[int, Meta(ge=32, le=65_536)] | None = None
    file_bytes: Bytes | None = None
    address_bytes: Bytes | None = None
    tmp_bytes: Bytes | None = None
    memory_bytes: MemoryBytes | None = None
    swap_bytes: Annotated[int, Meta(ge=0, le=2**50)] | None = None
    cpu_weight: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    cpus: Annotated[float, Meta(ge=0, le=1_024)] | None = None
    disk_bytes: Annotated[int, Meta(ge=0, le=2**50)] | None = None
    disk_files: Annotated[int, Meta(ge=0, le=2_000_000)] | None = None


class JailSection(_Section, frozen=True):
    """[jail]"""

    start: Annotated[
        Literal["fork", "exec"],
        Meta(
            description="how a worker is started: forked from a warm interpreter, or afresh, which "
            "takes longer and more memory; docs/security.md says what a fork weakens. Where a fork "
            "cannot work, each is started afresh and the log says why"
        ),
    ] = "fork"
    python: Annotated[str, Meta(description="an interpreter that every uid may read")] = "/usr/bin/python3"
    start_timeout_s: Annotated[Seconds, Meta(description="from start to handshake (in seconds)")] = 30.0
    uid_base: Annotated[
        int,
        Meta(
            ge=100_000, le=2_000_000_000,
            description="first host uid of ours when root: core, egress, then users from +1000",
        ),
    ] = 1_900_000_000  # fmt: skip
    processes: Annotated[int, Meta(ge=8, le=4_096, description="RLIMIT_NPROC in a jail")] = 128
    open_files: Annotated[int, Meta(ge=32, le=65_536, description="RLIMIT_NOFILE in a jail")] = 256
    file_bytes: Annotated[Bytes, Meta(description="RLIMIT_FSIZE: one file's size in a jail")] = 256 << 20
    address_bytes: Annotated[Bytes, Meta(description="RLIMIT_AS: one process's address space")] = 2 << 30
    tmp_bytes: Annotated[Bytes, Meta(description="a jail's /tmp and /dev/shm, each")] = 64 << 20
    cgroups: Annotated[
        Literal["auto", "off", "required"],
        Meta(
            description="control groups for memory, CPU and processes of whole jails; auto: where they "
            "can be used; required: nothing is served where they cannot"
        ),
    ] = "auto"
    memory_bytes: Annotated[
        MemoryBytes, Meta(description="of a whole jail, its /tmp too; 0: no limit; needs control groups")
    ] = 1 << 30
    swap_bytes: Annotated[
        int, Meta(ge=0, le=2**50, description="of swap beside it, where memory_bytes limits")
    ] = 0
    cpu_weight: Annotated[
        int, Meta(ge=1, le=10_000, description="a jail's share where several want the CPU")
    ] = 100
    cpus: Annotated[
        float,
        Meta(ge=0, le=1_024, description="of the CPU at most (in CPUs: 0.5 is half of one); 0: all"),
    ] = 0.0
    disk_bytes: Annotated[
        int, Meta(ge=0, le=2**50, description="what a home may hold; past it turns answer 507; 0: no limit")
    ] = 10 << 30
    disk_files: Annotated[
        int, Meta(ge=0, le=2_000_000, description="files and directories in a home; 0: no limit")
    ] = 200_000
    users: dict[UserName, JailUserSection] = {}


Methods = Annotated[
    tuple[Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], ...], Meta(max_length=7)
]


RuleOrigin = Annotated[
    str,
    Meta(
        pattern=r"^(?:agent|skill:[a-z0-9][a-z0-9_-]{0,63})\Z",
        description="whose requests: agent (with the user's own skills), or skill:NAME of an installed one",
    ),
]


class EgressRule(_Section, frozen=True):
    """What a request may be: all of these together."""

    host: Annotated[
        str,
        Meta(
            pattern=r"^(?:\*|(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]{0,250}[a-z0-9_])?|\[[0-9a-f:.]{2,45}\])\Z",
            description="in lower case; *.example.com is every host below example.com, * every host",
        ),
    ]
    origin: RuleOrigin = "agent"
    scheme: Literal["https", "http"] = "https"
    port: Annotated[Port, Meta(description="0: the scheme's own")] = 0
    methods: Methods = ("GET", "HEAD")
    path: Annotated[
        str,
        Meta(
            pattern=r"^/[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,1023}\Z",
            description="the path itself, or whatever is below it",
        ),
    ] = "/"


class OpenRule(EgressRule, frozen=True):
    """A rule of the operator's."""

    users: Annotated[tuple[UserName, ...] | None, Meta(description="whose; left out: everybody's")] = None
    networks: Annotated[
        tuple[str, ...],
        Meta(max_length=64, description="private networks, as 10.1.0.0/16, that it may lead to as well"),
    ] = ()


class EgressSection(_Section, frozen=True):
    """[egress]: what agents may ask for outside, by http_fetch. Nothing unless a rule says so."""

    allow: Annotated[
        tuple[OpenRule, ...], Meta(max_length=1_000, description="[[egress.allow]]: what users may do")
    ] = ()
    ceiling: Annotated[
        tuple[OpenRule, ...],
        Meta(max_length=1_000, description="[[egress.ceiling]]: what users' own rules may allow at most"),
    ] = ()
    connect_s: Seconds = 10.0
    first_byte_s: Annotated[Seconds, Meta(description="until the answer's headers came (in seconds)")] = 30.0
    idle_s: Annotated[Seconds, Meta(description="between two pieces of the answer (in seconds)")] = 30.0
    total_s: Annotated[Seconds, Meta(description="one request with its redirects (in seconds)")] = 300.0
    max_redirects: Annotated[int, Meta(ge=0, le=20)] = 5
    max_header_bytes: Annotated[Bytes, Meta(description="all headers of a request or an answer")] = 64 << 10
    max_request_bytes: Annotated[Bytes, Meta(description="a request's body")] = 64 << 20
    max_answer_bytes: Annotated[Bytes, Meta(description="an answer's body, decompressed")] = 256 << 20
    max_ratio: Annotated[
        int, Meta(ge=1, le=10_000, description="decompressed to compressed, past the first megabyte")
    ] = 100
    max_fetches: Annotated[int, Meta(ge=1, le=10_000, description="at once; more are refused")] = 200
    max_fetches_per_user: Annotated[int, Meta(ge=1, le=1_000, description="at once; more are refused")] = 16


class MountSection(_Section, frozen=True):
    """[[vault.mount]]: a credential that lies in its users' jails as a file. docs/credentials.md says what
    that gives up.
    """

    credential: Annotated[
        CredentialName, Meta(description="its name, as in `certosa credential set NAME`; the file's too")
    ]
    users: Annotated[
        tuple[UserName, ...],
        Meta(min_length=1, max_length=10_000, description="whose own one, in their jail"),
    ]


class VaultSection(_Section, frozen=True):
    """[vault]"""

    master_key: Annotated[
        str,
        Meta(description="a file with the master key's 32 bytes, kept elsewhere than in the data directory"),
    ] = ""
    mount: Annotated[
        tuple[MountSection, ...],
        Meta(max_length=1_000, description="[[vault.mount]]: credentials that lie in jails as files; none"),
    ] = ()


class PoolUserSection(_Section, frozen=True):
    """[pool.users.NAME]: an exception for one user's jail."""

    idle_s: Annotated[
        Seconds | None, Meta(description="instead of pool.idle_s (in seconds); left out: the same")
    ] = None
    keep: Annotated[
        bool, Meta(description="never given up for being idle, and the last one for want of memory")
    ] = False


class PoolSection(_Section, frozen=True):
    """[pool]: which jails are kept warm."""

    idle_s: Annotated[Seconds, Meta(description="a jail idle this long is given up (in seconds)")] = 600.0
    max_jails: Annotated[
        int, Meta(ge=1, le=10_000, description="at once; an idle one makes room for one that is wanted")
    ] = 500
    max_starting: Annotated[
        int, Meta(ge=0, le=256, description="being built at once; 0: 16 with fork, 4 with exec")
    ] = 0
    memory_bytes: Annotated[
        int, Meta(ge=0, le=1 << 50, description="of all jails together; 0: only free_bytes counts")
    ] = 0
    free_bytes: Annotated[
        int, Meta(ge=0, le=1 << 50, description="what is left available of the machine's memory")
    ] = 256 << 20
    max_waiting: Annotated[
        int, Meta(ge=0, le=10_000, description="users who wait for room; more are refused with 429")
    ] = 200
    wait_s: Annotated[Seconds, Meta(description="for so long, then 429 (in seconds)")] = 15.0
    users: dict[UserName, PoolUserSection] = {}


class EdgeSection(_Section, frozen=True):
    """[edge]: what one user's jail may send; whoever is faster is read more slowly."""

    frames_per_s: Annotated[
        float, Meta(ge=50, le=1_000_000, description="messages that are read of a jail, in the long run")
    ] = 2_000.0
    burst: Annotated[int, Meta(ge=50, le=1_000_000, description="and so many more at once")] = 2_000
    patience_s: Annotated[
        Seconds,
        Meta(description="a jail held at its pace so long without a pause is ended (in seconds)"),
    ] = 30.0
    waiting_frames: Annotated[
        int, Meta(ge=4, le=1_024, description="read and not yet dealt with; with more it is not read")
    ] = 32
    waiting_bytes: Annotated[
        int, Meta(ge=65_536, le=64 << 20, description="the same in bytes; one message may exceed it")
    ] = 2 << 20
    backlog_bytes: Annotated[
        int,
        Meta(ge=2 << 20, le=256 << 20, description="that a jail leaves unread; with more it is ended"),
    ] = 4 << 20


class ProviderSection(_Section, frozen=True, kw_only=True):
    """[providers.NAME]; its key stands in the provider key file, which egress alone reads."""

    kind: Annotated[
        Literal["openai", "anthropic"], Meta(description="chat completions, or Anthropic's Messages API")
    ] = "openai"
    base_url: Annotated[Url, Meta(description="up to and with /v1")]
    connect_s: Seconds = 10.0
    first_byte_s: Annotated[Seconds, Meta(description="until the answer begins (in seconds)")] = 120.0
    idle_s: Annotated[Seconds, Meta(description="between two pieces of the answer (in seconds)")] = 60.0
    max_answer_bytes: Bytes = 16 << 20
    max_tokens: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="of one answer, where nobody says: sent to anthropic, which wants one, "
            "and for users with a hard limit on tokens or cost",
        ),
    ] = 8_192
    max_tokens_field: Annotated[
        Literal["max_tokens", "max_completion_tokens"],
        Meta(
            description="openai: how its API calls an answer's limit; OpenAI's newer models want the second"
        ),
    ] = "max_tokens"
    response_format: Annotated[
        Literal["none", "json_object", "json_schema"],
        Meta(description="the most that it takes; a chat that asks for more is refused"),
    ] = "json_schema"
    attachments: Annotated[
        Literal["none", "pictures", "all"],
        Meta(description="what its models are shown: pictures, or PDF files too; texts always are"),
    ] = "pictures"
    cache: Annotated[
        bool, Meta(description="anthropic: mark instructions, tools and history for the prompt cache")
    ] = False
    retries: Annotated[int, Meta(ge=0, le=10, description="tries after the first, before anything came")] = 2
    retry_base_s: Annotated[
        Seconds, Meta(description="the first pause is below this, each next below twice as much (in seconds)")
    ] = 0.5
    retry_cap_s: Annotated[
        Seconds, Meta(description="no pause is longer; a longer Retry-After is not waited for (in seconds)")
    ] = 20.0
    breaker_failures: Annotated[
        int, Meta(ge=1, le=1_000, description="failures in a row after which it is left alone")
    ] = 5
    breaker_open_s: Annotated[
        Seconds, Meta(description="for so long; then one chat tries it (in seconds)")
    ] = 30.0
    max_streams: Annotated[int, Meta(ge=1, le=100_000, description="chats at once; more are refused")] = 400
    max_streams_per_user: Annotated[
        int, Meta(ge=1, le=1_000, description="chats at once of one user; more are refused")
    ] = 64
    users: (
        Annotated[
            tuple[UserName, ...],
            Meta(max_length=10_000, description="who may use it; left out: everybody; empty: nobody"),
        ]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    fallbacks: Annotated[
        tuple[Annotated[str, Meta(max_length=256)], ...],
        Meta(max_length=8, description="PROVIDER/MODEL in order, while nothing of the answer has come"),
    ] = ()
    prices: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=128)], PriceSection],
        Meta(max_length=1_000, description='by model, "*" for any other; without one nothing is counted'),
    ] = {}


class AgentSection(_Section, frozen=True):
    """[agent]: the agent `assistant`, which everybody has, and what other agents start from."""

    provider: Name = "builtin"
    model: str = "assistant"
    prompt: str = (
        "You are a helpful assistant. You have a home directory of your own and tools that act in it. "
        "Use them when they help, and say briefly what you did."
    )
    ask: Annotated[
        tuple[Name, ...], Meta(description="those of the tools that act only once the user has allowed it")
    ] = ()
    tools: tuple[Name, ...] = (
        "list_files", "read_file", "write_file", "edit_file", "search_files", "run_command",
        "run_python", "http_fetch", "show_picture",
    )  # fmt: skip
    fallbacks: Annotated[
        tuple[str, ...],
        Meta(max_length=8, description="PROVIDER/MODEL, in order, in place of those of the provider itself"),
    ] = ()
    limits: Limits = Limits()


class SessionsSection(_Section, frozen=True):
    """[sessions]"""

    log_bytes: Annotated[Bytes, Meta(description="a session's event log is cut to this")] = 8 << 20
    log_age_s: Annotated[Seconds, Meta(description="and to events younger than this (in seconds)")] = 86_400.0
    keep_days: Annotated[
        int,
        Meta(ge=0, le=36_500, description="sessions unused for so long are deleted; 0: never (in days)"),
    ] = 0
    storage_threads: Annotated[int, Meta(ge=1, le=32)] = 2


# it stands in a path of ours, and in the name of a credential
OAuthName = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}\Z")]


class ApprovalsSection(_Section, frozen=True):
    """[approvals]: what is asked of a user before a tool or a verb marked `ask` acts."""

    expires_s: Annotated[
        Seconds, Meta(description="nobody answered for so long: it counts as a refusal (in seconds)")
    ] = 600.0
    max_open: Annotated[int, Meta(ge=1, le=256, description="of one user's at once; more are refused")] = 16
    held_s: Annotated[
        Seconds,
        Meta(
            description="one turn's time stands still for so long in all; then it asks no more (in seconds)"
        ),
    ] = 3_600.0


VerbMode = Literal["off", "ask", "on"]


class Config(_Section, frozen=True):
    """The whole file."""

    server: ServerSection = ServerSection()
    hub: HubSection = HubSection()
    live: LiveSection = LiveSection()
    admin: AdminSection = AdminSection()
    access: AccessSection = AccessSection()
    jail: JailSection = JailSection()
    pool: PoolSection = PoolSection()
    edge: EdgeSection = EdgeSection()
    agent: AgentSection = AgentSection()
    sessions: SessionsSection = SessionsSection()
    approvals: ApprovalsSection = ApprovalsSection()
    vault: VaultSection = VaultSection()
    usage: UsageSection = UsageSection()
    audit: AuditSection = AuditSection()
    egress: EgressSection = EgressSection()
    providers: dict[Name, ProviderSection] = {}
    oauth: dict[OAuthName, OAuthSection] = {}
    verbs: dict[str, VerbMode] = {}

    def starting_at_once(self, start: Literal["fork", "exec"]) -> int:
        """How many jails are built at once where they are started that way."""
        return self.pool.max_starting or (16 if start == "fork" else 4)

    @property
    def data_dir(self) -> Path:
        """Where everything is kept (design.md 8)."""
        return Path(self.server.data_dir) if self.server.data_dir else default_data_dir()


def default_data_dir() -> Path:
    """/var/lib/certosa for root; ~/.local/share/certosa for an ordinary user."""
    if os.geteuid() == 0:
        return Path("/var/lib/certosa")
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "certosa"


def default_config_path() -> Path:
    """/etc/certosa/certosa.toml for root; ~/.config/certosa/certosa.toml otherwise."""
    if os.geteuid() == 0:
        return Path("/etc/certosa/certosa.toml")
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "certosa" / "certosa.toml"


def load_config(path: Path | None) -> Config:
    """Read a configuration file; None is the default path, where a missing file is all defaults.

    Raises ConfigError with the file, the key and the line.
    """
    return parse_config(config_text(path), str(path or default_config_path()))


def config_text(path: Path | None) -> str:
    """What stands in a configuration file, "" where the default one is missing; ConfigError."""
    found = path or default_config_path()
    try:
        return found.read_text(encoding="utf-8")
    except FileNotFoundError:
        if path is None:
            return ""
        raise ConfigError(f"{found}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{found}: cannot be read: {error}") from None


def parse_config(text: str, source: str = "configuration") -> Config:
    """Parse TOML text; raises ConfigError naming ``source``, the key and the line."""
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{source}: not TOML: {error}") from None
    _check_names(raw, Config, (), text, source)
    # one by one first: an error in the whole does not say which of a table's own names it is about
    for at, (name_kind, kind) in _TABLES.items():
        for name, value in _table(raw, at).items():
            _convert(name, name_kind, (*at, name), text, source)
            _convert(value, kind, (*at, name), text, source)
    return _check_meaning(_convert(raw, Config, (), text, source), text, source)


# tables whose keys are names of somebody's choice: what the names and what the values are
_TABLES: dict[tuple[str, ...], tuple[Any, Any]] = {
    ("providers",): (Name, ProviderSection),
    ("oauth",): (OAuthName, OAuthSection),
    ("verbs",): (Name, VerbMode),
    ("pool", "users"): (UserName, PoolUserSection),
    ("jail", "users"): (UserName, JailUserSection),
}


def _table(raw: Any, at: tuple[str, ...]) -> dict[str, Any]:
    for key in at:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw if isinstance(raw, dict) else {}


def _convert(raw: Any, kind: Any, at: tuple[str, ...], text: str, source: str) -> Any:
    """What stands at a dotted key, typed; or ConfigError with the key inside it and the line."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `$")
        key = (*at, *(p for p in re.split(r"[.\[\]`]+", path) if p))
        raise ConfigError(f"{source}{_line(text, key)}: {'.'.join(key)}: {what}") from None


def _check_names(raw: dict[str, Any], kind: Any, at: tuple[str, ...], text: str, source: str) -> None:
    """Refuse unknown keys by name, with the nearest known one; recursive over sections."""
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in raw.items():
        path = (*at, key)
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}"
            raise ConfigError(f"{source}{_line(text, path)}: {'.'.join(path)}: unknown key{hint}")
        inner = known[key]
        if not isinstance(value, dict):
            continue
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            _check_names(value, inner, path, text, source)
        elif path in _TABLES:
            _, each = _TABLES[path]
            for name, section in value.items():
                if isinstance(section, dict) and isinstance(each, type):
                    _check_names(section, each, (*path, name), text, source)


# what every turn does by itself, and what asking is made of: nobody could answer that sensibly
_NEVER_ASKED = frozenset(("session.load", "session.append", "step.begin", "step.end", "log", "approval.ask"))


def _check_meaning(config: Config, text: str, source: str) -> Config:
    verbs = {*FROM_JAIL, *RESERVED_FROM_JAIL}
    for verb in config.verbs:
        if verb not in verbs:
            near = difflib.get_close_matches(verb, verbs, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{source}{_line(text, ('verbs', verb))}: verbs.{verb}: no such verb{hint}")
        if config.verbs[verb] == "ask" and verb in _NEVER_ASKED:
            where = _line(text, ("verbs", verb))
            raise ConfigError(f"{source}{where}: verbs.{verb}: no turn could do without: it is off or on")
    for tool in config.agent.ask:
        if tool not in config.agent.tools:
            where = _line(text, ("agent", "ask"))
            raise ConfigError(f"{source}{where}: agent.ask: {tool!r} is none of agent.tools")
    if "builtin" in config.providers:
        where = _line(text, ("providers", "builtin"))
        raise ConfigError(f"{source}{where}: providers.builtin: this name is Certosa's own")
    for name, section in config.providers.items():
        for at in section.fallbacks:
            if not leads_to(at, {"builtin", *config.providers} - {name}):
                where = _line(text, ("providers", name, "fallbacks"))
                raise ConfigError(
                    f"{source}{where}: providers.{name}.fallbacks: {at!r} is not PROVIDER/MODEL of another"
                    " provider in this file, or of builtin"
                )
    for at in config.agent.fallbacks:
        if not leads_to(at, {"builtin", *config.providers}):
            where = _line(text, ("agent", "fallbacks"))
            raise ConfigError(
                f"{source}{where}: agent.fallbacks: {at!r} is not PROVIDER/MODEL of a provider in this file,"
                " or of builtin"
            )
    if config.agent.provider not in {"builtin", *config.providers}:
        where = _line(text, ("agent", "provider"))
        raise ConfigError(
            f"{source}{where}: agent.provider: no provider {config.agent.provider!r};"
            f" add a section [providers.{config.agent.provider}]"
        )
    _check_egress(config, text, source)
    if config.vault.master_key and not Path(config.vault.master_key).is_absolute():
        where = _line(text, ("vault", "master_key"))
        raise ConfigError(f"{source}{where}: vault.master_key: not an absolute path")
    _check_mounts(config, text, source)
    _check_listeners(config, text, source)
    _check_usage(config, text, source)
    _check_jails(config, text, source)
    _check_oauth(config, text, source)
    if not Path(config.jail.python).is_absolute():
        raise ConfigError(f"{source}{_line(text, ('jail', 'python'))}: jail.python: not an absolute path")
    return config


def leads_to(at: str, providers: Collection[str]) -> bool:
    """Whether a fallback is PROVIDER/MODEL of one of these."""
    name, _, model = at.partition("/")
    return bool(model) and name in providers


def _check_jails(config: Config, text: str, source: str) -> None:
    limits: dict[tuple[str, ...], int | None] = {("jail",): config.jail.memory_bytes}
    limits |= {("jail", "users", user): own.memory_bytes for user, own in config.jail.users.items()}
    for place, memory_bytes in limits.items():
        if memory_bytes and memory_bytes < _MIN_MEMORY_BYTES:
            key = (*place, "memory_bytes")
            raise ConfigError(
                f"{source}{_line(text, key)}: {'.'.join(key)}: a jail needs at least {_MIN_MEMORY_BYTES}"
            )


def _check_egress(config: Config, text: str, source: str) -> None:
    for key, rules in (("allow", config.egress.allow), ("ceiling", config.egress.ceiling)):
        for rule in rules:
            if fault := path_fault(rule.path):
                where = _line(text, ("egress", key, "path"))
                raise ConfigError(f"{source}{where}: egress.{key}.path: {fault}")
            for network in rule.networks:
                try:
                    ipaddress.ip_network(network)
                except ValueError as error:
                    where = _line(text, ("egress", key, "networks"))
                    raise ConfigError(f"{source}{where}: egress.{key}.networks: {error}") from None


def _check_mounts(config: Config, text: str, source: str) -> None:
    for user, names in sorted(mounts_of(config.vault).items()):
        if (count := len(names)) > MAX_MOUNTS:
            where = _line(text, ("vault", "mount"))
            raise ConfigError(
                f"{source}{where}: vault.mount: {user} has {count} of them; a jail has room for {MAX_MOUNTS}"
            )


def mounts_of(section: VaultSection) -> dict[str, tuple[str, ...]]:
    """The credentials that may lie in jails as files, in order, by user."""
    found: dict[str, set[str]] = {}
    for mount in section.mount:
        for user in mount.users:
            found.setdefault(user, set()).add(mount.credential)
    return {user: tuple(sorted(names)) for user, names in found.items()}


def path_fault(path: str) -> str:
    """Why a rule's path prefix could never fit a request, or ""."""
    if {".", ".."} & set(path.split("/")) or "//" in path:
        return f"{path!r} has . or .. or an empty part in it: no request that is sent has"
    return ""


def _check_listeners(config: Config, text: str, source: str) -> None:
    def wrong(section: str, key: str, what: str) -> ConfigError:
        return ConfigError(f"{source}{_line(text, (section, key))}: {section}.{key}: {what}")

    for name, section in (("hub", config.hub), ("admin", config.admin)):
        if bool(section.tls_certificate) != bool(section.tls_key):
            missing = "tls_key" if section.tls_certificate else "tls_certificate"
            raise wrong(name, missing, "certificate and key go together: set both or neither")
        for key in ("tls_certificate", "tls_key"):
            if (path := getattr(section, key)) and not Path(path).is_absolute():
                raise wrong(name, key, "not an absolute path")
    admin = config.admin
    if not (is_loopback(admin.host) or admin.tls_certificate or admin.allow_plain):
        raise wrong(
            "admin", "host",
            f"{admin.host} is not loopback, and administrators' tokens would go there unencrypted: set"
            " tls_certificate and tls_key, or allow_plain = true if something else encrypts",
        )  # fmt: skip
    for at in config.access.trusted_proxies:
        try:
            ipaddress.ip_network(at)
        except ValueError as error:
            raise wrong("access", "trusted_proxies", str(error)) from None
    for origin in config.access.origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise wrong("access", "origins", f"{origin!r} is not SCHEME://HOST or SCHEME://HOST:PORT, or *")
    if config.access.credentials and "*" in config.access.origins:
        raise wrong("access", "credentials", "not with the origin *: any page could then act as its visitor")


def _check_oauth(config: Config, text: str, source: str) -> None:
    if (url := config.hub.public_url) and not is_safe(url):
        where = _line(text, ("hub", "public_url"))
        raise ConfigError(
            f"{source}{where}: hub.public_url: has to be https, unless it is this machine's alone: codes come"
            " back there"
        )
    for name, section in config.oauth.items():
        if fault := oauth_fault(section):
            key = ("oauth", name, fault[0])
            raise ConfigError(f"{source}{_line(text, key)}: {'.'.join(key)}: {fault[1]}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; a name other than localhost is not known to."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_usage(config: Config, text: str, source: str) -> None:
    def wrong(key: tuple[str, ...], what: str) -> ConfigError:
        return ConfigError(f"{source}{_line(text, key)}: {'.'.join(key)}: {what}")

    try:
        ZoneInfo(config.usage.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        what = f"no time zone {config.usage.zone!r} here; such as UTC or Europe/Berlin"
        raise wrong(("usage", "zone"), what) from None
    for level, limits in (("soft", config.usage.soft), ("hard", config.usage.hard)):
        if limits.cost is not None and (fault := cost_fault(limits.cost)):
            raise wrong(("usage", level, "cost"), fault)
    for name, section in config.providers.items():
        for model, price in section.prices.items():
            for key, value in (("input", price.input), ("output", price.output)):
                if fault := price_fault(value):
                    raise wrong(("providers", name, "prices", model, key), fault)


def _line(text: str, key: tuple[str, ...]) -> str:
    """`:LINE` of a dotted key in TOML text, as far as it can be found without a second parser."""
    section: tuple[str, ...] = ()
    best = 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if header := re.match(r"\[+\s*([^\]]+?)\s*\]", stripped):
            section = _dotted(header[1])
            here = section
        elif "=" in stripped and not stripped.startswith("#"):
            here = section + _dotted(stripped.split("=", 1)[0])
        else:
            continue
        if key[: len(here)] == here and len(here) <= len(key):
            if here == key:
                return f":{number}"
            best = number
    return f":{best}" if best else ""


def _dotted(key: str) -> tuple[str, ...]:
    parts = re.findall(r'"([^"]*)"|\'([^\']*)\'|([^.\s]+)', key)
    return tuple(a or b or c for a, b, c in parts)
