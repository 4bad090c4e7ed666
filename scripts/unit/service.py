"""certosa.service on this machine: installed, asked about, and removed again."""

import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

UNIT = "certosa.service"
CODE = Path("/opt/certosa")
STATE = Path("/var/lib/certosa")
GROUP = Path("/sys/fs/cgroup/system.slice") / UNIT
_SETTINGS = Path("/etc/certosa")
_FILE = Path("/etc/systemd/system") / UNIT
_DROP_IN = _FILE.with_name(f"{UNIT}.d") / "trial.conf"
_APPARMOR = Path("/etc/apparmor.d/certosa")
_UID_BASE = 1_900_000_000
_LIMIT_S = 900.0
_KEPT = "venv-"  # what setup made below STATE
_IGNORED = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache")


def systemctl(*arguments: str) -> str:
    """What ``systemctl`` says; raises subprocess.CalledProcessError."""
    done = subprocess.run(
        ["/usr/bin/systemctl", *arguments], check=True, capture_output=True, text=True, timeout=_LIMIT_S
    )
    return done.stdout.strip()


def shown(name: str) -> str:
    """A property of the unit."""
    return systemctl("show", "--value", f"--property={name}", UNIT)


def install(source: Path, config: str, drop_in: str) -> None:
    """As docs/operating.md says, with a configuration and a drop-in of the trial's."""
    shutil.copytree(source, CODE, symlinks=True, ignore=_IGNORED)
    _SETTINGS.mkdir(mode=0o755)
    (_SETTINGS / "certosa.toml").write_text(config, encoding="utf-8")
    key = os.open(_SETTINGS / "master.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(key, "wb") as file:
        file.write(secrets.token_bytes(32))
    shutil.copy(CODE / "docs/deploy/certosa.service", _FILE)
    _DROP_IN.parent.mkdir()
    _DROP_IN.write_text(drop_in, encoding="utf-8")
    if Path("/sys/kernel/security/apparmor/policy").is_dir() and shutil.which("apparmor_parser"):
        shutil.copy(CODE / "docs/deploy/apparmor/certosa", _APPARMOR)
        # an older AppArmor knows no rule for user namespaces, and restricts none
        if subprocess.run(["apparmor_parser", "-r", str(_APPARMOR)], check=False).returncode:
            _APPARMOR.unlink()
    systemctl("daemon-reload")


def remove() -> None:
    """All that :func:`install` and the server made, but what setup did."""
    subprocess.run(["/usr/bin/systemctl", "kill", "-s", "KILL", UNIT], check=False, capture_output=True)
    subprocess.run(["/usr/bin/systemctl", "stop", UNIT], check=False, capture_output=True)
    for path in (_FILE, _DROP_IN, _APPARMOR):
        path.unlink(missing_ok=True)
    for directory in (_DROP_IN.parent, CODE, _SETTINGS):
        shutil.rmtree(directory, ignore_errors=True)
    for path in STATE.iterdir():
        if not path.name.startswith(_KEPT):
            shutil.rmtree(path)
    systemctl("daemon-reload")


def processes() -> dict[int, int]:
    """The uid of every process whose uid only a server of ours gives."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            uid = os.stat(f"/proc/{name}").st_uid
        except FileNotFoundError:
            continue
        if uid >= _UID_BASE:
            found[int(name)] = uid
    return found


def core_pid() -> int:
    """Core's: the process of the first uid."""
    return min(pid for pid, uid in processes().items() if uid == _UID_BASE)


def hang(pid: int) -> None:
    """A process is there and does nothing any more."""
    os.kill(pid, signal.SIGSTOP)
