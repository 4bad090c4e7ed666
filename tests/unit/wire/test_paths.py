"""Names on the wire: every name comes back as it was, and each has one spelling."""

import random

import pytest

from jail.wire.paths import to_bytes, to_text


def test_a_name_that_is_utf8_travels_as_it_is() -> None:
    assert to_text("café\n.txt".encode()) == "café\n.txt"


def test_a_byte_that_is_no_utf8_travels_as_nul_and_two_digits() -> None:
    assert to_text(b"caf\xe9") == "caf\0e9"
    assert to_bytes("caf\0e9") == b"caf\xe9"


def test_any_bytes_come_back() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        name = bytes(chance.choice(b"a\xc3\xa9\xff\xed\xa0\x80/\n") for _ in range(chance.randrange(12)))
        assert to_bytes(to_text(name)) == name


@pytest.mark.parametrize("text", ["a\0", "a\0zz", "a\0\0", "\0" + "41", "\0c3\0a9", "\0E9"])
def test_text_that_no_name_becomes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NUL|written"):
        to_bytes(text)


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        to_bytes("\ud800")
