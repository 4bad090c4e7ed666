"""Pictures and files in a chat, sent by the official clients: stored in the home, cited to the model."""

import base64
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from core.sessions import EphemeralSession
from jail.wire.schema import Message
from tests.fakes.hub_process import HubProcess
from tests.fakes.pictures import data_url, pdf, png
from tests.fakes.plain_client import PlainClient

Make = Callable[..., openai.OpenAI]


def picture_part(data: bytes, **more: Any) -> Any:
    return {"type": "image_url", "image_url": {"url": data_url(data), **more}}


def say(client: openai.OpenAI, *parts: Any, **more: Any) -> Any:
    return client.chat.completions.create(
        model="assistant", messages=[{"role": "user", "content": list(parts)}], **more
    )


def history(hub: HubProcess) -> tuple[Message, ...]:
    session = hub.turns.next().spec.session
    assert isinstance(session, EphemeralSession)
    return session.messages()


def test_a_picture_lies_in_the_home_and_the_message_cites_it(client: Make, hub: HubProcess) -> None:
    data = png(padding=200_000)
    say(
        client(),
        {"type": "text", "text": "before"},
        picture_part(data, detail="low"),
        {"type": "text", "text": "after"},
    )
    (message,) = history(hub)
    (found,) = message.attachments
    assert message.text == f"before\n[attached: {found.path}]\nafter"
    assert (found.media_type, found.size_bytes, found.detail) == ("image/png", len(data), "low")
    assert (hub.calls.home("alice") / found.path).read_bytes() == data
    assert not hub.calls.home("bob").joinpath("uploads").exists()


def test_files_keep_their_names_and_texts_are_texts(client: Make, hub: HubProcess) -> None:
    text, book = "größer\n".encode(), pdf()
    say(
        client(),
        {"type": "file", "file": {"filename": "notes.md", "file_data": data_url(text, "text/markdown")}},
        {"type": "file", "file": {"filename": "book.pdf", "file_data": base64.b64encode(book).decode()}},
        {"type": "input_text", "text": "read them"},
    )
    (message,) = history(hub)
    notes, pages = message.attachments
    assert (notes.media_type, pages.media_type) == ("text/plain", "application/pdf")
    assert notes.path.startswith("uploads/notes-")
    assert notes.path.endswith(".md")
    home = hub.calls.home("alice")
    assert (home / notes.path).read_bytes() == text
    assert (home / pages.path).read_bytes() == book


def test_the_same_picture_again_is_not_stored_again(client: Make, hub: HubProcess) -> None:
    data = png()
    for _ in range(3):
        say(client(), picture_part(data))
    assert len(list(hub.calls.home("alice").joinpath("uploads").iterdir())) == 1
    writes = [body for _, body in hub.calls.asked if type(body).__name__ == "FileWrite"]
    assert len(writes) == 1


def test_what_an_agent_has_changed_since_is_not_written_over(client: Make, hub: HubProcess) -> None:
    data = png()
    say(client(), picture_part(data))
    first = history(hub)[0].attachments[0].path
    home = hub.calls.home("alice")
    (home / first).write_bytes(b"x" * len(data))
    for _ in range(2):
        say(client(), picture_part(data))
        (message,) = history(hub)
        second = message.attachments[0].path
        assert second != first
        assert message.text == f"[attached: {second}]"
        assert (home / second).read_bytes() == data
    assert (home / first).read_bytes() == b"x" * len(data)
    assert len(list((home / "uploads").iterdir())) == 2


def test_anthropics_client_sends_images_and_documents(hub: HubProcess) -> None:
    picture, book = png(), pdf()
    with anthropic.Anthropic(api_key="token-alice", base_url=hub.url, max_retries=0) as client:
        client.messages.create(
            model="assistant",
            max_tokens=50,
            messages=[{
                "role": "user",
                "content": [
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                 "data": base64.b64encode(picture).decode()}},
                    {"type": "document", "title": "book", "source": {
                        "type": "base64", "media_type": "application/pdf",
                        "data": base64.b64encode(book).decode()}},
                    {"type": "document",
                     "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
                    {"type": "text", "text": "what is this?"},
                ],
            }],
        )  # fmt: skip
        with pytest.raises(anthropic.BadRequestError, match="fetches nothing"):
            client.messages.create(
                model="assistant",
                max_tokens=50,
                messages=[{"role": "user", "content": [
                    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
                ]}],
            )  # fmt: skip
    (message,) = history(hub)
    kinds = [a.media_type for a in message.attachments]
    assert kinds == ["image/png", "application/pdf", "text/plain"]
    home = hub.calls.home("alice")
    assert [(home / a.path).read_bytes() for a in message.attachments] == [picture, book, b"words"]


@pytest.mark.parametrize(
    ("part", "param", "code"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
            "messages[0].content[0].image_url.url", "remote_url_refused",
        ),
        ({"type": "input_audio", "input_audio": {}}, "messages[0].content[0].type", "invalid_value"),
        (
            {"type": "file", "file": {"file_id": "file-1"}}, "messages[0].content[0].file.file_id",
            "unknown_parameter",
        ),
        (
            picture_part(b"\x7fELF" + bytes(20)), "messages[0].content[0].image_url.url",
            "unsupported_media_type",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_refused_by_name_and_stores_nothing(
    client: Make, hub: HubProcess, part: Any, param: str, code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        say(client(), part, picture_part(png()))
    assert (raised.value.param, raised.value.code) == (param, code)
    assert not hub.turns.turns
    assert not hub.calls.home("alice").joinpath("uploads").exists()
    say(client(), picture_part(png()))


def test_only_a_users_message_has_files(client: Make, plain: PlainClient) -> None:
    body = {
        "model": "assistant",
        "messages": [{"role": "system", "content": [picture_part(png())]}, {"role": "user", "content": "x"}],
    }
    answer = plain.ask("POST", "/v1/chat/completions", body)
    assert (answer.status, answer.error["param"]) == (400, "messages[0].content")
    assert say(client(), picture_part(png())).choices


def test_no_file_is_stored_for_an_agent_that_is_none(client: Make, hub: HubProcess) -> None:
    with pytest.raises(openai.NotFoundError):
        client().chat.completions.create(
            model="nobody", messages=[{"role": "user", "content": [picture_part(png())]}]
        )
    assert not hub.calls.asked
    say(client(), picture_part(png()))
    assert hub.calls.asked


def test_a_kept_session_stores_the_last_messages_files_and_holds_a_reference(
    client: Make, hub: HubProcess
) -> None:
    old, new = png(), png(padding=300_000)
    client().chat.completions.create(
        model="assistant",
        messages=[
            {"role": "user", "content": [picture_part(old)]},
            {"role": "user", "content": [picture_part(new)]},
        ],
        extra_headers={"X-Certosa-Session": "s"},
    )
    (name,) = [p.name for p in hub.calls.home("alice").joinpath("uploads").iterdir()]
    database = sum(p.stat().st_size for p in (hub.directory / "sealed").iterdir())
    assert database < 300_000
    shown = PlainClient(hub.url, {"Authorization": "Bearer token-alice"}).ask("GET", "/v1/sessions/s").json
    (message,) = [m for m in shown["data"] if m["role"] == "user"]
    assert message["attachments"] == [
        {"path": f"uploads/{name}", "media_type": "image/png", "size_bytes": len(new)}
    ]
