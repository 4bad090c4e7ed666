"""A completion is put together from whatever shapes servers send, or refused in clear words."""

import json
from typing import Any

import pytest

from core.egress.calls import MAX_ARGUMENT_CHARACTERS, MAX_CALLS, UNNAMED
from core.egress.chunks import Assembly
from core.egress.providers import ProviderError, UpstreamSaid
from jail.wire.schema import ChatEnd, ToolCall, Usage


def _chunk(delta: Any = None, finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return json.dumps({"choices": [choice], **more}).encode()


def _fragment(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}


def _take(*chunks: bytes) -> Assembly:
    assembly = Assembly("acme")
    for chunk in chunks:
        assembly.take(chunk)
    return assembly


def test_text_and_reasoning_come_out_as_they_come_in() -> None:
    assembly = Assembly("acme")
    assert assembly.take(_chunk({"role": "assistant", "content": None})) == ("", "")
    assert assembly.take(_chunk({"reasoning_content": "hm"})) == ("hm", "")
    assert assembly.take(_chunk({"reasoning": "so"})) == ("so", "")
    assert assembly.take(_chunk({"content": "yes"})) == ("", "yes")
    assembly.take(_chunk(finish="stop"))
    usage = b'{"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "x": 1}}'
    assembly.take(usage)
    before = assembly.done
    assembly.take(b"[DONE]")
    assert (before, assembly.done) == (False, True)
    assert assembly.end() == ([], ChatEnd("stop", Usage(3, 4)))


def test_calls_are_assembled_by_index() -> None:
    calls, end = _take(
        _chunk(_fragment(0, "a", "read_file", "")),
        _chunk(_fragment(1, "b", "run", '{"x"')),
        _chunk(_fragment(0, arguments='{"path":')),
        _chunk(_fragment(1, arguments=": 1}")),
        _chunk(_fragment(0, arguments='"f"}')),
        _chunk(finish="tool_calls"),
    ).end()
    assert calls == [ToolCall("a", "read_file", '{"path":"f"}'), ToolCall("b", "run", '{"x": 1}')]
    assert end.finish == "tool_calls"


def test_missing_and_repeated_ids_are_made_up() -> None:
    calls, _ = _take(
        _chunk(_fragment(0, None, "a", "{}")),
        _chunk(_fragment(1, "same", "b", "{}")),
        _chunk(_fragment(2, "same", "c", "{}")),
        _chunk(_fragment(3, "x" * 200, "d", "{}")),
        _chunk(finish="tool_calls"),
    ).end()
    assert len({call.id for call in calls}) == 4
    assert all(0 < len(call.id) <= 128 for call in calls)


def test_a_missing_name_becomes_one_that_no_tool_has() -> None:
    calls, _ = _take(_chunk(_fragment(0, "a", None, "{}")), _chunk(finish="tool_calls")).end()
    assert calls == [ToolCall("a", UNNAMED, "{}")]


def test_calls_that_all_have_index_zero_are_told_apart_by_their_ids() -> None:
    calls, _ = _take(
        _chunk(_fragment(0, "a", "one", "{}")),
        _chunk(_fragment(0, "b", "two", "{}")),
        _chunk(finish="stop"),
    ).end()
    assert [(call.id, call.name) for call in calls] == [("a", "one"), ("b", "two")]


def test_calls_without_an_index_follow_one_another() -> None:
    calls, end = _take(
        _chunk(_fragment(None, "a", "one", '{"k"')),
        _chunk(_fragment(None, None, None, ": 2}")),
        _chunk(_fragment(None, "b", "two", {"whole": True})),
        _chunk(finish="stop"),
    ).end()
    assert calls == [ToolCall("a", "one", '{"k": 2}'), ToolCall("b", "two", '{"whole":true}')]
    assert end.finish == "tool_calls"


def test_no_arguments_are_an_empty_object_and_bad_ones_go_on_as_they_are() -> None:
    calls, _ = _take(
        _chunk(_fragment(0, "a", "one")),
        _chunk(_fragment(1, "b", "two", "not json")),
        _chunk(finish="tool_calls"),
    ).end()
    assert [call.arguments for call in calls] == ["{}", "not json"]


def test_a_call_that_was_cut_short_does_not_act() -> None:
    calls, end = _take(
        _chunk(_fragment(0, "a", "one", '{"k": 1}')),
        _chunk(_fragment(1, "b", "two", '{"k":')),
        _chunk(finish="length"),
    ).end()
    assert [call.id for call in calls] == ["a"]
    assert end.finish == "length"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),  # and there were none
    ],
)
def test_finish_reasons_are_translated(said: str, meant: str) -> None:
    assert _take(_chunk({"content": "x"}, said)).end()[1].finish == meant


@pytest.mark.parametrize("chunks", [(), (b"[DONE]",), (_chunk({"content": "some"}),)])
def test_an_answer_without_an_end_was_cut(chunks: tuple[bytes, ...]) -> None:
    with pytest.raises(ProviderError, match="cut before its end") as caught:
        _take(*chunks).end()
    assert caught.value.failure.code == "upstream"


@pytest.mark.parametrize(
    "data",
    [
        b"{broken",
        b"",
        b"\xff\xfe",
        b"7",
        b'"text"',
        b"[]",
        b'{"choices": 7}',
        b'{"choices": [{"delta": "text"}]}',
        b'{"choices": [{"delta": {"content": 7}}]}',
        b'{"choices": [{"delta": {"tool_calls": {}}}]}',
        b'{"choices": [{"delta": {"tool_calls": [{"index": "0"}]}}]}',
        b'{"choices": [{"delta": {"content": "\\ud800"}}]}',
        b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_not_a_chunk_is_refused_without_its_bytes(data: bytes) -> None:
    with pytest.raises(ProviderError, match="broken stream") as caught:
        Assembly("acme").take(data)
    assert caught.value.failure.code == "upstream"


@pytest.mark.parametrize("data", [b"{}", b'{"choices": null}', b'{"choices": []}', b'{"x": 1}'])
def test_a_chunk_that_says_nothing_is_let_pass(data: bytes) -> None:
    assert Assembly("acme").take(data) == ("", "")


def test_an_error_in_the_stream_is_told_apart() -> None:
    with pytest.raises(UpstreamSaid):
        Assembly("acme").take(b'{"error": {"message": "no"}}')


def test_calls_and_their_arguments_are_bounded() -> None:
    assembly = Assembly("acme")
    for index in range(MAX_CALLS):
        assembly.take(_chunk(_fragment(index, f"c{index}", "t", "{}")))
    with pytest.raises(ProviderError, match="tools at once"):
        assembly.take(_chunk(_fragment(MAX_CALLS, "more", "t", "{}")))
    assembly = Assembly("acme")
    half = "x" * (MAX_ARGUMENT_CHARACTERS // 2 + 1)
    assembly.take(_chunk(_fragment(0, "a", "t", half)))
    with pytest.raises(ProviderError, match="characters of arguments"):
        assembly.take(_chunk(_fragment(0, arguments=half)))


def test_other_choices_than_the_first_are_left_out() -> None:
    data = b'{"choices": [{"index": 1, "delta": {"content": "no"}}]}'
    assert Assembly("acme").take(data) == ("", "")
