"""What users' jails are limited to, by the configuration, and what their homes were seen to hold."""

import threading
from typing import Any, NamedTuple

from core.config import JailSection
from jail.host.messages import HomeMeasured
from jail.host.profile import Limits

LIMITS = (
    "processes", "open_files", "file_bytes", "address_bytes", "tmp_bytes", "memory_bytes", "swap_bytes",
    "cpu_weight", "cpus", "disk_bytes", "disk_files",
)  # fmt: skip
"""Keys of [jail] that a user may have other values of."""


class JailLimits:
    """Gives each user's limits. Thread-safe; ``use`` changes them for jails started later."""

    def __init__(self, section: JailSection) -> None:
        self._section = section

    def use(self, section: JailSection) -> None:
        """Go by another configuration from now on."""
        self._section = section

    def __call__(self, user: str) -> Limits:
        """A user's."""
        section = self._section
        values: dict[str, Any] = {name: getattr(section, name) for name in LIMITS}
        if (own := section.users.get(user)) is not None:
            values |= {name: value for name in LIMITS if (value := getattr(own, name)) is not None}
        return Limits(**values)


class _Home(NamedTuple):
    held_bytes: int
    files: int
    whole: bool


class HomeBook:
    """What homes held when they were last looked at. Thread-safe.

    Args:
        limits: of each user.
    """

    def __init__(self, limits: JailLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._homes: dict[str, _Home] = {}

    def note(self, measured: HomeMeasured) -> None:
        """A home was looked at."""
        with self._lock:
            self._homes[measured.user] = _Home(measured.held_bytes, measured.files, measured.whole)

    def forget(self, user: str) -> None:
        """A user is gone."""
        with self._lock:
            self._homes.pop(user, None)

    def excess(self, user: str) -> str:
        """By what a user's home is over its limit, as a sentence for them; "" if it is not."""
        with self._lock:
            home = self._homes.get(user)
        if home is None:
            return ""
        limits = self._limits(user)
        if limits.disk_bytes and home.held_bytes > limits.disk_bytes:
            return f"your home holds {_mib(home.held_bytes)}, its limit is {_mib(limits.disk_bytes)}"
        if limits.disk_files and home.files > limits.disk_files:
            return f"your home holds {home.files} files, its limit is {limits.disk_files}"
        if not home.whole:
            return "your home holds more names than are counted, or directories nested too deeply"
        return ""


def _mib(count: int) -> str:
    return f"{count / (1 << 20):.0f} MiB"


def told_of_limit(met: str, limit_bytes: int) -> str:
    """What a user is told whose jail was ended by a limit."""
    if met == "memory":
        return (
            f"your jail ran out of memory and was ended: its limit is {_mib(limit_bytes)}; "
            "do it in smaller pieces"
        )
    return f"your home went far over its limit of {_mib(limit_bytes)}, so your jail was ended: delete files"
