"""How a turn is shown: the answer on stdout, what happens beside it on stderr."""

import sys
from dataclasses import asdict
from typing import Protocol, TextIO

from core.cli.api import Piece
from core.cli.output import harmless, print_json, unhidden

_RESULT_LINES = 12
_LINE_CHARACTERS = 200
_APPROVAL_LINES = 200  # whoever is to allow something has to see it


class Screen(Protocol):
    """What shows a turn."""

    def show(self, piece: Piece) -> None:
        """Show one piece, at once."""
        ...

    def end(self) -> None:
        """The turn has ended, well or not."""
        ...


class JsonScreen:
    """Every piece as a JSON object on a line of stdout."""

    def show(self, piece: Piece) -> None:
        """Print the piece, with only what its kind has."""
        fields = asdict(piece)
        kept: tuple[str, ...] = ()
        if piece.kind.startswith("approval"):
            kept = ("name", "step", "approval", "expires_s", "cut")
        elif piece.kind.startswith("tool"):
            kept = ("name", "step", "ok")
        elif piece.kind == "picture":
            kept = ("step", "caption")
        print_json({name: fields[name] for name in ("kind", "text", *kept)})

    def end(self) -> None:
        """Nothing is left to say."""


class TextScreen:
    """For people: the answer flows on ``out``, tool calls stand in lines of their own on ``err``.

    What was written by a model or a tool is made harmless wherever a terminal shows it.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._plain = not out.isatty()
        self._column = 0
        self._streamed: set[int] = set()

    def show(self, piece: Piece) -> None:
        """Show the piece."""
        if piece.kind == "text":
            self._answer(piece.text)
        elif piece.kind == "tool_call":
            self._aside(f"> {piece.name} {piece.text}", 1)
        elif piece.kind == "tool_progress":
            self._streamed.add(piece.step)
            self._aside(piece.text, _RESULT_LINES, "  | ")
        elif piece.kind == "tool_result":
            self._result(piece)
        elif piece.kind == "picture":
            self._aside(f"{piece.text}  {piece.caption}".rstrip(), 1, "# ", wide=True)
        elif piece.kind == "approval_wanted":
            # the end of what is shown is not to look like the end of what is asked
            more = " ... (there is more: GET /v1/approvals)" if piece.cut else ""
            self._aside(f"{piece.name} {unhidden(piece.text)}{more}", _APPROVAL_LINES, "? ", wide=True)
        elif piece.kind == "approval_resolved":
            self._aside(piece.text, 1, "  = ")
        elif piece.kind == "notice":
            self._aside(piece.text, _RESULT_LINES, "! ")

    def end(self) -> None:
        """Leave the cursor at the start of a line."""
        if self._column:
            self._write("\n")
        self._streamed.clear()

    def _result(self, piece: Piece) -> None:
        if piece.step not in self._streamed or not piece.ok:
            self._aside(piece.text, _RESULT_LINES, "  | ")
        if not piece.ok:
            self._aside("failed", 1, "  = ")

    def _answer(self, text: str) -> None:
        self._write(text if self._plain else harmless(text))

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        if text:
            self._column = 0 if text.endswith("\n") else 1

    def _aside(self, text: str, lines: int, prefix: str = "", wide: bool = False) -> None:
        """Some lines on stderr, each cut to a width that a screen can take, unless they are ``wide``."""
        if self._column and not self._plain:
            self._write("\n")
        found = harmless(text).rstrip("\n").split("\n")
        for line in found[:lines]:
            cut = line if wide or len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 3] + "..."
            self._err.write(f"{prefix}{cut}\n")
        if len(found) > lines:
            self._err.write(f"{prefix}... {len(found) - lines} more lines\n")
        self._err.flush()


def make_screen(as_json: bool) -> Screen:
    """The screen for stdout and stderr of this process."""
    return JsonScreen() if as_json else TextScreen(sys.stdout, sys.stderr)
