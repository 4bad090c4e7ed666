"""A master key that the operator keeps elsewhere: opened by the spawner, read by egress alone."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from core.config import Config
from core.errors import CoreError
from core.opening import open_to_judge
from jail.host.layout import Owners

CREDENTIAL = "certosa-master-key"
"""Its name among systemd's credentials (systemd.exec(5), LoadCredential=, LoadCredentialEncrypted=)."""
_NEXT = ".next"


class MasterKeyError(CoreError):
    """The key cannot be handed on; the message names the file and says what to do."""


def open_master_keys(config: Config, environ: Mapping[str, str], owners: Owners | None) -> dict[str, int]:
    """Descriptors by egress's flags: of the key, and of the next one where there is one.

    Empty where the vault keeps its own. A path in the configuration goes before systemd's credential.
    The descriptors are the caller's. Raises MasterKeyError.
    """
    found = _place(config, environ)
    if found is None:
        return {}
    path, handed_by_systemd = found
    allowed = {0, os.geteuid(), *([owners.egress.uid] if owners else [])}
    current = _open(path, handed_by_systemd, allowed)
    if current is None:
        raise MasterKeyError(
            f"{path}: is missing: put the master key there, or restore it from a backup (to make a first one:"
            f" head -c 32 /dev/urandom >{path})"
        )
    try:
        following = _open(path.with_name(path.name + _NEXT), handed_by_systemd, allowed)
    except MasterKeyError:
        os.close(current)
        raise
    return {"master-key": current} | ({} if following is None else {"next-master-key": following})


def _place(config: Config, environ: Mapping[str, str]) -> tuple[Path, bool] | None:
    if config.vault.master_key:
        return Path(config.vault.master_key), False
    directory = environ.get("CREDENTIALS_DIRECTORY", "")
    path = Path(directory) / CREDENTIAL
    return (path, True) if directory and os.path.lexists(path) else None


def _open(path: Path, handed_by_systemd: bool, allowed: set[int]) -> int | None:
    if (fd := open_to_judge(path, MasterKeyError)) is None:
        return None
    info = os.fstat(fd)
    # systemd lets an ordinary service in by an access list, whose mask shows as the group's bits
    others = 0o037 if handed_by_systemd else 0o077
    problem = ""
    if not stat.S_ISREG(info.st_mode):
        problem = "is not a regular file"
    elif info.st_mode & others:
        problem = f"mode {stat.S_IMODE(info.st_mode):04o} lets others in; run chmod 600 on it"
    elif info.st_uid not in allowed:
        problem = f"belongs to uid {info.st_uid}: give it to whoever starts the server (chown)"
    if problem:
        os.close(fd)
        raise MasterKeyError(f"{path}: {problem}")
    return fd
