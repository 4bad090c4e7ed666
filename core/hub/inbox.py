"""Files that came within a request: decoded, looked at, bounded, and given a place in the home. Pure.

A client sends its whole history each time, and with it every picture again. So a file's name holds a
digest of what is in it: the same file has the same place, and is stored once.
"""

import base64
import binascii
import hashlib
import re
from typing import Literal, NamedTuple

from core.hub.errors import HubError, invalid
from core.media import ENDINGS, is_picture, media_type
from jail.wire.schema import MAX_ATTACHMENTS, Attachment

DIRECTORY = "uploads"
_DATA_URL = re.compile(r"data:([^,;]{0,128})((?:;[^,;]{0,128}){0,4}),", re.IGNORECASE)
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_STEM = 40
_DIGEST = 12
_KINDS = "pictures (PNG, JPEG, GIF, WebP), PDF and UTF-8 text"

Wanted = Literal["picture", "file"]
Detail = Literal["", "auto", "low", "high"]


class InboxLimits(NamedTuple):
    """How many files one request may carry, and how large one may be."""

    files: int
    file_bytes: int


class Inbox:
    """The files of one request, by their path; each of them once."""

    def __init__(self, limits: InboxLimits) -> None:
        self._limits = limits
        self.files: dict[str, bytes] = {}

    def url(self, url: str, where: str, wanted: Wanted, name: str = "", detail: Detail = "") -> Attachment:
        """Take what a ``data:`` URL holds. HubError 400 naming ``where`` for any other address."""
        found = _DATA_URL.match(url)
        if found is None:
            if _REMOTE.match(url):
                raise invalid(
                    "this server fetches nothing for a request: send the file itself, as a"
                    " data: URL (data:image/png;base64,...)",
                    "remote_url_refused",
                    where,
                )
            raise invalid("this is no data: URL (data:image/png;base64,...)", "invalid_value", where)
        if not found[2].lower().endswith(";base64"):
            raise invalid("the data: URL has to be base64", "invalid_value", where)
        return self.base64(url[found.end() :], where, wanted, name, detail)

    def base64(
        self, text: str, where: str, wanted: Wanted, name: str = "", detail: Detail = ""
    ) -> Attachment:
        """Take what base64 says."""
        if len(text) > self._limits.file_bytes * 4 // 3 + 4:
            raise self._too_large(where)
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise invalid("this is not base64", "invalid_value", where) from None
        return self.add(data, where, wanted, name, detail)

    def add(self, data: bytes, where: str, wanted: Wanted, name: str = "", detail: Detail = "") -> Attachment:
        """Take a file; HubError 400 naming ``where`` for one that is too large or nothing we know."""
        if len(data) > self._limits.file_bytes:
            raise self._too_large(where)
        kind = media_type(data)
        if kind is None or (wanted == "picture" and not is_picture(kind)):
            what = "no PNG, JPEG, GIF or WebP picture" if wanted == "picture" else f"none of: {_KINDS}"
            raise invalid(f"by its first bytes this is {what}", "unsupported_media_type", where)
        digest = hashlib.sha256(data).hexdigest()[:_DIGEST]
        stem, ending = _parts(name, ENDINGS[kind])
        path = f"{DIRECTORY}/{stem or ('picture' if is_picture(kind) else 'file')}-{digest}.{ending}"
        self.files[path] = data
        if len(self.files) > self._limits.files:
            raise invalid(
                f"more than {self._limits.files} files in one request", "too_many_attachments", where
            )
        return Attachment(path, kind, len(data), detail)

    def _too_large(self, where: str) -> HubError:
        return invalid(
            f"a file in a request has at most {self._limits.file_bytes} bytes: put a larger one into the"
            " home with PUT /v1/files/content and name it in the message",
            "attachment_too_large",
            where,
        )


def check_count(attachments: int, where: str) -> None:
    """HubError 400 for more of them than one message has place for."""
    if attachments > MAX_ATTACHMENTS:
        raise invalid(f"more than {MAX_ATTACHMENTS} files in one message", "too_many_attachments", where)


def _parts(name: str, ending: str) -> tuple[str, str]:
    """A client's name for a file as we use it: its stem, and an ending that does not lie."""
    stem, dot, given = name.rpartition("/")[2].rpartition(".")
    stem = _UNSAFE.sub("-", stem if dot else given).strip("-")[:_MAX_STEM]
    given = _UNSAFE.sub("", given)[:10] if dot else ""
    return stem, given if ending == "txt" and given else ending
