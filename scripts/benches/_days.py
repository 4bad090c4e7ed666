"""Days of use, made up: who says something when, how long the turn runs, what the jail then holds."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

DAY_S = 86_400.0
_KINDS = ((0.1, 6.0), (0.3, 2.0), (0.6, 0.3))  # share of the users, and visits a day
_TURNS = 8.0  # of a visit, in the mean
_THINK = (40.0, 1.2)  # median in seconds, and sigma of its logarithm
_RUN = (6.0, 0.9)
_MEMORY = (6.0 * 2**20, 0.5)  # of a jail after its turn; some hold ten times that
_LARGE = 0.05


@dataclass(frozen=True, slots=True)
class Said:
    """A turn: a user says something at a time."""

    at_s: float
    user: str
    runs_s: float
    memory_bytes: int


def days(users: int, count: int, seed: int) -> list[Said]:
    """``count`` days of ``users`` users, in order of time; the same for the same seed."""
    rng = random.Random(seed)
    said: list[Said] = []
    for number in range(users):
        (visits,) = rng.choices([visits for _, visits in _KINDS], [share for share, _ in _KINDS])
        said += _user(rng, f"user{number}", visits, count)
    return sorted(said, key=lambda each: each.at_s)


def _user(rng: random.Random, name: str, visits_a_day: float, count: int) -> Iterator[Said]:
    large = rng.random() < _LARGE
    for day in range(count):
        for _ in range(_poisson(rng, visits_a_day)):
            at_s = DAY_S * (day + _hour(rng) / 24)
            while True:
                runs_s = _lognormal(rng, *_RUN)
                yield Said(at_s, name, runs_s, round(_lognormal(rng, *_MEMORY) * (10 if large else 1)))
                if rng.random() < 1 / _TURNS:
                    break
                at_s += runs_s + _lognormal(rng, *_THINK)


def _hour(rng: random.Random) -> float:
    """An hour of the day; four of five visits are by daylight."""
    return rng.gauss(14.0, 3.0) % 24 if rng.random() < 0.8 else rng.uniform(0, 24)


def _lognormal(rng: random.Random, median: float, sigma: float) -> float:
    return median * math.exp(rng.gauss(0.0, sigma))


def _poisson(rng: random.Random, mean: float) -> int:
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count
