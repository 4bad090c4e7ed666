"""Sections with a name put into a configuration's text and taken out of it; all else stays as it is.

The text is edited by lines, since TOML's parser forgets comments. So each edit is checked: read again,
it has to say exactly what was meant, or nothing is changed.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from core.config import Config, parse_config
from core.errors import ConfigError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+\s*(#.*)?$")
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^.\s]+)')


Table = Literal["providers", "oauth"]
_WHAT: dict[Table, str] = {"providers": "provider", "oauth": "OAuth provider"}


def with_section(text: str, source: str, table: Table, name: str, settings: Mapping[str, Any]) -> str:
    """The text with a section ``[table.name]`` at its end.

    Raises ConfigError where there is one of that name, or the whole would not be right any more.
    """
    before = parse_config(text, source)
    if name in getattr(before, table):
        raise ConfigError(
            f"{source}: there is a{'n' if table == 'oauth' else ''} {_WHAT[table]} {name} already; remove it"
            " first, or edit the file"
        )
    lines = [f"[{table}.{toml_key(name)}]"]
    lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in settings.items()]
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    edited = text + gap + "\n".join(lines) + "\n"
    after = parse_config(edited, source)
    if _others(after, table, name) != before or name not in getattr(after, table):
        raise ConfigError(f"{source}: cannot be extended line by line; add the section by hand")
    return edited


def without_section(text: str, source: str, table: Table, name: str) -> str:
    """The text without the sections of that name, and the comments within them.

    Raises ConfigError where there is none, something else still names it, or it stands in the file
    in a way that cannot be taken out line by line.
    """
    before = parse_config(text, source)
    if name not in getattr(before, table):
        raise ConfigError(f"{source}: there is no {_WHAT[table]} {name}")
    edited = "".join(_lines_without(text, table, name))
    after = parse_config(edited, source)  # says who still names it
    if after != _others(before, table, name):
        raise ConfigError(f"{source}: {name} cannot be taken out line by line; edit the file by hand")
    return edited


def toml_key(name: str) -> str:
    """A key as TOML writes it."""
    return name if _BARE.fullmatch(name) else f'"{name}"'


def _lines_without(text: str, table: Table, name: str) -> list[str]:
    kept: list[str] = []
    inside = False
    since: list[str] = []  # blank lines and comments in the section: the last of them may be the next one's
    for line in text.splitlines(keepends=True):
        header = _HEADER.match(line)
        if header:
            was_inside, inside = inside, _parts(header[1])[:2] == (table, name)
            if was_inside and not inside:
                kept += since
            since = []
        if not inside:
            kept.append(line)
        elif not line.strip() or line.lstrip().startswith("#"):
            # a comment above the next header, after a blank line, is that section's
            since = [*since, line] if since or not line.strip() else []
        else:
            since = []
    return kept


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(a or b or c for a, b, c in _PART.findall(dotted))


def _others(config: Config, table: Table, name: str) -> Config:
    rest = {key: value for key, value in getattr(config, table).items() if key != name}
    return msgspec.structs.replace(config, **{table: rest})
