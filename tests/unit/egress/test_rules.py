"""The built-in assistant reads plain requests, calls tools that were offered, and answers in words."""

import json
import time

import pytest

from core.egress.rules import HELP, NOTES, Next, respond
from jail.wire.schema import Message, ToolCall, ToolSpec


def _spec(name: str, *properties: str) -> ToolSpec:
    schema = {"type": "object", "properties": {p: {"type": "string"} for p in properties}}
    return ToolSpec(name, "does it", json.dumps(schema))


TOOLS = (
    _spec("list_files", "path"),
    _spec("read_file", "path"),
    _spec("write_file", "path", "content"),
    _spec("search_files", "pattern", "path"),
    _spec("run_command", "command"),
    _spec("run_python", "code"),
    _spec("http_fetch", "url"),
    _spec("show_picture", "path", "caption"),
)


def _ask(text: str, *results: str, earlier: tuple[Message, ...] = ()) -> Next:
    messages = [*earlier, Message("user", text)]
    for number, result in enumerate(results):
        call = ToolCall(f"c{number}", "t", "{}")
        messages += [
            Message("assistant", "", (call,)),
            Message("tool", result, tool_call_id=f"c{number}"),
        ]
    return respond(messages, TOOLS)


@pytest.mark.parametrize(
    ("said", "tool", "arguments"),
    [
        ("list files", "list_files", {}),
        ("Please list all my files.", "list_files", {}),
        ("list files in docs/old", "list_files", {"path": "docs/old"}),
        ("read notes.txt", "read_file", {"path": "notes.txt"}),
        ('read the file "my notes.txt"', "read_file", {"path": "my notes.txt"}),
        ("write a.txt: one\ntwo: three", "write_file", {"path": "a.txt", "content": "one\ntwo: three"}),
        ("write a.txt:", "write_file", {"path": "a.txt", "content": ""}),
        ("run: ls -l | wc", "run_command", {"command": "ls -l | wc"}),
        ("RUN: `id`", "run_command", {"command": "id"}),
        ("$ echo hi\necho there", "run_command", {"command": "echo hi\necho there"}),
        ("python: print(1)\nprint(2)", "run_python", {"code": "print(1)\nprint(2)"}),
        ("python: ```python\nprint(1)\n```", "run_python", {"code": "print(1)"}),
        ("fetch https://example.org/a?b=c", "http_fetch", {"url": "https://example.org/a?b=c"}),
        ("search: TODO.*", "search_files", {"pattern": "TODO.*"}),
        ("show plots/a b.png", "show_picture", {"path": "plots/a b.png"}),
        ('Show me the picture "a.png"', "show_picture", {"path": "a.png"}),
        ("show picture.png", "show_picture", {"path": "picture.png"}),
        ("show me the file x.txt", "read_file", {"path": "x.txt"}),
        ("show my files", "list_files", {}),
        ("what do you remember about me?", "read_file", {"path": NOTES}),
    ],
)
def test_a_request_becomes_a_call(said: str, tool: str, arguments: dict[str, str]) -> None:
    next_ = _ask(said)
    assert next_.call is not None
    assert next_.text
    assert (next_.call[0], json.loads(next_.call[1])) == (tool, arguments)


def test_what_is_to_be_remembered_reaches_the_shell_as_one_quoted_word() -> None:
    next_ = _ask("remember that it's $(rm -rf ~) `day`\nand more")
    assert next_.call is not None
    command = json.loads(next_.call[1])["command"]
    assert command == ("printf '%s\\n' 'it'\"'\"'s $(rm -rf ~) `day` and more' >> notes.txt && echo noted")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("hello there", "built-in assistant"),
        ("help", "list files in DIR"),
        ("help", "show NAME"),
        ("who are you?", "not a language model"),
        ("write me a poem", "did not understand"),
        ("", "did not understand"),
    ],
)
def test_other_words_are_answered_without_a_call(said: str, words: str) -> None:
    next_ = _ask(said)
    assert next_.call is None
    assert words in next_.text


def test_a_result_is_cited() -> None:
    next_ = _ask("run: id", "uid=0(root)")
    assert next_.call is None
    assert "uid=0(root)" in next_.text


def test_a_long_result_is_cut_and_an_empty_one_named() -> None:
    assert "characters more" in _ask("run: x", "y" * 10_000).text
    assert len(_ask("run: x", "y" * 10_000).text) < 5_000
    assert "(nothing)" in _ask("run: x", "").text


def test_steps_follow_one_another_and_end_in_one_answer() -> None:
    said = "write a.txt: hello\nthen read a.txt\nthen: run: ls"
    calls = [_ask(said, *["done"] * count).call for count in range(3)]
    assert [call[0] for call in calls if call] == ["write_file", "read_file", "run_command"]
    last = _ask(said, "written", "hello", "a.txt")
    assert last.call is None
    assert all(words in last.text for words in ("written", "hello", "I ran `ls`"))


def test_a_tool_that_was_not_offered_is_not_called() -> None:
    next_ = respond([Message("user", "run: id")], TOOLS[:1])
    assert next_.call is None
    assert "run_command" in next_.text


def test_what_was_told_in_this_session_is_recalled() -> None:
    earlier = (Message("user", "remember that my cat is Tom"), Message("assistant", "ok"))
    assert "my cat is Tom" in _ask("what do you remember?", "no such file", earlier=earlier).text


def test_a_tools_own_parameter_names_are_used() -> None:
    tools = (_spec("read_file", "file"),)
    assert respond([Message("user", "read x")], tools).call == ("read_file", '{"file":"x"}')


@pytest.mark.parametrize("schema", ["", "not json", "[]", '{"properties": 7}', "[" * 16_000])
def test_a_schema_that_says_nothing_gets_the_usual_names(schema: str) -> None:
    tools = (ToolSpec("read_file", "", schema),)
    assert respond([Message("user", "read x")], tools).call == ("read_file", '{"path":"x"}')


def test_a_conversation_without_a_user_gets_help() -> None:
    assert respond([Message("system", "be kind")], TOOLS) == Next(HELP, None)


@pytest.mark.parametrize(
    "text",
    [
        "{head}{blanks}x\ny",
        "{head}{blanks}",
        "{head}{newlines}x",
        "{head} {words}\n",
        "{newlines}then{newlines}",
    ],
)
@pytest.mark.parametrize(
    "head",
    [
        "write",
        "read the file",
        "list my files in",
        "list",
        "run:",
        "search:",
        "show",
        "show me the picture",
        "remember",
        "what",
    ],
)
def test_no_text_of_a_megabyte_takes_long(head: str, text: str) -> None:
    blanks, newlines, words = " " * 900_000, "\n " * 450_000, "my " * 300_000
    said = text.format(head=head, blanks=blanks, newlines=newlines, words=words)
    started_s = time.process_time()
    _ask(said, earlier=(Message("user", said),))
    assert time.process_time() - started_s < 3  # by squares it would be minutes
