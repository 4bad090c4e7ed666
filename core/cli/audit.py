"""``certosa audit``."""

import argparse
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from core.cli.admin import connect_admin
from core.cli.failure import FAILED, USAGE, CommandFailed
from core.cli.output import harmless, print_json
from core.cli.place import configured
from core.vault.errors import VaultError


def show(arguments: argparse.Namespace) -> int:
    """Print lines of the log."""
    filters = {key: getattr(arguments, key) for key in ("user", "kind", "since", "until", "limit")}
    query = urlencode({key: value for key, value in filters.items() if value})
    lines = connect_admin(configured(arguments)).call("GET", f"/v1/audit?{query}")["lines"]
    if arguments.json:
        print_json({"lines": lines})
    elif not lines:
        print("No line matches.", file=sys.stderr)
    else:
        for line in lines:
            print(_sentence(line))
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Check the whole log; exit code 1 where something is wrong with it."""
    if arguments.path or arguments.key or arguments.vault or arguments.master_key:
        found = _verify_copy(arguments)
    else:
        found = connect_admin(configured(arguments)).call("POST", "/v1/audit/verify")
    faults = found["faults"]
    if arguments.json:
        print_json({**found, "ok": not faults})
    elif faults:
        print("The audit log is not as it was written:", file=sys.stderr)
        for fault in faults:
            print(f"  {harmless(fault)}", file=sys.stderr)
    else:
        files = "1 file" if found["files"] == 1 else f"{found['files']:,} files"
        part = " One file alone does not say what came before or after it." if found.get("part") else ""
        print(f"The audit log is whole: {found['lines']:,} lines in {files}.{part}")
    return FAILED if faults else 0


def write_key(arguments: argparse.Namespace) -> int:
    """Write the log's key to a new file, for whoever is to check copies of the log."""
    from core.vault.files import create_private

    path = Path(arguments.file)
    key = _key(arguments, configured(arguments).data_dir / "_keys")
    try:
        create_private(path, key.hex().encode() + b"\n")
    except (OSError, VaultError) as error:
        raise CommandFailed(f"{path}: cannot be made: {error}") from None
    if arguments.json:
        print_json({"ok": True, "file": str(path)})
    else:
        print(f"{path} has the key. Whoever has it can check the log, and could forge one.")
    return 0


def _verify_copy(arguments: argparse.Namespace) -> dict[str, Any]:
    """A copy of the log, or one whose server is stopped."""
    from core.audit.offline import check_copy, find_copy

    path = Path(arguments.path) if arguments.path else configured(arguments).data_dir
    try:
        copy = find_copy(path)
        verdict = check_copy(copy, _key(arguments, copy.keys))
    except (OSError, VaultError) as error:
        raise CommandFailed(str(error)) from None
    return {**msgspec.to_builtins(verdict), "part": copy.log.is_file()}


def _key(arguments: argparse.Namespace, keys: Path | None) -> bytes:
    """The log's key: by itself, or out of the vault by the master key. Raises CommandFailed."""
    from core.audit.offline import audit_key_of, read_audit_key

    try:
        if getattr(arguments, "key", None):
            return read_audit_key(Path(arguments.key))
        if keys is None and not (arguments.vault and arguments.master_key):
            raise CommandFailed("say --key, or --vault and --master-key: lines are checked with a key", USAGE)
        vault = Path(arguments.vault) if arguments.vault else (keys or Path()) / "vault.db"
        master = configured(arguments).vault.master_key if not arguments.master_key else ""
        beside = vault.with_name("master.key")
        master_key = Path(arguments.master_key or (beside if beside.exists() else master) or beside)
        return audit_key_of(vault, master_key)
    except (OSError, VaultError) as error:
        raise CommandFailed(str(error)) from None


def _sentence(line: dict[str, Any]) -> str:
    words = [f"#{line['seq']} {line['at']} {line['by']}: {line['kind']} {line['outcome']}"]
    for label, key in (("by", "who"), ("user", "user"), ("on", "on"), ("request", "request")):
        if line[key]:
            words.append(f"{label} {line[key]}")
    if line["count"] > 1:
        words.append(f"{line['count']} times")
    if line["detail"]:
        words.append(f"({line['detail']})")
    return harmless(" ".join(words))
