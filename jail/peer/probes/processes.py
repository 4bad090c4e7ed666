"""Which processes can be seen, what they may do, and whether one of them is a way out."""

import os
import select
import signal

from jail.peer.probes.finding import Findings

_WANTED = {
    "CapInh": "0000000000000000",
    "CapPrm": "0000000000000000",
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
    "CapAmb": "0000000000000000",
    "NoNewPrivs": "1",
    "Seccomp": "2",
}


def probe(findings: Findings) -> None:
    """Look at every visible process, one child of our own among them."""
    child = os.fork()
    if child == 0:
        select.poll().poll(120_000)
        os._exit(0)
    try:
        visible = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
        findings.equal("visible processes", sorted({1, os.getpid(), child}), visible)
        findings.equal("pid 1 is the command", 1, os.getpid())
        for pid in visible:
            _look(findings, pid)
        findings.works("own child signalled", lambda: os.kill(child, 0))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _look(findings: Findings, pid: int) -> None:
    status = _status(pid)
    got = {name: status.get(name, "") for name in _WANTED}
    findings.equal(f"capabilities and filter of pid {pid}", _WANTED, got)
    findings.equal(f"uid of pid {pid}", "1000", status.get("Uid", "").split("\t")[0])
    findings.equal(f"root of pid {pid}", _identity("/"), _identity(f"/proc/{pid}/root/"))
    # with a forked start the interpreter's file lies on the host's mount, not on the jail's read-only one
    exe = f"/proc/{pid}/exe"
    findings.refused(f"program of pid {pid} opened for writing", os.open, exe, os.O_WRONLY)
    findings.refused(f"mode of the program of pid {pid} set", os.chmod, exe, 0o755)
    # writable memory is no way out as long as whoever owns it is filtered like us: see above
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        line = file.read()
    findings.add(
        f"pid {pid} is not bwrap", "no bwrap", line[:60].decode(errors="replace"),
        b"bwrap" not in line,
    )  # fmt: skip
    with open(f"/proc/{pid}/environ", "rb") as file:
        names = sorted(pair.split(b"=")[0].decode() for pair in file.read().split(b"\0") if pair)
    findings.equal(f"environment of pid {pid}", sorted(os.environ), names)


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        pairs = (line.split(":", 1) for line in file)
        return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def _identity(path: str) -> tuple[int, int]:
    info = os.stat(path)
    return info.st_dev, info.st_ino
