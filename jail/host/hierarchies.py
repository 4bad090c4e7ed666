"""Which control groups this machine has, and where below them a server of ours may make its own.

Version 2 has all controllers in one tree, version 1 a tree for each; a machine may have both, and then
the tree of version 2 is often there without any of the controllers that matter (cgroups(7)).
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

CONTROLLERS: Final = ("memory", "pids", "cpu")
"""Those that jails are limited by."""

_DELEGATED: Final = ("user.delegate", "trusted.delegate")
_PROC: Final = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A tree of control groups: its controllers of ours, and the group that ours are made in.

    Args:
        own: the group that this process is in.
    """

    version: Literal[1, 2]
    base: Path
    controllers: tuple[str, ...]
    own: Path


def find_hierarchies() -> tuple[Hierarchy, ...]:
    """What this process may try; whether the kernel lets it is seen when groups are made."""
    try:
        mounts = (_PROC / "mountinfo").read_text(encoding="ascii", errors="replace")
        own = (_PROC / "cgroup").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    found = []
    taken: set[str] = set()
    for version, mount, place, controllers in _trees(mounts, own):
        if version == 2:
            controllers = _listed(mount / "cgroup.controllers")
        mine = tuple(name for name in CONTROLLERS if name in controllers and name not in taken)
        base = place if version == 1 else _base(mount, place)
        if mine and base is not None and os.access(base, os.W_OK):
            taken |= {*mine}
            found.append(Hierarchy(version, base, mine, place))
    return tuple(found)


def _base(mount: Path, place: Path) -> Path | None:
    """Where version 2 lets us make groups: below our own if it was given to us; else at the top, if root."""
    if any(_has_attribute(place, name) for name in _DELEGATED):
        return place
    return mount if os.geteuid() == 0 else None


def _trees(mounts: str, own: str) -> Iterable[tuple[Literal[1, 2], Path, Path, tuple[str, ...]]]:
    """Each mounted tree, version 2 first: its mount, our own group in it, its controllers (version 1)."""
    places: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            places[name] = path
    found: list[tuple[Literal[1, 2], Path, Path, tuple[str, ...]]] = []
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, point = left.split()[3:5]
        kind, _, options = right.split(" ", 2)
        if kind == "cgroup2" and "" in places:
            if (inside := _inside(places[""], root)) is not None:
                found.insert(0, (2, Path(point), Path(point + inside), ()))
        elif kind == "cgroup":
            names = tuple(name for name in options.split(",") if name in CONTROLLERS and name in places)
            if names and (inside := _inside(places[names[0]], root)) is not None:
                found.append((1, Path(point), Path(point + inside), names))
    return found


def _inside(path: str, root: str) -> str | None:
    """A group's path below a mount that shows the tree from ``root`` on; None where it does not show it."""
    root = "" if root == "/" else root
    if path == root or path.startswith(f"{root}/"):
        return path[len(root) :].rstrip("/")
    return None


def _listed(path: Path) -> tuple[str, ...]:
    try:
        return tuple(path.read_text(encoding="ascii").split())
    except OSError:
        return ()


def _has_attribute(path: Path, name: str) -> bool:
    with suppress(OSError):
        return os.getxattr(path, name) == b"1"
    return False
