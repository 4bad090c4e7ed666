"""How many users a machine carries, by what one costs. Pure; docs/load-and-capacity.md explains it.

A warm user costs memory: their jail and core's part. A stream costs CPU: core's, egress's, its
jail's, the spawner's. Core and egress are one interpreter each and use one CPU at most, however many
there are. What gives out first bounds both.
"""

from dataclasses import dataclass, replace
from typing import Final

USABLE: Final = 0.85
"""The part of a CPU, or of a process that uses one at most, above which a token waits for others."""

TOKENS_PER_S: Final = 20
"""Of a stream, as it is meant here."""


@dataclass(frozen=True, slots=True)
class Machine:
    """``cpus`` that may be used, and memory: all of it, and what is available for jails."""

    cpus: float
    memory_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes of a warm user, and CPUs used by one stream, by process."""

    user_bytes: float
    core_cpus: float
    egress_cpus: float
    jail_cpus: float
    spawner_cpus: float

    @property
    def stream_cpus(self) -> float:
        """Of a stream, all together."""
        return self.core_cpus + self.egress_cpus + self.jail_cpus + self.spawner_cpus


@dataclass(frozen=True, slots=True)
class Limits:
    """What the configuration allows; see core.config."""

    max_jails: int
    memory_bytes: int
    free_bytes: int
    max_turns: int


@dataclass(frozen=True, slots=True)
class Carried:
    """How many, and what gives out at one more; ``bounds`` is each limit by name."""

    warm: int
    warm_ends_by: str
    streams: int
    streams_end_by: str
    warm_bounds: dict[str, int]
    stream_bounds: dict[str, int]


def carry(machine: Machine, costs: Costs, limits: Limits) -> Carried:
    """What a machine carries. ``costs`` above 0."""
    warm = {
        "memory": int(max(0.0, machine.available_bytes - limits.free_bytes) / costs.user_bytes),
        "pool.max_jails": limits.max_jails,
    }
    if limits.memory_bytes:
        warm["pool.memory_bytes"] = int(limits.memory_bytes / costs.user_bytes)
    warm_by = min(warm, key=warm.__getitem__)
    streams = {
        "core's CPU": int(min(1.0, machine.cpus) * USABLE / costs.core_cpus),
        "egress's CPU": int(min(1.0, machine.cpus) * USABLE / costs.egress_cpus),
        "the machine's CPUs": int(machine.cpus * USABLE / costs.stream_cpus),
        "hub.max_turns": limits.max_turns,
        f"warm users ({warm_by})": warm[warm_by],
    }
    streams_by = min(streams, key=streams.__getitem__)
    return Carried(warm[warm_by], warm_by, streams[streams_by], streams_by, warm, streams)


def other_size(machine: Machine, cpus: int, memory_bytes: int) -> Machine:
    """A machine of another size, of which the rest takes as much memory as of this one."""
    taken = machine.memory_bytes - machine.available_bytes
    return replace(
        machine, cpus=cpus, memory_bytes=memory_bytes, available_bytes=max(0, memory_bytes - taken)
    )
