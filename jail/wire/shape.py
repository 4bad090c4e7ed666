"""What a frame's bytes announce, counted before anything is made of them.

msgpack's unpacker tells of a list or a map only when it ends. A frame that opens lists and never ends
them would be built whole, string by string, before anybody could count: a megabyte became 28.
"""

from typing import NamedTuple

from jail.wire.errors import PeerFault

_SCALAR, _BYTES, _LIST, _MAP, _REFUSED = range(5)


class _Form(NamedTuple):
    """What a value's first byte says."""

    kind: int
    size: int = 1  # bytes of the header, and of the value where its length is fixed
    width: int = 0  # bytes at the header's end that hold the count
    inline: int = 0  # the count where the first byte holds it


def _forms() -> tuple[_Form, ...]:
    """By first byte (https://github.com/msgpack/msgpack/blob/master/spec.md)."""
    forms = [_Form(_SCALAR)] * 256
    for low in range(16):
        forms[0x80 + low] = _Form(_MAP, inline=low)
        forms[0x90 + low] = _Form(_LIST, inline=low)
    for low in range(32):
        forms[0xA0 + low] = _Form(_BYTES, inline=low)
    for first, kind, widths in (
        (0xC4, _BYTES, (1, 2, 4)),  # binary
        (0xD9, _BYTES, (1, 2, 4)),  # text
        (0xDC, _LIST, (2, 4)),
        (0xDE, _MAP, (2, 4)),
    ):
        for at, width in enumerate(widths):
            forms[first + at] = _Form(kind, 1 + width, width)
    for first, values in ((0xCA, (4, 8)), (0xCC, (1, 2, 4, 8)), (0xD0, (1, 2, 4, 8))):
        for at, value_bytes in enumerate(values):
            forms[first + at] = _Form(_SCALAR, 1 + value_bytes)
    for first in (0xC1, 0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)):  # never used, and extensions
        forms[first] = _Form(_REFUSED)
    return tuple(forms)


_FORMS = _forms()


def check_shape(data: bytes, max_nodes: int, max_depth: int) -> None:
    """Refuse more nodes or deeper nesting than allowed; what else is wrong, the unpacker says.

    Args:
        data: one value's bytes.
        max_nodes: how many lists, maps and values in them there may be, where a container is announced.
        max_depth: how deep a value may lie; ``data`` itself lies at 0.

    Raises PeerFault ``encoding``. Looks at no more than about twice ``max_nodes`` values.
    """
    at, end, left = 0, len(data), max_nodes
    outer: list[int] = []  # values still to come in each container around
    todo = 1
    while at < end:
        while not todo:
            if not outer:
                return
            todo = outer.pop()
        todo -= 1
        kind, size, width, count = _FORMS[data[at]]
        at += size
        if kind == _SCALAR:
            continue
        if width:
            count = int.from_bytes(data[at - width : at], "big")
        if kind == _BYTES:
            at += count
            continue
        if kind == _REFUSED:
            return
        left -= 1 + count
        if left < 0:
            raise PeerFault("encoding", f"more than {max_nodes} values in a frame")
        if count:
            if len(outer) >= max_depth:
                raise PeerFault("encoding", f"deeper than {max_depth}")
            outer.append(todo)
            todo = 2 * count if kind == _MAP else count
