"""Walks the log's lines and says what is wrong with them. Pure: bytes in, faults out."""

from core.audit.chain import Anchor, Chain
from core.audit.lines import decode_line

MAX_FAULTS = 20


class Walk:
    """Takes the log's files in order, whole, then :meth:`finish`.

    After a line that is wrong it goes on from what that line says, so that one change is one fault.

    Args:
        chain: with the log's key.
        anchor: how far the log has to go at least.
        after_crash: half a line past the anchor is no fault, as when the log is opened again.
    """

    def __init__(self, chain: Chain, anchor: Anchor, after_crash: bool) -> None:
        self._after_crash = after_crash
        self._chain = chain
        self._anchor = anchor
        self.faults: list[str] = []
        self.lines = 0
        self.seq: int | None = None
        self.last: bytes | None = None
        self.reached = False
        self.beyond = 0
        """Lines past the anchor: right ones, whose anchor a crash cut off, or that are being written."""

    def take(self, name: str, data: bytes, newest: bool) -> int:
        """Take a file; returns how many of its bytes are whole lines. ``newest``: no file follows."""
        *lines, torn = data.split(b"\n")
        if not lines:
            if not (newest and self.reached and self._after_crash):
                self._fault(f"{name} is empty")
            return 0
        for number, line in enumerate(lines, 1):
            self._line(f"{name}:{number}", line, first=number == 1)
        if torn and not (newest and self.reached and self._after_crash):
            self._fault(f"{name} ends in the middle of a line")
        return len(data) - len(torn)

    def finish(self) -> None:
        """No more files come."""
        if self.reached:
            return
        if self.seq is None or self.seq < self._anchor.seq:
            self._fault(
                f"the last lines are missing: it ends at {self.seq or 0}, and went to {self._anchor.seq}"
            )
        else:
            self._fault(f"line {self._anchor.seq} is not the one that the anchor knows")

    def missing(self, name: str) -> None:
        """A file is not there."""
        self._fault(f"{name} is missing")
        self.last = self.seq = None

    def _line(self, where: str, line: bytes, first: bool) -> None:
        self.lines += 1
        try:
            said = decode_line(line)
            previous = bytes.fromhex(said.prev) if said.prev else b""
        except (ValueError, RecursionError):
            self._fault(f"{where} is not a line of this log")
            self.last = self.seq = None
            return
        if first:
            if self.last is not None and previous != self.last:
                self._fault(f"{where} does not follow on the file before it")
        else:
            previous = self.last if self.last is not None else b""
        mac, right = self._chain.check_line(previous, line)
        known = first or self.last is not None
        if not right and known:
            self._fault(f"{where} was changed, or what stood before it was changed, moved or removed")
        if self.seq is not None and said.seq != self.seq + 1:
            self._fault(f"{where} has number {said.seq}, where {self.seq + 1} was to follow")
        self.seq, self.last = said.seq, mac
        self.beyond += self.reached
        if right and mac is not None and (said.seq, mac.hex()) == (self._anchor.seq, self._anchor.last):
            self.reached = True

    def _fault(self, what: str) -> None:
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(what)
        elif len(self.faults) == MAX_FAULTS:
            self.faults.append("and more")
