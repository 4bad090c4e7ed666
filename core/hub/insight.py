"""What an administrator may look at; injected, like what they may do."""

from typing import Any, Protocol


class Insight(Protocol):
    """Builtin objects only; nothing of it holds a secret or a message's text.

    Every method may raise core.hub.admin.AdministrationError.
    """

    async def health(self) -> dict[str, Any]:
        """What an operator looks at first: what is missing, what runs, how full the disk is."""
        ...

    async def pool(self) -> dict[str, Any]:
        """Users' jails as they are, and the bounds on them."""
        ...

    async def configuration(self) -> dict[str, Any]:
        """Every setting in use."""
        ...

    async def providers(self) -> list[dict[str, Any]]:
        """The providers of the running server and how each is; of keys whether there is one."""
        ...

    async def sizes(self) -> list[dict[str, Any]]:
        """How many bytes on the disk each user's sessions take."""
        ...

    async def sizes_of(self, user: str) -> dict[str, Any]:
        """The same for one user, and of what how many there are."""
        ...
