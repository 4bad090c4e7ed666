"""What a file is, by its first bytes: what somebody says of it is not believed. Pure."""

import re

from jail.wire.schema import MediaType

_MAGIC: tuple[tuple[bytes, MediaType], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
ENDINGS: dict[MediaType, str] = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "application/pdf": "pdf",
    "text/plain": "txt",
}


def media_type(data: bytes) -> MediaType | None:
    """What ``data`` is, of what models are shown; None for anything else."""
    for magic, found in _MAGIC:
        if data.startswith(magic):
            return found
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if not data or _NO_TEXT.search(data):
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return "text/plain"


def is_picture(kind: str) -> bool:
    """Whether it is one of the pictures above."""
    return kind.startswith("image/")
