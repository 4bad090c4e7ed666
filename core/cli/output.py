"""What goes to a terminal or a program: JSON, tables, and text that strangers wrote."""

import json
from collections.abc import Sequence
from typing import Any

_HARMLESS = "\n\t"
# Bidirectional overrides and isolates (Unicode TR 9, TR 36): they show text in another order.
_REORDERING = {0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_VISIBLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _HARMLESS},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    **dict.fromkeys(_REORDERING, "\ufffd"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


# Zero-width characters, other line ends, fillers and tags (Unicode TR 36): they show as nothing at all. Some
# are right in an emoji or in Persian, so they are left alone where nothing hangs on them.
_INVISIBLE: dict[int, str] = dict.fromkeys(
    (
        0xAD, 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, *range(0x200B, 0x2010), 0x2028, 0x2029,
        *range(0x2060, 0x2070), 0x2800, 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0,
        *range(0xE0000, 0xE0200),
    ),
    "\ufffd",
)  # fmt: skip


def harmless(text: str) -> str:
    """Text in which nothing speaks to a terminal: control characters become visible signs.

    Works on any piece of a stream: an escape sequence cut in two is as dead as a whole one.
    """
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def unhidden(text: str) -> str:
    """The same for what a person is to judge: nothing in it is invisible, or breaks a line unseen."""
    return harmless(text).translate(_INVISIBLE)


def print_json(value: Any) -> None:
    """One JSON object on one line of stdout."""
    print(json.dumps(value, ensure_ascii=True, separators=(", ", ": ")), flush=True)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as they need to be."""
    lines = [list(titles), *([harmless(cell).replace("\n", " ") for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())
