"""What this machine offers, asked of the real interpreters and programs."""

import os
import sys
from pathlib import Path

import pytest

from jail.host.messages import HostError
from jail.host.system import find_bwrap, find_machine, find_system
from tests.fakes.jails import ShellJail
from tests.jail.conftest import Enter


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_an_environments_interpreter_is_followed_to_the_real_one() -> None:
    assert find_system(sys.executable).python == os.path.realpath(sys.executable)
    assert find_machine() in ("x86_64", "aarch64")
    assert find_bwrap().name == "bwrap"


def test_an_interpreter_outside_usr_brings_its_prefix(tmp_path: Path) -> None:
    python = _script(tmp_path / "python3", f'echo \'["{sys.implementation.cache_tag}", "/opt/python"]\'')

    system = find_system(python)

    assert system.python == str(tmp_path / "python3")
    assert system.mounts[-1] == "/opt/python"
    assert "/opt/python" not in find_system("/usr/bin/python3").mounts


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("exit 1", "does not run"),
        ("echo nonsense", "does not run"),
        ('echo \'["cpython-27", "/usr"]\'', "must be the same version"),
        (f'echo \'["{sys.implementation.cache_tag}", "/home/user/py"]\'', "cannot be mounted"),
        (f'echo \'["{sys.implementation.cache_tag}", "/"]\'', "cannot be mounted"),
    ],
)
def test_an_interpreter_that_will_not_do_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(HostError, match=told):
        find_system(_script(tmp_path / "python3", text))


def test_a_missing_interpreter_is_told() -> None:
    with pytest.raises(HostError, match="does not run"):
        find_system("/nonexistent/python3")


def test_the_real_worker_starts_from_what_was_staged_and_greets(enter: Enter) -> None:
    jail = enter("alice", command=())
    jail.jail.edge.settimeout(60)

    greeting = jail.jail.edge.recv(64)

    assert greeting[:1] == b"\xff"  # ZMTP's signature
    assert greeting[9] & 1


def test_staged_packages_import_in_a_jail(alice: ShellJail) -> None:
    code = (
        "import sys; sys.path.insert(0, '/certosa/lib'); import zmq, zmq.asyncio, msgpack, msgspec;"
        "import jail.wire.schema; print(zmq.__file__, msgpack.version > (1,))"
    )
    assert alice.python(code) == (0, "/certosa/lib/zmq/__init__.py True\n")
