"""Which part of a file is sent, by what the header says."""

import pytest

from core.hub.ranges import Part, Unsatisfiable, last_modified, wanted_part

_TAG, _TIME = '"1-2"', "Thu, 01 Jan 1970 00:00:00 GMT"


def part(header: str | None, if_range: str | None = None, size: int = 100) -> Part | None:
    return wanted_part(header, if_range, size, _TAG, _TIME)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0", Part(0, 1)),
        ("bytes=10-19", Part(10, 10)),
        ("bytes=90-", Part(90, 10)),
        ("bytes=90-4000", Part(90, 10)),
        ("bytes=-7", Part(93, 7)),
        ("bytes=-4000", Part(0, 100)),
        ("Bytes= 5-6 ", Part(5, 2)),
    ],
)
def test_one_range_is_served(header: str, expected: Part) -> None:
    assert part(header) == expected


@pytest.mark.parametrize(
    "header",
    [
        None, "", "bytes", "bytes=", "bytes=-", "bytes=9-5", "bytes=a-b", "bytes=0-1,5-6", "items=0-1",
        "bytes=--1", "bytes=1-2-3", "bytes=0x1-2", "bytes=1e3-", "bytes=-1-2", "bytes=\u0661-\u0662",
        "bytes=" + ",".join(["0-"] * 2_000), "bytes=" + "9" * 5_000 + "-",
    ],
)  # fmt: skip
def test_what_cannot_be_served_as_one_part_is_ignored(header: str | None) -> None:
    assert part(header) is None


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=100-200", "bytes=-0", f"bytes={10**17}-"])
def test_a_range_past_the_end_cannot_be_satisfied(header: str) -> None:
    with pytest.raises(Unsatisfiable):
        part(header)


def test_nothing_of_an_empty_file_can_be_asked_for() -> None:
    with pytest.raises(Unsatisfiable):
        part("bytes=-5", size=0)


def test_a_range_holds_only_for_the_file_it_was_asked_of() -> None:
    assert part("bytes=1-2", _TAG) == Part(1, 2)
    assert part("bytes=1-2", _TIME) == Part(1, 2)
    assert part("bytes=1-2", '"other"') is None
    assert part("bytes=1-2", f"W/{_TAG}") is None
    assert part("bytes=100-", '"other"') is None


def test_a_time_that_http_cannot_write_does_no_harm() -> None:
    assert last_modified(2**53).endswith("9999 23:59:59 GMT")
