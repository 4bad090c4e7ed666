"""What a request brought is stored in its user's home, by their own jail, before the turn begins."""

import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from core.hub.errors import HubError
from core.hub.jail_call import JailCall, JailCalls, JailFailure, ask_jail
from core.hub.uploads import Upload
from core.vault.handle import UserHandle
from jail.wire.schema import Attachment, FileInfo, FileRead, FileStat, Message, attached

_ASK_S = 60.0
_AT_ONCE = 2
"""Requests of one user that store files; their actor has 16 calls, for /v1/files too."""
_NAMES = 8
_MAX_KNOWN = 4_096


class Keeper:
    """Stores files; used on the hub's loop. One that lies at its place already is left alone.

    What an agent has changed since is not ours to write over: then another name is taken.
    """

    def __init__(self, calls: JailCalls) -> None:
        self._calls = calls
        self._saving: Counter[str] = Counter()
        self._known: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def keep(
        self, handle: UserHandle, messages: Sequence[Message], files: Mapping[str, bytes]
    ) -> list[Message]:
        """The messages with their files stored, and cited by where they are. Raises HubError."""
        wanted = {a.path for message in messages for a in message.attachments}
        if not wanted:
            return list(messages)
        with self._counted(handle.user):
            places = {path: await self._store(handle, path, files[path]) for path in sorted(wanted)}
        return [_moved(message, places) for message in messages]

    @contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        if self._saving[user] >= _AT_ONCE:
            raise HubError(
                429, "two requests of yours store files already: wait for one to begin its turn",
                "too_many_requests", retry_after_s=1,
            )  # fmt: skip
        self._saving[user] += 1
        try:
            yield
        finally:
            self._saving[user] -= 1
            if not self._saving[user]:
                del self._saving[user]

    async def _store(self, handle: UserHandle, path: str, data: bytes) -> str:
        """Where the file is: at ``path``, or beside it where something else is."""
        for place in _names(path):
            info = await self._stat(handle, place)
            if info is None:
                async with Upload(self._calls, handle, place, secrets.token_hex(8)) as upload:
                    await upload.add(data)
                    await upload.finish()
                info = await self._stat(handle, place)
                if info is not None:
                    self._remember(handle.user, place, info.mark)
                return place
            if info.kind == "file" and await self._is_the_same(handle, place, info, data):
                return place
        raise HubError(409, f"your home has other files where {path} is to be: delete them", "conflict")

    async def _stat(self, handle: UserHandle, path: str) -> FileInfo | None:
        try:
            info: FileInfo = await ask_jail(self._calls, handle, FileStat(path), _ASK_S)
        except JailFailure as error:
            if error.failure.code != "not_found":
                raise
            return None
        return info

    async def _is_the_same(self, handle: UserHandle, path: str, info: FileInfo, data: bytes) -> bool:
        if info.size_bytes != len(data):
            return False
        if info.mark and self._known.get((handle.user, path)) == info.mark:
            self._known.move_to_end((handle.user, path))
            return True
        seen, size = hashlib.sha256(), 0
        read = FileRead(path, 0, len(data), info.mark)
        async with JailCall(self._calls, handle, read, _ASK_S) as call:
            async for chunk in call:
                seen.update(chunk.data)
                size += len(chunk.data)
                if size > len(data):
                    return False
        if seen.digest() != hashlib.sha256(data).digest():
            return False
        self._remember(handle.user, path, info.mark)
        return True

    def _remember(self, user: str, path: str, mark: str) -> None:
        self._known[user, path] = mark
        self._known.move_to_end((user, path))
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)


def _names(path: str) -> Iterator[str]:
    yield path
    stem, _, ending = path.rpartition(".")
    for number in range(2, _NAMES + 1):
        yield f"{stem}-{number}.{ending}"


def _moved(message: Message, places: Mapping[str, str]) -> Message:
    text = message.text
    found: list[Attachment] = []
    for attachment in message.attachments:
        place = places[attachment.path]
        if place != attachment.path:
            text = text.replace(attached(attachment.path), attached(place))
        found.append(replace(attachment, path=place))
    return replace(message, text=text, attachments=tuple(found)) if found else message
