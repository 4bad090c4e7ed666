"""How the people of a load test behave, as Locust's users.

Imported in the generator's process alone: Locust patches the sockets of whoever imports it.
"""

import random
from collections.abc import Iterator
from functools import partial

import gevent
from locust import User, task

from core.capacity.client import take_turn
from core.capacity.pace import Pace
from scripts.load.plan import Group
from scripts.load.record import Recorder

_QUESTION = "What do you make of this? " * 8
_LONG = "Everything I ever wrote. " * 4_000
_MEAN_TURNS = 4
_ABUSE_AT_ONCE = 8
_MAX_WAIT_S = 120.0


def make_kind(
    group: Group, port: int, tokens: Iterator[tuple[int, str]], record: Recorder, seed: int
) -> type[User]:
    """A class of Locust's users for a group.

    Args:
        port: the server's.
        tokens: a number and a token for each person.
    """

    def on_start(self: "_Person") -> None:
        self.number, self.token = next(tokens)
        self.rng = random.Random(seed + self.number)
        self.habit, self.port, self.record = group, port, record

    return type(group.kind, (_KINDS[group.kind],), {"fixed_count": group.count, "on_start": on_start})


class _Person(User):
    """A person with a token. Errors are kept, and what a server asks to wait is waited."""

    abstract = True
    number: int
    token: str
    rng: random.Random
    habit: Group
    port: int
    record: Recorder

    def say(self, text: str = _QUESTION, judged: bool = True, leave_after_s: float | None = None) -> None:
        """Take a turn."""
        seen = partial(self.record.tokens, f"{self.habit.kind}/{self.number}") if judged else None
        turn = take_turn(self.port, self.habit.kind, text, self.token, seen, leave_after_s)
        self.record.turn(turn, judged)
        if turn.error:
            gevent.sleep(min(max(1.0, turn.retry_after_s), _MAX_WAIT_S))

    def think(self) -> None:
        """Wait as long as people do between two turns."""
        median = self.habit.think_s
        gevent.sleep(min(median * self.rng.lognormvariate(0, self.habit.spread), 20 * median))


class _Visitor(_Person):
    """Comes at random, talks for some turns, goes; the visits of many are a Poisson process."""

    abstract = True

    @task
    def visit(self) -> None:
        gevent.sleep(self.rng.expovariate(1 / self.habit.away_s))
        while True:
            self.say()
            if self.rng.random() < 1 / _MEAN_TURNS:
                return
            self.think()


class _Streamer(_Person):
    """One long answer after another."""

    abstract = True

    @task
    def listen(self) -> None:
        self.say()


class _Rusher(_Person):
    """Asks at once, then a few times more."""

    abstract = True

    @task
    def rush(self) -> None:
        self.say()
        self.think()


class _ToolUser(_Rusher):
    """The model decides that tools are used; who asks behaves like anybody."""

    abstract = True


class _Churner(_Person):
    """Thinks about as long as an idle jail lasts."""

    abstract = True

    @task
    def come_back(self) -> None:
        self.say()
        gevent.sleep(self.habit.think_s * self.rng.uniform(0.5, 2.0))


class _Abuser(_Person):
    """More turns at once than are allowed, huge requests, floods, and leaving in their midst.

    What comes of it is counted and not judged: being refused is what should happen.
    """

    abstract = True

    @task
    def abuse(self) -> None:
        acts = [
            gevent.spawn(self.say, _LONG if number % 2 else _QUESTION, False, leave_after_s=1.0)
            for number in range(_ABUSE_AT_ONCE)
        ]
        gevent.joinall(acts, raise_error=True)


def make_watcher(count: int, pace: Pace, model_port: int, record: Recorder) -> type[User]:
    """Streams straight from the model server at the same pace: the floor of every delay."""

    class Watcher(User):
        fixed_count = count

        @task
        def listen(self) -> None:
            take_turn(model_port, pace.model, _QUESTION, seen=record.floor)

    return Watcher


_KINDS: dict[str, type[_Person]] = {
    "visitor": _Visitor,
    "streamer": _Streamer,
    "rusher": _Rusher,
    "tool_user": _ToolUser,
    "abuser": _Abuser,
    "churner": _Churner,
}
