"""The directories of design.md 8: made, checked and owned as they must be.

Whoever is core owns ``users/<uid>/`` and so could rename what lies in it at any moment. Each step
therefore goes through a directory descriptor, follows no link, and changes the owner only of what
was root's.
"""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jail.host.messages import HostError
from jail.host.process import Identity
from jail.host.profile import UserPaths, user_paths
from jail.host.staging import check_readable

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Owners:
    """Whose the directories are: core's and egress's ids. None: an ordinary user owns all."""

    core: Identity
    egress: Identity


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    owner: Identity
    mode: int


class Layout:
    """The data directory of one server.

    Args:
        data_dir: made if missing.
        owners: when the spawner is root; None when everything is one ordinary user's.
    """

    def __init__(self, data_dir: Path, owners: Owners | None) -> None:
        self._data_dir = data_dir
        self._me = Identity(os.geteuid(), os.getegid())
        self._owners = owners

    @property
    def run_dir(self) -> Path:
        """Where the spawner alone may go."""
        return self._data_dir / "_run"

    def prepare(self) -> None:
        """Make and check the server's own directories. Raises HostError."""
        owners, shared = self._owners, 0o711 if self._owners else 0o700
        core = owners.core if owners else self._me
        egress = owners.egress if owners else self._me
        data = self._open_data(shared)
        try:
            for entry in (
                _Entry("users", self._me, shared),
                _Entry("_run", self._me, 0o700),
                _Entry("_system", core, 0o700),
                _Entry("sealed", core, 0o700),
                _Entry("_keys", egress, 0o700),
            ):
                os.close(self._directory(data, entry))
        finally:
            os.close(data)

    def prepare_user(self, user: str, host_uid: int) -> None:
        """Make and check a user's directories. Raises HostError."""
        user_paths(self._data_dir, user)  # the id's form
        core = self._owners.core if self._owners else self._me
        theirs = Identity(host_uid, host_uid) if self._owners else self._me
        group = theirs.gid
        users = self._open_users()
        try:
            outer = _Entry(
                user, Identity(core.uid, group), 0o710 if self._owners else 0o700
            )  # fmt: skip
            own = self._directory(users, outer)
            try:
                home = _Entry("home", theirs, 0o700)
                agents = _Entry("agents", Identity(core.uid, group), 0o750 if self._owners else 0o700)
                os.close(self._directory(own, home))
                os.close(self._directory(own, agents))
            finally:
                os.close(own)
        finally:
            os.close(users)

    def user_exists(self, user: str) -> bool:
        """Whether a user's directory is there."""
        with suppress(FileNotFoundError):
            return stat.S_ISDIR(user_paths(self._data_dir, user).user.lstat().st_mode)
        return False

    def forget_user(self, user: str) -> None:
        """Remove the emptied directory of a user. Raises HostError."""
        users = self._open_users()
        try:
            os.rmdir(user, dir_fd=users)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise HostError(f"users/{user}: {error.strerror}") from None
        finally:
            os.close(users)

    def _open_data(self, mode: int) -> int:
        """Open the data directory; an existing one keeps its mode unless it is empty.

        An operator who names a directory that others use should read a message, not find it closed.
        """
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = os.open(self._data_dir, _OPEN)
        except OSError as error:
            raise HostError(f"{self._data_dir}: {error.strerror}; choose another") from None
        try:
            info = os.fstat(data)
            if info.st_uid != self._me.uid or info.st_mode & 0o022:
                raise HostError(f"{self._data_dir} is not the server's alone to write; choose another")
            if not os.listdir(data):
                os.fchmod(data, mode)
            if self._owners is not None:
                check_readable(self._data_dir)
        except BaseException:
            os.close(data)
            raise
        return data

    def _open_users(self) -> int:
        try:
            return os.open(self._data_dir / "users", _OPEN)
        except OSError as error:
            raise HostError(f"users/: {error.strerror}") from None

    def _directory(self, parent: int, entry: _Entry) -> int:
        """Open an entry, made if it is missing, as it must be."""
        with suppress(FileExistsError):
            os.mkdir(entry.name, 0o700, dir_fd=parent)
        try:
            fd = os.open(entry.name, _OPEN, dir_fd=parent)
        except OSError as error:
            raise HostError(
                f"{entry.name} is not a directory of ours ({error.strerror}); move it away"
            ) from None
        try:
            _settle(fd, entry.name, entry.owner, entry.mode, self._me)
        except BaseException:
            os.close(fd)
            raise
        return fd


def check_unlinked(paths: UserPaths) -> None:
    """Refuse to mount what lies elsewhere than it seems to: bwrap would follow a link.

    Raises HostError. Nobody but the server's own uids can change these between this and the mount.
    """
    for path in (paths.user, paths.home, paths.agents):
        try:
            real = stat.S_ISDIR(path.lstat().st_mode)
        except OSError as error:
            raise HostError(f"{path.name} of this user: {error.strerror}") from None
        if not real:
            raise HostError(f"{path.name} of this user is not a directory but something else")


def _settle(fd: int, name: str, owner: Identity, mode: int, me: Identity) -> None:
    """Give an open directory its owner and mode, if it is ours to give; else it must have them."""
    info = os.fstat(fd)
    if info.st_uid not in (me.uid, owner.uid):
        raise HostError(
            f"{name} belongs to uid {info.st_uid} instead of {owner.uid}; give it back (chown) or "
            f"move it away"
        )
    try:
        if (info.st_uid, info.st_gid) != (owner.uid, owner.gid):
            os.fchown(fd, owner.uid, owner.gid)
        if stat.S_IMODE(info.st_mode) != mode:
            os.fchmod(fd, mode)
    except OSError as error:
        raise HostError(f"{name}: {error.strerror}") from None
