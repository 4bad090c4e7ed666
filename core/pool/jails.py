"""What the pool is told, what it decides, and what it knows of each jail."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

State = Literal["queued", "starting", "busy", "idle", "leaving"]
Why = Literal["idle", "room", "memory", "pressure", "operator", "credential"]
"""Idle too long; the number of jails; the pool's own memory; the machine's; somebody said so; what lies in it
as a file is another by now."""
WhyNot = Literal["queue", "deadline", "draining", "held"]


@dataclass(frozen=True, slots=True)
class Keep:
    """What an operator said of one user's jail."""

    idle_s: float | None = None
    always: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """The pool's limits.

    Args:
        jails: alive at once. starting: of them, being built.
        memory_bytes: of all jails together; 0: only ``free_bytes`` counts.
        free_bytes: what the machine must have available.
        jail_bytes: what a jail is taken to need before any was measured.
        idle_s: how long an idle jail is kept.
        queue: starts that may wait. queue_s: for how long.
        users: exceptions.
    """

    jails: int = 500
    starting: int = 4
    memory_bytes: int = 0
    free_bytes: int = 256 << 20
    jail_bytes: int = 12 << 20
    idle_s: float = 600.0
    queue: int = 200
    queue_s: float = 15.0
    users: Mapping[str, Keep] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PoolNow:
    """What the pool and the machine have, for who watches; in bytes where a name says so.

    ``jails_bytes`` is the memory of each jail that was measured; ``budget_bytes`` what all may hold, and
    ``capacity_jails`` how many fit into that at ``typical_bytes`` each.
    """

    jails_bytes: tuple[int, ...] = ()
    private_bytes: int = 0
    processes: int = 0
    budget_bytes: int = 0
    jails_limit: int = 0
    capacity_jails: int = 0
    typical_bytes: int = 0
    draining: bool = False
    machine_bytes: int = 0
    available_bytes: int = 0
    reserve_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """Have the jail built now; it waited that long for room."""

    life: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """No jail for it: ``message`` says why, ``retry_after_s`` when to try again."""

    life: int
    why: WhyNot
    message: str
    retry_after_s: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask the jail to go, if it is still idle."""

    life: int
    why: Why


Decision = Start | Refuse | Evict


@dataclass(slots=True)
class Jail:
    """What the pool knows of one. Times are of the caller's monotonic clock, in seconds."""

    life: int
    user: str
    wanted_s: float
    state: State = "queued"
    since_s: float = 0.0  # in this state
    launched_s: float = 0.0  # when its start began
    start_s: float = 0.0  # what its start took
    due_s: float = 0.0  # when it was idle for too long
    excused: bool = False  # it was told to end: its death says nothing of it
    reason: str = ""  # why its user's actor ended it
    pid: int = 0  # its first process, once it is built
    uses: int = 0
    memory_bytes: int | None = None
    private_bytes: int = 0
    processes: int = 0
    cpu_s: float = 0.0
    measured_s: float = 0.0
    stale: bool = True  # used since it was measured
