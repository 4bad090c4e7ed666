import io
import json

import pytest

from core.cli.api import Piece
from core.cli.screen import JsonScreen, TextScreen


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(out: io.StringIO, *pieces: Piece) -> tuple[str, str]:
    err = Terminal()
    screen = TextScreen(out, err)
    for piece in pieces:
        screen.show(piece)
    screen.end()
    return out.getvalue(), err.getvalue()


def test_the_answer_flows_and_ends_with_a_line() -> None:
    pieces = [Piece("text", "Hel"), Piece("text", "lo"), Piece("finish", "stop")]
    assert shown(Terminal(), *pieces) == ("Hello\n", "")


def test_a_tool_call_stands_on_a_line_of_its_own_beside_the_answer() -> None:
    out, err = shown(
        Terminal(),
        Piece("text", "Look:"),
        Piece("tool_call", '{"command": "ls"}', "run_command", 1),
        Piece("tool_result", "a\nb", step=1),
        Piece("text", "Two."),
    )
    assert out == "Look:\nTwo.\n"
    assert err == '> run_command {"command": "ls"}\n  | a\n  | b\n'


def test_output_that_was_streamed_is_not_shown_twice() -> None:
    _, err = shown(
        Terminal(),
        Piece("tool_call", "{}", "run_command", 1),
        Piece("tool_progress", "line\n", step=1),
        Piece("tool_result", "line\n", step=1),
    )
    assert err.count("line") == 1


def test_a_failed_tool_says_so() -> None:
    _, err = shown(Terminal(), Piece("tool_result", "no such file", step=1, ok=False))
    assert err == "  | no such file\n  = failed\n"


def test_a_picture_is_a_line_with_the_whole_of_its_path() -> None:
    path = "plots/" + "x" * 300 + ".png"
    _, err = shown(Terminal(), Piece("picture", path, step=1, caption="a plot"), Piece("picture", "a.gif"))
    assert err == f"# {path}  a plot\n# a.gif\n"


def test_an_endless_result_is_cut_in_length_and_width() -> None:
    _, err = shown(Terminal(), Piece("tool_result", "\n".join(["x" * 5_000] * 500), step=1))
    lines = err.splitlines()
    assert lines[-1] == "  | ... 488 more lines"
    assert max(map(len, lines)) <= 204


def test_escape_sequences_reach_no_terminal() -> None:
    out, err = shown(
        Terminal(),
        Piece("text", "\x1b"),
        Piece("text", "]0;owned\x07"),
        Piece("tool_call", "\x1b[2J", "\x9bx", 1),
        Piece("tool_progress", "\x1b[31m", step=1),
        Piece("picture", "\x1b]0;a\x07", step=1, caption="\x9b\x1b"),
        Piece("notice", "\x1bc"),
    )
    assert not {"\x1b", "\x07", "\x9b"} & set(out + err)


def test_a_file_gets_the_answer_byte_for_byte() -> None:
    out, _ = shown(io.StringIO(), Piece("text", "a\x1b[1m\r\n"))
    assert out == "a\x1b[1m\r\n"


def test_a_program_gets_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen = JsonScreen()
    screen.show(Piece("text", "a\nb"))
    screen.show(Piece("tool_result", "r", "", 2, ok=False))
    screen.show(Piece("picture", "a.png", step=2, caption="c"))
    screen.show(Piece("approval_wanted", "{}", "run", 3, approval="approval_1", expires_s=9))
    screen.end()
    first, second, third, fourth = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {"kind": "text", "text": "a\nb"}
    assert second == {"kind": "tool_result", "text": "r", "name": "", "step": 2, "ok": False}
    assert third == {"kind": "picture", "text": "a.png", "step": 2, "caption": "c"}
    assert fourth == {
        "kind": "approval_wanted", "text": "{}", "name": "run", "step": 3,
        "approval": "approval_1", "expires_s": 9, "cut": False,
    }  # fmt: skip
