"""A credential's value struck out of an answer, in whatever common form it comes, wherever pieces part.

A form is a row of elements, each with the spellings it may have: a byte of the value as it is,
percent-encoded, as JSON or HTML escapes it; a character of its Base64 at each of the three places where
it may stand in a longer text, with line ends between; hexadecimal digits. One regular expression finds
where forms begin, a walk along the form decides; the end of a piece is held back only as far as a form
may have begun in it.
"""

import base64
import re
from collections.abc import Iterable
from functools import lru_cache

from core.egress import secret
from core.errors import CoreError

STRUCK = secret.STRUCK.encode()
_TELLING = 8
"""So many elements of a form at the very end of an answer are struck out, though the rest never came."""

_LOOKED_FOR = 8  # elements in the regular expression: longer ones take seconds to compile
_LONGEST = 32  # bytes of a spelling, at the most

_NAMED = {b'"': b"&quot;", b"&": b"&amp;", b"<": b"&lt;", b">": b"&gt;", b"'": b"&apos;"}

Spellings = tuple[bytes, ...]
Form = tuple[Spellings, ...]


class StrikeError(CoreError):
    """Looking took too long: values and answer were made so that everything looks like a beginning."""


class _Effort:
    """What may be looked at for some bytes: the process has one loop, and others wait meanwhile."""

    def __init__(self, data: bytes) -> None:
        self.left = 200_000 + 16 * len(data)


class Strike:
    """Strikes some values out of bytes. Make one for a request; :meth:`stream` for its body."""

    def __init__(self, values: Iterable[str]) -> None:
        raw = [value.encode() for value in values if value]
        forms = {form for value in raw for form in _forms(value)}
        # the longest first: of two that begin alike the regular expression takes the first
        self.forms = sorted(forms, key=len, reverse=True)
        self.window_bytes = max((sum(max(map(len, e)) for e in form) for form in self.forms), default=0)
        self.first = frozenset(spelling[0] for form in self.forms for spelling in form[0])
        begun = dict.fromkeys(_regex(form[:_LOOKED_FOR]) for form in self.forms)
        self._pattern = re.compile(b"|".join(begun)) if self.forms else None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to look for."""
        return self._pattern is None

    def whole(self, data: bytes) -> bytes:
        """Strike out of something that is there whole: a header, a URL, an error. Raises StrikeError."""
        effort = _Effort(data)
        out: list[bytes] = []
        at = done = 0
        while self._pattern is not None and (found := self._pattern.search(data, at)) is not None:
            at = found.start()
            end = max(_walk(data, at, form, effort)[0] for form in self.forms)
            if end < 0:
                at += 1
                continue
            out += (data[done:at], STRUCK)
            at = done = end
        return b"".join((*out, data[done:])) if out else data

    def text(self, text: str) -> str:
        """The same for text."""
        if self._pattern is None:
            return text
        return self.whole(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def finds(self, text: str) -> bool:
        """Whether a value is in a text."""
        return self.text(text) != text

    def stream(self) -> "StrikeStream":
        """A filter for one body."""
        return StrikeStream(self)


@lru_cache(maxsize=128)
def strike_for(values: frozenset[str]) -> Strike:
    """A Strike for some values; kept, since most requests use the credential of the one before."""
    return Strike(values)


class StrikeStream:
    """One body's filter; holds back at most the length of the longest form."""

    def __init__(self, strike: Strike) -> None:
        self._strike = strike
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may go on now. Raises StrikeError."""
        if self._strike.empty:
            return data
        data = self._strike.whole(self._held + data)
        keep_from, _ = self._begun(data)
        self._held = data[keep_from:]
        return data[:keep_from]

    def finish(self) -> bytes:
        """What was held back, when no more comes; a good part of a value is struck out too."""
        data, self._held = self._held, b""
        out = b""
        while data:
            at, elements = self._begun(data)
            out += data[:at]
            if at == len(data):
                break
            if elements >= _TELLING:
                return out + STRUCK
            out += data[at : at + 1]
            data = data[at + 1 :]
        return out

    def _begun(self, data: bytes) -> tuple[int, int]:
        """Where the earliest form begins that the end of ``data`` cuts, and how far it got (in elements)."""
        first, effort = self._strike.first, _Effort(data)
        for at in range(max(0, len(data) - self._strike.window_bytes), len(data)):
            if data[at] in first:
                reached = max(_walk(data, at, form, effort)[1] for form in self._strike.forms)
                if reached >= 0:
                    return at, reached
        return len(data), 0


def _walk(data: bytes, at: int, form: Form, effort: _Effort) -> tuple[int, int]:
    """Where a form that stands at ``at`` ends, and how many of its elements came before ``data`` did.

    -1 each where it does not.
    """
    cut, places = -1, {at}
    for number, spellings in enumerate(form):
        following: set[int] = set()
        effort.left -= 1
        if effort.left < 0:
            raise StrikeError("the answer cannot be searched for the credential in good time")
        for place in places:
            rest = data[place : place + _LONGEST]
            for spelling in spellings:
                if rest.startswith(spelling):
                    following.add(place + len(spelling))
                elif len(rest) < len(spelling) and spelling.startswith(rest):
                    cut = max(cut, number)
        places = following
        if not places:
            return -1, cut
    return max(places), cut


def _forms(value: bytes) -> Iterable[Form]:
    yield tuple(_spellings(byte) for byte in value)
    for alphabet in (b"+/", b"-_"):
        for skipped in range(3):
            yield _base64_form(value, skipped, alphabet)
    yield tuple((b"%x" % (byte >> 4), b"%X" % (byte >> 4)) for byte in _nibbles(value))


def _nibbles(value: bytes) -> bytes:
    return bytes(half << 4 for byte in value for half in (byte >> 4, byte & 15))


def _spellings(byte: int) -> Spellings:
    char = bytes((byte,))
    found = [
        char, b"%%%02X" % byte, b"%%%02x" % byte, b"%%25%02X" % byte, b"%%25%02x" % byte,
        b"\\u%04x" % byte, b"\\u%04X" % byte, b"\\x%02x" % byte, b"\\x%02X" % byte,
        b"&#%d;" % byte, b"&#x%x;" % byte, b"&#x%X;" % byte, char + b"\0", b"\0" + char,
    ]  # fmt: skip
    if char in _NAMED:
        found.append(_NAMED[char])
    if char in b"\"\\/'":
        found.append(b"\\" + char)
    if char == b" ":
        found.append(b"+")
    # the longest first, so that the regular expression does not stop at a shorter one
    return tuple(sorted(dict.fromkeys(found), key=len, reverse=True))


def _base64_form(value: bytes, skipped: int, alphabet: bytes) -> Form:
    """The characters of Base64 that depend on ``value`` alone, ``skipped`` bytes into a group of three."""
    encoded = base64.b64encode(b"\0" * skipped + value, alphabet).rstrip(b"=")
    begin = -(-8 * skipped // 6)
    end = (skipped + len(value)) * 8 // 6
    chars = encoded[begin:end]
    folds = (b"\n", b"\r\n", b"\\n", b"\\r\\n")
    form: list[Spellings] = []
    for number, code in enumerate(chars):
        char = bytes((code,))
        plain = [char]
        if char in b"+/=-_":
            plain += [b"%%%02X" % code, b"%%%02x" % code, b"\\" + char]
        folded = [fold + one for fold in folds for one in plain] if number else []
        form.append(tuple(sorted([*folded, *plain], key=len, reverse=True)))
    return tuple(form)


def _regex(form: Form) -> bytes:
    return b"".join(b"(?:" + b"|".join(map(re.escape, spellings)) + b")" for spellings in form)
