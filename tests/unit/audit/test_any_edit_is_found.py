"""Any single edit of the files, of whatever kind, is found."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.audit.chain import Chain
from core.audit.files import AuditLog
from core.audit.records import Record
from core.audit.verify import verify

KEY = bytes(range(32))


@pytest.fixture(scope="module")
def original() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        log = AuditLog(Path(directory) / "audit", Chain(KEY), True, 1_500, 100, lambda: 1_796_212_800.0)
        for number in range(25):
            log.append(
                [("egress", Record("egress_allowed", "allowed", user=f"u{number % 3}", on="example.org"))]
            )
            log.sync()
        log.close()
        yield Path(directory) / "audit"


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_single_edit_is_found(original: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(shutil.copytree(original, Path(directory) / "audit"))
        copy.chmod(0o700)
        path = data.draw(st.sampled_from(sorted(copy.iterdir())), "file")
        before = path.read_bytes()
        after = _edited(before, data)
        assume(after != before)
        if after is None:
            path.unlink()
        else:
            path.write_bytes(after)
        assert verify(copy, Chain(KEY)).faults != ()


def test_without_an_edit_nothing_is_found(original: Path) -> None:
    assert verify(original, Chain(KEY)).faults == ()


def _edited(before: bytes, data: st.DataObject) -> bytes | None:
    lines = before.splitlines(keepends=True)
    at = data.draw(st.integers(0, len(lines) - 1), "line")
    match data.draw(
        st.sampled_from(["byte", "insert", "cut", "drop", "swap", "double", "truncate", "delete"])
    ):
        case "byte":
            index = data.draw(st.integers(0, len(before) - 1))
            return before[:index] + bytes([data.draw(st.integers(0, 255))]) + before[index + 1 :]
        case "insert":
            index = data.draw(st.integers(0, len(before)))
            return before[:index] + data.draw(st.binary(min_size=1, max_size=8)) + before[index:]
        case "cut":
            index = data.draw(st.integers(0, len(before) - 1))
            return before[:index] + before[index + data.draw(st.integers(1, 40)) :]
        case "drop":
            return b"".join(lines[:at] + lines[at + 1 :])
        case "swap":
            other = data.draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
            return b"".join(lines)
        case "double":
            return b"".join([*lines[: at + 1], *lines[at:]])
        case "truncate":
            return before[: data.draw(st.integers(0, len(before) - 1))]
    return None
