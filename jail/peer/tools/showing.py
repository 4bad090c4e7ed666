"""show_picture: a picture of the home's, put before the user."""

import os
import re
from typing import Annotated

import msgspec
from msgspec import Meta

from jail.peer.errors import ToolFailed
from jail.peer.texts import clean
from jail.peer.tools.base import Arguments, Surroundings, Tool, ToolResult, in_thread
from jail.peer.tools.paths import locate, open_regular
from jail.wire.media import picture_type
from jail.wire.schema import MAX_CAPTION, MAX_PICTURE_BYTES, Picture, PicturePath

_SNIFF_BYTES = 16
_HEADER_BYTES = {"image/png": 33, "image/jpeg": 20, "image/gif": 13, "image/webp": 20}
"""What comes before anything of the picture itself: a file that ends there was not written whole."""
_BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


class ShowArguments(Arguments, frozen=True):
    path: Annotated[str, Meta(description="The picture's file, in the home.")]
    caption: Annotated[str, Meta(max_length=MAX_CAPTION, description="A line of text to go with it.")] = ""


def _show(arguments: ShowArguments, around: Surroundings) -> ToolResult:
    shown = clean(arguments.path)
    home = os.path.realpath(around.home)
    # where it leads now: a link may lead elsewhere by the time the user looks
    full = os.path.realpath(locate(home, arguments.path))
    if not full.startswith(home + "/"):
        raise ToolFailed(f"The user cannot see {shown}, outside the home. Copy it into the home first.")
    with open(open_regular(full, shown), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_SNIFF_BYTES)
    if size > MAX_PICTURE_BYTES:
        raise ToolFailed(f"{shown} has {size} bytes; {MAX_PICTURE_BYTES} can be shown. Make it smaller.")
    kind = picture_type(head)
    if kind is None:
        raise ToolFailed(
            f"{shown} is no PNG, JPEG, GIF or WebP picture, by what is in it. Convert it to one."
        )
    if size < _HEADER_BYTES[kind]:
        raise ToolFailed(f"{shown} is only the beginning of a picture. Write it anew.")
    try:
        path = msgspec.convert(full[len(home) + 1 :], PicturePath)
    except msgspec.ValidationError:
        raise ToolFailed(f"{shown} has a name that cannot be said everywhere. Rename it.") from None
    caption = _BLANK.sub(" ", clean(arguments.caption)).strip()
    text = f"The user sees {path} now ({kind}, {size} bytes)."
    return ToolResult(True, text, Picture(path, kind, size, caption))


SHOW_PICTURE = Tool(
    "show_picture",
    "Show the user a picture: a PNG, JPEG, GIF or WebP file in the home. You do not see it yourself.",
    ShowArguments,
    in_thread(_show),
)
