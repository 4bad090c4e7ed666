"""``certosa config``."""

import argparse
import re
import sys
from typing import Any

import msgspec

from core.cli.failure import FAILED
from core.cli.output import print_json
from core.cli.place import configured
from core.errors import ConfigError


def check(arguments: argparse.Namespace) -> int:
    """Say whether the configuration is right; exit code 1 where it is not."""
    try:
        config = configured(arguments)
    except ConfigError as error:
        if arguments.json:
            print_json({"ok": False, "error": str(error)})
        else:
            print(f"certosa: {error}", file=sys.stderr)
        return FAILED
    if arguments.json:
        print_json({"ok": True, "data_dir": str(config.data_dir)})
    else:
        print(f"The configuration is right. Data directory: {config.data_dir}")
    return 0


def show(arguments: argparse.Namespace) -> int:
    """Print every setting with its value; no key of a provider stands in it."""
    values = msgspec.to_builtins(configured(arguments))
    if arguments.json:
        print_json(values)
        return 0
    for section, settings in values.items():
        _show_section(section, settings)
    return 0


def _show_section(name: str, settings: dict[str, Any]) -> None:
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    if plain or not settings:
        print(f"[{name}]")
    for key, value in plain.items():
        if value is None:  # TOML has no null
            print(f"# {_key(key)} is not set")
            continue
        print(f"{_key(key)} = {_value(value)}")
    if plain or not settings:
        print()
    for key, value in settings.items():
        if isinstance(value, dict):
            _show_section(f"{name}.{_key(key)}", value)


def _value(value: Any) -> str:
    """A value as TOML writes it: a JSON string, number or boolean is TOML too."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        pairs = (f"{_key(key)} = {_value(one)}" for key, one in value.items() if one is not None)
        return f"{{ {', '.join(pairs)} }}"
    return msgspec.json.encode(value).decode()


def _key(name: str) -> str:
    """A key as TOML writes it: a verb's name has a dot and needs quotes."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name}"'
