"""Where the master key comes from, and where the next one stands while everything is wrapped anew.

At any moment of a rotation the vault's verifier says which of the two is the right one, so whoever
opens the vault next can finish what was begun.
"""

import os
from pathlib import Path
from typing import NamedTuple, Protocol

from core.vault.errors import VaultError, VaultRefusal
from core.vault.files import create_private, open_private, sync_directory
from core.vault.keys import KEY_BYTES, MasterKey, load_master_key, read_key


class Keys(NamedTuple):
    """The key, and the one that is to replace it, where there is one."""

    current: MasterKey
    next: MasterKey | None


class KeySource(Protocol):
    """Where keys are. Every method may raise VaultError."""

    def load(self, vault_exists: bool) -> Keys:
        """Read the keys; at the very first start one may be made."""
        ...

    def make_next(self) -> MasterKey:
        """Make the key that is to replace the current one, durable on return. VaultRefusal: not ours."""
        ...

    def settle(self) -> None:
        """The vault was made anew with the next key: it is the key now."""
        ...

    def discard_next(self) -> None:
        """The vault could not be made anew, and is as it was. VaultError where that is the operator's."""
        ...


class KeyFile:
    """``DATA/_keys/master.key``, ours alone; the next one is beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = path.with_name(path.name + ".next")

    def load(self, vault_exists: bool) -> Keys:
        """Read or make it."""
        current = load_master_key(self._path, vault_exists)
        fd = open_private(self._next)
        return Keys(current, None if fd is None else read_key(fd, str(self._next)))

    def make_next(self) -> MasterKey:
        """Random bytes, on the disk before anything is wrapped with them."""
        create_private(self._next, os.urandom(KEY_BYTES))
        fd = open_private(self._next)
        if fd is None:
            raise VaultError(f"{self._next}: vanished while it was made")
        return read_key(fd, str(self._next))

    def settle(self) -> None:
        """Put it in the old one's place."""
        try:
            os.replace(self._next, self._path)
            sync_directory(self._path.parent)
        except OSError as error:
            raise VaultError(f"{self._path}: cannot be replaced: {error.strerror}") from None

    def discard_next(self) -> None:
        """Nothing was ever wrapped with it."""
        self._next.unlink(missing_ok=True)


class HandedKeys:
    """Keys that the operator keeps elsewhere: open descriptors, which nobody has read yet.

    Args:
        current: the key's.
        next: the next key's, None where no change is wanted.
    """

    def __init__(self, current: int, next: int | None) -> None:
        self._current, self._next = current, next

    def load(self, vault_exists: bool) -> Keys:  # noqa: ARG002
        """Read them; nothing is made here."""
        current = read_key(self._current, "the master key that was configured")
        following = None if self._next is None else read_key(self._next, "the next master key")
        return Keys(current, following)

    def make_next(self) -> MasterKey:
        """Refused: where it is kept is the operator's to say."""
        raise VaultRefusal(
            "this server is given its master key from outside: put the next one beside it"
            " (docs/credentials.md, Rotation) and restart the server"
        )

    def settle(self) -> None:
        """The operator's to do; until then both keys are given, and the vault knows which is right."""

    def discard_next(self) -> None:
        """Ours neither."""
        raise VaultError(
            "the vault cannot be wrapped anew, since a record in it does not open; it is as it was: take the"
            " next master key away, and restore the vault from a backup"
        )
