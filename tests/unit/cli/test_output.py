import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.cli.output import harmless, print_json, print_table

ATTACKS = [
    "\x1b[2J",
    "\x1b]0;title\x07",
    "\x1b]52;c;ZXZpbA==\x1b\\",
    "\x9b31m",
    "a\rb",
    "back\b\b\b\bgone",
    "\x7f",
    "\u202eabc",
    "\u2066x",
    "\x00",
]


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_speaks_to_a_terminal_becomes_visible(attack: str) -> None:
    shown = harmless(attack)
    assert len(shown) == len(attack)
    assert not any(unicodedata.category(c) in {"Cc", "Cf"} for c in shown)


@given(st.text(), st.integers(0, 40))
def test_a_text_cut_in_two_is_as_harmless_as_a_whole_one(text: str, at: int) -> None:
    whole = harmless(text.replace("\r", ""))
    cut = text.replace("\r", "")
    assert whole == harmless(cut[:at]) + harmless(cut[at:])


@given(st.text(st.characters(codec="utf-8")))
def test_no_control_character_but_newline_and_tab_is_left(text: str) -> None:
    left = {c for c in harmless(text) if unicodedata.category(c) == "Cc"}
    assert left <= {"\n", "\t"}


@pytest.mark.parametrize("text", ["Zoë, 日本語, 👍🏽", "a\tb\nc", "x\u200dy"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert text == harmless(text)


def test_lines_of_another_system_lose_their_carriage_return_alone() -> None:
    assert harmless("a\r\nb") == "a\nb"


def test_json_is_one_line_that_any_terminal_may_show(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x1b[2J\u202e\n\x9b"}
    print_json(value)
    line = capsys.readouterr().out
    assert value == json.loads(line)
    assert line.removesuffix("\n").isprintable()
    assert line.isascii()


def test_a_cell_cannot_break_out_of_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "B"), [("x\n\x1b[1m", "y")])
    assert capsys.readouterr().out == "A       B\nx \u241b[1m  y\n"
