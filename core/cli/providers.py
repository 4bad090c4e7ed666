"""``certosa provider``."""

import argparse
import getpass
import sys
from typing import Any
from urllib.parse import quote

import msgspec

from core.cli.acting import recorded
from core.cli.admin import AdminClient, connect_admin
from core.cli.config_edit import with_section, without_section
from core.cli.failure import FAILED, USAGE, CommandFailed
from core.cli.files import replace_file
from core.cli.key_edit import known_keys, remove_key, set_key
from core.cli.output import harmless, print_json, print_table
from core.cli.place import config_file, configured
from core.cli.presets import PRESETS
from core.config import Config

_MAX_KEY_CHARACTERS = 8_192
_SHOWN_MODELS = 12
_RESTART = "A running server sees it after SIGHUP or a restart."


def add(arguments: argparse.Namespace) -> int:
    """Add a provider to the configuration, and its key to the key file."""
    config = configured(arguments)
    settings, wants_key = _settings(arguments)
    path, text = config_file(arguments)
    edited = with_section(text, str(path), "providers", arguments.name, settings)
    key = _ask_key(arguments.name) if wants_key else None
    with recorded(config, "provider_set", arguments.name):
        if key is not None:
            # first the key: without a provider it is of no harm, a provider without its key fails
            set_key(config, arguments.name, key)
        replace_file(path, edited)
    if arguments.json:
        print_json({"ok": True, "name": arguments.name, "config": str(path), "key": wants_key})
        return 0
    print(f"{arguments.name} was added to {path}. {_RESTART}")
    print(f"Then: certosa provider test {arguments.name}")
    print(f'To make it every agent\'s: provider = "{arguments.name}" and model = "..." in section [agent].')
    return 0


def list_all(arguments: argparse.Namespace) -> int:
    """List the configured providers; of keys only whether there is one, in the file or in the vault."""
    config = configured(arguments)
    keys = _all_keys(config)
    rows = [_row(config, name, keys) for name in ("builtin", *sorted(config.providers))]
    if arguments.json:
        print_json({"providers": rows})
        return 0
    print_table(
        ("NAME", "KIND", "BASE URL", "KEY", "USERS", "FALLBACKS", ""),
        [
            (
                row["name"], row["kind"], row["base_url"] or "-",
                {True: "yes", False: "no", None: "?"}[row["key"]],
                "all" if row["users"] is None else ", ".join(row["users"]) or "nobody",
                ", ".join(row["fallbacks"]) or "-",
                "default" if row["default"] else "",
            )
            for row in rows
        ],
    )  # fmt: skip
    return 0


def _all_keys(config: Config) -> frozenset[str] | None:
    """The providers that have a key. Those kept in the vault a running server alone can tell."""
    in_file = known_keys(config)
    try:
        rows = connect_admin(config).call("GET", "/v1/providers")["providers"]
    except CommandFailed:
        return in_file
    said = frozenset(row["name"] for row in rows if row["key"])
    return said if in_file is None else said | in_file


def test(arguments: argparse.Namespace) -> int:
    """Have the running server ask a provider for its models and a few words; 1 where it can't."""
    client: AdminClient = connect_admin(configured(arguments))
    path = f"/v1/providers/{quote(arguments.name, safe='')}/test"
    found: dict[str, Any] = client.call("POST", path, {"model": arguments.model})
    ok = not found["chat_error"]
    if arguments.json:
        print_json({"ok": ok, "name": arguments.name, **found})
        return 0 if ok else FAILED
    models = found["models"]
    if found["models_error"]:
        print(harmless(f"No list of models: {found['models_error']}"))
    else:
        more = f" and {len(models) - _SHOWN_MODELS} more" if len(models) > _SHOWN_MODELS else ""
        print(harmless(f"{len(models)} models: {', '.join(models[:_SHOWN_MODELS])}{more}"))
    if not ok:
        raise CommandFailed(harmless(f"{arguments.name} does not answer: {found['chat_error']}"))
    print(harmless(f"{found['model']} answered in {found['answer_s']:.2f} s."))
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Take a provider out of the configuration, and its key out of the key file."""
    config = configured(arguments)
    path, text = config_file(arguments)
    edited = without_section(text, str(path), "providers", arguments.name)
    with recorded(config, "provider_removed", arguments.name):
        replace_file(path, edited)
        had_key = remove_key(config, arguments.name)
    if arguments.json:
        print_json({"ok": True, "name": arguments.name, "config": str(path), "key": had_key})
    else:
        gone = "and its key were" if had_key else "was"
        print(f"{arguments.name} {gone} removed. {_RESTART}")
    return 0


def _settings(arguments: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """The section's settings, and whether a key is wanted."""
    preset = PRESETS.get(arguments.preset or arguments.name)
    base_url = arguments.base_url or (preset.base_url if preset else None)
    if base_url is None:
        raise CommandFailed(
            f"say --preset ({', '.join(sorted(PRESETS))}) or --base-url", USAGE
        )  # fmt: skip
    kind = arguments.kind or (preset.kind if preset else "openai")
    settings: dict[str, Any] = {"kind": kind, "base_url": base_url}
    if preset is not None and kind == preset.kind:
        settings |= preset.settings
    if arguments.users is not None:
        settings["users"] = [user for user in arguments.users.split(",") if user]
    if arguments.fallback:
        settings["fallbacks"] = arguments.fallback
    return settings, bool(preset and preset.wants_key) if arguments.key is None else arguments.key


def _ask_key(name: str) -> str:
    """The key, from a prompt that does not show it or from a pipe; never from an argument."""
    if sys.stdin.isatty():
        key = getpass.getpass(f"Key for {name} (it is not shown): ")
    else:
        key = sys.stdin.readline(_MAX_KEY_CHARACTERS)
    if not (key := key.strip()):
        raise CommandFailed(
            f"no key for {name}: type it, or send it to standard input; --no-key adds none", USAGE
        )
    return key


def _row(config: Config, name: str, keys: frozenset[str] | None) -> dict[str, Any]:
    section = config.providers.get(name)
    users = None if section is None or section.users is msgspec.UNSET else list(section.users)
    return {
        "name": name,
        "kind": section.kind if section else "builtin",
        "base_url": section.base_url if section else "",
        "key": (None if keys is None else name in keys) if section else False,
        "users": users,
        "fallbacks": list(section.fallbacks) if section else [],
        "default": config.agent.provider == name,
    }
