"""Other people's files, by every path that might lead there."""

import os
from pathlib import Path

from jail.peer.probes.finding import Findings

_MINE = "/home/user/.certosa-probe"


def probe(findings: Findings, forbidden: list[str]) -> None:
    """Try to read each of ``forbidden`` (absolute paths on the host)."""
    findings.works("own file written and read", _own_file)
    findings.works("own agents listed", os.listdir, "/agents")
    for path in forbidden:
        for way in _ways(path):
            findings.refused(f"read {way}", _read, way)
        findings.refused(f"read {path} by a link in the home", _by_link, path)
        findings.refused(f"hard link to {path}", os.link, path, f"{_MINE}-hard")
    for place in ("/", "/dev", "/etc", "/usr", "/agents", "/certosa/lib", "/proc/sys/kernel"):
        findings.refused(f"write to {place}", Path(place, "certosa-probe").touch)
    findings.works("write to /tmp", _touched, "/tmp/certosa-probe")  # noqa: S108
    findings.works("write to /dev/shm", _touched, "/dev/shm/certosa-probe")  # noqa: S108
    findings.refused("write core_pattern", Path("/proc/sys/kernel/core_pattern").write_bytes, b"x")
    findings.refused("/sys is there", os.stat, "/sys")
    findings.refused("/run is there", os.stat, "/run")
    findings.refused("hard link from the code", _link_code)


def _ways(path: str) -> list[str]:
    return [
        path,
        f"/proc/self/root{path}",
        f"/proc/1/root{path}",
        f"/proc/1/cwd/../..{path}",
        f"/home/user/../../../..{path}",
        f"/proc/self/fd/3/../..{path}",
    ]


def _read(path: str) -> None:
    if os.path.isdir(path):
        os.listdir(path)
    else:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.close(fd)


def _by_link(path: str) -> None:
    link = f"{_MINE}-link"
    os.symlink(path, link)
    try:
        _read(link)
    finally:
        os.unlink(link)


def _own_file() -> None:
    mine = Path(_MINE)
    mine.write_bytes(b"probe")
    try:
        if mine.read_bytes() != b"probe":
            raise OSError("not what was written")
    finally:
        mine.unlink()


def _touched(path: str) -> None:
    Path(path).touch()
    os.unlink(path)


def _link_code() -> None:
    os.link("/certosa/lib/jail/peer/probe.py", f"{_MINE}-code")
    os.unlink(f"{_MINE}-code")
