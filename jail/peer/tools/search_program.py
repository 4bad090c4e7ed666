"""The program behind search_files. One argument: the job, as JSON. Exit 2: what to mend is printed."""

import fnmatch
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator

_MEMORY_BYTES = 512 * 1024 * 1024
_MAX_RESULTS = 200
_MAX_FILES = 20_000
_MAX_FILE_BYTES = 16 * 1024 * 1024
_MAX_LINE = 4_096  # characters of a line that are searched
_MAX_SHOWN = 300
_SNIFF_BYTES = 8_192


def main() -> int:
    """Search, print what is found."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    job = json.loads(sys.argv[1])
    out = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
    try:
        pattern = re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        out.write(f"The pattern is not a regular expression: {error}.")
        out.flush()
        return 2
    found = 0
    for path in _files(job["path"], job["glob"]):
        shown = os.path.relpath(path, job["home"]) if path.startswith(job["home"]) else path
        for number, line in _lines(path):
            if pattern.search(line):
                out.write(f"{shown}:{number}: {line.strip()[:_MAX_SHOWN]}\n")
                found += 1
                if found >= _MAX_RESULTS:
                    out.write(f"[stopped at {_MAX_RESULTS} matches; take a narrower pattern]\n")
                    out.flush()
                    return 0
        out.flush()
    return 0


def _files(path: str, glob: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    seen = 0
    for directory, names, files in os.walk(path):
        names.sort()
        for name in sorted(files):
            if fnmatch.fnmatch(name, glob):
                seen += 1
                if seen > _MAX_FILES:
                    sys.stdout.write(f"[stopped after {_MAX_FILES} files]\n")
                    sys.stdout.flush()
                    return
                yield os.path.join(directory, name)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return
            data = file.read(_MAX_FILE_BYTES)
    except OSError:
        return  # unreadable or gone meanwhile: no match in it
    if b"\0" in data[:_SNIFF_BYTES]:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), start=1):
        yield number, line[:_MAX_LINE]


if __name__ == "__main__":
    sys.exit(main())
