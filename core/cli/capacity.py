"""``certosa capacity``."""

import argparse
import sys
from dataclasses import asdict

from core.capacity.measure import Measured, measure
from core.capacity.model import TOKENS_PER_S, USABLE, Carried, Limits, carry, other_size
from core.cli.output import print_json, print_table
from core.cli.place import configured

_SIZES = ((2, 4), (4, 8), (8, 16), (16, 32), (32, 64))
_GIB = 1 << 30
_MIB = 1 << 20


def capacity(arguments: argparse.Namespace) -> int:
    """Measure this machine on a server of the command's own, and say what it carries."""
    config = configured(arguments)
    found = measure(config.jail.start, _say)
    limits = Limits(
        max_jails=config.pool.max_jails,
        memory_bytes=config.pool.memory_bytes,
        free_bytes=config.pool.free_bytes,
        max_turns=config.hub.max_turns,
    )
    here = carry(found.machine, found.costs, limits)
    others = [
        (cpus, gib, carry(other_size(found.machine, cpus, gib * _GIB), found.costs, limits))
        for cpus, gib in _SIZES
    ]
    if arguments.json:
        print_json(
            {
                "measured": asdict(found),
                "limits": asdict(limits),
                "usable": USABLE,
                "here": asdict(here),
                "others": [
                    {"cpus": cpus, "memory_bytes": gib * _GIB, **asdict(carried)}
                    for cpus, gib, carried in others
                ],
            }
        )
        return 0
    _show(found, here)
    print()
    print_table(
        ("CPUS", "MEMORY", "WARM", "ENDS BY", "STREAMS", "END BY"),
        [(str(cpus), f"{gib} GiB", *_row(carried)) for cpus, gib, carried in others],
    )
    return 0


def _show(found: Measured, here: Carried) -> None:
    costs, machine = found.costs, found.machine
    print(f"This machine carries {here.warm} warm users: then {here.warm_ends_by} ends.")
    streaming = f"{here.streams} of them can stream at {TOKENS_PER_S} tokens a second"
    print(f"{streaming}: then {here.streams_end_by} ends.")
    print()
    rows = [
        ("CPUs", f"{machine.cpus:g}", f"of which {USABLE:.0%} are counted on"),
        ("memory available", f"{machine.available_bytes / _GIB:.1f} GiB", "before it was measured"),
        ("a warm user", f"{costs.user_bytes / _MIB:.1f} MiB", f"their jail {found.jail_bytes / _MIB:.1f}"),
        ("a stream, core", f"{costs.core_cpus:.2%}", "of a CPU; it can use one"),
        ("a stream, egress", f"{costs.egress_cpus:.2%}", "of a CPU; it can use one"),
        ("a stream, its jail", f"{costs.jail_cpus:.2%}", "of a CPU"),
        ("a stream, spawner", f"{costs.spawner_cpus:.2%}", "of a CPU"),
        ("a token's delay", f"{found.delay_ms:.1f} ms", f"with {found.streams} streams"),
        ("client and model server", f"{found.beside_cpus:.2f}", "CPUs; no part of Certosa, not counted"),
    ]
    print_table(("MEASURED", "", ""), rows)
    print()
    bounds = {**here.warm_bounds, **here.stream_bounds}
    print_table(("BOUND", "USERS"), [(name, str(count)) for name, count in bounds.items()])


def _row(carried: Carried) -> tuple[str, str, str, str]:
    return str(carried.warm), carried.warm_ends_by, str(carried.streams), carried.streams_end_by


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
