"""Bodies taken out of their compression, a bounded piece at a time."""

import zlib
from collections.abc import Iterator

from core.errors import CoreError

PIECE_BYTES = 64 << 10
_FREE_BYTES = 1 << 20  # so much may come of whatever little: short texts compress by hundreds


class DecodingError(CoreError):
    """The body is not what its header says, or too much comes out of it."""


class Decoder:
    """Plain bytes out of a body that is ``identity``, ``gzip`` or ``deflate``.

    Args:
        encoding: the Content-Encoding. Others were not asked for, and raise DecodingError.
        most_bytes: how much may come out in all.
        ratio: how much more may come out than went in, past the first megabyte.
    """

    def __init__(self, encoding: str, most_bytes: int, ratio: int) -> None:
        self._most_bytes, self._ratio = most_bytes, ratio
        self.bytes_in = self.bytes_out = 0
        self._zlib: zlib._Decompress | None = None
        self._raw_next = False
        match encoding.strip().lower():
            case "" | "identity":
                pass
            case "gzip" | "x-gzip":
                self._zlib = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            case "deflate":
                self._zlib = zlib.decompressobj()
                self._raw_next = True  # some servers leave zlib's header out (RFC 9110, 8.4.1.2)
            case _:
                raise DecodingError("the answer is compressed in a way that was not asked for")

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most 64 KB; whoever stops asking stops the work. Raises DecodingError."""
        self.bytes_in += len(data)
        if self._zlib is None:
            for at in range(0, len(data), PIECE_BYTES):
                yield self._counted(data[at : at + PIECE_BYTES])
            return
        while data:
            if self._zlib.eof:
                raise DecodingError("something follows the end of the compressed answer")
            try:
                piece = self._zlib.decompress(data, PIECE_BYTES)
            except zlib.error:
                if not self._raw_next:
                    raise DecodingError("the answer is not compressed as it says") from None
                self._zlib = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
                self._raw_next = False
                continue
            self._raw_next = False
            data = self._zlib.unconsumed_tail or self._zlib.unused_data
            if piece:
                yield self._counted(piece)

    def finish(self) -> None:
        """The body has ended. Raises DecodingError where it was cut short."""
        if self._zlib is not None and self.bytes_in and not self._zlib.eof:
            raise DecodingError("the compressed answer was cut short")

    def _counted(self, piece: bytes) -> bytes:
        self.bytes_out += len(piece)
        if self.bytes_out > self._most_bytes:
            raise DecodingError(f"the answer is longer than {self._most_bytes} bytes")
        if self.bytes_out > max(_FREE_BYTES, self.bytes_in * self._ratio):
            raise DecodingError(f"the answer grows more than {self._ratio} times by decompressing it")
        return piece
