"""The first administrator's token: made once in a vault's life, and shown once.

On a terminal it is printed for whoever started the server. Else it goes into a file of mode 0600
that the log names; the token itself never enters the log.
"""

import sqlite3
import sys
from pathlib import Path

import structlog

from core.vault.errors import VaultError
from core.vault.files import create_private
from core.vault.vault import Vault

FILE = "first-admin-token"
_HINT = "certosa token new --admin makes another"
_log = structlog.get_logger(__name__)


def show_first_token(vault: Vault, directory: Path, log_format: str) -> None:
    """Make and show the token, where there never was one.

    Args:
        directory: ``DATA/_keys``, for the file.
        log_format: as configured; what is JSON is read by a program, terminal or not.

    Raises VaultError where the vault cannot keep it.
    """
    try:
        made = vault.first_admin_token()
    except sqlite3.Error as error:
        raise VaultError(f"{directory / 'vault.db'}: cannot be written: {error}; is the disk full?") from None
    if made is None:
        return
    if sys.stderr.isatty() and log_format != "json":
        sys.stderr.write(
            f"\nThe first administrator's token for /admin/v1; it is shown only now:\n  {made.token}\n\n"
        )
        sys.stderr.flush()
        return
    path = directory / FILE
    try:
        path.unlink(missing_ok=True)
        create_private(path, made.token.encode() + b"\n")
    except (OSError, VaultError) as error:
        _log.error("first_admin_token_not_written", reason=str(error), hint=_HINT)
        return
    _log.info("first_admin_token_written", path=str(path), hint="read it, then delete the file")
