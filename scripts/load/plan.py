"""What a load test does: groups of people, for how long, and what has to hold.

Pure data: the generator acts on it (:mod:`scripts.load.generator`), the report judges by it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from core.capacity.pace import Pace

Kind = Literal["visitor", "streamer", "rusher", "tool_user", "abuser", "churner"]


@dataclass(frozen=True, slots=True)
class Group:
    """People who behave alike.

    Args:
        kind: how they behave; see :mod:`scripts.load.people`.
        count: how many.
        pace: what the model says in a turn of theirs.
        think_s: between two turns of a visit, the median of a log-normal, whose tail is long
            (``spread`` its sigma); a churner's is even between 0.5 and 2 times that.
        away_s: the mean time between two visits, exponential: many people's visits are then a
            Poisson process.
    """

    kind: Kind
    count: int
    pace: Pace
    think_s: float = 5.0
    spread: float = 1.0
    away_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Objective:
    """A figure of the results that has to stay at or below a limit (at or above with ``least``)."""

    figure: str
    limit: float
    unit: str
    least: bool = False

    def met(self, value: float | None) -> bool:
        """A figure that could not be taken is not met."""
        return value is not None and (value >= self.limit if self.least else value <= self.limit)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load test.

    Args:
        name: as the command has it.
        about: one sentence.
        groups: who takes part.
        objectives: what has to hold.
        arrive_s: everybody comes within so long, evenly.
        settle_s: what happens until then is reported, and not judged.
        config: further sections of the server's configuration, in TOML.
    """

    name: str
    about: str
    groups: tuple[Group, ...]
    objectives: tuple[Objective, ...]
    arrive_s: float = 10.0
    settle_s: float = 20.0
    config: str = ""

    @property
    def people(self) -> int:
        """How many take part."""
        return sum(group.count for group in self.groups)

    def of(self, kind: Kind) -> int:
        """How many of a kind."""
        return sum(group.count for group in self.groups if group.kind == kind)


_NO_ERRORS = Objective("errors", 0, "requests")
_DELTA_P50 = Objective("delta_added_p50_ms", 5, "ms")
_DELTA_P99 = Objective("delta_added_p99_ms", 50, "ms")
_FAIR = Objective("least_served", 0.5, "of the median", least=True)
_STREAM = Pace(20, 600)
_TALK = Pace(20, 60)
_SHORT = Pace(200, 20)
_IDLE_S = 6.0
TRUSTED = ("spawner", "core", "egress")


def _mixed(users: int, streams: int) -> tuple[Group, ...]:
    visitors = (Group("visitor", users - streams, _TALK, think_s=30, away_s=60),) if users > streams else ()
    return (Group("streamer", streams, _STREAM), *visitors)


def _everything(users: int, streams: int) -> tuple[Group, ...]:
    talking = (users - streams) // 3
    return (
        Group("streamer", streams, _STREAM),
        Group("tool_user", talking, Pace(200, 20, 3), think_s=20),
        Group("churner", talking, _SHORT, think_s=_IDLE_S),
        Group("visitor", users - streams - 2 * talking, _TALK, think_s=8, away_s=30),
    )


@dataclass(frozen=True, slots=True)
class _Template:
    """A scenario before it is known for how many."""

    scenario: Scenario
    users: int
    streams: int
    groups: Callable[[int, int], tuple[Group, ...]] = field(repr=False)


_TEMPLATES = {
    template.scenario.name: template
    for template in (
        _Template(
            Scenario(
                "morning-rush", "Everybody comes within a second, and nobody's jail is warm.", (),
                (_NO_ERRORS, Objective("first_token_p99_ms", 10_000, "ms")), arrive_s=1, settle_s=0,
            ),
            50, 0, lambda users, _: (Group("rusher", users, _SHORT, think_s=2, spread=0.5),),
        ),
        _Template(
            Scenario(
                "steady", "People come, talk for some turns, think, and go.", (),
                (_NO_ERRORS, Objective("first_token_p99_ms", 500, "ms")),
            ),
            100, 0, lambda users, _: (Group("visitor", users, _TALK, think_s=8, away_s=30),),
        ),
        _Template(
            Scenario(
                "streaming", "Everybody streams at 20 tokens a second, without a pause.", (),
                (_NO_ERRORS, _DELTA_P50, _DELTA_P99, _FAIR),
            ),
            50, 0, lambda users, _: (Group("streamer", users, _STREAM),),
        ),
        _Template(
            Scenario(
                "mixed", "Some stream without a pause, the others come, talk and go.", (),
                (_NO_ERRORS, _DELTA_P50, _DELTA_P99, _FAIR),
            ),
            200, 50, _mixed,
        ),
        _Template(
            Scenario(
                "tools", "Every turn calls a command in its jail three times before it answers.", (),
                (_NO_ERRORS, Objective("turn_p99_ms", 10_000, "ms")),
            ),
            20, 0, lambda users, _: (Group("tool_user", users, Pace(200, 20, 3), think_s=3),),
        ),
        _Template(
            Scenario(
                "abuse", "One person does what they can against the server; the others talk.", (),
                (_NO_ERRORS, Objective("first_token_p99_ms", 1_000, "ms"), _FAIR),
            ),
            30, 10,
            lambda users, streams: (Group("abuser", 1, Pace(1_000, 2_000)), *_mixed(users - 1, streams)),
        ),
        _Template(
            Scenario(
                "churn", "People think about as long as an idle jail lasts, so half come to a cold one.", (),
                (_NO_ERRORS, Objective("first_token_p99_ms", 3_000, "ms")),
                config=f"[pool]\nidle_s = {_IDLE_S:g}\n",
            ),
            60, 0, lambda users, _: (Group("churner", users, _SHORT, think_s=_IDLE_S),),
        ),
        _Template(
            Scenario(
                "soak", "Some of everything, for an hour or longer: does anything grow?", (),
                (
                    _NO_ERRORS,
                    *(Objective(f"slope_{name}_mib_h", 2, "MiB an hour") for name in TRUSTED),
                    Objective("slope_a_jail_mib_h", 0.2, "MiB an hour"),
                    *(Objective(f"grown_{what}", 8, "") for what in ("descriptors", "threads")),
                ),
                settle_s=600, config=f"[pool]\nidle_s = {_IDLE_S:g}\n",
            ),
            40, 4, _everything,
        ),
    )
}  # fmt: skip


def names() -> dict[str, str]:
    """The scenarios there are, and what each is about."""
    return {name: template.scenario.about for name, template in _TEMPLATES.items()}


def scenario(name: str, users: int | None = None, streams: int | None = None) -> Scenario:
    """A scenario for so many people, of whom some stream; KeyError, ValueError."""
    template = _TEMPLATES[name]
    people = template.users if users is None else users
    streaming = min(template.streams, people) if streams is None else streams
    if people < 2 or not 0 <= streaming <= people:
        raise ValueError(f"{name}: {people} users of whom {streaming} stream cannot be")
    groups = tuple(group for group in template.groups(people, streaming) if group.count > 0)
    return replace(template.scenario, groups=groups)
