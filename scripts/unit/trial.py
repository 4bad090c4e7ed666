"""The steps of scripts/try-unit: each says what was seen, and how long it took."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.cli.admin import AdminClient
from core.cli.failure import CommandFailed
from scripts.unit import service

_LIMIT_S = 600.0  # emulated, all of it is slow
_MIB = 1 << 20
_CONFIG = f"""\
[jail]
cgroups = "required"
[jail.users.ann]
memory_bytes = {64 * _MIB}
"""
_WATCHDOG_S = 30
_DROP_IN = f"[Service]\nWatchdogSec={_WATCHDOG_S}\nTimeoutStartSec=15min\nTimeoutStopSec=3min\n"
_URL = "http://127.0.0.1:8700/v1/chat/completions"
_PEOPLE = 4
# many small processes, so that the kernel takes the worker; a large one is its first choice otherwise
_TAKE_ALL = (
    "import os, time; open('/proc/1/oom_score_adj', 'w').write('1000'); "
    "open('/proc/self/oom_score_adj', 'w').write('0'); "
    "[os.fork() for _ in range(4)]; held = bytearray(16 << 20); time.sleep(60)"
)


class WentWrong(Exception):
    """A step saw what it should not have."""


class Trial:
    """The steps, in order; users' tokens are kept between them."""

    def __init__(self) -> None:
        self._admin = AdminClient(service.STATE, _LIMIT_S)
        self._tokens: dict[str, str] = {}

    def start(self) -> str:
        """Type=notify: it is started once it serves."""
        service.systemctl("start", service.UNIT)
        _expect(service.shown("ActiveState") == "active", "it is not active")
        self._health()  # at once: ready means that it answers
        kept = service.STATE / "_keys" / "master.key"
        _expect(not kept.exists(), "the server made a master key beside the credential")
        return f"serves when systemctl returns; master key by LoadCredential; {_exposure()}"

    def doctor(self) -> str:
        """What enforces each limit in the server that runs."""
        said = subprocess.run(
            [service.CODE / "scripts/run", "doctor", "--json"],
            check=True, capture_output=True, text=True, timeout=_LIMIT_S,
        ).stdout  # fmt: skip
        machine = json.loads(said)["machine"]
        names = ("limits", "memory", "swap", "process_count", "cpu_weight", "cpu_quota")
        for name in ("memory", "cpu_weight", "cpu_quota"):
            _expect("control group" in machine[name], f"{name} is enforced by: {machine[name]}")
        return "; ".join(f"{name}: {machine[name]}" for name in names)

    def chat(self) -> str:
        """Two people, each in a jail with a group of its own."""
        for name in ("ann", "bob"):
            self._add(name)
            self._hear(name, "run: echo hello", "hello")
        limits = sorted(path.read_text().strip() for path in service.GROUP.glob("*/jails/*/memory.max"))
        _expect(limits == sorted([str(64 * _MIB), str(1 << 30)]), f"memory.max of the jails: {limits}")
        return f"both were answered; memory.max of their jails: {', '.join(limits)}"

    def out_of_memory(self) -> str:
        """Ann's jail alone ends, and she is told."""
        pid = service.shown("MainPID")
        status, said = self._ask("ann", f"python: {_TAKE_ALL}")
        _expect("ran out of memory" in said, f"ann was told: {status} {said[:300]}")
        self._hear("bob", "run: echo bob", "bob")
        self._hear("ann", "run: echo again", "again")
        kept = (service.shown("MainPID"), service.shown("NRestarts"), service.shown("ActiveState"))
        _expect(kept == (pid, "0", "active"), f"main process, restarts, state: {kept}")
        return f"ann was told: {json.loads(said)['error']['message']!r}; bob's jail and the service went on"

    def reload(self) -> str:
        """SIGHUP, as systemd has it."""
        pid = service.shown("MainPID")
        service.systemctl("reload", service.UNIT)
        _until("active after the reload", lambda: service.shown("ActiveState") == "active")
        _expect(service.shown("MainPID") == pid, "another process serves after a reload")
        return "the same process serves"

    def hang(self) -> str:
        """A core that does nothing is no server: systemd starts it anew."""
        pid = service.shown("MainPID")
        service.hang(service.core_pid())
        _until("a restart by the watchdog", lambda: service.shown("NRestarts") == "1")
        _until("the new server", lambda: service.shown("ActiveState") == "active")
        _expect(service.shown("MainPID") != pid, "the hung server still serves")
        self._hear("bob", "run: echo back", "back")
        return f"WatchdogSec={_WATCHDOG_S}: started anew, bob was answered"

    def restart_under_load(self) -> str:
        """Everybody's turn ends, with an answer or an error; everybody's next one is answered."""
        names = [f"user{number}" for number in range(_PEOPLE)]
        for name in names:
            self._add(name)
            self._hear(name, "run: echo warm", "warm")
        with ThreadPoolExecutor(_PEOPLE) as pool:
            turns = [pool.submit(self._ask, name, "run: sleep 600") for name in names]
            _until("all turns run", lambda: self._health()["turns_running"] == _PEOPLE)
            began_s = time.monotonic()
            service.systemctl("restart", service.UNIT)
            took_s = time.monotonic() - began_s
            statuses = [turn.result(_LIMIT_S)[0] for turn in turns]
        for name in names:
            self._hear(name, "run: echo served", "served")
        return f"{took_s:.0f} s; {_PEOPLE} turns ended with {statuses}; each was answered afterwards"

    def stop(self) -> str:
        """In order, and nothing is left."""
        service.systemctl("stop", service.UNIT)
        result = (service.shown("Result"), service.shown("ExecMainStatus"))
        _expect(result == ("success", "0"), f"result and exit status: {result}")
        _expect(not service.processes(), f"left: {service.processes()}")
        _expect(not service.GROUP.exists(), f"left: {service.GROUP}")
        return "exit 0; no process and no control group is left"

    def _add(self, name: str) -> None:
        self._admin.call("POST", "/v1/users", {"name": name})
        made = self._admin.call("POST", f"/v1/users/{name}/tokens", {"label": "trial"})
        self._tokens[name] = made["token"]

    def _health(self) -> dict[str, Any]:
        return dict(self._admin.call("GET", "/v1/health"))

    def _hear(self, name: str, text: str, wanted: str) -> None:
        status, said = self._ask(name, text)
        _expect(status == 200 and wanted in said, f"{name} asked {text!r}: {status} {said[:300]}")

    def _ask(self, name: str, text: str) -> tuple[int, str]:
        """Status and body of a turn; 0 where the connection ended without one."""
        body = {"model": "assistant", "messages": [{"role": "user", "content": text}]}
        headers = {"Authorization": f"Bearer {self._tokens[name]}", "Content-Type": "application/json"}
        request = urllib.request.Request(_URL, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)


def main(source: str) -> int:
    """Install, take the steps, and remove; 0 if all went well."""
    trial = Trial()
    steps: tuple[Callable[[], str], ...] = (
        trial.start, trial.doctor, trial.chat, trial.out_of_memory, trial.reload, trial.hang,
        trial.restart_under_load, trial.stop,
    )  # fmt: skip
    service.install(Path(source), _CONFIG, _DROP_IN)
    try:
        for step in steps:
            began_s = time.monotonic()
            said = step()
            name = step.__name__.replace("_", " ")
            print(f"{name} ({time.monotonic() - began_s:.0f} s): {said}", flush=True)
    except (WentWrong, CommandFailed, subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stderr", "") or ""
        print(f"FAILED: {error} {said}", flush=True)
        _show_log()
        return 1
    finally:
        service.remove()
    return 0


def _expect(right: bool, otherwise: str) -> None:
    if not right:
        raise WentWrong(otherwise)


def _until(what: str, look: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while True:
        with suppress(CommandFailed):  # it does not answer at this moment
            if look():
                return
        if time.monotonic() > deadline_s:
            raise WentWrong(f"not in time: {what}")
        time.sleep(0.5)


def _exposure() -> str:
    done = subprocess.run(
        ["/usr/bin/systemd-analyze", "security", "--no-pager", service.UNIT],
        check=False, capture_output=True, text=True, timeout=_LIMIT_S,
    )  # fmt: skip
    last = done.stdout.strip().splitlines()[-1:]
    return last[0].split(": ", 1)[-1].encode("ascii", "ignore").decode().strip() if last else "not rated"


def _show_log() -> None:
    subprocess.run(
        ["/usr/bin/journalctl", "--no-pager", "-n", "60", "-o", "cat", "-u", service.UNIT], check=False
    )
