"""Code where every uid may read it: ``DATA/_runtime/<digest>/{app,lib,etc}``.

A checkout or a virtual environment may lie below a directory that only its owner may enter, so what
core, egress and jails run is copied once a version, compiled, and mounted or run from there. The
digest covers every byte, so a directory with this name is complete and right.
"""

import fcntl
import hashlib
import importlib.util
import os
import py_compile
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from jail.host.messages import HostError

_FORMAT: Final = 1  # counted up when this module stages the same input differently
_APP: Final = ("jail", "actors", "core")
_JAIL: Final = ("wire", "peer")
_PACKAGES: Final = ("zmq", "msgpack", "msgspec")
_LEFT_OUT_DIRECTORIES: Final = frozenset({"__pycache__", "tests", "cffi", "green", "ssh"})
_LEFT_OUT_SUFFIXES: Final = frozenset({".pyc", ".pyi", ".pxd", ".pxi", ".pyx", ".h", ".c", ".md", ".typed"})
_ETC: Final = {
    "passwd": "user:x:1000:1000:user:/home/user:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    "group": "user:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost jail\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "ld.so.cache": "",  # mounted over, as is alternatives/
}


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged version. It is kept until ``close``, also by other servers' cleaning."""

    root: Path
    app: Path
    lib: Path
    etc: Path
    lock_fd: int

    def close(self) -> None:
        """Let go; the version may be removed by the next start."""
        os.close(self.lock_fd)


def stage(data_dir: Path, source: Path) -> Staged:
    """Stage ``source`` (the directory that holds jail/, actors/ and core/) if it isn't yet.

    Packages for jails are those of the running interpreter. Old versions that nobody uses are
    removed. Raises HostError when something is missing or cannot be written.
    """
    files = dict(_plan(source))
    runtime = data_dir / "_runtime"
    root = runtime / _digest(files)
    try:
        runtime.mkdir(mode=0o755, exist_ok=True)
        _check_owned(runtime)
        runtime.chmod(0o755)
        lock_fd = _lock(root)
        if lock_fd is None:
            _build(runtime, root, files)
            lock_fd = _lock(root)
        if lock_fd is None:
            raise HostError(f"{root} vanished while it was staged")
        try:
            _check_owned(root)
            _remove_old(runtime, root)
        except BaseException:
            os.close(lock_fd)
            raise
    except OSError as error:
        raise HostError(f"cannot stage to {runtime}: {error}") from None
    return Staged(root, root / "app", root / "lib", root / "etc", lock_fd)


def check_readable(path: Path) -> None:
    """Raise HostError, with what to do, if another uid could not reach ``path``."""
    real = path.resolve()
    for directory in (*reversed(real.parents), real):
        try:
            mode = directory.stat().st_mode
        except OSError as error:
            raise HostError(f"{directory}: {error.strerror}") from None
        wanted = stat.S_IXOTH if directory.is_dir() else stat.S_IROTH
        if not mode & wanted:
            raise HostError(
                f"{path} cannot be reached by other users than its owner, because of {directory}; "
                f"each user's jail has a uid of its own: choose a place everybody may enter, "
                f"or run chmod o+{'x' if directory.is_dir() else 'r'} {directory}"
            )


def _plan(source: Path) -> Iterator[tuple[str, Path | bytes]]:
    """Every file to stage: its place and where it comes from."""
    for name in _APP:
        yield from _tree(f"app/{name}", source / name)
    yield "lib/jail/__init__.py", source / "jail" / "__init__.py"
    for name in _JAIL:
        yield from _tree(f"lib/jail/{name}", source / "jail" / name)
    for name in _PACKAGES:
        package = _package(name)
        yield from _tree(f"lib/{name}", package)
        bundled = package.parent / f"py{name}.libs"  # shared libraries of a wheel
        if bundled.is_dir():
            yield from _tree(f"lib/{bundled.name}", bundled)
    for name, text in _ETC.items():
        yield f"etc/{name}", text.encode()


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise HostError(f"the package {name} is missing from {sys.prefix}")
    return Path(spec.origin).parent


def _tree(place: str, directory: Path) -> Iterator[tuple[str, Path]]:
    if not directory.is_dir():
        raise HostError(f"{directory} is missing")
    for current, directories, names in os.walk(directory):
        directories[:] = sorted(set(directories) - _LEFT_OUT_DIRECTORIES)
        inside = Path(current).relative_to(directory)
        for name in sorted(names):
            path = Path(current) / name
            if path.suffix not in _LEFT_OUT_SUFFIXES and path.is_file():
                yield str(Path(place) / inside / name), path


def _bytes(origin: Path | bytes) -> bytes:
    return origin if isinstance(origin, bytes) else origin.read_bytes()


def _digest(files: dict[str, Path | bytes]) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {sys.implementation.cache_tag}".encode())
    for place, origin in sorted(files.items()):
        data = _bytes(origin)
        digest.update(f"\0{place}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:24]


def _build(runtime: Path, root: Path, files: dict[str, Path | bytes]) -> None:
    """Write all beside its place, then rename: there is never half a version."""
    new = runtime / f".new-{secrets.token_hex(8)}"
    try:
        _make_directory(new)
        (new / "etc").mkdir()
        (new / "etc" / "alternatives").mkdir()
        for place, origin in files.items():
            target = new / place
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_bytes(origin))
            if target.suffix == ".py":
                _compile(target, new, place)
        for current, _, names in os.walk(new):
            Path(current).chmod(0o755)
            for name in names:
                (Path(current) / name).chmod(0o644)
        with suppress(FileExistsError):  # somebody else was quicker, with the same bytes
            _rename(new, root)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _compile(target: Path, new: Path, place: str) -> None:
    # unchecked: the sources never change, and neither uid could write a newer file
    seen = f"/certosa/{place}" if place.startswith("lib/") else str(new.parent / place)
    try:
        py_compile.compile(
            str(target), dfile=seen, doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )  # fmt: skip
    except py_compile.PyCompileError:
        if place.startswith(("app/", "lib/jail/")):
            raise HostError(f"{place} does not compile") from None
        # a package may carry code for other versions; importing it would say so


def _make_directory(path: Path) -> None:
    path.mkdir(mode=0o700)


def _rename(new: Path, root: Path) -> None:
    try:
        new.rename(root)
    except OSError as error:
        if root.is_dir():
            raise FileExistsError from error
        raise


def _lock(root: Path) -> int | None:
    """A shared lock on a version, or None if it isn't there (any more)."""
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(fd).st_ino == root.stat().st_ino:
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass  # being removed at this moment
    os.close(fd)
    return None


def _check_owned(path: Path) -> None:
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
        raise HostError(f"{path} is not a directory that only the server may write; remove it")


def _remove_old(runtime: Path, keep: Path) -> None:
    for old in runtime.iterdir():
        if old == keep or old.is_symlink() or not old.is_dir():
            continue
        fd = os.open(old, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(old, ignore_errors=True)
        finally:
            os.close(fd)
