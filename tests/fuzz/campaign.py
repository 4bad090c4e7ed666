"""Fuzz every target for a share of the time, keep what reached new code, and say what was found."""

import argparse
import hashlib
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.distil import distil
from tests.fuzz.targets import CORPUS, TARGETS, corpus

_ROOT = Path(__file__).parents[2]
_COUNTS = struct.Struct("<QQ")
_MAX_INPUT_BYTES = 2_048
_INPUT_S = 30  # one input may take that long, tracing included
_RSS_MB = 1_024
_FAULTS = 3  # of one target, then its time is over
_GRACE_S = 60.0
_CHILD = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from tests.fuzz.engine import main
main(sys.argv[1:])
"""


@dataclass
class Tally:
    """What became of one target."""

    target: str
    inputs: int = 0
    frames: int = 0
    took_s: float = 0.0
    faults: int = 0

    def __str__(self) -> str:
        return (
            f"{self.target:<12} {self.inputs:>10,} inputs {self.frames:>12,} frames "
            f"{self.took_s:>7.0f} s {self.faults:>3} faults {len(corpus(self.target)):>4} kept"
        )


def main(arguments: list[str]) -> int:
    """The command ``scripts/fuzz``; returns 1 where something was found."""
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description="Feed the wire and core's end of it hostile bytes."
    )
    parser.add_argument("minutes", type=float, help="for all targets together")
    parser.add_argument("target", nargs="*", help=f"of {', '.join(TARGETS)}; all of them unless named")
    options = parser.parse_args(arguments)
    if unknown := set(options.target) - TARGETS.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    names = options.target or list(TARGETS)
    share_s = options.minutes * 60 / len(names)
    tallies = []
    for name in names:
        tallies.append(_fuzz(name, share_s))
        print(tallies[-1], flush=True)
    total = Tally("all")
    for tally in tallies:
        total.inputs += tally.inputs
        total.frames += tally.frames
        total.took_s += tally.took_s
        total.faults += tally.faults
    print(f"frames tried: {total.frames:,}  time: {total.took_s:.0f} s  faults: {total.faults}")
    return 1 if total.faults else 0


def _fuzz(name: str, time_s: float) -> Tally:
    tally = Tally(name)
    kept = CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="certosa-fuzz-") as made:
        new = Path(made) / "new"
        new.mkdir()
        ends_s = time.monotonic() + time_s
        while (left_s := ends_s - time.monotonic()) >= 1 and tally.faults < _FAULTS:
            began_s = time.monotonic()
            found = _run(name, left_s, new, tally)
            tally.took_s += time.monotonic() - began_s
            if found is None:
                break
            tally.faults += 1
            path = kept / f"fault-{_digest(found)}"
            path.write_bytes(found)
            print(f"{name}: a fault; the input is {path.relative_to(_ROOT)}", file=sys.stderr)
        distil(name, [path.read_bytes() for path in sorted(new.iterdir())])
    return tally


def _run(name: str, time_s: float, new: Path, tally: Tally) -> bytes | None:
    """One process; returns the input that broke it, if one did."""
    work = Path(tempfile.mkdtemp(prefix="run-", dir=new.parent))
    counts = work / "counts"
    counts.write_bytes(bytes(_COUNTS.size))
    command = [sys.executable, "-I", "-c", _CHILD, str(_ROOT), name, str(counts)]
    command += [
        str(new),
        str(CORPUS / name),
        f"-max_total_time={max(1, int(time_s))}",
        f"-max_len={_MAX_INPUT_BYTES}",
        "-len_control=0",  # a conversation needs some length from the first
        f"-timeout={_INPUT_S}",
        f"-report_slow_units={_INPUT_S}",  # else one that waited for a busy CPU is written down like a fault
        f"-rss_limit_mb={_RSS_MB}",
        f"-artifact_prefix={work}/fault-",
        "-print_final_stats=0",
        "-verbosity=0",
    ]
    # what the engine prints while all is well helps nobody; of a fault the end says it
    ended = subprocess.run(command, capture_output=True, timeout=time_s + _GRACE_S, check=False)
    inputs, frames = _COUNTS.unpack(counts.read_bytes())
    tally.inputs += inputs
    tally.frames += frames
    found = None
    if ended.returncode != 0:
        artifacts = sorted(work.glob("fault-*"))
        found = artifacts[0].read_bytes() if artifacts else None
        print((ended.stdout + ended.stderr).decode(errors="replace")[-6_000:], file=sys.stderr)
        if found is None:
            raise SystemExit(f"scripts/fuzz: the engine of {name} failed: see above")
    shutil.rmtree(work)
    return found


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
