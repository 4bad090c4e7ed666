"""What becomes of a turn that lost its jail, its server or its machine. Pure.

It goes on only where nothing it did can be done twice: every tool call that is not among the
session's messages was a read, and it was started to go on without its client. Every other turn is
closed with a report of its steps, for the person and for the model that speaks next.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from jail.wire.schema import Failure, Message, Sampling, TurnEnd, is_cut_short

READS = frozenset({"list_files", "read_file", "search_files", "show_picture"})
"""Tools that change nothing: a call of theirs may be made again. All that show_picture does is an event,
which ``resumed`` takes back with the others that are said anew."""
_MOST_RESUMES = 2
"""What kills its jail each time is not started for ever."""
_REPORTED = 20
_ARGUMENT_CHARS = 300
_MAX_REPORT_CHARS = 1_900


class StepCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a step was about to do; ``arguments`` is JSON text."""

    tool: str
    arguments: str


class StepRow(NamedTuple):
    """A journalled step: ``begun``, ``ok`` or ``failed``; ``kept`` once its result is a message."""

    step: int
    state: str
    call: StepCall
    kept: bool = False


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a turn is started anew with; ``wall_s`` is its time limit as it was, ``request`` the id of what
    asked for it."""

    agent: str
    sampling: Sampling
    wall_s: Annotated[int, Meta(ge=1)]
    request: str = ""


class LeftOpen(NamedTuple):
    """What the journal has of a turn that nobody runs.

    ``asked`` is None for one that is not to go on without its client; ``tail`` are the session's
    last messages, from the last that no tool said; ``age_s`` counts from the turn's start.
    """

    asked: Asked | None
    steps: Sequence[StepRow]
    tail: Sequence[Message]
    resumes: int
    age_s: float


class Resume(NamedTuple):
    """Start it anew, with what is left of its time (in seconds)."""

    asked: Asked
    wall_s: int


class Close(NamedTuple):
    """End it; ``said`` is added to the session, "" for nothing."""

    outcome: TurnEnd | Failure
    said: str


def judge(left: LeftOpen, why: Failure, again: bool) -> Resume | Close:
    """What becomes of it. ``why`` is what happened; without ``again`` it does not go on."""
    open_steps = [step for step in left.steps if not step.kept]
    if left.tail and left.tail[-1].role == "assistant" and not left.tail[-1].tool_calls:
        if is_cut_short(left.tail[-1].text):  # it had failed, and nothing more is to be said
            return Close(report(left.steps, why), _told(open_steps, why))
        return Close(TurnEnd("stop"), "")  # the answer was complete, and only the end is missing
    rest_s = left.asked.wall_s - max(0, int(left.age_s)) if left.asked is not None else 0
    safe = _is_whole(left.tail) and all(step.call.tool in READS for step in open_steps)
    if again and safe and left.asked is not None and rest_s > 0 and left.resumes < _MOST_RESUMES:
        return Resume(left.asked, rest_s)
    return Close(report(left.steps, why), _told(open_steps, why))


def report(steps: Sequence[StepRow], why: Failure) -> Failure:
    """The failure, with what was done: which steps completed and which may have been, in part."""
    done = [f"step {s.step} {s.call.tool}{_FATES[s.state]}" for s in steps if s.state != "begun"]
    doubtful = [f"step {s.step} {s.call.tool}" for s in steps if s.state == "begun"]
    text = why.message
    if done:
        text += f". Completed: {_listed(done)}"
    if doubtful:
        text += f". May have been done in part: {_listed(doubtful)}"
    if done or doubtful:
        text += ". Nothing was done twice"
    return Failure(why.code, text[:_MAX_REPORT_CHARS], why.retry_after_s)


_FATES = {"ok": "", "failed": " (failed)"}


def _is_whole(tail: Sequence[Message]) -> bool:
    """Whether the last round was kept with all its results."""
    calls = len(tail[0].tool_calls) if tail else 0
    return calls == len(tail) - 1 if calls else True


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[-_REPORTED:])
    return f"{len(names) - _REPORTED} more, {shown}" if len(names) > _REPORTED else shown


def _told(steps: Sequence[StepRow], why: Failure) -> str:
    """For the session: the calls whose results it does not have."""
    if not steps:
        return ""
    lines = [
        f"step {s.step} {s.call.tool} {s.call.arguments[:_ARGUMENT_CHARS]}: "
        + ("may have been done in part" if s.state == "begun" else f"completed{_FATES[s.state]}")
        for s in steps[-_REPORTED:]
    ]
    more = [f"{len(steps) - _REPORTED} more steps before these"] if len(steps) > _REPORTED else []
    return "\n".join([f"[cut short: {why.message}. Results that are lost:", *more, *lines]) + "]"
