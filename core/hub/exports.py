"""A session as a file to keep: JSON for programs, Markdown for people."""

import re
import time
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from core.sessions import SessionRow
from jail.wire.schema import Attachment, Message, Picture

_encode = msgspec.json.Encoder().encode
_TICKS = re.compile(r"`+")
_MARKUP = re.compile(r"[!-/:-@\[-`{-~]")  # any of ASCII's punctuation may be escaped (CommonMark 2.4)
_NAMES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool result"}


def message_object(seq: int, message: Message) -> dict[str, object]:
    """A message as the API shows it; tool calls in OpenAI's shape."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    return {
        "seq": seq,
        "role": message.role,
        "content": message.text,
        **({"tool_calls": calls} if calls else {}),
        **({"tool_call_id": message.tool_call_id} if message.tool_call_id else {}),
        **({"attachments": [_attachment(a) for a in message.attachments]} if message.attachments else {}),
        **({"picture": msgspec.to_builtins(message.picture)} if message.picture is not None else {}),
    }


def _attachment(attachment: Attachment) -> dict[str, object]:
    """``path`` is below the home: /v1/files has it."""
    return {
        "path": attachment.path, "media_type": attachment.media_type, "size_bytes": attachment.size_bytes
    }  # fmt: skip


def session_object(row: SessionRow) -> dict[str, object]:
    """A session as the API shows it."""
    return {
        "object": "session",
        "id": row.id,
        "title": row.title,
        "created_s": row.created_s,
        "updated_s": row.updated_s,
        "messages": row.messages,
        **({"user": row.labels.user} if row.labels.user else {}),
        **({"metadata": row.labels.metadata} if row.labels.metadata else {}),
    }


class JsonExport:
    """One object, written in pieces."""

    content_type = "application/json"
    ending = "json"

    def head(self, row: SessionRow) -> bytes:
        """What comes before the messages."""
        shown = {**session_object(row), "object": "session.export"}
        del shown["messages"]
        return _encode({**shown, "messages": []})[:-2]

    def messages(self, first_seq: int, messages: Sequence[Message]) -> bytes:
        """Some messages."""
        rows = [_encode(message_object(first_seq + i, message)) for i, message in enumerate(messages)]
        return (b"," if first_seq > 1 else b"") + b",".join(rows)

    def tail(self) -> bytes:
        """What comes after them."""
        return b"]}\n"


class MarkdownExport:
    """A heading a message; what tools were given and gave is fenced."""

    content_type = "text/markdown"
    ending = "md"

    def head(self, row: SessionRow) -> bytes:
        """The title."""
        day = time.strftime("%Y-%m-%d", time.gmtime(row.updated_s))
        return f"# {' '.join(row.title.split()) or row.id}\n\nSession `{row.id}`, {day}\n".encode()

    def messages(self, first_seq: int, messages: Sequence[Message]) -> bytes:  # noqa: ARG002 - as JSON's
        """Some messages."""
        return "".join(_markdown(message) for message in messages).encode()

    def tail(self) -> bytes:
        """Nothing."""
        return b""


def _markdown(message: Message) -> str:
    parts = [f"\n## {_NAMES[message.role]}\n"]
    if message.text:
        parts.append(_fenced(message.text) if message.role == "tool" else f"{message.text}\n")
    parts += [
        f"Called {' '.join(call.name.split())}:\n{_fenced(call.arguments)}" for call in message.tool_calls
    ]
    if message.picture is not None:
        parts.append(_image(message.picture))
    return "\n".join(parts)


def _image(picture: Picture) -> str:
    """The picture by its place below the home; whatever its name is, nothing outside is referred to."""
    text = _MARKUP.sub(r"\\\g<0>", picture.caption or picture.path)
    return f"![{text}]({quote(picture.path)})\n"


def _fenced(text: str) -> str:
    """A code block whose fence the text cannot close (CommonMark 4.5)."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}\n"


EXPORTS: dict[str, type[JsonExport | MarkdownExport]] = {"json": JsonExport, "markdown": MarkdownExport}
