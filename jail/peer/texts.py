"""Cutting text to a number of UTF-8 bytes, with a marker that says what is missing."""


def clean(text: str) -> str:
    """The text with what UTF-8 cannot say (lone surrogates of odd file names) replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def size(text: str) -> int:
    """Length in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def cut_middle(text: str, limit_bytes: int, marker: str = "\n[... {} bytes left out ...]\n") -> str:
    """At most about ``limit_bytes`` of the text: its head and its tail around a marker.

    ``{}`` in the marker becomes the number of bytes left out; the marker itself counts as well,
    so a limit below its length leaves the marker alone.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit_bytes:
        return text
    room = max(0, limit_bytes - len(marker) - 20)  # 20: digits that {} may become
    head, tail = data[: (room + 1) // 2], data[len(data) - room // 2 :]
    left_out = marker.format(len(data) - len(head) - len(tail))
    return head.decode("utf-8", "ignore") + left_out + tail.decode("utf-8", "ignore")
