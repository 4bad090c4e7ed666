"""Writes agents: checked as they will be read, as TOML, and at once: the old file or the new one.

Core owns ``users/<uid>/agents``; the user's group may read it where users have ids of their own, and
nobody else passes its directory.
"""

import contextlib
import difflib
import json
import os
import secrets
import stat
import tomllib
from typing import Any

import msgspec

from core.hub.agents import (
    AGENT_NAME,
    MAX_AGENTS,
    MAX_FILE_BYTES,
    AgentFile,
    AgentFileError,
    Agents,
    NoSuchAgent,
)
from jail.wire.schema import Limits

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEYS = tuple(field.name for field in msgspec.structs.fields(AgentFile))
_LIMITS = tuple(field.name for field in msgspec.structs.fields(Limits))


class NotReady(AgentFileError):
    """The user's directory is not there (yet)."""


class AgentFiles:
    """Every method blocks. Raises AgentFileError, whose text names the key and what to do."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents

    def put(self, user: str, name: str, body: bytes) -> bool:
        """Store an agent given as JSON in place of the one of that name; whether it is new."""
        if not AGENT_NAME.fullmatch(name):
            raise AgentFileError("an agent's name is 1 to 64 letters, digits, dashes and underscores")
        data = self._text(name, parse(body)).encode()
        if len(data) > MAX_FILE_BYTES:
            raise AgentFileError(f"an agent's file has at most {MAX_FILE_BYTES} bytes: shorten the prompt")
        with self._agents.directory(user) as directory:
            if directory is None:
                raise NotReady("your directory is not there yet: tell the operator")
            try:
                new = not _exists(directory, f"{name}.toml")
                if new and len(os.listdir(directory)) >= MAX_AGENTS:
                    raise AgentFileError(f"you have {MAX_AGENTS} agents, as many as one may: delete some")
                _replace(directory, f"{name}.toml", data)
            except OSError as error:
                raise NotReady(f"agents/{name}.toml cannot be written: {error.strerror}") from None
        return new

    def delete(self, user: str, name: str) -> None:
        """Delete an agent's file; `assistant` is then as the configuration has it. NoSuchAgent."""
        with self._agents.directory(user) as directory:
            if directory is not None and AGENT_NAME.fullmatch(name):
                try:
                    os.unlink(f"{name}.toml", dir_fd=directory)
                    return
                except FileNotFoundError:
                    pass
                except OSError as error:
                    raise NotReady(f"agents/{name}.toml cannot be deleted: {error.strerror}") from None
        raise NoSuchAgent("you have no agent of this name in a file; GET /v1/agents lists yours")

    def _text(self, name: str, asked: dict[str, Any]) -> str:
        """The file, after it was read again and means what was asked."""
        try:
            file = msgspec.convert(asked, AgentFile)
        except msgspec.ValidationError as error:
            raise AgentFileError(f"{error}") from None
        self._check_limits(file.limits)
        self._agents.build(name, file)
        text = write_toml(asked)
        if tomllib.loads(text) != {key: value for key, value in asked.items() if value != {}}:
            raise AgentFileError("this text cannot be kept in a TOML file")
        return text

    def _check_limits(self, limits: dict[str, Any]) -> None:
        most = msgspec.structs.asdict(self._agents.ceiling)
        for key, value in limits.items():
            if key not in most:
                raise AgentFileError(f"limits.{key}: unknown key{_hint(key, _LIMITS)}")
            if type(value) is int and value > most[key]:
                raise AgentFileError(f"limits.{key}: {value} is more than this server allows: {most[key]}")


def parse(body: bytes) -> dict[str, Any]:
    """A JSON object with an agent's keys. AgentFileError."""
    try:
        asked = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise AgentFileError("the body is not JSON") from None
    if not isinstance(asked, dict):
        raise AgentFileError("the body is no JSON object")
    for key in asked:
        if key not in _KEYS:
            raise AgentFileError(f"{key[:64]}: unknown key{_hint(key, _KEYS)}")
    return asked


def write_toml(values: dict[str, Any]) -> str:
    """Strings, integers, lists of strings, and one level of tables, as TOML 1.0."""
    lines = [f"{key} = {_value(value)}" for key, value in values.items() if not isinstance(value, dict)]
    for key, table in values.items():
        if isinstance(table, dict) and table:
            lines += ["", f"[{key}]", *(f"{name} = {_value(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        # JSON's escapes are TOML's too; DEL is the one character that JSON leaves and TOML refuses
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)


def _hint(key: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; known here: {', '.join(known)}"


def _exists(directory: int, name: str) -> bool:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode):
        raise AgentFileError(f"agents/{name} is not a regular file; tell the operator")
    return True


def _replace(directory: int, name: str, data: bytes) -> None:
    """As readable as the directory: by its group where that may look into it."""
    shared = os.fstat(directory).st_mode & stat.S_IXGRP
    temporary = f".{name}.{secrets.token_hex(8)}.tmp"
    try:
        with open(os.open(temporary, _NEW, 0o600, dir_fd=directory), "wb") as file:
            # "others" is the user's group, which core is no member of and cannot give the file to;
            # nobody else passes the directory
            os.fchmod(file.fileno(), 0o644 if shared else 0o600)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    os.fsync(directory)
