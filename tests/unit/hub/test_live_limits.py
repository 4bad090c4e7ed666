"""What one client may, and how messages are framed: no loop, no sockets."""

import struct

import pytest

from core.hub.errors import HubError
from core.hub.live.endings import CLOSE_CODES, MESSAGES, reason
from core.hub.live.handshake import check_origin
from core.hub.live.limits import Bucket, Seats
from core.hub.live.outgoing import frame

HERE = ["chat.example.com:8700"]


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    bucket = Bucket(10, 3, 100.0)
    assert [bucket.take(100.0) for _ in range(5)] == [True, True, True, False, False]
    assert not bucket.take(100.0625)
    assert bucket.take(100.125)
    assert not bucket.take(100.125)
    assert [bucket.take(500.0) for _ in range(4)] == [True, True, True, False]


def test_a_user_has_so_many_seats_and_another_has_their_own() -> None:
    seats = Seats(2)
    first, _ = seats.take("alice"), seats.take("alice")
    with pytest.raises(HubError) as error:
        seats.take("alice")
    assert (error.value.status, error.value.code) == (429, "too_many_connections")
    seats.take("bob")
    first()
    first()  # harmless, and counts once
    seats.take("alice")
    with pytest.raises(HubError):
        seats.take("alice")


@pytest.mark.parametrize(
    ("origins", "hosts", "allowed"),
    [
        ([], HERE, ()),  # no browser
        (["http://chat.example.com:8700"], HERE, ()),
        (["HTTP://Chat.Example.COM:8700"], HERE, ()),
        (["https://chat.example.com"], ["chat.example.com"], ()),  # a proxy ends TLS before us
        (["https://chat.example.com"], ["chat.example.com:443"], ()),
        (["http://[::1]:8700"], ["[::1]:8700"], ()),
        (["https://elsewhere.net"], HERE, ("https://elsewhere.net",)),
    ],
)
def test_pages_of_this_host_and_of_the_list_may_connect(
    origins: list[str], hosts: list[str], allowed: tuple[str, ...]
) -> None:
    check_origin(origins, hosts, allowed.__contains__)


@pytest.mark.parametrize(
    ("origins", "hosts"),
    [
        (["https://evil.net"], HERE),
        (["null"], HERE),
        ([""], HERE),
        (["http://chat.example.com"], HERE),  # another port is another origin
        (["http://chat.example.com.evil.net:8700"], HERE),
        (["http://chat.example.com:8700@evil.net"], HERE),
        (["http://evil.net/chat.example.com:8700"], HERE),
        (["http://chat.example.com:8700/"], HERE),
        (["http://chat.example.com:99999"], HERE),
        (["file://"], HERE),
        (["http://elsewhere.net"], HERE),  # the list has its https
        (["http://chat.example.com:8700", "https://evil.net"], HERE),
        (["http://chat.example.com:8700"], []),
        (["http://chat.example.com:8700"], [*HERE, "evil.net"]),
        (["http://a"], ["b@a"]),
    ],
)
def test_any_other_page_may_not(origins: list[str], hosts: list[str]) -> None:
    with pytest.raises(HubError) as error:
        check_origin(origins, hosts, ("https://elsewhere.net",).__contains__)
    assert (error.value.status, error.value.code) == (403, "origin_refused")


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_a_frame_says_its_size_in_the_shortest_way(size: int) -> None:
    data = frame(b"x" * size)
    assert data[0] == 0x81
    if size < 126:
        head, said = 2, data[1]
    elif size < 65_536:
        assert data[1] == 126
        head, said = 4, struct.unpack("!H", data[2:4])[0]
    else:
        assert data[1] == 127
        head, said = 10, struct.unpack("!Q", data[2:10])[0]
    assert said == size == len(data) - head


def test_a_close_says_why_and_the_last_ids_as_far_as_they_fit() -> None:
    assert reason("slow", {}) == b"slow"
    assert reason("slow", {"s": 12}) == b"slow last=12"
    assert reason("stopping", {"a": 1, "b": 22}) == b"stopping a=1 b=22"
    assert len(reason("stopping", {f"{'s' * 60}{n}": 10**12 for n in range(9)})) <= 123


def test_every_end_has_its_words_and_every_close_its_code() -> None:
    assert CLOSE_CODES.keys() <= MESSAGES.keys()
    assert all(code in (1001, 1008, 1011, 1013) or 4000 <= code < 5000 for code in CLOSE_CODES.values())
