"""``_keys/audit/``: the log's files, one after the other, and the anchor that says how far they go.

audit-00000001.jsonl ...    lines; each file's first says ``log_opened`` and the mac before it
anchor                      replaced whole, after the lines it speaks of are on disk
"""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from core.audit.chain import START, Anchor, Chain
from core.audit.lines import By, body_of
from core.audit.records import Record
from core.audit.walk import Walk
from core.vault.errors import VaultError
from core.vault.files import open_private, prepare_directory, sync_directory

_NAME = re.compile(r"audit-(\d{8})\.jsonl")
_MAX_ANCHOR_BYTES = 4_096


def file_name(number: int) -> str:
    """The name of a file of the log."""
    return f"audit-{number:08d}.jsonl"


def file_numbers(directory: Path) -> list[int]:
    """The files that are there, in order."""
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(match[1]) for match in found if match is not None)


def read_private(path: Path) -> bytes | None:
    """A file of ours, None where there is none. VaultError where it is not ours alone, OSError."""
    fd = open_private(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read()


class AuditLog:
    """The log, open for appending; one thread at a time. OSError where the disk fails: call again later.

    Args:
        directory: made when missing.
        chain: with the log's key.
        fresh: whether its key was made just now, so that nothing needs to be there.
        file_bytes, keep_files: see core.audit.section.
        wall_s: the time as Unix seconds.

    Raises VaultError where the directory is not ours alone. What is damaged is said in the log itself
    (``log_damaged``), which goes on in another file: evidence stays as it was found.
    """

    def __init__(
        self,
        directory: Path,
        chain: Chain,
        fresh: bool,
        file_bytes: int,
        keep_files: int,
        wall_s: Callable[[], float],
    ) -> None:
        prepare_directory(directory)
        self._directory = directory
        self._chain = chain
        self._file_bytes = file_bytes
        self._keep_files = keep_files
        self._wall_s = wall_s
        self._fd: int | None = None
        self._size = 0
        self._number = self._oldest = self._seq = 0
        self._last = START
        self._anchored: Anchor | None = None
        self.damage = ""
        """What was wrong with it when it was opened; empty: nothing."""
        try:
            self._open(fresh)
        except OSError as error:
            self.close()
            raise VaultError(f"{directory}: the audit log cannot be opened: {error.strerror}") from None

    @property
    def end(self) -> Anchor:
        """How far it goes, on disk or not."""
        return Anchor(self._oldest, self._number, self._seq, self._last.hex())

    def append(self, records: Iterable[tuple[By, Record]]) -> None:
        """Write records; all of them or none. On disk after :meth:`sync`."""
        seq, last, now_s = self._seq, self._last, self._wall_s()
        lines = []
        for by, record in records:
            seq += 1
            line, last = self._chain.close_line(last, body_of(seq, now_s, by, record))
            lines.append(line)
        self._write(b"".join(lines))
        self._seq, self._last = seq, last

    def sync(self) -> None:
        """Have the disk hold what was written, then the anchor; begin another file where it is time."""
        assert self._fd is not None
        os.fdatasync(self._fd)
        if self._size > self._file_bytes:
            self._begin(self._number + 1)
        if self.end != self._anchored:
            self._write_anchor()
        self._retire()

    def close(self) -> None:
        """Let go of the file; harmless twice."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # -- opening ------------------------------------------------------------------------------------

    def _open(self, fresh: bool) -> None:
        numbers = file_numbers(self._directory)
        data = read_private(self._directory / "anchor")
        anchor = self._chain.open_anchor(data[:_MAX_ANCHOR_BYTES]) if data is not None else None
        self._number = max([0, *numbers])
        self._oldest = (numbers or [1])[0]
        damage = ""
        if anchor is not None:
            self._anchored = anchor
            self._oldest, self._seq, self._last = anchor.oldest, anchor.seq, bytes.fromhex(anchor.last)
            damage = self._resume(anchor)
        elif numbers or not fresh:
            damage = "the anchor is missing or was changed"
        if self._fd is None:
            self._begin(self._number + 1)
        self.damage = damage
        if damage:
            self.append([("egress", Record("log_damaged", "noted", detail=damage))])
        self.sync()

    def _resume(self, anchor: Anchor) -> str:
        """Go on behind the last line; returns what is wrong, and opens nothing then."""
        walk, good_bytes, number = Walk(self._chain, anchor, after_crash=True), 0, anchor.newest
        for number in range(anchor.newest, self._number + 1):
            path = self._directory / file_name(number)
            data = read_private(path)
            if data is None:
                walk.missing(path.name)
                break
            whole_bytes = walk.take(path.name, data, newest=number == self._number)
            if whole_bytes == 0 and walk.reached and number > anchor.newest:
                path.unlink()  # a crash in the middle of beginning it
                self._number = number = number - 1
                break
            good_bytes = whole_bytes
        walk.finish()
        if walk.faults or walk.seq is None or walk.last is None:
            return walk.faults[0] if walk.faults else "the last file is missing"
        self._seq, self._last, self._size = walk.seq, walk.last, good_bytes
        self._fd = os.open(self._directory / file_name(number), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.ftruncate(self._fd, good_bytes)  # half a line past the anchor is what a crash leaves
        return ""

    # -- writing ------------------------------------------------------------------------------------

    def _begin(self, number: int) -> None:
        """Go on in a new file, whose first line says the mac before it."""
        path = self._directory / file_name(number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        record = body_of(self._seq + 1, self._wall_s(), "egress", Record("log_opened", "noted"))
        line, mac = self._chain.close_line(self._last, {**record, "prev": self._last.hex()})
        old = self._fd, self._size
        self._fd, self._size = os.open(path, flags, 0o600), 0
        try:
            self._write(line)
            os.fdatasync(self._fd)
            sync_directory(self._directory)
        except OSError:
            os.close(self._fd)
            path.unlink(missing_ok=True)
            self._fd, self._size = old
            raise
        if old[0] is not None:
            os.close(old[0])
        self._number, self._seq, self._last = number, self._seq + 1, mac

    def _write(self, data: bytes) -> None:
        """At the end of what is good: what an earlier failure left half written is written over."""
        assert self._fd is not None
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._size + written)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _write_anchor(self) -> None:
        new = self._directory / "anchor.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        anchor = self.end
        with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
            file.write(self._chain.close_anchor(anchor))
            file.flush()
            os.fdatasync(file.fileno())
        os.rename(new, self._directory / "anchor")
        sync_directory(self._directory)
        self._anchored = anchor

    def _retire(self) -> None:
        """Delete the oldest files past those that are kept; the anchor says first that they are gone."""
        oldest = max(self._oldest, self._number - self._keep_files + 1)
        if oldest == self._oldest:
            return
        gone = range(self._oldest, oldest)
        self._oldest = oldest
        self._write_anchor()
        for number in gone:
            (self._directory / file_name(number)).unlink(missing_ok=True)
