"""Counting what a client sends on a WebSocket."""

import random
import struct

from core.hub.live.frames import Frames, Gauge, Gauged
from core.hub.live.limits import Bucket


def frame(size: int, masked: bool = True) -> bytes:
    mask = 0x80 if masked else 0
    if size < 126:
        head = struct.pack("!BB", 0, mask | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", 0, mask | 126, size)
    else:
        head = struct.pack("!BBQ", 0, mask | 127, size)
    return head + bytes(4 if masked else 0) + bytes(size)


def test_each_frame_is_found_however_its_bytes_come() -> None:
    sizes = [0, 125, 126, 65_535, 65_536, 0, 1, 70_000, 0]
    stream = b"".join(frame(size, masked=number % 3 != 0) for number, size in enumerate(sizes))
    chance = random.Random(7)
    for longest in (1, 3, 20, 1_000, len(stream)):
        frames, found, at = Frames(), list[int](), 0
        while at < len(stream):
            step = chance.randint(1, longest) if longest < len(stream) else longest
            found += frames.sizes(stream[at : at + step])
            at += step
        assert found == sizes


class Parser:
    def __init__(self) -> None:
        self.got = b""
        self.ended = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.got += data
        return False, b""

    def feed_eof(self) -> None:
        self.ended = True


class Case:
    def __init__(self, frames: float = 10, pace: float = 1_000_000) -> None:
        self.now_s = 0.0
        self.floods = 0
        self.waits: list[float] = []
        self.parser = Parser()
        gauge = Gauge(
            Bucket(1, frames, 0), Bucket(pace, pace, 0), lambda: self.now_s, self.flooded, self.waits.append
        )
        self.reader = Gauged(self.parser, gauge)

    def flooded(self) -> None:
        self.floods += 1


def test_a_flood_of_small_frames_never_reaches_the_parser_and_nothing_does_after_it() -> None:
    case = Case()
    few, flood = frame(0) * 10, frame(0) * 40_000
    assert case.reader.feed_data(few) == (False, b"")
    case.reader.feed_data(flood)
    case.now_s = 1_000.0
    case.reader.feed_data(few)
    assert (case.parser.got, case.floods) == (few, 2)
    case.reader.feed_eof()
    assert case.parser.ended


def test_small_frames_at_a_bearable_rate_and_any_number_of_large_ones_pass() -> None:
    case = Case()
    for second in range(100):
        case.now_s = float(second)
        case.reader.feed_data(frame(10))
    case.reader.feed_data(frame(1_024) * 500)
    assert (case.floods, case.waits) == (0, [])


def test_bytes_faster_than_their_pace_are_taken_and_then_waited_for() -> None:
    case = Case(pace=1_000_000)
    large = frame(1_500_000)
    case.reader.feed_data(large)
    (wait_s,) = case.waits
    assert 0.5 <= wait_s < 0.51
    case.now_s = 100.0
    case.reader.feed_data(frame(900_000))
    assert len(case.waits) == 1
    assert case.parser.got.startswith(large)
