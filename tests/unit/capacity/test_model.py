"""How many users a machine carries: which bound ends it, and how bounds move."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.capacity.model import USABLE, Costs, Limits, Machine, carry, other_size

_GIB = 1 << 30
_MIB = 1 << 20
_MACHINE = Machine(cpus=4, memory_bytes=8 * _GIB, available_bytes=6 * _GIB)
_COSTS = Costs(user_bytes=8 * _MIB, core_cpus=0.01, egress_cpus=0.004, jail_cpus=0.01, spawner_cpus=0.0001)
_LIMITS = Limits(max_jails=10_000, memory_bytes=0, free_bytes=_GIB, max_turns=100_000)


def test_memory_bounds_the_warm_and_core_the_streams() -> None:
    found = carry(_MACHINE, _COSTS, _LIMITS)
    assert (found.warm, found.warm_ends_by) == (5 * 1024 // 8, "memory")
    assert (found.streams, found.streams_end_by) == (int(USABLE / 0.01), "core's CPU")


def test_more_cpus_help_until_core_uses_one_whole() -> None:
    one, two, many = (carry(replace(_MACHINE, cpus=cpus), _COSTS, _LIMITS) for cpus in (1, 2, 64))
    assert (one.streams, one.streams_end_by) == (int(USABLE / _COSTS.stream_cpus), "the machine's CPUs")
    assert one.streams < two.streams <= many.streams
    assert many.streams == int(USABLE / _COSTS.core_cpus)


def test_what_the_configuration_allows_is_a_bound_too() -> None:
    found = carry(_MACHINE, _COSTS, replace(_LIMITS, max_jails=20, max_turns=5))
    assert (found.warm, found.warm_ends_by) == (20, "pool.max_jails")
    assert (found.streams, found.streams_end_by) == (5, "hub.max_turns")
    found = carry(_MACHINE, _COSTS, replace(_LIMITS, memory_bytes=80 * _MIB))
    assert (found.warm, found.warm_ends_by) == (10, "pool.memory_bytes")
    assert found.streams_end_by == "warm users (pool.memory_bytes)"


def test_a_machine_without_memory_carries_nobody() -> None:
    found = carry(replace(_MACHINE, available_bytes=_GIB), _COSTS, _LIMITS)
    assert (found.warm, found.streams) == (0, 0)


@given(st.integers(1, 64), st.integers(1, 64))
def test_a_larger_machine_never_carries_fewer(cpus: int, gib: int) -> None:
    small = carry(other_size(_MACHINE, cpus, gib * _GIB), _COSTS, _LIMITS)
    large = carry(other_size(_MACHINE, cpus + 1, (gib + 1) * _GIB), _COSTS, _LIMITS)
    assert large.warm >= small.warm
    assert large.streams >= small.streams
