"""Cutting text, keeping results, capturing output."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from jail.peer.results import shorten
from jail.peer.texts import clean, cut_middle, size
from jail.peer.tools.capture import Capture


@settings(deadline=None)
@given(st.text(max_size=3_000), st.integers(100, 2_000))
def test_a_cut_text_keeps_head_and_tail_within_its_limit(text: str, limit: int) -> None:
    cut = cut_middle(text, limit)

    assert size(cut) <= limit
    if size(text) <= limit:
        assert cut == text
    else:
        head, tail = cut.split("\n[... ", 1)[0], cut.rsplit(" bytes left out ...]\n", 1)[1]
        assert text.startswith(head)
        assert text.endswith(tail)


def test_odd_file_names_become_text_that_can_be_sent() -> None:
    assert clean("a\udcff") == "a?"
    assert clean("ü") == "ü"


@settings(deadline=None)
@given(st.text(min_size=1, max_size=50), st.integers(1, 400))
def test_a_shortened_result_is_within_its_limit(text: str, times: int) -> None:
    result = text * times

    short = shorten(result, 1_024, "/nonexistent/home", "x")

    assert size(short) <= 1_024
    assert (short == result) == (size(result) <= 1_024)


def test_a_long_result_is_stored_once_and_cited(tmp_path: Path) -> None:
    short = shorten("a" * 5_000, 1_024, str(tmp_path), "turn-1")

    assert ".certosa/results/turn-1.txt" in short
    assert (tmp_path / ".certosa/results/turn-1.txt").read_text() == "a" * 5_000


def test_old_stored_results_go(tmp_path: Path) -> None:
    for n in range(205):
        shorten("a" * 5_000, 1_024, str(tmp_path), f"turn-{n}")

    assert len(list((tmp_path / ".certosa/results").iterdir())) == 200


def test_a_link_where_a_result_goes_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("old")
    folder = tmp_path / ".certosa/results"
    folder.mkdir(parents=True)
    (folder / "x.txt").symlink_to(target)

    short = shorten("a" * 5_000, 1_024, str(tmp_path), "x")

    assert "could not be stored" in short
    assert target.read_text() == "old"


class Watched:
    """A capture, its clock, and what was told."""

    def __init__(self) -> None:
        self.time = 0.0
        self.told: list[str] = []
        self.capture = Capture(self.told.append, lambda: self.time)


def test_output_is_told_at_a_bounded_rate_and_kept_whole() -> None:
    watched = Watched()
    for _ in range(100):
        assert watched.capture.take(b"x")
    assert watched.told == ["x"]

    watched.time = 1.0
    watched.capture.take(b"y")

    assert watched.told == ["x", "x" * 99 + "y"]
    assert watched.capture.text() == "x" * 100 + "y"


def test_a_letter_cut_between_two_pieces_is_told_whole() -> None:
    watched = Watched()
    for piece in (b"\xc3", b"\xbc"):
        watched.capture.take(piece)
        watched.time += 1

    assert "".join(watched.told) == "ü"


def test_a_flood_is_kept_in_part_and_stopped() -> None:
    watched = Watched()
    taken = 0
    while watched.capture.take(b"%08d" % taken + b"x" * 65_528):
        taken += 1
        watched.time += 1

    text = watched.capture.text()
    assert taken == 1_024
    assert text.startswith("00000000xxx")
    assert "bytes left out" in text
    assert len(text) < 1_100_000
    assert sum(map(len, watched.told)) <= 300_000
