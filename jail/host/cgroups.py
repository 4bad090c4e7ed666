"""Control groups of one server: one for what is trusted, one for each jail.

    BASE/certosa-TOKEN/trusted   the spawner and whatever it starts, jails apart
    BASE/certosa-TOKEN/jails/N   a user's jail; a skill's, which is its sibling, belongs in the same

In version 1 the same stands below each controller's tree, ``trusted`` for cpu alone. Who starts a jail
writes itself into its group before it changes its uid: whatever comes of it is born there.

The token is kept in the data directory, which one server at a time uses. So what a server that was
killed has left is recognised by the next one, wherever it was, and nothing else is ever touched.
"""

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from jail.host.cgroup_tree import (
    end_all,
    groups_below,
    make_groups,
    remove_group,
    set_file,
    settings,
    undo_groups,
)
from jail.host.hierarchies import CONTROLLERS, Hierarchy, find_hierarchies
from jail.host.messages import HostError
from jail.host.profile import Limits

_RECORD: Final = "cgroups.json"
_MAX_RECORD_BYTES: Final = 65_536
_PREFIX: Final = "certosa-"

UseCgroups = Literal["auto", "off", "required"]


@dataclass(frozen=True, slots=True)
class JailCgroup:
    """One jail's groups, by controller; the same directory for each in version 2."""

    places: dict[str, tuple[int, Path]]

    @property
    def procs(self) -> tuple[str, ...]:
        """The files that whoever is to be in it has to be written to."""
        return tuple(sorted({f"{path}/cgroup.procs" for _, path in self.places.values()}))

    def oom_kills(self) -> int:
        """How many of its processes the kernel has ended because the jail was out of memory."""
        if "memory" not in self.places:
            return 0
        version, path = self.places["memory"]
        name = "memory.events" if version == 2 else "memory.oom_control"
        with suppress(OSError, ValueError):
            for line in (path / name).read_text(encoding="ascii").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def remove(self) -> bool:
        """Remove it; False while a process is left in it."""
        left = [path for path in {path for _, path in self.places.values()} if not remove_group(path)]
        return not left


class Cgroups:
    """See the module. ``begin`` makes one.

    Args:
        hierarchies: where groups can be made, with the controllers that work there.
        name: of the server's own group in each.
    """

    def __init__(self, hierarchies: tuple[Hierarchy, ...], name: str, record: Path) -> None:
        self._hierarchies, self._name, self._record = hierarchies, name, record
        self._count = 0
        self._leaving: list[JailCgroup] = []

    @classmethod
    def begin(cls, run_dir: Path) -> "Cgroups":
        """Sweep what an earlier server left, then make what this machine lets us make, maybe nothing.

        The calling process is moved to the group of what is trusted. Raises HostError where the record
        cannot be written: what could not be found again is not made.
        """
        record = run_dir / _RECORD
        sweep(record)
        name = _PREFIX + secrets.token_hex(8)
        found = find_hierarchies()
        if not found:
            return cls((), name, record)
        left = [str(path) for path in _read(record) if path.exists()]
        _write(record, [*left, *(str(one.base / name) for one in found)])
        usable = []
        for one in found:
            try:
                made = make_groups(one, name)
            except OSError:
                undo_groups(one, name)
                continue
            if made.controllers:
                usable.append(made)
            else:  # none of what matters can be switched on: we have no business there
                undo_groups(one, name)
        return cls(tuple(usable), name, record)

    @property
    def controllers(self) -> dict[str, int]:
        """What jails are limited by, with the version of the group that does it."""
        return {name: one.version for one in self._hierarchies for name in one.controllers}

    @property
    def limits_swap(self) -> bool:
        """Whether swap is counted; where it is not, a jail may use all that there is."""
        return any(
            _counts_swap(one.base / self._name) for one in self._hierarchies if "memory" in one.controllers
        )

    def make(self, limits: Limits) -> JailCgroup | None:
        """A group for one jail; None where this machine has none. Raises HostError."""
        self.tidy()
        if not self._hierarchies:
            return None
        self._count += 1
        places: dict[str, tuple[int, Path]] = {}
        try:
            for one in self._hierarchies:
                path = one.base / self._name / "jails" / str(self._count)
                path.mkdir(mode=0o755)
                places |= dict.fromkeys(one.controllers, (one.version, path))
                for file, value in settings(one, limits):
                    set_file(path / file, value)
        except OSError as error:
            self.give_back(JailCgroup(places))
            raise HostError(f"the jail's limits could not be set: {error}") from None
        return JailCgroup(places)

    def give_back(self, group: JailCgroup) -> None:
        """A jail has ended; its group goes as soon as its last process was reaped."""
        self._leaving.append(group)
        self.tidy()

    def tidy(self) -> None:
        """Remove what can be removed by now."""
        self._leaving = [group for group in self._leaving if not group.remove()]

    def close(self) -> None:
        """Remove all of it, and go back to where this process came from."""
        for one in self._hierarchies:
            undo_groups(one, self._name)
        if self._hierarchies and not any(path.exists() for path in _read(self._record)):
            self._record.unlink(missing_ok=True)
        self._hierarchies = ()


def begin_cgroups(use: UseCgroups, run_dir: Path) -> Cgroups:
    """As an operator wants it. Raises HostError where they are required and cannot do all."""
    cgroups = Cgroups((), "", run_dir / _RECORD) if use == "off" else Cgroups.begin(run_dir)
    missing = [name for name in CONTROLLERS if name not in cgroups.controllers]
    if use == "required" and missing:
        cgroups.close()
        raise HostError(
            f"control groups cannot be used here for {', '.join(missing)}, and jail.cgroups requires them: "
            "serve as a systemd service with Delegate=yes or as root, or set it to auto"
        )
    return cgroups


def sweep(record: Path) -> None:
    """End and remove what the groups hold that are recorded there; nobody may use them any more."""
    for path in _read(record):
        if path.name.startswith(_PREFIX) and (path / "cgroup.procs").exists():
            end_all(path / "jails")
            for group in groups_below(path):
                remove_group(group)


def running_controllers(run_dir: Path) -> tuple[dict[str, int], bool] | None:
    """``controllers`` and ``limits_swap`` of the server that has made groups there; None without one."""
    jails = [path / "jails" for path in _read(run_dir / _RECORD) if (path / "jails").is_dir()]
    if not jails:
        return None
    files = {
        "memory": {2: "memory.max", 1: "memory.limit_in_bytes"},
        "pids": {0: "pids.max"},
        "cpu": {2: "cpu.weight", 1: "cpu.shares"},
    }
    found: dict[str, int] = {}
    for place in jails:
        for controller, names in files.items():
            for version, name in names.items():
                if (place / name).exists():
                    found[controller] = version or (2 if (place / "cgroup.controllers").exists() else 1)
    return found, any(_counts_swap(place.parent) for place in jails)


def _counts_swap(top: Path) -> bool:
    names = ("memory.swap.max", "memory.memsw.limit_in_bytes")
    return any((top / "jails" / name).exists() for name in names)


def _write(record: Path, paths: list[str]) -> None:
    """Whole or not at all: what a full disk cuts off would never be swept."""
    new = record.with_suffix(".new")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump(paths, file)
        new.replace(record)
    except OSError as error:
        raise HostError(f"{record}: {error.strerror}") from None


def _read(record: Path) -> list[Path]:
    """The paths in a record; none where there is none, or one that was cut off."""
    try:
        with open(record, encoding="utf-8") as file:
            found = json.loads(file.read(_MAX_RECORD_BYTES))
    except (OSError, ValueError):
        return []
    return [Path(path) for path in found if isinstance(path, str)] if isinstance(found, list) else []
