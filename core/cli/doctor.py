"""``certosa doctor``."""

import argparse
from typing import TYPE_CHECKING, Final

import msgspec

from core.cli.failure import FAILED
from core.cli.output import harmless, print_json, print_table
from core.cli.place import configured, used_config_path

if TYPE_CHECKING:
    from jail.host.doctor import Finding

_LINE_CHARACTERS: Final = 120


def doctor(arguments: argparse.Namespace) -> int:
    """Attack a live jail and say what this machine gives; 1 where an attack succeeds."""
    config = configured(arguments)
    from core.serve import examine

    report = examine(config, used_config_path(arguments))
    if arguments.json:
        print_json(msgspec.to_builtins(report))
        return 0 if report.ok else FAILED
    print_table(("THIS MACHINE", ""), [(name, value) for name, value in report.machine.items()])
    print()
    print("ATTEMPTS FROM WITHIN A JAIL")
    for finding in report.findings:
        print(_shown(finding))
    print()
    print(_verdict(report.ok, report.error))
    return 0 if report.ok else FAILED


def _shown(finding: "Finding") -> str:
    """One line; what an attempt should have given only where it gave something else."""
    text = f"{finding.attempt}: {finding.got}"
    if finding.ok:
        return f"ok   {harmless(text)[:_LINE_CHARACTERS]}"
    return f"BAD  {harmless(text)}, expected: {harmless(finding.expected)}"


def _verdict(ok: bool, error: str) -> str:
    if ok:
        return "The jail holds."
    return f"No jail could be attacked: {error}" if error else "THE JAIL DOES NOT HOLD: see BAD above."
