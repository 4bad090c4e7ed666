"""``certosa backup`` and ``certosa restore``."""

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from core.cli.acting import recorded
from core.cli.failure import USAGE, CommandFailed
from core.cli.output import harmless, print_json
from core.cli.place import configured
from core.config import Config

if TYPE_CHECKING:
    from core.backup.archive import Place
    from core.backup.checking import Report

_MAX_PASSPHRASE = 1_024
_SHOWN = 10


def backup(arguments: argparse.Namespace) -> int:
    """Write all of the server's data to a new file, or with --verify read one that is there."""
    from core.backup.archive import make_backup, verify

    file = Path(arguments.file)
    if arguments.verify:
        report = verify(file, _passphrase(arguments, new=False))
        return _tell(arguments, report, f"{file} is whole and unchanged")
    config = configured(arguments)
    place, passphrase = _place(config), _passphrase(arguments, new=True)
    with recorded(config, "backup_made", str(file.absolute())):
        report = make_backup(place, file, passphrase)
    return _tell(arguments, report, f"{file} was written and read again")


def restore(arguments: argparse.Namespace) -> int:
    """Put a backup into an empty data directory."""
    from core.backup.archive import restore as put_back

    place = _place(configured(arguments))
    report = put_back(place, Path(arguments.file), _passphrase(arguments, new=False))
    return _tell(arguments, report, f"{arguments.file} was restored to {place.data_dir}")


def _place(config: Config) -> "Place":
    from core.backup.archive import Place
    from core.serve import owners_of, user_uids_of

    return Place(config.data_dir.absolute(), owners_of(config), user_uids_of(config))


def _tell(arguments: argparse.Namespace, report: "Report", sentence: str) -> int:
    users = [user.name for user in report.users]
    if arguments.json:
        print_json(
            {
                "ok": True, "file": arguments.file, "created_s": report.created_s, "users": users,
                "files": report.files, "bytes": report.bytes, "left_out": report.left_out,
                "more_left_out": report.more_left_out,
            }
        )  # fmt: skip
        return 0
    print(f"{sentence}: {len(users)} users, {report.files} files, {report.bytes} bytes.")
    for line in report.left_out[:_SHOWN]:
        print(harmless(f"left out: {line}").replace("\n", " "))
    if (more := len(report.left_out) - _SHOWN + report.more_left_out) > 0:
        print(f"and {more} more left out")
    return 0


def _passphrase(arguments: argparse.Namespace, new: bool) -> str:
    """From a file, a prompt that does not show it, or standard input; never an argument."""
    from core.backup.sealing import MIN_PASSPHRASE

    if arguments.passphrase_file:
        text = _from_file(Path(arguments.passphrase_file))
    elif sys.stdin.isatty():
        text = getpass.getpass("Passphrase of the backup (it is not shown): ")
        if new and getpass.getpass("The same again: ") != text:
            raise CommandFailed("the two differ: nothing was done", USAGE)
    else:
        text = sys.stdin.readline(_MAX_PASSPHRASE + 1)
    text = text.rstrip("\r\n")
    if new and len(text) < MIN_PASSPHRASE:
        raise CommandFailed(
            f"a passphrase has at least {MIN_PASSPHRASE} characters, better many: it alone guards the keys",
            USAGE,
        )
    if not text:
        raise CommandFailed("no passphrase: type it, send it to standard input, or --passphrase-file", USAGE)
    return text


def _from_file(path: Path) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(fd, encoding="utf-8") as file:
            if os.fstat(fd).st_mode & 0o077:
                raise CommandFailed(f"{path} can be read by others: run chmod 600 on it")
            return file.readline(_MAX_PASSPHRASE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path}: cannot be read: {error}") from None
