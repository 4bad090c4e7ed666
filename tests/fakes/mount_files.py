"""Sealed memory files, as egress gives them to the spawner for a jail's mounts."""

import os
from collections.abc import Callable
from dataclasses import replace

from jail.host.launcher import JailSpec
from jail.host.sealed import sealed_file


def memory_file(text: str, *, sealed: bool = True) -> int:
    """One, at its beginning; the caller's to close."""
    if sealed:
        return sealed_file("credential", text.encode())
    fd = os.memfd_create("credential", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, text.encode())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def with_mounts(names: tuple[str, ...], fds: tuple[int, ...]) -> Callable[[JailSpec], JailSpec]:
    """Change a jail's spec: these lie in it."""

    def change(spec: JailSpec) -> JailSpec:
        return replace(spec, profile=replace(spec.profile, mounts=names), mount_fds=fds)

    return change
