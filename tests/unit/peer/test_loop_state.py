"""The limits that end a turn."""

from jail.peer.loop_state import LoopState
from jail.wire.schema import Limits, Usage


def called(state: LoopState, name: str, arguments: str, result: str = "r") -> bool:
    """Make a call; whether it was still allowed."""
    if state.before_call(name, arguments) is not None:
        return False
    state.after_call(name, arguments, result)
    return True


def test_rounds_are_counted() -> None:
    state = LoopState(Limits(rounds=2))

    assert state.next_round() is None
    assert state.next_round() is None
    stop = state.next_round()
    assert stop is not None
    assert stop.finish == "rounds"
    assert "2 rounds" in stop.notice


def test_tokens_are_summed_and_estimated_where_nobody_counts() -> None:
    state = LoopState(Limits(output_tokens=100))
    state.add_usage(Usage(10, 60), 4_000)
    assert state.next_round() is None

    state.add_usage(Usage(), 161)

    assert state.usage == Usage(10, 101)
    stop = state.next_round()
    assert stop is not None
    assert stop.finish == "length"


def test_the_same_call_in_a_row_is_a_repetition_however_it_is_spelt() -> None:
    state = LoopState(Limits(repeats=2))

    assert called(state, "t", '{"a": 1, "b": 2}', "x")
    assert called(state, "t", '{"b":2,"a":1}', "y")
    assert not called(state, "t", '{"a": 1, "b": 2}')


def test_calls_in_turns_with_the_same_results_are_repetitions() -> None:
    state = LoopState(Limits(repeats=2))
    for _ in range(2):
        assert called(state, "a", "{}")
        assert called(state, "b", "{}")

    assert not called(state, "a", "{}")


def test_the_same_command_with_another_result_after_other_work_is_none() -> None:
    state = LoopState(Limits(repeats=2))
    for n in range(6):
        assert called(state, "edit", f'{{"n": {n}}}')
        assert called(state, "test", "{}", f"{n} failures")


def test_arguments_that_are_no_json_are_compared_as_text() -> None:
    state = LoopState(Limits(repeats=1))

    assert called(state, "t", "[" * 100_000)
    assert not called(state, "t", "[" * 100_000)
    assert called(state, "t", "not json")


def test_only_rounds_in_a_row_that_failed_altogether_count() -> None:
    state = LoopState(Limits(failing_rounds=2))
    state.end_round(2, 2)
    state.end_round(2, 1)
    state.end_round(1, 1)
    assert state.next_round() is None

    state.end_round(3, 3)

    stop = state.next_round()
    assert stop is not None
    assert stop.finish == "failing"
