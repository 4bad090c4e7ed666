"""Which credentials lie in whose jail as files, by the configuration in use."""

from core.config import VaultSection, mounts_of


class Mounts:
    """Gives each user's, by name. Thread-safe; ``use`` changes them for jails started later."""

    def __init__(self, section: VaultSection) -> None:
        self._of = mounts_of(section)

    def use(self, section: VaultSection) -> set[str]:
        """Go by another configuration from now on; whose are others than before."""
        old, self._of = self._of, mounts_of(section)
        return {user for user in old.keys() | self._of.keys() if old.get(user) != self._of.get(user)}

    def __call__(self, user: str) -> tuple[str, ...]:
        """A user's."""
        return self._of.get(user, ())
