"""The search for secrets finds each that was planted: what it does not find elsewhere is not there."""

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.search import Needles

SECRET = "planted-canary-4d3c2b1a"
OTHER = "another-canary-9f8e7d6c"


def _started(*arguments: str, **env: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.fixture
def waiting() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.communicate(timeout=20)


_SAY = "print('ready', flush=True); import sys; sys.stdin.read()"


def test_arguments_and_environment_are_looked_at(waiting: list[subprocess.Popen[bytes]]) -> None:
    told, given = _started(_SAY, SECRET), _started(_SAY, KEY=f"x{SECRET}y")
    waiting += [told, given]
    needles, other = Needles(SECRET), Needles(OTHER)
    assert (needles.in_arguments(told.pid), needles.in_environment(told.pid)) == (True, False)
    assert (needles.in_arguments(given.pid), needles.in_environment(given.pid)) == (False, True)
    assert not other.in_arguments(told.pid)
    assert not other.in_environment(given.pid)


def test_memory_and_descriptors_are_looked_at(waiting: list[subprocess.Popen[bytes]]) -> None:
    planted = f"""
import os, sys
kept = bytes.fromhex({SECRET.encode().hex()!r}).decode()
held = os.memfd_create("held")
os.write(held, kept.encode())
{_SAY}
"""
    process = _started(planted)
    waiting.append(process)
    needles, other = Needles(SECRET), Needles(OTHER)
    assert needles.in_descriptors(process.pid) == ["/memfd:held (deleted)"]
    assert other.in_descriptors(process.pid) == []
    if os.geteuid() == 0:
        assert needles.in_memory(process.pid)
        assert not other.in_memory(process.pid)


@pytest.mark.parametrize(
    "form",
    [
        SECRET.encode(), SECRET.encode().hex().encode(), base64.b64encode(SECRET.encode()),
        base64.b64encode(f"user:{SECRET}".encode()), base64.b64encode(f"ab{SECRET}!".encode()),
    ],
)  # fmt: skip
def test_every_form_is_found_in_files(tmp_path: Path, form: bytes) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log").write_bytes(b"before " + form + b" after")
    (tmp_path / "harmless").write_bytes(SECRET[:-1].encode())
    assert Needles(SECRET).in_files(tmp_path) == [tmp_path / "deep" / "log"]
    assert Needles(OTHER).in_files(tmp_path) == []
