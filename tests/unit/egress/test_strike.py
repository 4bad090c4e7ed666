"""A value is struck out of an answer in every form that it is looked for in, wherever the pieces part."""

import base64
import html
import json
import random
import urllib.parse

import pytest

from core.egress.strike import STRUCK, Strike, StrikeError

VALUE = 'c4nary+5f/0e=1d"2c<3b&4a'


def _forms() -> dict[str, bytes]:
    raw = VALUE.encode()
    forms = {
        "raw": raw,
        "percent": urllib.parse.quote(VALUE, safe="").encode(),
        "percent, lower": urllib.parse.quote(VALUE, safe="").lower().encode(),
        "percent, all": b"".join(b"%%%02x" % byte for byte in raw),
        "percent twice": urllib.parse.quote(urllib.parse.quote(VALUE, safe="")).encode(),
        "json": json.dumps(VALUE)[1:-1].encode(),
        "json, all": b"".join(b"\\u%04x" % byte for byte in raw),
        "html": html.escape(VALUE).encode(),
        "html, numbers": b"".join(b"&#%d;" % byte for byte in raw),
        "hex": raw.hex().encode(),
        "HEX": raw.hex().upper().encode(),
        "utf-16": VALUE.encode("utf-16-be"),
    }
    for before in range(3):
        for after in range(3):
            text = b"x" * before + raw + b"y" * after
            forms[f"base64 {before} {after}"] = base64.b64encode(text)
            forms[f"base64, url {before} {after}"] = base64.urlsafe_b64encode(text)
            encoded = base64.b64encode(text)
            forms[f"base64, folded {before} {after}"] = encoded[:10] + b"\r\n" + encoded[10:]
            forms[f"base64, percent {before} {after}"] = urllib.parse.quote(encoded, safe="").encode()
    return forms


def _secret_part(name: str, form: bytes) -> bytes:
    """What of a form gives the value away: of Base64 the characters in the middle."""
    return form[4:-6] if name.startswith("base64") else form


@pytest.mark.parametrize("name", _forms())
def test_every_form_is_struck_out_whole_and_in_pieces(name: str) -> None:
    form = _forms()[name]
    strike = Strike([VALUE])
    data = b'{"you sent": "' + form + b'", "and": "more"}'
    assert _secret_part(name, form) in data
    expected = strike.whole(data)
    assert STRUCK in expected
    assert _secret_part(name, form) not in expected
    assert expected.startswith(b'{"you sent": "')
    assert expected.endswith(b'"and": "more"}')
    draw = random.Random(name)
    for size in (1, 2, 3, 7, len(data)):
        stream, out, at = strike.stream(), b"", 0
        while at < len(data):
            step = draw.randint(1, size)
            out += stream.feed(data[at : at + step])
            at += step
        out += stream.finish()
        assert _secret_part(name, form) not in out
        assert out.replace(STRUCK, b"").startswith(b'{"you sent": "')
        assert out.endswith(b'"and": "more"}')


def test_what_is_no_value_comes_through_unchanged() -> None:
    strike = Strike([VALUE])
    data = bytes(range(256)) * 40 + VALUE.encode()[:-1] + b" and " + VALUE.encode()[1:] + b" c4 "
    assert strike.whole(data) == data
    stream = strike.stream()
    assert b"".join(stream.feed(data[i : i + 11]) for i in range(0, len(data), 11)) + stream.finish() == data


def test_what_cannot_have_begun_is_not_held_back() -> None:
    stream = Strike([VALUE]).stream()
    assert stream.feed(b"data: 42\n\n") == b"data: 42\n\n"
    assert stream.feed(b"data: c4n") == b"data: "
    assert stream.feed(b"!") == b"c4n!"


def test_a_value_cut_off_at_the_end_is_struck_out_unless_it_hardly_began() -> None:
    for length, left in ((len(VALUE) - 1, STRUCK), (8, STRUCK), (4, VALUE[:4].encode())):
        stream = Strike([VALUE]).stream()
        out = stream.feed(b"it is " + VALUE[:length].encode()) + stream.finish()
        assert out == b"it is " + left


def test_several_values_are_struck_out_one_being_a_part_of_another_too() -> None:
    strike = Strike(["first-secret", "first-secret-and-more", "second-one"])
    assert strike.whole(b"first-secret-and-more first-secret! second-one") == b" ".join(
        (STRUCK, STRUCK + b"!", STRUCK)
    )
    assert strike.finds("a%66irst-secret".replace("%66", "f"))
    assert not strike.finds("first-secre")


def test_the_longest_value_is_ready_soon_and_found() -> None:
    value = random.Random(1).randbytes(2_048).hex()
    strike = Strike([value])
    stream = strike.stream()
    data = b"x" * 5_000 + base64.b64encode(b"ab" + value.encode()) + b"y" * 5_000
    out = b"".join(stream.feed(data[i : i + 1_000]) for i in range(0, len(data), 1_000)) + stream.finish()
    assert len(out) < 10_100


def test_nothing_to_look_for_changes_nothing() -> None:
    stream = Strike([]).stream()
    assert stream.feed(b"anything") + stream.finish() == b"anything"


def test_a_value_made_to_look_begun_everywhere_is_not_worked_on_forever() -> None:
    stream = Strike(["a" * 4_000 + "b"]).stream()
    assert stream.feed(b"a" * 4_000 + b"b") == STRUCK
    with pytest.raises(StrikeError):
        stream.feed(b"a" * 65_536)
