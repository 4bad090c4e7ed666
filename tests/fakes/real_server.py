"""The real server in a directory of its own: started, talked to, hurt and ended by tests."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import openai

from core.cli.admin import AdminClient
from core.cli.failure import UNREACHABLE, CommandFailed
from tests.fakes.staged import lay_staged

LIMIT_S = 60.0
"""How long anything may take on a machine that is busy with something else."""

ROOT = Path(__file__).resolve().parents[2]
_CODE = """\
import ctypes, sys
ctypes.CDLL(None).prctl(1, 15)  # PR_SET_PDEATHSIG: a test run that is killed leaves no server
sys.path.insert(0, sys.argv.pop(1))
{before}
from core.cli import main
sys.exit(main())
"""
_T = TypeVar("_T")

Sections = Mapping[str, Mapping[str, Any]]

STALL_S = 1.5
"""How long these servers wait for a model server that says nothing."""
FAKE_AGENT = 'provider = "fake"\nmodel = "echo"\n'

UNATTACKED = "import core.serve; core.serve._attack_first = lambda config, _: config.start"
"""For ``before``: the doctor's attack is most of a start; tests of its own look at it."""


def with_model(url: str) -> dict[str, dict[str, Any]]:
    """A configuration with a model server as providers ``fake`` and, in Anthropic's format, ``claude``."""
    limits = {"connect_s": 1.0, "first_byte_s": STALL_S, "idle_s": STALL_S, "retries": 0}
    return {
        "providers.fake": {"base_url": url, "attachments": "all", **limits},
        "providers.claude": {"base_url": url, "kind": "anthropic", "attachments": "all", **limits},
    }


def until(what: str, look: Callable[[], _T | None], limit_s: float = LIMIT_S) -> _T:
    """Look again and again until something is there; AssertionError naming ``what`` otherwise."""
    deadline_s = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < deadline_s, f"never came: {what}"
        time.sleep(0.01)
    return found


@dataclass
class Done:
    """A turn that has ended, as its client saw it."""

    turn: str = ""
    text: str = ""
    finish: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    results: list[tuple[bool, str]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def output(self) -> str:
        """What the tools gave."""
        return "\n".join(text for _, text in self.results)


class Person:
    """A user with a token and the official client."""

    def __init__(self, server: "RealServer", name: str, token: str) -> None:
        self.server, self.name, self.token = server, name, token

    @property
    def home(self) -> Path:
        """Their home, as the machine knows it."""
        return self.server.data_dir / "users" / self.name / "home"

    def client(self, **more: Any) -> openai.OpenAI:
        """A client that does not try again by itself; to be closed."""
        settings = {"max_retries": 0, "timeout": LIMIT_S, **more}
        return openai.OpenAI(base_url=f"{self.server.url}/v1", api_key=self.token, **settings)

    def ask(self, text: str, session: str = "", model: str = "assistant") -> Done:
        """Run a turn to its end, streamed, with its tools' events. Raises openai.APIError."""
        headers = {"X-Certosa-Events": "on"} | ({"X-Certosa-Session": session} if session else {})
        with self.client() as client:
            raw = client.chat.completions.with_raw_response.create(
                model=model,
                messages=[{"role": "user", "content": text}],
                stream=True,
                extra_headers=headers,
            )
            done = Done(raw.headers["X-Certosa-Turn"])
            for chunk in raw.parse():
                take_chunk(done, chunk)
        return done

    def run(self, command: str) -> str:
        """What a command gave in their jail."""
        return self.ask(f"run: {command}").output

    def python(self, code: str) -> str:
        """What a Python program printed in their jail."""
        return self.ask(f"python: {code}").output

    def add_agent(self, name: str, text: str) -> None:
        """Write ``agents/NAME.toml``."""
        directory = self.server.data_dir / "users" / self.name / "agents"
        path = directory / f"{name}.toml"
        path.write_text(text)
        if os.geteuid() == 0:
            info = directory.stat()
            os.chown(path, info.st_uid, info.st_gid)
            path.chmod(0o640)

    def put(self, name: str, text: str) -> None:
        """Lay a file into their home, as theirs."""
        path = self.home / name
        path.write_text(text)
        if os.geteuid() == 0:
            info = self.home.stat()
            os.chown(path, info.st_uid, info.st_gid)


def take_chunk(done: Done, chunk: Any) -> None:
    """Add one chunk of a stream to what is known of a turn."""
    event = (chunk.model_extra or {}).get("certosa")
    if event:
        done.events.append(event)
        if event["type"] == "tool_call":
            done.calls.append((event["name"], event["arguments"]))
        elif event["type"] == "tool_result":
            done.results.append((event["ok"], event["text"]))
    for choice in chunk.choices:
        done.text += choice.delta.content or ""
        done.finish = choice.finish_reason or done.finish


def new_person(server: "RealServer", name: str) -> Person:
    """A new user who has the agent ``fake``."""
    person = server.new_user(name)
    person.add_agent("fake", FAKE_AGENT)
    return person


class RealServer:
    """One server.

    Args:
        directory: of its own, which every uid may pass through.
        sections: of the configuration; data_dir, ports and the log's format are set.
        keys: the provider key file's text; empty: none.
        before: Python that runs in the spawner's process before anything else, to change it.
    """

    def __init__(self, directory: Path, sections: Sections, keys: str = "", before: str = "") -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.log_path = directory / "server.log"
        self.config_path = directory / "certosa.toml"
        self.admin = AdminClient(self.data_dir, LIMIT_S)
        self.hub_port = self.admin_port = 0
        self.process: subprocess.Popen[bytes]
        self._before = before
        self._sections = {
            "server": {"data_dir": str(self.data_dir), "log_format": "json", "log_level": "debug"},
            **{name: dict(values) for name, values in sections.items()},
        }
        # a turn that should have ended long ago ends before the test's patience does
        self._sections.setdefault("agent.limits", {"wall_s": 50})
        # all clients of a test are one address: what one does wrong must not make the next wait
        self._sections.setdefault("access", {"free_failures": 1_000})
        # nor is a machine that does other work beside the tests what they are about
        self._sections.setdefault("hub", {}).setdefault("max_lag_s", 60)
        self._sections["server"] |= {"data_dir": str(self.data_dir), "log_format": "json"}
        if keys:
            self.write_keys(keys)

    @property
    def url(self) -> str:
        """Of the public API, without /v1."""
        return f"http://127.0.0.1:{self.hub_port}"

    def begin(self, hub_port: int = 0) -> None:
        """Start it and wait for nothing; ``hub_port`` 0 takes a free one."""
        free = free_ports(2)
        self.hub_port, self.admin_port = hub_port or free[0], free[1]
        self.write_config()
        self.data_dir.mkdir(mode=0o711, exist_ok=True)
        lay_staged(self.data_dir)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command(self._before, "--config", str(self.config_path), "serve"),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def write_config(self, more: Sections | None = None, raw: str = "") -> None:
        """Write the file as it was at the start, with more sections, or with ``raw`` in their place."""
        sections = {
            **self._sections,
            "hub": {**self._sections.get("hub", {}), "port": self.hub_port},
            "admin": {**self._sections.get("admin", {}), "port": self.admin_port},
        }
        self.config_path.write_text(raw or toml({**sections, **(more or {})}))

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.begin()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the admin socket answers and egress is there."""
        until("the server", self._ready)

    def _ready(self) -> bool:
        assert self.process.poll() is None, f"the server ended: {self.log_path.read_text()[-3000:]}"
        try:
            return bool(self.admin.call("GET", "/v1/status")["egress"] == "up")
        except CommandFailed as error:
            if error.status != UNREACHABLE:
                raise
            return False

    def new_user(self, name: str) -> Person:
        """Add a user and make a token."""
        self.admin.call("POST", "/v1/users", {"name": name})
        return Person(self, name, self.new_token(name)["token"])

    def new_token(self, name: str) -> dict[str, str]:
        """``token_id`` and ``token``."""
        made: dict[str, str] = self.admin.call("POST", f"/v1/users/{name}/tokens", {"label": "test"})
        return made

    def logged(self, event: str, **values: Any) -> list[dict[str, Any]]:
        """The log's lines of an event, with those values."""
        found = []
        for line in self.log_path.read_text(errors="replace").splitlines():
            with suppress(ValueError):
                said = json.loads(line)
                if said.get("event") == event and values.items() <= said.items():
                    found.append(said)
        return found

    def wait_logged(self, event: str, count: int = 1, **values: Any) -> dict[str, Any]:
        """Wait for the ``count``-th line of an event."""

        def look() -> list[dict[str, Any]] | None:
            found = self.logged(event, **values)
            return found if len(found) >= count else None

        return until(f"{event} {values} in the log", look)[count - 1]

    def pid(self, service: str) -> int:
        """Of core or egress, as it was started last."""
        return int(self.logged("service_started", service=service)[-1]["pid"])

    def terminate(self) -> None:
        """SIGTERM, waited for by :meth:`wait`."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Its exit status."""
        return self.process.wait(limit_s)

    def stop(self) -> int:
        """SIGTERM and the exit status; harmless when it has ended."""
        if not hasattr(self, "process"):
            return 0
        if self.process.poll() is None:
            self.terminate()
        try:
            return self.wait()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def use_data_of(self, other: "RealServer") -> None:
        """Run on another server's data directory."""
        self.data_dir = other.data_dir
        self._sections["server"]["data_dir"] = str(self.data_dir)

    def write_keys(self, keys: str) -> None:
        """Make the provider key file before the first start."""
        directory = self.data_dir / "_keys"
        self.data_dir.mkdir(mode=0o711)
        directory.mkdir(mode=0o700)
        path = directory / "provider-keys.toml"
        path.write_text(keys)
        path.chmod(0o600)


def command(before: str, *arguments: str) -> list[str]:
    """The command line, with something to run before it."""
    return [sys.executable, "-I", "-c", _CODE.format(before=before), str(ROOT), *arguments]


def run_certosa(
    server: RealServer, line: str, value: str = "", person: Person | None = None
) -> "subprocess.CompletedProcess[str]":
    """A command of the command line, done; AssertionError where it fails.

    Args:
        value: what is typed in, a secret perhaps.
        person: whose token it has.
    """
    done = subprocess.run(
        command("", "--config", str(server.config_path), *line.split()),
        input=value + "\n", capture_output=True, text=True, timeout=LIMIT_S, check=False,
        env=os.environ | ({"CERTOSA_TOKEN": person.token} if person else {}),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


def toml(sections: Sections) -> str:
    """Sections as TOML; values are what JSON and TOML write alike, or lists of sections."""
    lines = []
    for name, values in sections.items():
        lists = {k: v for k, v in values.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
        plain = {k: v for k, v in values.items() if k not in lists}
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
        for key, tables in lists.items():
            for table in tables:
                lines += [f"[[{name}.{key}]]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def free_ports(count: int) -> list[int]:
    """Ports that are free now; held together, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@contextmanager
def own_directory() -> Iterator[Path]:
    """A directory that other uids may pass through when we are root; removed at the end."""
    if os.geteuid() == 0:
        directory = Path(tempfile.mkdtemp(prefix="certosa-e2e-", dir="/var/lib"))
        directory.chmod(0o711)
    else:
        directory = Path(tempfile.mkdtemp(prefix="certosa-e2e-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@contextmanager
def real_server(
    sections: Sections | None = None, *, keys: str = "", before: str = "", start: bool = True
) -> Iterator[RealServer]:
    """A server for as long as the block runs, ready if ``start``."""
    with own_directory() as directory:
        server = RealServer(directory, sections or {}, keys, before)
        try:
            if start:
                server.start()
            yield server
        finally:
            server.stop()


# ---- processes -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """A process as /proc has it; ``inner`` is its pid in the innermost namespace."""

    pid: int
    parent: int
    inner: int
    depth: int
    uid: int
    comm: str
    state: str


def processes() -> dict[int, Process]:
    """All of the machine's, zombies too."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
        except (FileNotFoundError, ProcessLookupError):
            continue
        inner = fields["NSpid"].split()
        pid = int(path.parent.name)
        found[pid] = Process(
            pid,
            int(fields["PPid"]),
            int(inner[-1]),
            len(inner),
            int(fields["Uid"].split()[0]),
            fields["Name"].strip(),
            fields["State"].split()[0],
        )
    return found


def below(pid: int) -> list[Process]:
    """Everything that descends from a process."""
    known = processes()
    inside = {pid}
    while more := {p.pid for p in known.values() if p.parent in inside} - inside:
        inside |= more
    return [known[p] for p in sorted(inside - {pid})]


def workers(server: RealServer) -> list[Process]:
    """The first process of each jail."""
    mine = processes()[os.getpid()].depth
    return [p for p in below(server.process.pid) if p.depth == mine + 1 and p.inner == 1]


def alive(pid: int) -> bool:
    """Whether it is there and no zombie."""
    found = processes().get(pid)
    return found is not None and found.state not in "ZX"


def wait_gone(pids: list[int], limit_s: float) -> list[int]:
    """Wait for processes' ends; returns those that are left. ``pids`` have to be alive at the call."""
    deadline_s = time.monotonic() + limit_s
    left = []
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1_000) and alive(pid):
                left.append(pid)
        finally:
            os.close(fd)
    return left


def memory_bytes(pid: int) -> int:
    """What a process holds in memory now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")
