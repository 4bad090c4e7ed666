"""Whether what came of a turn is what may come of one. Pure: sentences about what is wrong."""

from collections.abc import Iterator

from scripts.havoc.turns import ENDS, TOKENS, Json, Turn


def judge(
    turn: Turn, kept: list[Json], messages: list[Json], times_run: int, lossy: bool = False
) -> list[str]:
    """What is wrong with a turn that was begun.

    Args:
        kept: its session's events as the server has them afterwards.
        messages: its session's.
        times_run: how often its tool has left its mark.
        lossy: whether the server has said that it could not keep all of the turn's events (a full disk).
    """
    name = f"{turn.key} ({turn.kind})"
    return [f"{name}: {fault}" for fault in _faults(turn, kept, messages, times_run, lossy)]


def _faults(turn: Turn, kept: list[Json], messages: list[Json], times_run: int, lossy: bool) -> Iterator[str]:
    ends = [event for event in kept if event["type"] in ENDS]
    if turn.last is None:
        yield "its person never saw an end"
    if len(ends) != 1:
        yield f"its log has {len(ends)} ends: {[_said(end) for end in ends]}"
    if sum(event["type"] == "accepted" for event in kept) != 1:
        yield "it was not accepted exactly once"
    if {event["turn"] for event in kept} - {turn.id}:
        yield "its session has events of another turn"
    if seen := _differs(turn.events, kept, lossy):
        yield seen
    said = [message for message in messages if message["role"] == "user"]
    if [message["content"] for message in said] != [turn.text]:
        yield f"its session has {len(said)} messages of its person"
    yield from _steps(turn, kept, messages, times_run)
    if turn.last is not None and turn.last["type"] == "done":
        yield from _answer(turn, messages)


def _differs(seen: list[Json], kept: list[Json], lossy: bool) -> str:
    """What a person was given has to be what is kept; where the log has gaps, it may not contradict that."""
    by_id = {event["id"]: event for event in kept}
    for event in seen:
        if lossy and event["id"] not in by_id:
            continue
        if by_id.get(event["id"]) != event:
            return f"event {event['id']} ({event['type']}) was given, and is kept otherwise or not at all"
    if lossy:
        return ""
    missed = [event["id"] for event in kept if event["id"] not in {one["id"] for one in seen}]
    return f"events {missed[:5]} are kept, and were never given" if missed else ""


def _steps(turn: Turn, kept: list[Json], messages: list[Json], times_run: int) -> Iterator[str]:
    if times_run > 1:
        yield f"its tool ran {times_run} times"
    if turn.kind != "act":
        return
    reported = " ".join(_said(event) for event in kept if event["type"] == "error")
    known = any(event["type"] == "tool_call" for event in kept) or "step 1 run_command" in reported
    if times_run and not known:
        yield "its tool ran, and nothing says so"
    completed = any(message["role"] == "tool" for message in messages) or "Completed: step 1" in reported
    if completed and not times_run:
        yield "its tool is said to have completed, and left nothing"


def _answer(turn: Turn, messages: list[Json]) -> Iterator[str]:
    answers = [m for m in messages if m["role"] == "assistant" and not m.get("tool_calls")]
    if len(answers) != 1:
        yield f"it is done, and its session has {len(answers)} answers"
    elif messages[-1] != answers[0]:
        yield "it is done, and its answer is not the last message"
    elif turn.kind == "talk" and len(str(answers[0]["content"]).split()) != TOKENS:
        yield f"its answer has {len(str(answers[0]['content']).split())} words of {TOKENS}"


def _said(event: Json) -> str:
    return f"{event.get('code', event['type'])}: {event.get('message', '')}"
