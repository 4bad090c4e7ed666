"""How a line of the audit log is tied to the one before it: pure, bytes in, bytes out.

    mac(n) = HMAC-SHA256(key, "line" 0 mac(n-1) body(n))

A line is a JSON object whose last member is its mac; the body is the same object without it. The key is
the vault's, so whoever can write the file but not open the vault cannot make a line, nor mend a chain
that they broke. The anchor says, under the same key, how far the log goes and where it begins.
"""

import hmac
import re
from typing import Any

import msgspec

MAC_BYTES = 32
START = bytes(MAC_BYTES)
"""The mac before the first line."""
_LINE, _ANCHOR = b"line\0", b"anchor\0"
_TAIL = re.compile(rb',"mac":"([0-9a-f]{64})"\}\Z')


class Anchor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far the log goes: files by number, the last line's number and its mac (hexadecimal)."""

    oldest: int
    newest: int
    seq: int
    last: str


_decode_anchor = msgspec.json.Decoder(Anchor).decode
_encode = msgspec.json.Encoder().encode


class Chain:
    """The macs, under one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close_line(self, previous: bytes, body: dict[str, Any]) -> tuple[bytes, bytes]:
        """A line, with its newline, and its mac; ``previous`` is the mac before it."""
        data = _encode(body)
        mac = self._mac(_LINE, previous + data)
        return data[:-1] + b',"mac":"' + mac.hex().encode() + b'"}\n', mac

    def check_line(self, previous: bytes, line: bytes) -> tuple[bytes | None, bool]:
        """The mac that a line (without its newline) says, None where it has none; whether it is right."""
        found = _TAIL.search(line)
        if found is None:
            return None, False
        said = bytes.fromhex(found[1].decode())
        expected = self._mac(_LINE, previous + line[: found.start()] + b"}")
        return said, hmac.compare_digest(said, expected)

    def close_anchor(self, anchor: Anchor) -> bytes:
        """The anchor as a file's content."""
        data = _encode(anchor)
        return data + b"\n" + self._mac(_ANCHOR, data).hex().encode() + b"\n"

    def open_anchor(self, data: bytes) -> Anchor | None:
        """The anchor in a file's content; None where it is not one that this key made."""
        body, _, rest = data.partition(b"\n")
        if not hmac.compare_digest(self._mac(_ANCHOR, body).hex().encode() + b"\n", rest):
            return None
        return _decode_anchor(body)

    def _mac(self, domain: bytes, data: bytes) -> bytes:
        return hmac.digest(self._key, domain + data, "sha256")
