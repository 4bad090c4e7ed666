"""Classic BPF as seccomp takes it (linux/filter.h, seccomp(2)): a small assembler.

Every test is followed by its own return, so no jump is longer than a few instructions.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

_LD_W_ABS: Final = 0x20
_JEQ_K: Final = 0x15
_JGT_K: Final = 0x25
_JGE_K: Final = 0x35
_JSET_K: Final = 0x45
_RET_K: Final = 0x06

NR_OFFSET: Final = 0
ARCH_OFFSET: Final = 4
_ARGS_OFFSET: Final = 16

RET_KILL_PROCESS: Final = 0x8000_0000
RET_ALLOW: Final = 0x7FFF_0000
_RET_ERRNO: Final = 0x0005_0000


class Instruction(NamedTuple):
    """One struct sock_filter."""

    code: int
    jt: int
    jf: int
    k: int


def load(offset: int) -> Instruction:
    """Load 32 bits of struct seccomp_data into the accumulator."""
    return Instruction(_LD_W_ABS, 0, 0, offset)


def load_argument(index: int) -> Instruction:
    """Load the low 32 bits of an argument; both machines are little-endian."""
    return load(_ARGS_OFFSET + 8 * index)


def unless_equal_skip(value: int, count: int) -> Instruction:
    """Go on if the accumulator equals ``value``, otherwise skip ``count`` instructions."""
    return Instruction(_JEQ_K, 0, count, value)


def if_equal_skip(value: int, count: int) -> Instruction:
    """Skip ``count`` instructions if the accumulator equals ``value``."""
    return Instruction(_JEQ_K, count, 0, value)


def unless_greater_skip(value: int, count: int) -> Instruction:
    """Go on if the accumulator is greater than ``value``, otherwise skip."""
    return Instruction(_JGT_K, 0, count, value)


def unless_at_least_skip(value: int, count: int) -> Instruction:
    """Go on if the accumulator is ``value`` or more, otherwise skip."""
    return Instruction(_JGE_K, 0, count, value)


def unless_any_bit_skip(bits: int, count: int) -> Instruction:
    """Go on if any of these bits is set, otherwise skip."""
    return Instruction(_JSET_K, 0, count, bits)


def returns(action: int) -> Instruction:
    """End with this seccomp action."""
    return Instruction(_RET_K, 0, 0, action)


def fails(error: int) -> Instruction:
    """End the call with this errno."""
    return returns(_RET_ERRNO | error)


def assemble(program: Sequence[Instruction]) -> bytes:
    """The program as an array of struct sock_filter, in the machine's (little-endian) order."""
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
