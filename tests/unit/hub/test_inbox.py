"""Files within a request: what they are, where they go, and what is refused."""

import base64

import pytest

from core.hub.errors import HubError
from core.hub.inbox import Inbox, InboxLimits
from core.media import media_type
from tests.fakes.pictures import data_url, pdf, png

LIMITS = InboxLimits(files=2, file_bytes=10_000)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(), "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a....", "image/gif"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image/webp"),
        (pdf(), "application/pdf"),
        ("größer".encode(), "text/plain"),
        (b"RIFF\x10\0\0\0WAVEfmt ", None),
        (b"\x7fELF\x02\x01", None),
        (b"a\0b", None),
        (b"\xff\xfe", None),
        (b"", None),
    ],
)
def test_a_file_is_what_its_first_bytes_say(data: bytes, kind: str | None) -> None:
    assert media_type(data) == kind


def test_a_picture_gets_a_place_that_its_content_decides() -> None:
    inbox, picture = Inbox(LIMITS), png()
    found = inbox.url(data_url(picture), "where", "picture", detail="low")
    again = inbox.url(data_url(picture, "image/jpeg"), "where", "picture")
    assert found.path == again.path
    assert found.path.startswith("uploads/picture-")
    assert (found.media_type, found.size_bytes, found.detail) == ("image/png", len(picture), "low")
    assert inbox.files == {found.path: picture}
    assert inbox.url(data_url(png(3)), "where", "picture").path != found.path


@pytest.mark.parametrize(
    ("name", "stem", "ending"),
    [
        ("notes.md", "notes", "md"),
        ("../../etc/passwd", "passwd", "txt"),
        ("a b\n.tar.gz", "a-b-tar", "gz"),
        ("", "file", "txt"),
        ("....", "file", "txt"),
        ("x" * 300 + ".py", "x" * 40, "py"),
    ],
)
def test_a_name_is_kept_as_far_as_it_is_one(name: str, stem: str, ending: str) -> None:
    found = Inbox(LIMITS).add(b"words", "where", "file", name)
    directory, _, rest = found.path.partition("/")
    assert directory == "uploads"
    assert rest.rpartition("-")[0] == stem
    assert rest.rpartition(".")[2] == ending
    assert Inbox(LIMITS).add(png(), "where", "file", "fake.txt").path.endswith(".png")


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://example.org/a.png", "remote_url_refused"),
        ("http://127.0.0.1/a.png", "remote_url_refused"),
        ("file:///etc/passwd", "remote_url_refused"),
        ("data:image/png,plain", "invalid_value"),
        ("data:image/png;base64,@@@", "invalid_value"),
        ("nonsense", "invalid_value"),
        (data_url(b"\x7fELF" + bytes(8)), "unsupported_media_type"),
        (data_url(b"words"), "unsupported_media_type"),
        (data_url(pdf()), "unsupported_media_type"),
        (data_url(png(padding=10_000)), "attachment_too_large"),
        (data_url(bytes(30_000)), "attachment_too_large"),
    ],
)
def test_what_is_no_picture_is_refused_by_name(url: str, code: str) -> None:
    with pytest.raises(HubError) as raised:
        Inbox(LIMITS).url(url, "messages[0].content[1].image_url.url", "picture")
    assert (raised.value.status, raised.value.code) == (400, code)
    assert raised.value.param == "messages[0].content[1].image_url.url"
    assert Inbox(LIMITS).url(data_url(png()), "where", "picture")


def test_a_file_too_many_is_refused() -> None:
    inbox = Inbox(LIMITS)
    for name in ("a", "b"):
        inbox.base64(base64.b64encode(name.encode()).decode(), "where", "file", name)
    with pytest.raises(HubError) as raised:
        inbox.add(b"c", "where", "file", "c")
    assert raised.value.code == "too_many_attachments"
