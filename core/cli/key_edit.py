"""The provider key file: a key put in or taken out, unseen by anyone.

As the spawner will want it at its next start: a regular file of mode 0600 that belongs to whoever
starts the server. Nothing here prints or quotes what is in it.
"""

import contextlib
import fcntl
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from core.cli.config_edit import toml_key
from core.cli.failure import CommandFailed
from core.cli.files import replace_in
from core.config import Config
from core.egress.keyfile import key_problem
from core.errors import ConfigError
from core.serve import KEY_FILE, owners_of
from jail.host.layout import Layout

_MAX_BYTES = 64 << 10
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def set_key(config: Config, name: str, key: str) -> None:
    """Put a provider's key into the file, or another in its place.

    Raises ConfigError for what is no key, CommandFailed or HostError where it cannot be written.
    """
    if problem := key_problem(key):
        raise ConfigError(f"the key {problem}")
    line = f"{toml_key(name)} = {msgspec.json.encode(key).decode()}\n"
    Layout(config.data_dir.absolute(), owners_of(config)).prepare()
    with _opened(config) as (directory, text):
        rest = _without(text, name)
        gap = "" if not rest or rest.endswith("\n") else "\n"
        _put(directory, text, rest + gap + line, name, key)


def remove_key(config: Config, name: str) -> bool:
    """Take a provider's key out; returns whether there was one. Raises CommandFailed."""
    if not _keys_dir(config).exists():
        return False
    try:
        with _opened(config) as (directory, text):
            if name not in _parsed(text):
                return False
            _put(directory, text, _without(text, name), name, None)
    except PermissionError:
        raise CommandFailed(
            f"{_keys_dir(config)} is not yours: run this as the user who starts the server, or as root"
        ) from None
    return True


def known_keys(config: Config) -> frozenset[str] | None:
    """The providers that have a key; None where this user may not look. Raises CommandFailed."""
    try:
        if not (_keys_dir(config) / KEY_FILE).exists():
            return frozenset()
        with _opened(config) as (_, text):
            return frozenset(_parsed(text))
    except PermissionError:
        return None


def _keys_dir(config: Config) -> Path:
    return config.data_dir.absolute() / "_keys"


@contextlib.contextmanager
def _opened(config: Config) -> Iterator[tuple[int, str]]:
    """The directory, locked against another of these commands, and the file's text."""
    where = _keys_dir(config)
    try:
        directory = os.open(where, _DIRECTORY)
    except PermissionError:
        raise
    except OSError as error:
        raise CommandFailed(f"{where}: cannot be opened: {error.strerror}") from None
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailed("another command changes the keys just now; try again") from None
        yield directory, _read(directory, where / KEY_FILE)
    finally:
        os.close(directory)


def _read(directory: int, path: Path) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(KEY_FILE, flags, dir_fd=directory)
    except FileNotFoundError:
        return ""
    except PermissionError:
        raise
    except OSError as error:
        raise CommandFailed(f"{path}: cannot be opened: {error.strerror}") from None
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise CommandFailed(f"{path} is not a regular file: move it away")
        with open(fd, "rb", closefd=False) as file:
            data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise CommandFailed(f"{path} is longer than {_MAX_BYTES} bytes")
    return data.decode("utf-8", "surrogateescape")


def _parsed(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text.encode("utf-8", "surrogateescape").decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        # the parser's own words would quote the file
        raise CommandFailed(f'{KEY_FILE} is not TOML; each line has to be NAME = "key"') from None


def _without(text: str, name: str) -> str:
    given = re.compile(rf"""\s*(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')\s*=""")
    return "".join(line for line in text.splitlines(keepends=True) if not given.match(line))


def _put(directory: int, before: str, after: str, name: str, key: str | None) -> None:
    """Write the text, after checking that it says what it should and nothing else changed."""
    wanted = {k: v for k, v in _parsed(before).items() if k != name}
    if key is not None:
        wanted[name] = key
    if _parsed(after) != wanted:
        raise CommandFailed(f"{KEY_FILE} cannot be edited line by line; edit it by hand")
    try:
        replace_in(directory, KEY_FILE, after.encode("utf-8", "surrogateescape"), None)
    except OSError as error:
        raise CommandFailed(f"{KEY_FILE}: cannot be written: {error.strerror}") from None
