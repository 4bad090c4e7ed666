"""The server's API as the user whose token is at hand: for ``chat``, ``session`` and ``agent``."""

import argparse
import os
from pathlib import Path

from core.cli.api import ApiClient
from core.cli.failure import USAGE, CommandFailed
from core.cli.place import configured, hub_url


def connect_api(arguments: argparse.Namespace) -> ApiClient:
    """A client by --url, --token-file, CERTOSA_TOKEN and the configuration. Raises CommandFailed."""
    return ApiClient(arguments.url or _default_url(arguments), _token(arguments))


def _default_url(arguments: argparse.Namespace) -> str:
    config = configured(arguments)
    if not config.hub.port:
        raise CommandFailed("hub.port is 0 in the configuration: name the address with --url", USAGE)
    return hub_url(config)


def _token(arguments: argparse.Namespace) -> str:
    """Never an argument: every user of the machine can read those."""
    token = os.environ.get("CERTOSA_TOKEN", "")
    if arguments.token_file:
        try:
            token = Path(arguments.token_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandFailed(f"{arguments.token_file} cannot be read: {error}", USAGE) from None
    if not token.strip():
        raise CommandFailed(
            "no token: set CERTOSA_TOKEN or give --token-file; the operator makes one with"
            " `certosa token new USER`",
            USAGE,
        )
    return token.strip()
