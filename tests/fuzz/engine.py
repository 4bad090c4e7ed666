"""One target under atheris, in a process of its own; the arguments are TARGET COUNTS-FILE OPTION ...

libFuzzer ends the process as it likes, so the counts (inputs, frames: two little-endian 64-bit numbers)
stand in a file that the campaign reads.
"""

import mmap
import struct
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["jail.wire", "actors", "tests.fuzz.bodies"]):
    from tests.fuzz.targets import TARGETS

from tests.fuzz.memory import Traced

COUNTS = struct.Struct("<QQ")


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer's own options say stop; does not return."""
    name, counts_path, *options = arguments
    run = TARGETS[name]
    with Path(counts_path).open("r+b") as file:
        counts = mmap.mmap(file.fileno(), COUNTS.size)

    def one_input(data: bytes) -> None:
        inputs, frames = COUNTS.unpack_from(counts)
        COUNTS.pack_into(counts, 0, inputs + 1, frames)  # an input that is at fault counts too
        COUNTS.pack_into(counts, 0, inputs + 1, frames + run(data))

    atheris.Setup([name, *options], one_input)
    with Traced():
        atheris.Fuzz()
