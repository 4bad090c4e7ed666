"""What a file is, by its first bytes: what somebody says of it is not believed. Pure."""

import re

from jail.wire.media import picture_type
from jail.wire.schema import MediaType

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
    if (picture := picture_type(data)) is not None:
        return picture
    if data.startswith(b"%PDF-"):
        return "application/pdf"
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
