"""``certosa oauth``: what users may connect accounts with; sections of the configuration."""

import argparse
from typing import Any
from urllib.parse import quote

import msgspec

from core.cli.acting import recorded
from core.cli.admin import AdminClient, connect_admin
from core.cli.config_edit import with_section, without_section
from core.cli.credentials import ask_value, put_sealed
from core.cli.failure import UNREACHABLE, USAGE, CommandFailed
from core.cli.files import replace_file
from core.cli.output import print_json, print_table
from core.cli.place import config_file, configured
from core.cli.presets import OAUTH_PRESETS
from core.config import Config
from core.oauth.section import CALLBACK

_RESTART = "A running server sees it after SIGHUP or a restart."
_NEEDS_SERVER = "the client's secret is kept in the vault, which the running server has: start it first"


def add(arguments: argparse.Namespace) -> int:
    """Add an OAuth provider to the configuration, and its client's secret to the vault."""
    config = configured(arguments)
    settings = _settings(arguments)
    path, text = config_file(arguments)
    edited = with_section(text, str(path), "oauth", arguments.name, settings)
    wants_secret = settings.get("client_auth") != "none"
    with recorded(config, "oauth_set", arguments.name):
        if wants_secret:
            # first the secret: without a provider it is of no harm, a provider without its secret fails
            _keep_secret(connect_admin(config), f"oauth:{arguments.name}")
        replace_file(path, edited)
    redirect = config.hub.public_url.rstrip("/") + CALLBACK.format(provider=arguments.name)
    if arguments.json:
        print_json({
            "ok": True, "name": arguments.name, "config": str(path), "secret": wants_secret,
            "redirect_uri": redirect if config.hub.public_url else None,
        })  # fmt: skip
        return 0
    print(f"{arguments.name} was added to {path}. {_RESTART}")
    if "authorize_url" in settings and config.hub.public_url:
        print(f"Register this redirect URI there: {redirect}")
    elif "authorize_url" in settings:
        print(
            "For connecting by browser set public_url in section [hub], and register there the redirect URI"
        )
        print(f"PUBLIC_URL{CALLBACK.format(provider=arguments.name)}")
    print(f"Then users connect: certosa credential connect NAME --with {arguments.name}")
    return 0


def set_secret(arguments: argparse.Namespace) -> int:
    """Keep a client's secret in the place of the one before."""
    config = configured(arguments)
    if arguments.name not in config.oauth:
        raise CommandFailed(f"there is no OAuth provider {arguments.name} in the configuration")
    _keep_secret(connect_admin(config), f"oauth:{arguments.name}")
    if arguments.json:
        print_json({"ok": True, "name": arguments.name})
    else:
        print(f"The secret of {arguments.name} is kept.")
    return 0


def list_all(arguments: argparse.Namespace) -> int:
    """List the OAuth providers; of secrets only whether there is one."""
    config = configured(arguments)
    kept = _secrets(config)
    rows = [_row(config, name, kept) for name in sorted(config.oauth)]
    if arguments.json:
        print_json({"providers": rows})
        return 0
    print_table(
        ("NAME", "CLIENT ID", "TOKEN URL", "GOES TO", "SECRET", "USERS"),
        [
            (
                row["name"], row["client_id"], row["token_url"], ", ".join(row["hosts"]),
                {True: "yes", False: "no", None: "?"}[row["secret"]] if row["wants_secret"] else "-",
                "all" if row["users"] is None else ", ".join(row["users"]) or "nobody",
            )
            for row in rows
        ],
    )  # fmt: skip
    return 0


def remove(arguments: argparse.Namespace) -> int:
    """Take an OAuth provider out of the configuration, and its client's secret out of the vault."""
    config = configured(arguments)
    path, text = config_file(arguments)
    edited = without_section(text, str(path), "oauth", arguments.name)
    name = f"oauth:{arguments.name}"
    had_secret = False
    with recorded(config, "oauth_removed", arguments.name):
        if config.oauth[arguments.name].client_auth != "none":
            had_secret = _forget_secret(connect_admin(config), name)
        replace_file(path, edited)
    if arguments.json:
        print_json({"ok": True, "name": arguments.name, "config": str(path), "secret": had_secret})
    else:
        gone = "and its secret were" if had_secret else "was"
        print(f"{arguments.name} {gone} removed. {_RESTART}")
        print("What users connected with it is sent until it has to be renewed; they may delete it.")
    return 0


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    preset = OAUTH_PRESETS.get(arguments.preset or arguments.name)
    given = {
        "client_id": arguments.client_id, "token_url": arguments.token_url,
        "authorize_url": arguments.authorize_url, "device_url": arguments.device_url,
        "hosts": arguments.host, "scopes": arguments.scope,
        "client_auth": "none" if arguments.no_secret else arguments.client_auth,
        "users": None if arguments.users is None else [user for user in arguments.users.split(",") if user],
    }  # fmt: skip
    settings = dict(preset.settings) if preset else {}
    settings |= {key: value for key, value in given.items() if value is not None}
    if "token_url" not in settings or "hosts" not in settings:
        known = ", ".join(sorted(OAUTH_PRESETS))
        raise CommandFailed(f"say --preset ({known}), or --token-url and --host", USAGE)
    return settings


def _keep_secret(client: AdminClient, name: str) -> None:
    try:
        client.call("GET", "/v1/credential-key")  # before anybody types a secret in
        put_sealed(client, name, ask_value(name), {})
    except CommandFailed as error:
        raise _told_why(error) from None


def _forget_secret(client: AdminClient, name: str) -> bool:
    """Whether there was one."""
    try:
        if name not in _names(client):
            return False
        client.call("DELETE", f"/v1/credentials/{quote(name, safe='')}")
    except CommandFailed as error:
        raise _told_why(error) from None
    return True


def _told_why(error: CommandFailed) -> CommandFailed:
    return CommandFailed(f"{_NEEDS_SERVER} ({error})", UNREACHABLE) if error.status == UNREACHABLE else error


def _secrets(config: Config) -> frozenset[str] | None:
    """The names of what the operator keeps; None where no server says."""
    try:
        return _names(connect_admin(config))
    except CommandFailed as error:
        if error.status != UNREACHABLE:
            raise
        return None


def _names(client: AdminClient) -> frozenset[str]:
    return frozenset(row["name"] for row in client.call("GET", "/v1/credentials")["data"])


def _row(config: Config, name: str, kept: frozenset[str] | None) -> dict[str, Any]:
    section = config.oauth[name]
    users = None if section.users is msgspec.UNSET else list(section.users)
    return {
        "name": name, "client_id": section.client_id, "token_url": section.token_url,
        "hosts": list(section.hosts), "scopes": list(section.scopes), "users": users,
        "wants_secret": section.client_auth != "none",
        "secret": None if kept is None else f"oauth:{name}" in kept,
    }  # fmt: skip
