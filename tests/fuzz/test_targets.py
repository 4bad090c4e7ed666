"""Short runs of every target, the same each time, and the whole corpus again."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jail.wire.connection import Connection
from jail.wire.errors import LocalFault, PeerFault
from jail.wire.frames import MAX_FRAME_BYTES, decode_frame
from jail.wire.schema import FROM_JAIL, TO_JAIL, from_wire
from tests.fuzz.bodies import valid
from tests.fuzz.choices import Choices
from tests.fuzz.connection_target import Talk
from tests.fuzz.memory import DECODED, Bound, MemoryExceeded, Traced, within
from tests.fuzz.targets import TARGETS, corpus
from tests.fuzz.wire_targets import KINDS, connect

_HEAD = b"\x94\x01\x02\x01"
short_run = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("name", TARGETS)
@short_run
@given(data=st.binary(max_size=1_200))
def test_any_bytes_are_taken_or_refused_within_the_memory_bound(name: str, data: bytes) -> None:
    with Traced():
        assert TARGETS[name](data) >= 0


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_once_found_stays_mended(name: str) -> None:
    paths = corpus(name)
    assert paths, "the corpus is empty"
    with Traced():
        assert sum(_replay(name, path) for path in paths) > 0


def _replay(name: str, path: Path) -> int:
    try:
        return TARGETS[name](path.read_bytes())
    except Exception as error:
        error.add_note(f"the input is {path}")
        raise


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(getattr(kind, "__name__", kind)))
def test_every_body_of_the_schema_is_made_and_taken(kind: type) -> None:
    for seed in range(64):
        raw = valid(Choices(bytes((seed * 37 + at * 11) % 256 for at in range(200))), kind)
        assert from_wire(raw, kind) is not None


def test_the_targets_reach_every_verb_of_both_directions() -> None:
    for side, verbs in (("core", FROM_JAIL), ("worker", TO_JAIL)):
        seen = set()
        for seed in range(200):
            talk = Talk(side)  # type: ignore[arg-type]
            choices = Choices(bytes((seed * 7 + at * at * 13) % 240 for at in range(600)))
            while choices.left and talk.hear(talk.payload(choices)):
                seen |= {theirs.verb.request for theirs in talk.end._theirs.values()}
        assert seen == {verb.request for verb in verbs.values()}


def test_a_broken_rule_of_ours_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def local_fault(self: Connection, data: bytes) -> list[object]:
        raise LocalFault("ours")

    monkeypatch.setattr(Connection, "receive", local_fault)
    for name in ("connection", "core"):
        with pytest.raises(LocalFault):
            TARGETS[name](bytes(range(256)))


def test_more_memory_than_the_bound_is_noticed() -> None:
    frugal = Bound(base=1_000, factor=1, small=0, small_most=0)
    with Traced():
        assert within(frugal, 5_000, lambda: len(bytes(5_000))) == 5_000
        with pytest.raises(MemoryExceeded, match="1100 allowed"):
            within(frugal, 100, lambda: len(bytes(5_000)))


_WIDE = b"\xf0\x9f\x98\x80"
_BOMBS = {
    "one wide text": _HEAD + b"\xdb\x00\x0f\x42\x44" + b"a" * 1_000_000 + _WIDE,
    "wide texts in lists": _HEAD + b"\xdc\x00\x1e" + (b"\xdc\x03\xff" + b"\xa3\xe4\xb8\xad" * 1_023) * 30,
    "empty maps in lists": _HEAD + b"\xdc\x00\x0f" + (b"\xdc\x03\xff" + b"\x80" * 1_023) * 15,
    "small maps in lists": _HEAD + b"\xdc\x00\x07" + (b"\xdc\x03\xff" + b"\x81\xa1a\xc0" * 1_023) * 7,
    "lists that never end": (b"\xdc\x04\x00" + b"\xa3\xe4\xb8\xad" * 255) * 1_000,
    "just too short to be looked through": b"\xdc\x04\x00" * 170,
    "maps just too short to be looked through": b"\xde\x00\x40\xa1a" * 102,
}


@pytest.mark.parametrize("name", _BOMBS)
def test_a_frame_made_to_be_large_in_memory_stays_within_the_bound(name: str) -> None:
    raw = _BOMBS[name]
    assert len(raw) <= MAX_FRAME_BYTES
    with Traced(), suppress(PeerFault):
        within(DECODED, len(raw), lambda: decode_frame(raw))


@pytest.mark.parametrize("message", [b"\x00\x00", b"\x00\x01a", b"\x00\x02ab", b"\x00\x40" + b"x" * 64])
def test_a_read_full_of_short_messages_stays_within_the_bound(message: bytes) -> None:
    end, data = connect(4_096), message * (65_536 // len(message))
    with Traced():
        assert len(end(data)) == len(data) // len(message)
