"""Which limit of a jail is enforced by what on this machine, for people."""

import tempfile
from contextlib import closing, suppress
from pathlib import Path

from jail.host.cgroups import Cgroups, UseCgroups, running_controllers
from jail.host.messages import HostError


def enforced_by(run_dir: Path, use: UseCgroups) -> dict[str, str]:
    """By each limit, who enforces it: in the server that runs on ``run_dir``, else in one that we start."""
    found = running_controllers(run_dir)
    source = "as the running server has it"
    if found is None:
        found, source = _tried(use), "as a server started like this would have it"
    controllers, swap = found
    by = {name: f"control group (v{version})" for name, version in controllers.items()}
    memory, pids, cpu = by.get("memory"), by.get("pids"), by.get("cpu")
    return {
        "limits": source,
        "memory": f"{memory or 'not of a whole jail'}; RLIMIT_AS for each process; sizes of tmpfs",
        "swap": memory if memory and swap else "not limited",
        "process_count": "RLIMIT_NPROC of the jail's user namespace" + (f"; {pids}" if pids else ""),
        "cpu_weight": cpu or "nice value, and the kernel's sharing between sessions",
        "cpu_quota": cpu or "not enforced: needs control groups",
        "open_files": "RLIMIT_NOFILE for each process",
        "file_size": "RLIMIT_FSIZE for each file",
        "disk": "homes are counted: past jail.disk_bytes no turn begins, and far past it the jail is ended",
        "tool_time": "the worker, and the turn's limit of wall clock by core",
    }


def _tried(use: UseCgroups) -> tuple[dict[str, int], bool]:
    if use == "off":
        return {}, False
    with (
        suppress(HostError),
        tempfile.TemporaryDirectory(prefix="certosa-doctor-") as place,
        closing(Cgroups.begin(Path(place))) as cgroups,
    ):
        return cgroups.controllers, cgroups.limits_swap
    return {}, False
