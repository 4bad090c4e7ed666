"""A tool result that is too long for the model: kept as a file, shown as head and tail."""

import os

from jail.peer.texts import cut_middle, size

_FOLDER = ".certosa/results"
_KEEP = 200  # files; the oldest go first


def shorten(text: str, limit_bytes: int, home: str, name: str) -> str:
    """The text within ``limit_bytes``; where it is longer, all of it is stored in the home.

    Args:
        text: the whole result.
        limit_bytes: of UTF-8, the note about the file included.
        home: the jail's home directory.
        name: the file's name without its ending, unique in the home.
    """
    if size(text) <= limit_bytes:
        return text
    try:
        where = f"The whole result is in {_store(text, home, name)}; read_file or search_files shows parts."
    except OSError as error:
        where = f"The whole result could not be stored: {error.strerror}. Ask for less at once."
    note = f"\n[{size(text)} bytes are too many to show. {where}]"
    return cut_middle(text, limit_bytes - size(note)) + note


def _store(text: str, home: str, name: str) -> str:
    folder = os.path.join(home, _FOLDER)
    os.makedirs(folder, exist_ok=True)
    with os.scandir(folder) as scan:
        stored = [entry for entry in scan if entry.name.endswith(".txt")]
    stored.sort(key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for old in stored[: max(0, len(stored) - _KEEP + 1)]:
        os.unlink(old.path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(os.path.join(folder, f"{name}.txt"), flags, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "replace"))
    return f"{_FOLDER}/{name}.txt"
