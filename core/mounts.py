"""Which credentials lie in whose jail as files, by the configuration in use."""

from core.config import VaultSection, mounts_of


class Mounts:
    """Gives each user's, by name. Thread-safe; ``use`` changes them for jails started later."""

    def __init__(self, section: VaultSection) -> None:
        self._section = section

    def use(self, section: VaultSection) -> set[str]:
        """Go by another configuration from now on; whose are others than before."""
        old, self._section = self._section, section
        users = {user for mount in (*old.mount, *section.mount) for user in mount.users}
        return {user for user in users if mounts_of(old, user) != mounts_of(section, user)}

    def __call__(self, user: str) -> tuple[str, ...]:
        """A user's."""
        return mounts_of(self._section, user)
