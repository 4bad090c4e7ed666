"""A user's agents: files ``agents/NAME.toml`` of theirs, over the defaults of the configuration.

The directory is the user's, so nothing in it is trusted: no link is followed, nothing but a regular
file of bounded size is read, and a FIFO or device is refused without waiting for it.
"""

import contextlib
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from core.config import AgentSection, Config, leads_to
from core.errors import CoreError
from jail.wire.schema import Agent, Fallback, Limits, Name

DEFAULT_AGENT = "assistant"
MAX_FILE_BYTES = 64 << 10
MAX_AGENTS = 1_000
AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NoSuchAgent(CoreError):
    """This user has no agent of that name."""


class AgentFileError(CoreError):
    """The agent's file won't do; the message names the file, the key and what to do."""


class AgentEntry(NamedTuple):
    """An agent as lists show it; ``created_s`` is the file's time, 0 without a file."""

    name: str
    created_s: int


class AgentFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a file may say; what it leaves out is as the configuration has it."""

    prompt: Annotated[str, Meta(max_length=64_000)] | msgspec.UnsetType = msgspec.UNSET
    provider: Name | msgspec.UnsetType = msgspec.UNSET
    model: Annotated[str, Meta(max_length=128)] | msgspec.UnsetType = msgspec.UNSET
    tools: Annotated[tuple[Name, ...], Meta(max_length=64)] | msgspec.UnsetType = msgspec.UNSET
    ask: Annotated[tuple[Name, ...], Meta(max_length=64)] | msgspec.UnsetType = msgspec.UNSET
    fallbacks: Annotated[tuple[Fallback, ...], Meta(max_length=8)] | msgspec.UnsetType = msgspec.UNSET
    limits: dict[str, Any] = {}


class Agents:
    """Reads agents below ``users_dir``; nothing is kept, an edited file counts from the next turn.

    Args:
        users_dir: DATA/users.
        config: the defaults and the providers there are.
    """

    def __init__(self, users_dir: Path, config: Config) -> None:
        self._users_dir = users_dir
        self.apply(config)

    def apply(self, config: Config) -> None:
        """Use another configuration from the next turn on."""
        self._defaults: AgentSection = config.agent
        self._providers = {"builtin", *config.providers}

    def get(self, user: str, name: str) -> Agent:
        """One agent of a user's. NoSuchAgent, AgentFileError."""
        if not AGENT_NAME.fullmatch(name):
            raise NoSuchAgent("an agent's name is letters, digits, dash and underscore")
        file = self.file(user, name)
        if file is None and name != DEFAULT_AGENT:
            raise NoSuchAgent(f"you have no agent {name!r}; GET /v1/models lists yours")
        return self.build(name, file or AgentFile())

    def list(self, user: str) -> list[AgentEntry]:
        """A user's agents by name; `assistant` is always among them. AgentFileError."""
        found = {DEFAULT_AGENT: 0}
        with self.directory(user) as directory:
            if directory is not None:
                with os.scandir(directory) as entries:
                    for entry in entries:
                        name, dot, ending = entry.name.rpartition(".")
                        if not dot or ending != "toml" or not AGENT_NAME.fullmatch(name):
                            continue
                        if entry.is_file(follow_symlinks=False) and len(found) < MAX_AGENTS:
                            found[name] = int(entry.stat(follow_symlinks=False).st_mtime)
        return [AgentEntry(name, created_s) for name, created_s in sorted(found.items())]

    def file(self, user: str, name: str) -> AgentFile | None:
        """What an agent's file says, None where there is none. AgentFileError."""
        if not AGENT_NAME.fullmatch(name):
            return None
        with self.directory(user) as directory:
            raw = None if directory is None else _read(directory, f"{name}.toml")
        return None if raw is None else _parse(raw, f"{name}.toml")

    @property
    def ceiling(self) -> Limits:
        """What no agent's limits pass: the operator's."""
        return self._defaults.limits

    def build(self, name: str, file: AgentFile) -> Agent:
        """The agent that a file makes. AgentFileError."""
        base = self._defaults
        limits = {**msgspec.structs.asdict(base.limits), **file.limits}
        tools = base.tools if file.tools is msgspec.UNSET else file.tools
        by_default = tuple(tool for tool in base.ask if tool in tools)
        ask = by_default if file.ask is msgspec.UNSET else file.ask
        for tool in ask:
            if tool not in tools:  # a name spelled wrong would ask for nothing
                raise AgentFileError(f"agents/{name}.toml: ask: {tool!r} is none of this agent's tools")
        try:
            agent = Agent(
                name=name,
                prompt=base.prompt if file.prompt is msgspec.UNSET else file.prompt,
                provider=base.provider if file.provider is msgspec.UNSET else file.provider,
                model=base.model if file.model is msgspec.UNSET else file.model,
                tools=tools,
                ask=ask,
                fallbacks=base.fallbacks if file.fallbacks is msgspec.UNSET else file.fallbacks,
                limits=_capped(msgspec.convert(limits, Limits), base.limits),
            )
        except msgspec.ValidationError as error:
            raise AgentFileError(f"agents/{name}.toml: limits: {error}") from None
        if agent.provider not in self._providers:
            raise AgentFileError(
                f"agents/{name}.toml: provider: this server has no {agent.provider!r};"
                f" there are: {', '.join(sorted(self._providers))}"
            )
        for at in agent.fallbacks:
            if not leads_to(at, self._providers):
                raise AgentFileError(
                    f"agents/{name}.toml: fallbacks: {at!r} is not PROVIDER/MODEL of one here; there are:"
                    f" {', '.join(sorted(self._providers))}"
                )
        return agent

    @contextlib.contextmanager
    def directory(self, user: str) -> Iterator[int | None]:
        """The user's agents/ as a descriptor, None where it isn't there."""
        fd = -1
        try:
            with contextlib.ExitStack() as stack:
                above = os.open(self._users_dir / user, _DIRECTORY)
                stack.callback(os.close, above)
                fd = os.open("agents", _DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise AgentFileError(f"agents/ cannot be read: {error.strerror}") from None
        try:
            yield fd
        finally:
            os.close(fd)


def _capped(limits: Limits, ceiling: Limits) -> Limits:
    """An agent may bind itself more than the operator does, never less."""
    most = msgspec.structs.asdict(ceiling)
    return Limits(**{key: min(value, most[key]) for key, value in msgspec.structs.asdict(limits).items()})


def _read(directory: int, name: str) -> bytes | None:
    try:
        fd = os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise AgentFileError(f"agents/{name} cannot be read: {error.strerror}") from None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise AgentFileError(f"agents/{name} is not a regular file")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise AgentFileError(f"agents/{name} is longer than {MAX_FILE_BYTES} bytes")
    return data


def _parse(raw: bytes, name: str) -> AgentFile:
    try:
        return msgspec.convert(tomllib.loads(raw.decode()), AgentFile)
    except (tomllib.TOMLDecodeError, RecursionError, UnicodeDecodeError) as error:
        raise AgentFileError(f"agents/{name}: not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise AgentFileError(f"agents/{name}: {error}") from None
