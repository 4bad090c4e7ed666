"""What an administrator sees of the whole: gathered on demand, nothing of it kept."""

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from actors.channel import Served
from core.config import Config
from core.egress.messages import ListProviders
from core.egress_link import EgressLink, VaultRefused
from core.errors import LinkError
from core.hub.admin import AdministrationError
from core.hub.admission import Admission
from core.pool.actor import Pool
from core.refusals import answered, known_user
from core.users import Users

_SUFFIXES = ("", "-wal", "-shm")
_LOOK_S = 2.0
_COUNTS = {
    "sessions": "SELECT count(*) FROM sessions",
    "messages": "SELECT count(*) FROM messages",
    "message_bytes": "SELECT coalesce(sum(bytes), 0) FROM messages",
    "event_bytes": "SELECT coalesce(sum(event_bytes), 0) FROM sessions",
    "turns": "SELECT count(*) FROM turns",
}


class CoreInsight:
    """Implements core.hub.insight.Insight.

    Args:
        config: gives the configuration in use.
        served: gives what the edge has read of each user's jail.
        missing: names what the server waits for.
        admission: gives the hub's count of turns.
    """

    def __init__(
        self,
        *,
        config: Callable[[], Config],
        data_dir: Path,
        users: Users,
        link: EgressLink,
        pool: Pool,
        served: Callable[[], Mapping[str, Served]],
        missing: Callable[[], Sequence[str]],
        admission: Callable[[], Admission],
    ) -> None:
        self._config = config
        self._data_dir = data_dir
        self._users = users
        self._link = link
        self._pool = pool
        self._served = served
        self._missing = missing
        self._admission = admission
        self._began_s = time.monotonic()

    async def health(self) -> dict[str, Any]:
        """See the protocol."""
        space = await asyncio.to_thread(os.statvfs, self._data_dir)
        admission = self._admission()
        return {
            "missing": list(self._missing()),
            "egress": "up" if self._link.up else "down",
            "stopping": admission.stopping,
            "turns_running": admission.running,
            "loop_lag_s": round(admission.lag_s, 4),
            "uptime_s": round(time.monotonic() - self._began_s, 1),
            "disk_low": admission.disk_low,
            "disk_free_bytes": space.f_bavail * space.f_frsize,
            "disk_bytes": space.f_blocks * space.f_frsize,
        }

    async def pool(self) -> dict[str, Any]:
        """See the protocol."""
        config = self._config()
        found = asdict(await answered(self._pool.describe()))
        served = self._served()
        for jail in found["jails"]:
            read = served.get(jail["user"], Served())
            jail.update(frames=read.frames, slowed=read.slowed)
        return {
            "start": config.jail.start,
            **{name: getattr(config.pool, name) for name in ("max_jails", "idle_s", "max_waiting", "wait_s")},
            "memory_limit_bytes": config.pool.memory_bytes,
            "free_bytes": config.pool.free_bytes,
            **found,
        }

    async def configuration(self) -> dict[str, Any]:
        """See the protocol. Keys stand elsewhere; what a URL carries behind its ? may be one."""
        values: dict[str, Any] = msgspec.to_builtins(self._config())
        for section in values["providers"].values():
            address, _, query = section["base_url"].partition("?")
            section["base_url"] = f"{address}?..." if query else address
        return values

    async def providers(self) -> list[dict[str, Any]]:
        """See the protocol."""
        try:
            listed = await self._link.ask(ListProviders)
        except (LinkError, VaultRefused) as error:
            raise AdministrationError("unavailable", str(error)) from None
        config = self._config()
        found: list[dict[str, Any]] = []
        for state in listed.providers:
            section = config.providers.get(state.name)
            users = None if section is None or section.users is msgspec.UNSET else list(section.users)
            found.append(
                {
                    **msgspec.to_builtins(state),
                    "kind": section.kind if section else "builtin",
                    "base_url": section.base_url.partition("?")[0] if section else "",
                    "users": users,
                    "fallbacks": list(section.fallbacks) if section else [],
                    "default": config.agent.provider == state.name,
                }
            )
        return found

    async def sizes(self) -> list[dict[str, Any]]:
        """See the protocol."""
        users = await asyncio.to_thread(self._users.list)

        def look() -> list[dict[str, Any]]:
            return [{"user": user.name, "bytes": self._bytes(user.name)} for user in users]

        return await asyncio.to_thread(look)

    async def sizes_of(self, user: str) -> dict[str, Any]:
        """See the protocol."""
        await known_user(self._users, user)
        counts = await asyncio.to_thread(_count, self._path(user))
        return {"user": user, "bytes": await asyncio.to_thread(self._bytes, user), **counts}

    def _path(self, user: str) -> Path:
        return self._data_dir / "sealed" / f"{user}.db"

    def _bytes(self, user: str) -> int:
        path, total = self._path(user), 0
        for suffix in _SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(f"{path}{suffix}").st_size
        return total


def _count(path: Path) -> dict[str, int]:
    """Numbers of rows, which need no key; zeros where nothing was stored yet."""
    if not path.exists():
        return dict.fromkeys(_COUNTS, 0)
    deadline_s = time.monotonic() + _LOOK_S
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_LOOK_S, isolation_level=None)) as db:
            db.execute("PRAGMA query_only = ON")
            db.set_progress_handler(lambda: int(time.monotonic() > deadline_s), 10_000)
            return {name: int(db.execute(query).fetchone()[0]) for name, query in _COUNTS.items()}
    except sqlite3.Error as error:
        raise AdministrationError("unavailable", f"{path.name} cannot be looked at: {error}") from None
