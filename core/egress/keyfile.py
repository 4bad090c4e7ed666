"""The provider key file: TOML, one ``NAME = "key"`` a provider, read from an inherited descriptor."""

import os
import tomllib
from collections.abc import Collection

import structlog

from core.egress.secret import MIN_STRIKABLE, Secret
from core.errors import ConfigError

_MAX_FILE_BYTES = 64 << 10
_MAX_KEY_CHARACTERS = 4_096
_log = structlog.get_logger(__name__)


def read_descriptor(fd: int, limit_bytes: int, what: str) -> bytes:
    """All of a file, memory file or pipe, from its beginning; closes ``fd``.

    Raises ConfigError past the limit or where it cannot be read.
    """
    try:
        with os.fdopen(fd, "rb") as file:
            if file.seekable():
                file.seek(0)
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise ConfigError(f"{what}: cannot be read: {error.strerror}") from None
    if len(data) > limit_bytes:
        raise ConfigError(f"{what}: is longer than {limit_bytes} bytes")
    return data


def parse_provider_keys(data: bytes, providers: Collection[str]) -> dict[str, Secret]:
    """The keys by provider. A key for a provider nobody configured is left out, with a warning.

    Raises ConfigError, which never has a part of the file in it.
    """
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"the provider key file is longer than {_MAX_FILE_BYTES} bytes")
    try:
        raw = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        # the parser's own words would quote the file
        raise ConfigError('the provider key file is not TOML; each line has to be NAME = "key"') from None
    keys: dict[str, Secret] = {}
    for name, key in raw.items():
        if name not in providers:
            _log.warning("provider_key_unused", provider=name[:96])
            continue
        keys[name] = _checked(name, key)
    return keys


def read_provider_keys(fd: int, providers: Collection[str]) -> dict[str, Secret]:
    """:func:`parse_provider_keys` of what a descriptor has; closes it."""
    return parse_provider_keys(read_descriptor(fd, _MAX_FILE_BYTES, "the provider key file"), providers)


def _checked(name: str, key: object) -> Secret:
    if not isinstance(key, str) or (problem := key_problem(key)):
        problem = problem if isinstance(key, str) else "has to be a text in quotes"
        raise ConfigError(f"the provider key file: {name}: {problem}")
    if len(key) < MIN_STRIKABLE:
        _log.warning("provider_key_short", provider=name, min_characters=MIN_STRIKABLE)
    return Secret(key)


def key_problem(key: str) -> str:
    """Why a text cannot be a key; empty where it can."""
    if not 1 <= len(key) <= _MAX_KEY_CHARACTERS:
        return f"has to be a text of 1 to {_MAX_KEY_CHARACTERS} characters"
    if not key.isascii() or not key.isprintable() or " " in key:
        # it goes into a header: no line ends, nothing that could be read as another one
        return "has characters that no key has"
    return ""
