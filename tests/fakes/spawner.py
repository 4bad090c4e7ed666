"""A real spawner in a process of its own, whose core and egress do what a test says."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fakes import jail_shell
from tests.fakes.jails import SOURCE, USER_UIDS, House

_WAIT_S = 60.0


class Lines:
    """Lines of JSON from a stream socket or pipe, one after another."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._data = b""
        self.seen: list[dict[str, Any]] = []

    def next(self, timeout_s: float = _WAIT_S) -> dict[str, Any]:
        """The next line; TimeoutError if none comes, EOFError at the end."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._data:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"nothing more came after {self.seen[-5:]}")
            data = os.read(self._fd, 65_536)
            if not data:
                raise EOFError(f"the end came after {self.seen[-5:]}")
            self._data += data
        line, self._data = self._data.split(b"\n", 1)
        self.seen.append(json.loads(line))
        return self.seen[-1]

    def until(self, timeout_s: float = _WAIT_S, **wanted: Any) -> dict[str, Any]:
        """The next line that has all of these values."""
        deadline = time.monotonic() + timeout_s
        while True:
            line = self.next(max(0.0, deadline - time.monotonic()))
            if wanted.items() <= line.items():
                return line


class Service:
    """The test's end of a fake core or egress."""

    def __init__(self) -> None:
        self._sock, self.theirs = socket.socketpair()
        self.lines = Lines(self._sock.fileno())

    def do(self, what: str, **values: Any) -> None:
        """Tell it to do something; see tests/fakes/service_main.py."""
        self._sock.sendall(json.dumps({"do": what, **values}).encode() + b"\n")

    def hear(self, what: str, timeout_s: float = _WAIT_S, **wanted: Any) -> dict[str, Any]:
        """Wait until it tells of this."""
        return self.lines.until(timeout_s, heard=what, **wanted)

    def close(self) -> None:
        self._sock.close()
        self.theirs.close()


class FakedSpawner:
    """The spawner's process; a context manager that ends it."""

    def __init__(self, house: House, **options: Any) -> None:
        self.house = house
        self.core, self.egress = Service(), Service()
        place = house.data_dir / "service"
        if not place.exists():
            # where a service's uid can read it, beside a copy of what it imports
            (place / "tests" / "fakes").mkdir(parents=True)
            shutil.copy(SOURCE / "tests/fakes/service_main.py", place / "tests" / "fakes")
            shutil.copytree(house.staged.app / "jail", place / "jail")
            for directory, _, names in os.walk(place):
                os.chmod(directory, 0o755)
                for name in names:
                    os.chmod(os.path.join(directory, name), 0o644)
        script = str(place / "tests" / "fakes" / "service_main.py")
        owners = house.owners
        config = {
            "data_dir": str(house.data_dir),
            "bwrap": str(house.bwrap),
            "machine": house.machine,
            "links": house.system.links,
            "mounts": house.system.mounts,
            "python": house.system.python,
            "lib": str(house.staged.lib),
            "etc": str(house.staged.etc),
            "app": str(house.staged.app),
            "start": "exec",
            "limits": {},
            "cgroups": "off",
            "mounted": {},
            "owners": [owners.core.uid, owners.egress.uid] if owners else None,
            "user_uids": [USER_UIDS.start, USER_UIDS.stop],
            "max_alive": 20,
            "max_starting": 3,
            "grace_s": 5.0,
            "command": jail_shell.COMMAND,
            "core": script,
            "egress": script,
            "core_fd": self.core.theirs.fileno(),
            "egress_fd": self.egress.theirs.fileno(),
            **options,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.spawner_main", json.dumps(config)],
            cwd=SOURCE,
            stdout=subprocess.PIPE,
            pass_fds=(self.core.theirs.fileno(), self.egress.theirs.fileno()),
            env={"PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert self.process.stdout is not None
        self.events = Lines(self.process.stdout.fileno())

    def begin(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait until both run; what each told of itself."""
        return self.core.hear("started"), self.egress.hear("started")

    def start_jail(self, life: int, user: str) -> dict[str, Any]:
        """Have core start a jail, and wait for it."""
        self.ask("StartJail", life=life, user=user, host_uid=self.house.uid(user))
        return self.core.hear("JailStarted", life=life)

    def ask(self, kind: str, **fields: Any) -> None:
        """Have core send a message."""
        self.core.do("send", kind=kind, **fields)

    def run(self, life: int, *argv: str) -> Any:
        """Run a program in a jail, through core's end of its edge."""
        self.core.do("edge", life=life, argv=argv)
        return self.core.hear("edge")["answer"]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Signal the spawner and wait for its end; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(_WAIT_S)

    def __enter__(self) -> "FakedSpawner":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(_WAIT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.core.close()
        self.egress.close()


def descendants(pid: int) -> set[int]:
    """All processes below ``pid``."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found.update(below)
        waiting += below
    return found
