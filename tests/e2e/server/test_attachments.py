"""A picture in a chat through the whole server: to the home, and to models of both wire formats."""

import base64
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.fakes.model_server import FakeModelServer
from tests.fakes.pictures import data_url, pdf, png
from tests.fakes.real_server import Person, RealServer

PICTURE = png(64, 64, padding=3_000_000)


def look(person: Person, *parts: Any, model: str = "fake", session: str = "") -> str:
    headers = {"X-Certosa-Session": session} if session else {}
    content: Any = [*parts, {"type": "text", "text": "look"}]
    with person.client() as client:
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": content}], extra_headers=headers
        )
    return answer.choices[0].message.content or ""


def picture(data: bytes = PICTURE) -> Any:
    return {"type": "image_url", "image_url": {"url": data_url(data)}}


def first(model: FakeModelServer) -> Any:
    """What the model's server was sent as the user's first message."""
    messages = model.requests[-1].body["messages"]
    return next(message["content"] for message in messages if message["role"] == "user")


def uploads(person: Person) -> list[Path]:
    return sorted(path for path in (person.home / "uploads").iterdir() if not path.is_symlink())


def test_a_large_picture_reaches_the_model_and_the_home(alice: Person, model: FakeModelServer) -> None:
    look(alice, picture())
    parts = model.requests[-1].body["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url", "text"]
    assert base64.b64decode(parts[1]["image_url"]["url"].partition(",")[2]) == PICTURE
    path = parts[2]["text"].removeprefix("[attached: ").partition("]")[0]
    assert (alice.home / path).read_bytes() == PICTURE
    assert (alice.home / path).stat().st_uid == alice.home.stat().st_uid
    assert "PNG" in alice.run(f"head -c 4 {path}")


def test_anthropics_format_upstream_gets_it_too_and_its_client_brings_it(
    alice: Person, model: FakeModelServer
) -> None:
    alice.add_agent("seer", 'prompt = ""\nprovider = "claude"\nmodel = "m"')
    small, book = png(), pdf()
    blocks: Any = [
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(small).decode()},
        },
        {
            "type": "document",
            "source": {
                "type": "base64", "media_type": "application/pdf", "data": base64.b64encode(book).decode()
            },
        },
        {"type": "text", "text": "what is it?"},
    ]  # fmt: skip
    with anthropic.Anthropic(api_key=alice.token, base_url=alice.server.url, max_retries=0) as client:
        answer = client.messages.create(
            model="seer", max_tokens=100, messages=[{"role": "user", "content": blocks}]
        )
    assert answer.content
    sent = model.requests[-1].body["messages"][-1]["content"]
    assert [block["type"] for block in sent] == ["text", "image", "text", "document", "text"]
    assert base64.b64decode(sent[1]["source"]["data"]) == small
    assert base64.b64decode(sent[3]["source"]["data"]) == book


def test_a_session_remembers_the_picture_by_its_path(
    alice: Person, model: FakeModelServer, server: RealServer
) -> None:
    before = sum(path.stat().st_size for path in (server.data_dir / "sealed").iterdir())
    small = png(7, 7)
    look(alice, picture(), picture(small), session="seen")
    assert alice.ask("and now?", session="seen", model="fake").finish == "stop"
    parts = first(model)
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert [base64.b64decode(url.partition(",")[2]) for url in urls] == [PICTURE, small]
    after = sum(path.stat().st_size for path in (server.data_dir / "sealed").iterdir())
    assert after - before < len(PICTURE) // 2
    # what is deleted from the home is only cited from then on
    for path in uploads(alice):
        if path.read_bytes() == small:
            path.unlink()
    alice.ask("and now?", session="seen", model="fake")
    parts = first(model)
    assert [part["type"] for part in parts].count("image_url") == 1
    assert any("not shown here" in part.get("text", "") for part in parts)


def test_the_built_in_assistant_says_what_it_got(alice: Person) -> None:
    text = base64.b64encode(b"some words").decode()
    file = {"type": "file", "file": {"filename": "words.txt", "file_data": text}}
    said = look(alice, picture(), file, model="assistant")
    assert f"a picture of {len(PICTURE)} bytes, and it reached me" in said
    assert "a text of 10 bytes, and it reached me" in said


def test_one_users_picture_is_not_anothers(alice: Person, bob: Person, model: FakeModelServer) -> None:
    look(alice, picture(png(9, 9)))
    cited = uploads(alice)
    look(bob, picture(png(3, 9)))
    parts = model.requests[-1].body["messages"][-1]["content"]
    assert base64.b64decode(parts[1]["image_url"]["url"].partition(",")[2]) == png(3, 9)
    assert not {path.name for path in cited} & {path.name for path in uploads(bob)}


@pytest.mark.parametrize("name", ["bob", "nobody"])
def test_a_path_that_leads_out_of_the_home_is_shown_to_no_model(
    alice: Person, model: FakeModelServer, name: str
) -> None:
    """The jail resolves the path, so a link in the home reaches what its user may reach, and no more."""
    small = png(5, 8)
    look(alice, picture(small), session=f"out-{name}")
    (mine,) = [path for path in uploads(alice) if path.read_bytes() == small]
    mine.unlink()
    alice.run(f"ln -s {alice.server.data_dir}/users/{name}/home/uploads/x.png {mine.relative_to(alice.home)}")
    alice.ask("and now?", session=f"out-{name}", model="fake")
    parts = first(model)
    assert isinstance(parts, str)
    assert "not shown here" in parts
