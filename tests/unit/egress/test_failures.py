"""What a server says of its failure becomes one bounded, visible line without our secrets."""

from datetime import UTC, datetime

import pytest

from core.egress.failures import error_detail, parse_retry_after, status_error
from core.egress.secret import STRUCK, Secret, StreamStriker, Striker

NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEY = "sk-canary-0123456789abcdefghij"
STRIKER = Striker([Secret(KEY)])


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (301, "upstream"),
        (400, "upstream"),
        (401, "upstream_auth"),
        (403, "upstream_auth"),
        (404, "upstream"),
        (408, "upstream_timeout"),
        (429, "upstream_rate_limit"),
        (500, "upstream"),
        (504, "upstream_timeout"),
        (204, "upstream"),
    ],
)
def test_a_status_has_a_code_and_names_the_provider(status: int, code: str) -> None:
    failure = status_error("acme", status, None, "because", NOW).failure
    assert failure.code == code
    assert failure.message.startswith("acme ")
    assert str(status) in failure.message
    assert failure.message.endswith("because")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7),
        (" 7 ", 7),
        ("999999999999999999999", 3_600),
        ("Tue, 01 Jan 2030 00:01:00 GMT", 60),
        ("Tue, 01 Jan 2030 09:00:00 GMT", 3_600),
        ("Mon, 31 Dec 2029 00:00:00 GMT", 0),
        ("soon", None),
        ("-5", None),
        ("٧", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_capped(value: str | None, seconds: int | None) -> None:
    assert parse_retry_after(value, NOW) == seconds
    assert status_error("acme", 429, value, "", NOW).failure.retry_after_s == seconds


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"error": {"message": "no such model", "type": "x"}}', "no such model"),
        (b'{"error": "quota"}', "quota"),
        (b'{"message": "m"}', "m"),
        (b'{"detail": "d"}', "d"),
        (b'{"detail": [{"loc": 1}]}', ""),
        (b'{"error": {"error": {"error": {"error": "deep"}}}}', ""),
        (b"plain words", "plain words"),
        (b"<html><body>proxy</body></html>", ""),
        (b"", ""),
        (b"\x00\x1b[31mred\r\nline\xe2\x80\xaeturn", "[31mred line turn"),
        (b"[" * 8_000, "[" * 300 + "..."),
    ],
)
def test_the_sentence_is_found_cut_and_made_visible(body: bytes, detail: str) -> None:
    assert error_detail(body, STRIKER) == detail


@pytest.mark.parametrize(
    "body",
    [
        f'{{"error": {{"message": "Incorrect API key: {KEY}."}}}}',
        f"Bearer {KEY}",
        f"key {KEY.upper()}",
        f"{' ' * 8_000}{KEY}",
        f"{' ' * (8_192 - 12)}{KEY}",  # cut in the middle of the key
        f"İ{KEY}",  # a letter that lower() makes two
        f"masked {KEY[:14]}****",
    ],
)
def test_no_stretch_of_a_key_comes_back(body: str) -> None:
    detail = error_detail(body.encode(), STRIKER)
    low = detail.lower()
    assert not any(KEY[at : at + 8] in low for at in range(len(KEY) - 7))
    assert STRUCK in detail


def test_a_text_without_a_key_is_left_as_it_is() -> None:
    assert STRIKER.clean("nothing to see") == "nothing to see"
    assert Striker([]).clean(KEY) == KEY


@pytest.mark.parametrize("size", [1, 2, 3, 7, 29, 30, 31, 1_000])
def test_a_key_in_a_streamed_text_is_struck_wherever_the_pieces_part(size: int) -> None:
    text = f"sk- it is {KEY}, I said {KEY}{KEY} and sk-canary-0123 too, sk"
    stream = StreamStriker(STRIKER)
    out = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert out + stream.finish() == text.replace(KEY, STRUCK)


def test_text_that_cannot_be_a_key_is_not_held_back() -> None:
    stream = StreamStriker(STRIKER)
    assert stream.feed("hello ") == "hello "
    assert stream.feed("as") == "a"
    assert stream.feed("k ") == "sk "


def test_short_keys_are_not_looked_for_in_answers() -> None:
    assert StreamStriker(Striker([Secret("ollama")])).feed("I am ollama") == "I am ollama"


def test_a_secret_shows_nothing() -> None:
    assert KEY not in f"{Secret(KEY)!r} {Secret(KEY)}"
    with pytest.raises(TypeError):
        __import__("pickle").dumps(Secret(KEY))
