"""Deleting a user's directories: what is theirs as their own uid, what is core's as core's.

Root never walks a tree that somebody else can change while it walks.
"""

from pathlib import Path
from typing import Final

from jail.host.process import Identity, Program
from jail.host.profile import user_paths

_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
# a directory of mode 0 is removable once its owner may read it; neither program follows links
_EMPTY: Final = '[ -d "$1" ] || exit 0; chmod -R -f u+rwx -- "$1"; exec find "$1" -mindepth 1 -delete'
# find would complain of a directory that its uid may not read, though an empty one can be removed
_REMOVE: Final = '[ -d "$1" ] || exit 0; exec rmdir -- "$1"'


def removal_steps(
    data_dir: Path, user: str, theirs: Identity | None, core: Identity | None
) -> tuple[Program, ...]:
    """The programs to run one after another; each must exit 0. The user's directory then is empty.

    Raises HostError for an id that isn't one. ``theirs`` and ``core`` None: our own uid.
    """
    paths = user_paths(data_dir, user)
    return (
        Program(_argv(_EMPTY, paths.home), _ENVIRONMENT, identity=theirs),
        Program(_argv(_REMOVE, paths.home), _ENVIRONMENT, identity=core),
        Program(_argv(_EMPTY, paths.user), _ENVIRONMENT, identity=core),
    )


def _argv(code: str, directory: Path) -> tuple[str, ...]:
    return ("/bin/sh", "-c", code, "sh", str(directory))
