"""What bwrap says when it cannot build a jail, and what to tell the operator to do."""

from pathlib import Path
from typing import Final, NamedTuple

_MAX_QUOTED: Final = 300


class _Rule(NamedTuple):
    said: str  # a piece of bwrap's text, lower case
    advice: str


_APPARMOR = (
    "AppArmor forbids user namespaces; install the AppArmor profile in docs/deploy/apparmor that is for "
    "such a server (do not set the global sysctl) and reload AppArmor"
)
_CLONE = (
    "user namespaces are switched off here: set sysctl kernel.unprivileged_userns_clone=1, or, in "
    "a container, run it with a seccomp profile that allows unshare and clone"
)

# the first that fits; bubblewrap.c is where the texts are from
_RULES: Final = (
    _Rule("setting up uid map", _APPARMOR),
    _Rule(
        "exceeded (enospc)",
        "the limit of user namespaces is reached; raise sysctl user.max_user_namespaces",
    ),
    _Rule("no permissions to create", _CLONE),
    _Rule("no permissions to creat", _CLONE),
    _Rule(
        "mount proc",
        "/proc is masked, as containers do it; unmask it (Docker: --security-opt "
        "systempaths=unconfined). Certosa never runs a jail without its own /proc",
    ),
    _Rule(
        "unexpected capabilities",
        "the server was started with stray ambient capabilities; clear them (setpriv --ambient-caps -all)",
    ),
    _Rule(
        "resource temporarily unavailable",
        "the limit of processes is reached; raise it (ulimit -u, or TasksMax= of the service)",
    ),
    _Rule(
        "unknown option",
        "this bubblewrap is too old; Certosa needs 0.8 or later (--disable-userns)",
    ),
    _Rule(
        "creating new namespace failed",
        "namespaces are missing from this kernel (WSL 1 has none: use WSL 2)",
    ),
    _Rule(
        "can't find source path",
        "a directory the jail mounts is missing or its parents cannot be entered by the user's uid",
    ),
    _Rule(
        "permission denied",
        "a directory the jail mounts cannot be entered by the user's uid; check the modes of its parents",
    ),
    _Rule("no space left", "the disk, or the limit of namespaces, is full"),
)


def explain(said: str) -> str:
    """One sentence with what to do, and bwrap's own words (its first lines) after it."""
    quoted = " ".join(said.split())[:_MAX_QUOTED] or "nothing"
    lowered = said.lower()
    for rule in _RULES:
        if rule.said in lowered:
            return f"{rule.advice} (bwrap said: {quoted})"
    if is_wsl1():
        return f"WSL 1 has no namespaces; use WSL 2 (bwrap said: {quoted})"
    return f"bwrap could not build the jail; it said: {quoted}"


def is_wsl1(release: Path = Path("/proc/sys/kernel/osrelease")) -> bool:
    """Whether this is WSL 1, whose kernel calls itself ...-Microsoft with a capital letter."""
    try:
        return "-Microsoft" in release.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
