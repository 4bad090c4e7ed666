"""Which part of a file a client asks for (RFC 9110, 13.1.5 and 14)."""

import re
from email.utils import formatdate
from typing import NamedTuple

_ONE = re.compile(r"bytes=[ \t]*(\d{0,18})-(\d{0,18})[ \t]*", re.ASCII | re.IGNORECASE)


class Part(NamedTuple):
    """``length`` bytes from ``first``."""

    first: int
    length: int


class Unsatisfiable(Exception):
    """The range begins past the end: 416."""


def etag(mark: str) -> str:
    """A file's entity tag: strong, since the mark differs whenever the content may."""
    return f'"{mark}"'


def last_modified(modified_s: int) -> str:
    """A time as HTTP writes it; past the year 9999 it has no way to."""
    return formatdate(min(modified_s, 253_402_300_799), usegmt=True)


def wanted_part(
    header: str | None, if_range: str | None, size_bytes: int, tag: str, modified: str
) -> Part | None:
    """The part of a file that is asked for; None: all of it.

    What the RFC lets a server ignore is ignored: another unit, several ranges, what cannot be read,
    and a range of a file that has changed since. Raises Unsatisfiable.
    """
    match = _ONE.fullmatch(header) if header else None
    if match is None or (if_range is not None and if_range not in (tag, modified)):
        return None
    first, last = match[1], match[2]
    if not first and not last:
        return None
    if not first:
        length = min(int(last), size_bytes)
        if not length:
            raise Unsatisfiable
        return Part(size_bytes - length, length)
    if last and int(last) < int(first):
        return None
    if int(first) >= size_bytes:
        raise Unsatisfiable
    end = min(int(last), size_bytes - 1) if last else size_bytes - 1
    return Part(int(first), end - int(first) + 1)
