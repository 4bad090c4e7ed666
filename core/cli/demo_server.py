"""A server of the demonstration's own, in a directory of its own, ended and removed afterwards."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from core.cli.admin import AdminClient
from core.cli.failure import UNREACHABLE, CommandFailed

# An emulated machine is twenty times slower than the one this was written on.
_START_S = 600.0
_STOP_S = 120.0
_ADMIN_S = 300.0
_LOG_TAIL_BYTES = 2_000
# PR_SET_PDEATHSIG (1): our end, whatever it is, is SIGTERM for the server.
_START_CODE = (
    "import ctypes, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGTERM);"
    " sys.path.insert(0, sys.argv.pop(1)); from core.cli import main; sys.exit(main())"
)
_CONFIG = """\
[server]
data_dir = {data_dir}
log_format = "json"
[hub]
port = {hub}
[admin]
port = {admin}
[jail]
start = "{start}"
start_timeout_s = 300
"""


class DemoServer:
    """A running server: its data directory, the hub's port, and the admin socket's client."""

    def __init__(self, directory: Path, hub_port: int) -> None:
        self.data_dir = directory / "data"
        self.hub_port = hub_port
        self.admin = AdminClient(self.data_dir, _ADMIN_S)
        self._log = directory / "server.log"
        self.config_path = directory / "certosa.toml"
        self._process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        """Start it, the first time or after :meth:`stop`; ``wait_ready`` waits for it."""
        code_root = Path(__file__).resolve().parents[2]
        command = [sys.executable, "-I", "-c", _START_CODE, str(code_root), "--config", str(self.config_path)]
        with self._log.open("ab") as log:
            # A session of its own: Ctrl-C comes to us alone, and we end the server in order.
            self._process = subprocess.Popen(
                [*command, "serve"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """The spawner's."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Return once the admin socket answers. Raises CommandFailed when it never does."""
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise CommandFailed(
                    f"the server ended at its start, with {self._process.returncode}: {self.log_tail()}"
                )
            try:
                self.admin.call("GET", "/v1/status")
                return
            except CommandFailed as error:
                if error.status != UNREACHABLE:
                    raise
            time.sleep(0.05)
        raise CommandFailed(f"the server was not ready within {_START_S:.0f} s: {self.log_tail()}")

    def log_tail(self) -> str:
        """The end of what the server said, on one line."""
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _LOG_TAIL_BYTES))
                return " / ".join(log.read().decode(errors="replace").splitlines()[-8:])
        except OSError as error:
            return f"(its log cannot be read: {error})"

    def status(self) -> dict[str, Any]:
        """``GET /v1/status``."""
        answer = self.admin.call("GET", "/v1/status")
        return answer if isinstance(answer, dict) else {}

    def service_pids(self) -> dict[str, int]:
        """Core's and egress's, as the log says of their last start."""
        found: dict[str, int] = {}
        for line in self._log.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                said = json.loads(line)
                if said.get("event") == "service_started":
                    found[str(said["service"])] = int(said["pid"])
        return found

    def stop(self) -> int:
        """End the server and return its exit code; SIGKILL where SIGTERM is not enough."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_S)
            return -signal.SIGKILL


@contextmanager
def demo_server(more_config: str = "", start: str = "fork") -> Iterator[DemoServer]:
    """Start a server in a temporary directory; end it and remove the directory at the end.

    ``more_config`` is more of its configuration, in TOML; ``start`` its ``jail.start``.
    """
    directory = _make_directory()
    try:
        hub, admin = _free_ports(2)
        data_dir = json.dumps(str(directory / "data"))
        text = _CONFIG.format(data_dir=data_dir, hub=hub, admin=admin, start=start)
        (directory / "certosa.toml").write_text(join_sections(text, more_config))
        server = DemoServer(directory, hub)
        try:
            server.wait_ready()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(directory)


def join_sections(*texts: str) -> str:
    """One TOML text of several, which may have sections in common, but no key."""
    sections: dict[str, list[str]] = {"": []}
    for number, text in enumerate(texts):
        header = ""
        for at, line in enumerate(text.splitlines()):
            if line.startswith("[["):
                header = f"{number}.{at}"  # each is another one
            elif line.startswith("["):
                header = line.strip()
                if header in sections:
                    continue
            sections.setdefault(header, []).append(line)
    return "".join(f"{line}\n" for lines in sections.values() for line in lines)


def _make_directory() -> Path:
    """Other uids have to pass through it when we are root, so it may not lie in a private place."""
    prefix = f"certosa-demo-{os.getpid()}-"
    if os.geteuid() == 0:
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir="/var/lib"))
        directory.chmod(0o711)
        return directory
    return Path(tempfile.mkdtemp(prefix=prefix))


def _free_ports(count: int) -> list[int]:
    """Ports that are free now; held together, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports
