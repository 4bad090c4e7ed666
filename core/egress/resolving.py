"""Names to addresses by the system's resolver, in threads of their own: bounded for all and for each user.

The system's resolver cannot be interrupted, and whoever runs a name's server decides how long it takes.
Providers' names, which other threads look up, must not wait behind a user's slow ones.
"""

import asyncio
import ipaddress
import socket
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from core.egress.fetch_stream import FetchError

Resolve = Callable[[str, str, int], Awaitable[Sequence[str]]]
"""A user, a name and a port to addresses as texts; OSError where there are none, FetchError if busy."""
_MAX_LOOKUPS = 64
_MAX_PER_USER = 4
Found = list[str] | OSError


class Resolver:
    """On the loop's thread.

    Args:
        look_up: blocks; a name and a port to addresses.
    """

    def __init__(self, look_up: Callable[[str, int], list[str]] | None = None) -> None:
        self._look_up = look_up or _by_the_system
        self._by_user: Counter[str] = Counter()

    async def resolve(self, user: str, host: str, port: int) -> list[str]:
        """See Resolve. Left early, the look-up still counts until its thread is back."""
        if _is_address(host):
            return [host]
        if self._by_user[user] >= _MAX_PER_USER or self._by_user.total() >= _MAX_LOOKUPS:
            raise FetchError(
                "overloaded", "names that are slow to resolve hold all look-ups; try again later"
            )
        loop = asyncio.get_running_loop()
        came: asyncio.Future[Found] = loop.create_future()

        def back(found: Found) -> None:
            self._by_user[user] -= 1
            if not self._by_user[user]:
                del self._by_user[user]
            if not came.done():
                came.set_result(found)

        def run() -> None:
            found: Found
            try:
                found = self._look_up(host, port)
            except (OSError, UnicodeError) as error:
                found = OSError(str(error))
            if not loop.is_closed():
                loop.call_soon_threadsafe(back, found)

        self._by_user[user] += 1
        # a resolver that hangs must not keep the process from its end
        threading.Thread(target=run, name="resolve", daemon=True).start()
        found = await came
        if isinstance(found, OSError):
            raise found
        return found


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _by_the_system(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
