"""Which picture a file is, by its first bytes: what its name says is not believed. Pure."""

from jail.wire.schema import PictureType

_MAGIC: tuple[tuple[bytes, PictureType], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def picture_type(data: bytes) -> PictureType | None:
    """What picture begins like this; None for anything else."""
    for magic, found in _MAGIC:
        if data.startswith(magic):
            return found
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
