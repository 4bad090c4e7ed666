"""Checks the whole log against its key and its anchor."""

from pathlib import Path

import msgspec

from core.audit.chain import Chain
from core.audit.files import file_name, file_numbers, read_private
from core.audit.walk import Walk

_NO_ANCHOR = "the anchor is missing, or was changed: how far the log went is not known"


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a check found. ``beyond`` lines follow the anchor, all of them right."""

    lines: int
    files: int
    beyond: int
    faults: tuple[str, ...]


def verify(directory: Path, chain: Chain) -> Verdict:
    """Check every line that is kept. OSError, VaultError where the files cannot be read.

    A log that is being written may be checked: what is added meanwhile is past the anchor. Where a line is
    half written or the oldest file deleted just then, a second check says nothing of it.
    """
    data = read_private(directory / "anchor")
    anchor = chain.open_anchor(data) if data is not None else None
    if anchor is None:
        return Verdict(0, 0, 0, (_NO_ANCHOR,))
    walk = Walk(chain, anchor, after_crash=False)
    newest = max([anchor.newest, *file_numbers(directory)])
    files = 0
    for number in range(anchor.oldest, newest + 1):
        name = file_name(number)
        content = read_private(directory / name)
        if content is None:
            walk.missing(name)
        else:
            files += 1
            walk.take(name, content, newest=number == newest)
    walk.finish()
    return Verdict(walk.lines, files, walk.beyond, tuple(walk.faults))
