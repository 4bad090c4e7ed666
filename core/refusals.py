"""What other processes and stores refuse, as errors for whoever asked for it over HTTP."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal

from core.egress_link import VaultRefused
from core.errors import LinkError
from core.hub.admin import AdministrationError
from core.spawner_link import HostRefused
from core.users import NoSuchUser, User, UserNameError, Users, check_user_id


async def answered(act: Awaitable[Any], refused: Literal["invalid", "not_found"] = "invalid") -> Any:
    """Wait for an act of another process's. Raises AdministrationError.

    Args:
        refused: the error's code where that process refuses; ``unavailable`` where it is gone.
    """
    try:
        return await act
    except VaultRefused as error:
        raise AdministrationError(refused, str(error)) from None
    except (LinkError, HostRefused) as error:
        raise AdministrationError("unavailable", str(error)) from None


async def known_user(users: Users, name: str) -> User:
    """A user who is there. Raises AdministrationError ``not_found``."""
    try:
        return await asyncio.to_thread(users.get, check_user_id(name))
    except (NoSuchUser, UserNameError) as error:
        raise AdministrationError("not_found", str(error)) from None
