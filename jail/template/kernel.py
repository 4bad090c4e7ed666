"""System calls that Python has no function for. All raise OSError."""

import ctypes
import errno
import fcntl
import os
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWCGROUP: Final = 0x0200_0000
CLONE_NEWUTS: Final = 0x0400_0000
CLONE_NEWIPC: Final = 0x0800_0000
CLONE_NEWUSER: Final = 0x1000_0000
CLONE_NEWPID: Final = 0x2000_0000
CLONE_NEWNET: Final = 0x4000_0000

_NS_GET_PARENT: Final = 0xB702  # ioctl_ns(2)

_FSOPEN, _FSCONFIG, _FSMOUNT, _MOVE_MOUNT = 430, 431, 432, 429  # on every machine
_FSOPEN_CLOEXEC: Final = 1
_FSMOUNT_CLOEXEC: Final = 1
_FSCONFIG_SET_STRING: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6
_MOUNT_ATTR_NOSUID_NODEV_NOEXEC: Final = 0x2 | 0x4 | 0x8
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_AT_FDCWD: Final = -100
_MNT_DETACH: Final = 2

_PR_SET_DUMPABLE: Final = 4
_PR_SET_SECCOMP: Final = 22
_PR_CAPBSET_DROP: Final = 24
_SECCOMP_MODE_FILTER: Final = 2
_CAPABILITY_VERSION_3: Final = 0x2008_0522
_MAX_CAPABILITIES: Final = 64
_M_ARENA_MAX: Final = -8  # mallopt(3)
_INSTRUCTION_BYTES: Final = 8


class _FilterProgram(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def set_namespaces(fd: int, kinds: int) -> None:
    """setns(2): by a namespace's descriptor, or a pidfd and several kinds."""
    _check(_libc.setns(fd, kinds))


def unshare(kinds: int) -> None:
    """unshare(2)."""
    _check(_libc.unshare(kinds))


def parent_namespace(user_namespace: int) -> int:
    """A descriptor of the user namespace that one was made in."""
    return fcntl.ioctl(user_namespace, _NS_GET_PARENT)


def replace_proc() -> None:
    """Put a proc file system of the caller's pid namespace in the place of the one on /proc.

    The old one is there until the new one is made: the kernel wants to see that nothing of it was
    hidden (mount_too_revealing() in fs/namespace.c).
    """
    context = _syscall(_FSOPEN, b"proc", _FSOPEN_CLOEXEC)
    try:
        _syscall(_FSCONFIG, context, _FSCONFIG_SET_STRING, b"source", b"proc", 0)
        _syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        mount = _syscall(_FSMOUNT, context, _FSMOUNT_CLOEXEC, _MOUNT_ATTR_NOSUID_NODEV_NOEXEC)
    finally:
        os.close(context)
    try:
        _check(_libc.umount2(b"/proc", _MNT_DETACH))
        _syscall(_MOVE_MOUNT, mount, b"", _AT_FDCWD, b"/proc", _MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(mount)


def drop_capabilities() -> None:
    """Empty all five sets, for good."""
    for number in range(_MAX_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            if ctypes.get_errno() != errno.EINVAL or number == 0:
                _check(-1)
            break  # past the kernel's last
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)()))  # clears the ambient set too


def make_dumpable() -> None:
    """Give /proc/PID of this process back to its own uid, which changing the uid took away."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))


def install_filter(program: bytes) -> None:
    """Filter system calls from here on; needs no_new_privs."""
    prepared = _FilterProgram(len(program) // _INSTRUCTION_BYTES, program)
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(prepared), 0, 0))


def use_one_malloc_arena() -> None:
    """Have threads allocate where the main one does: libzmq's two need no pages of their own each."""
    _libc.mallopt(_M_ARENA_MAX, 1)


def write_memory(address: int, data: bytes) -> None:
    """Write to an address of our own."""
    ctypes.memmove(address, data, len(data))


def _syscall(number: int, *args: int | bytes | None) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *args))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
