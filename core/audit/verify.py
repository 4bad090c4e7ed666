"""Checks the whole log against its key and its anchor."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from core.audit.chain import Anchor, Chain
from core.audit.files import file_name, file_numbers, read_private
from core.audit.walk import Walk

_NO_ANCHOR = "the anchor is missing, or was changed: how far the log went is not known"


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a check found. ``beyond`` lines follow the anchor, all of them right."""

    lines: int
    files: int
    beyond: int
    faults: tuple[str, ...]


Read = Callable[[Path], bytes | None]


def verify(directory: Path, chain: Chain, read: Read = read_private) -> Verdict:
    """Check every line that is kept. OSError, VaultError where the files cannot be read.

    ``read`` gives a file's bytes, None where there is none; a copy of the log need not be ours alone.

    A log that is being written may be checked: what is added meanwhile is past the anchor. Where a line is
    half written or the oldest file deleted just then, a second check says nothing of it.
    """
    data = read(directory / "anchor")
    anchor = chain.open_anchor(data) if data is not None else None
    if anchor is None:
        return Verdict(0, 0, 0, (_NO_ANCHOR,))
    walk = Walk(chain, anchor, after_crash=False)
    newest = max([anchor.newest, *file_numbers(directory)])
    files = 0
    for number in range(anchor.oldest, newest + 1):
        name = file_name(number)
        content = read(directory / name)
        if content is None:
            walk.missing(name)
        else:
            files += 1
            walk.take(name, content, newest=number == newest)
    walk.finish()
    return Verdict(walk.lines, files, walk.beyond, tuple(walk.faults))


def verify_file(path: Path, chain: Chain, read: Read = read_private) -> Verdict:
    """Check one file of the log by itself: its lines, not what came before or after. As :func:`verify`."""
    walk = Walk(chain, Anchor(0, 0, 0, ""), after_crash=False)
    content = read(path)
    if content is None:
        walk.missing(path.name)
    else:
        walk.take(path.name, content, newest=False)
    return Verdict(walk.lines, int(content is not None), 0, tuple(walk.faults))
