"""What a model server is asked: files, limits and formats in its own words."""

import base64
import json
from typing import Any

import pytest

from core.config import ProviderSection
from core.egress import anthropic_body, body
from core.egress.messages import ChatStart
from core.egress.providers import ProviderError
from core.egress.rules import respond
from jail.wire.schema import (
    TEXT_SHOWN_BYTES,
    Attachment,
    MediaType,
    Message,
    ResponseFormat,
    Sampling,
    ToolSpec,
    attached,
)
from tests.fakes.pictures import pdf, png

PNG, PDF = png(), pdf()
JSON_SCHEMA = ResponseFormat("person", "who", '{"type": "object"}', True)


def ask(*files: tuple[str, MediaType, bytes], sampling: Sampling | None = None) -> ChatStart:
    attachments = tuple(Attachment(path, kind, len(data)) for path, kind, data in files)
    text = "look " + " ".join(attached(path) for path, _, _ in files)
    message = Message("user", text, attachments=attachments)
    given = {path: data for path, _, data in files if data}
    return ChatStart(1, "alice", "acme", "m", (message,), (), sampling or Sampling(), given)


def section(**settings: Any) -> ProviderSection:
    return ProviderSection(base_url="http://x/v1", **settings)


def openai(asked: ChatStart, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(body.request_body(asked, section(**settings)))
    return found


def anthropic(asked: ChatStart, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        anthropic_body.request_body(asked, section(kind="anthropic", **settings))
    )
    return found


def test_a_picture_and_a_pdf_are_parts_of_the_message() -> None:
    asked = ask(("uploads/a.png", "image/png", PNG), ("uploads/b.pdf", "application/pdf", PDF))
    parts = openai(asked, attachments="all")["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text", "file", "text"]
    assert parts[1]["image_url"]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    assert parts[3]["file"]["filename"] == "b.pdf"
    assert parts[3]["file"]["file_data"].startswith("data:application/pdf;base64,JVBERi")
    assert parts[4]["text"] == "look [attached: uploads/a.png] [attached: uploads/b.pdf]"
    blocks = anthropic(asked, attachments="all")["messages"][0]["content"]
    assert [block["type"] for block in blocks] == ["text", "image", "text", "document", "text"]
    assert base64.b64decode(blocks[1]["source"]["data"]) == PNG
    assert blocks[1]["source"]["media_type"] == "image/png"
    assert blocks[3]["source"]["media_type"] == "application/pdf"


def test_what_a_server_does_not_take_is_cited_and_text_is_always_shown() -> None:
    asked = ask(
        ("a.png", "image/png", PNG), ("b.pdf", "application/pdf", PDF), ("c.txt", "text/plain", b"words")
    )
    content = openai(asked, attachments="none")["messages"][0]["content"]
    assert isinstance(content, str)
    assert "[a.png (image/png" in content
    assert "shown no pictures" in content
    assert "c.txt (text, 5 bytes):\n\nwords" in content
    parts = openai(asked, attachments="pictures")["messages"][0]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text", "text", "text"]
    assert "shown no PDF files" in parts[2]["text"]


def test_what_is_no_picture_is_not_sent_as_one() -> None:
    """The worker says what is attached, and its word is not believed."""
    asked = ask(
        ("a.png", "image/png", b"#!/bin/sh\n"), ("b.png", "image/png", b"\x7fELF\0"), ("c", "image/png", b"")
    )
    content = openai(asked)["messages"][0]["content"]
    assert isinstance(content, str)
    assert content.count("something else by now") == 1
    assert content.count("not shown here") == 2


def test_of_a_long_text_the_beginning_is_shown() -> None:
    data = "é".encode() * TEXT_SHOWN_BYTES
    asked = ask(("t.txt", "text/plain", data[: TEXT_SHOWN_BYTES + 3]))
    content = openai(asked)["messages"][0]["content"]
    assert len(content.encode()) < TEXT_SHOWN_BYTES + 500
    assert "[t.txt goes on: " in content


def test_an_answers_limit_is_sent_under_the_name_that_the_provider_wants() -> None:
    asked = ask(sampling=Sampling(max_tokens=7))
    assert openai(asked)["max_tokens"] == 7
    newer = openai(asked, max_tokens_field="max_completion_tokens")
    assert newer["max_completion_tokens"] == 7
    assert "max_tokens" not in newer


def test_a_response_format_is_passed_on_where_it_is_taken() -> None:
    any_json, schema = (
        ask(sampling=Sampling(format=ResponseFormat())),
        ask(sampling=Sampling(format=JSON_SCHEMA)),
    )
    assert openai(any_json)["response_format"] == {"type": "json_object"}
    assert openai(schema)["response_format"]["json_schema"] == {
        "name": "person", "description": "who", "schema": {"type": "object"}, "strict": True
    }  # fmt: skip
    assert anthropic(schema)["output_config"] == {
        "format": {"type": "json_schema", "schema": {"type": "object"}}
    }
    assert "response_format" not in openai(ask())
    assert "output_config" not in anthropic(ask())


@pytest.mark.parametrize(
    ("format_", "settings"),
    [
        (ResponseFormat(), {"response_format": "none"}),
        (JSON_SCHEMA, {"response_format": "json_object"}),
        (ResponseFormat("x", "", "[1]"), {}),
        (ResponseFormat(), {"kind": "anthropic"}),
        (JSON_SCHEMA, {"kind": "anthropic", "response_format": "none"}),
    ],
)
def test_a_response_format_that_is_not_taken_is_refused_by_name(
    format_: ResponseFormat, settings: dict[str, Any]
) -> None:
    make = anthropic_body if settings.get("kind") == "anthropic" else body
    with pytest.raises(ProviderError, match="response_format") as raised:
        make.request_body(ask(sampling=Sampling(format=format_)), section(**settings))
    assert raised.value.failure.code == "invalid"


def test_the_built_in_assistant_says_what_it_got_once() -> None:
    asked = ask(("uploads/a.png", "image/png", PNG), ("b.txt", "text/plain", b""))
    message = Message(
        "user", attached("uploads/a.png") + "\nlist files", attachments=asked.messages[0].attachments
    )
    tools = (ToolSpec("list_files", "", "{}"),)
    first = respond((message,), tools, asked.files)
    assert f"I got uploads/a.png: a picture of {len(PNG)} bytes, and it reached me." in first.text
    assert "b.txt: a text of 0 bytes, but it did not reach me" in first.text
    assert first.call == ("list_files", "{}")
    after = (message, Message("assistant", first.text), Message("tool", "a.png", tool_call_id="x"))
    second = respond(after, tools, asked.files)
    assert "I got" not in second.text
    assert "a.png" in second.text
    alone = Message("user", attached("uploads/a.png"), attachments=message.attachments[:1])
    assert respond((alone,), tools, asked.files).text.count("\n") == 0
