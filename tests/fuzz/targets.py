"""The targets by name, and the corpus that goes with each."""

from collections.abc import Callable
from pathlib import Path

from tests.fuzz.connection_target import connection
from tests.fuzz.core_target import core
from tests.fuzz.wire_targets import frames, schema, zmtp

Target = Callable[[bytes], int]
"""Bytes in, frames tried out; raises where something is at fault."""

TARGETS: dict[str, Target] = {
    "zmtp": zmtp,
    "frames": frames,
    "schema": schema,
    "connection": connection,
    "core": core,
}
CORPUS = Path(__file__).parent / "corpus"


def corpus(name: str) -> list[Path]:
    """A target's inputs that are kept, in a fixed order."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
