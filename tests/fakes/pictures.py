"""Files as clients attach them: small, and really what they say."""

import base64
import random
import struct
import zlib


def png(width: int = 2, height: int = 2, padding: int = 0) -> bytes:
    """A PNG picture of noise, the same for the same arguments.

    ``padding`` more bytes are in a chunk that viewers skip.
    """
    noise = random.Random(f"{width} {height} {padding}").randbytes
    rows = b"".join(b"\0" + noise(3 * width) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"prVt", noise(padding))] if padding else [(b"IHDR", head)]
    parts += [(b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def pdf() -> bytes:
    """As much of a PDF as anybody looks at here."""
    return b"%PDF-1.4\n" + bytes(range(64)) + b"\n%%EOF\n"


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
