"""Whether a configuration file looks as if only its beginning was there yet. Pure.

Whoever writes it may still be at it when SIGHUP comes: an editor that writes in place, a disk that is full.
Half a file is often right by itself, and what it lacks would be taken for what its author wants no more.
"""

import tomllib
from typing import Any


def cut_short(old: str, new: str) -> str:
    """Why the new text (TOML that parses) looks cut, beside the one in use; "" where it does not."""
    if not old.strip():
        return ""
    if not new.strip():
        return "the file is empty"
    if len(new.rstrip()) < len(old.rstrip()) and old.startswith(new.rstrip()):
        return "the file is the beginning of the one in use, and nothing more"
    if old.endswith("\n") and not new.endswith("\n"):
        return "the file's last line does not end"
    before, after = _tables(tomllib.loads(old)), _tables(tomllib.loads(new))
    if _providers(before) and not _providers(after):
        return "none of the providers in use is in the file"
    gone = sorted(before - after)
    if len(gone) > 1:
        return f"the file lacks {len(gone)} sections of the one in use: {', '.join(gone)}"
    return ""


def _tables(raw: dict[str, Any]) -> set[str]:
    """The sections: [hub], [providers.local], but none of what these contain."""
    found: set[str] = set()
    for name, value in raw.items():
        tables = value.items() if isinstance(value, dict) else ()
        found |= {f"{name}.{key}" for key, more in tables if isinstance(more, dict)} or {name}
    return found


def _providers(tables: set[str]) -> set[str]:
    return {name for name in tables if name.startswith("providers.")}
