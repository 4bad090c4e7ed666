"""File names on the wire: text, and yet every name that Linux allows.

A name is any bytes but ``/`` and NUL, a frame's text is UTF-8. A byte that is no part of UTF-8
therefore travels as NUL and two hex digits, which no name can contain otherwise.
"""

import re

_ESCAPED = re.compile(r"\0([0-9a-f]{2})")
_LONE = re.compile("[\udc80-\udcff]")


def to_text(name: bytes) -> str:
    """A name or path as it travels."""
    text = name.decode("utf-8", "surrogateescape")
    return _LONE.sub(lambda found: f"\0{ord(found[0]) - 0xDC00:02x}", text)


def to_bytes(text: str) -> bytes:
    """What :func:`to_text` was given. Raises ValueError for text that no name becomes."""
    raw = _ESCAPED.sub(lambda found: chr(0xDC00 + int(found[1], 16)) if found[1] >= "80" else "\0", text)
    if "\0" in raw:
        raise ValueError("a path has no NUL characters")
    name = raw.encode("utf-8", "surrogateescape")
    if to_text(name) != text:
        raise ValueError("bytes that are UTF-8 are written as they are")  # one name, one spelling
    return name
