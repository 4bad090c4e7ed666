"""Keep of many inputs those that reach something: few and short enough to be checked in."""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tests.fuzz.targets import CORPUS, TARGETS, Target, corpus

_ROOT = Path(__file__).parents[2]
# the product, and what shapes bodies: msgspec checks them in C, where no step is seen
_WATCHED = tuple(str(_ROOT / part) for part in ("jail/wire/", "actors/", "tests/fuzz/bodies.py"))
_MAX_FILES = 120
_MAX_BYTES = 64 << 10
_MAX_TRACED = 600

Step = tuple[CodeType, int, int]


def distil(name: str, new: Iterable[bytes]) -> None:
    """Rewrite a target's corpus: the shortest inputs, old and new, that reach every step all of them do.

    Inputs named ``fault-`` stay: each was a fault once.
    """
    run, kept = TARGETS[name], corpus(name)
    faults = [path for path in kept if path.name.startswith("fault-")]
    old = {path.read_bytes() for path in kept if path not in faults}
    seen: set[Step] = set()
    chosen: list[bytes] = []
    candidates = sorted(old, key=len) + sorted(set(new) - old, key=len)
    for data in sorted(candidates[: len(old) + _MAX_TRACED], key=len):
        reached = steps(run, data)
        room = len(chosen) < _MAX_FILES and sum(map(len, chosen)) + len(data) <= _MAX_BYTES
        if room and not reached <= seen:
            seen |= reached
            chosen.append(data)
    for path in kept:
        if path not in faults:
            path.unlink()
    for data in chosen:
        (CORPUS / name / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


def steps(run: Target, data: bytes) -> set[Step]:
    """Which steps from line to line an input takes; what it raises is no matter here."""
    found: set[Step] = set()
    last: dict[FrameType, int] = {}

    def on_call(frame: FrameType, event: str, arg: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(_WATCHED) else None

    def on_line(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            found.add((frame.f_code, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        elif event == "return":
            last.pop(frame, None)
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        run(data)
    except Exception:
        return set()  # a fault's input is kept under its own name
    finally:
        sys.settrace(before)
    return found
