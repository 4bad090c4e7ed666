"""Runs a seccomp filter in plain Python, so that every number can be tried without a kernel."""

import struct


def run(program: bytes, arch: int, number: int, *args: int) -> int:
    """What the filter returns for one call: a SECCOMP_RET_ value."""
    padded = (*args, *(0,) * (6 - len(args)))
    data = struct.pack("<IIQ6Q", number & 0xFFFF_FFFF, arch, 0, *padded)
    instructions = list(struct.iter_unpack("<HBBI", program))
    accumulator, at = 0, 0
    while True:
        code, jump_true, jump_false, k = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x15 | 0x25 | 0x35 | 0x45:
                holds = {
                    0x15: accumulator == k,
                    0x25: accumulator > k,
                    0x35: accumulator >= k,
                    0x45: bool(accumulator & k),
                }[code]
                at += jump_true if holds else jump_false
            case 0x06:
                return int(k)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")
