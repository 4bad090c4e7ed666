"""Files that are attached to a chat's messages: held until it ends, and shown to its model."""

from collections import defaultdict
from typing import Literal, NamedTuple

from core.egress.messages import ChatFile, ChatStart
from core.media import is_picture, media_type
from jail.wire.schema import TEXT_SHOWN_BYTES, Attachment, Failure, Message

MAX_CHAT_BYTES = 32 << 20
MAX_BYTES = 128 << 20
"""Of all chats; as base64 in a request's body each byte costs about three more."""
_RETRY_AFTER_S = 5

Takes = Literal["none", "pictures", "all"]


class Attached:
    """What came for each chat, by its id and the file's path. On the loop's thread."""

    def __init__(self) -> None:
        self._pieces: defaultdict[int, dict[str, bytearray]] = defaultdict(dict)
        self._sizes: defaultdict[int, int] = defaultdict(int)
        self._held = 0

    def add(self, piece: ChatFile) -> Failure | None:
        """Hold one more piece, or say why not; then nothing of that chat is held any more."""
        size = len(piece.data)
        if self._sizes[piece.id] + size > MAX_CHAT_BYTES:
            self.drop(piece.id)
            return Failure("limit", f"a chat has more than {MAX_CHAT_BYTES} bytes of files")
        if self._held + size > MAX_BYTES:
            self.drop(piece.id)
            return Failure("overloaded", "too many files are being shown to models", _RETRY_AFTER_S)
        self._pieces[piece.id].setdefault(piece.path, bytearray()).extend(piece.data)
        self._sizes[piece.id] += size
        self._held += size
        return None

    def files(self, chat: int) -> dict[str, bytes]:
        """What came for a chat, which goes on to count until it is dropped."""
        return {path: bytes(data) for path, data in self._pieces.pop(chat, {}).items()}

    def drop(self, chat: int) -> None:
        """Forget a chat's files; harmless for one without."""
        self._pieces.pop(chat, None)
        self._held -= self._sizes.pop(chat, 0)


class Note(NamedTuple):
    """Words about a file, or of it."""

    text: str


class Picture(NamedTuple):
    """A picture; ``detail`` is OpenAI's, "" for none."""

    media_type: str
    data: bytes
    detail: str


class Pdf(NamedTuple):
    """A PDF file."""

    name: str
    data: bytes


Shown = Note | Picture | Pdf


def show(ask: ChatStart, message: Message, takes: Takes) -> list[Shown]:
    """What a model is shown of a message's files, as far as its server takes them; each after its name."""
    found: list[Shown] = []
    for attachment in message.attachments:
        found += _show(attachment, ask.files.get(attachment.path), takes)
    return found


def _show(attachment: Attachment, data: bytes | None, takes: Takes) -> list[Shown]:
    path, kind = attachment.path, media_type(data or b"")
    if not data or (kind is None and attachment.media_type != "text/plain"):
        return [Note(f"[{path}: {attachment.size_bytes} bytes, not shown here]")]
    if attachment.media_type == "text/plain":
        return [Note(_text(path, attachment, data))]
    name = f"{path} ({kind}, {len(data)} bytes)"
    if kind is not None and is_picture(kind):
        if takes == "none":
            return [Note(f"[{name}: this model's server is shown no pictures]")]
        return [Note(f"{name}:"), Picture(kind, data, attachment.detail)]
    if kind == "application/pdf":
        if takes != "all":
            return [Note(f"[{name}: this model's server is shown no PDF files]")]
        return [Note(f"{name}:"), Pdf(path.rpartition("/")[2], data)]
    return [Note(f"[{name}: it is something else by now]")]


def _text(path: str, attachment: Attachment, data: bytes) -> str:
    text = data[:TEXT_SHOWN_BYTES].decode("utf-8", "ignore")
    more = ""
    if len(data) > TEXT_SHOWN_BYTES:
        more = f"\n[{path} goes on: {attachment.size_bytes} bytes in all]"
    return f"{path} (text, {attachment.size_bytes} bytes):\n\n{text}{more}\n\n[end of {path}]"
