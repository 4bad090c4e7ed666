"""System calls that a jail must be refused, made for real."""

import ctypes
import errno
import mmap
import os
import platform
import signal

from jail.peer.probes.finding import Findings

_libc = ctypes.CDLL(None, use_errno=True)

# name: (x86_64, aarch64), from the kernel's tables
_NUMBERS = {
    "getpid": (39, 172),
    "clone": (56, 220),
    "clone3": (435, 435),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "mount_setattr": (442, 442),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "personality": (135, 92),
    "unknown": (1_000, 1_000),
}
_NEW_USER = 0x1000_0000
_NEW_ANY = (0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x2000_0000, 0x4000_0000)
_FORBIDDEN = (
    "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen",
    "mount_setattr", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp",
    "keyctl", "add_key", "bpf", "perf_event_open", "userfaultfd", "open_by_handle_at",
    "name_to_handle_at", "clock_settime", "kexec_load", "init_module",
)  # fmt: skip
_X32_BIT = 0x4000_0000
_GETPID_32_BIT = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, 20; int 0x80; ret


def probe(findings: Findings) -> None:
    """Make the calls, with arguments that do no harm where one works."""
    x86 = platform.machine() == "x86_64"
    findings.works("a plain system call", _call, "getpid")
    findings.works("unshare of nothing", _call, "unshare", 0)
    findings.works("an internet socket", _open_socket, 2)
    findings.works("the personality asked", _call, "personality", 0xFFFF_FFFF)
    for flag in (_NEW_USER, *_NEW_ANY):
        findings.refused(f"unshare {flag:#x}", _call, "unshare", flag, numbers=(errno.EPERM,))
        findings.refused(f"clone {flag:#x}", _clone, flag, numbers=(errno.EPERM,))
    findings.refused("clone3", _call, "clone3", 0, 0, numbers=(errno.ENOSYS,))
    for name in _FORBIDDEN:
        findings.refused(name, _call, name, 1, 0, 0, 0, 0, numbers=(errno.EPERM,))
    findings.refused("io_uring_setup", _call, "io_uring_setup", 1, 0, numbers=(errno.ENOSYS,))
    findings.refused("a call newer than the list", _call, "unknown", numbers=(errno.ENOSYS,))
    for request in (0x5412, 0x541C, 0x5423):
        for high in (0, 1 << 32):
            findings.refused(
                f"ioctl {request | high:#x}",
                _call,
                "ioctl",
                0,
                request | high,
                0,
                numbers=(errno.EPERM,),
            )
    for family in (17, 38, 40):  # PACKET, ALG, VSOCK
        findings.refused(
            f"socket of family {family}",
            _open_socket,
            family,
            numbers=(errno.EAFNOSUPPORT,),
        )
    findings.refused("another personality", _call, "personality", 8, numbers=(errno.EPERM,))
    if x86:
        findings.child("an x32 call", signal.SIGSYS, _raw, _X32_BIT | 39)
        findings.child("a 32-bit call", signal.SIGSYS, _int80)
    _memory(findings)


def _call(name: str, *args: int) -> int:
    return _raw(_NUMBERS[name][0 if platform.machine() == "x86_64" else 1], *args)


def _raw(number: int, *args: int) -> int:
    got: int = _libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(arg) for arg in args))
    if got == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return got


def _open_socket(family: int) -> None:
    os.close(_call("socket", family, 1, 0))


def _clone(flag: int) -> None:
    pid = _call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _int80() -> None:
    with mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as page:
        page.write(_GETPID_32_BIT)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        ctypes.CFUNCTYPE(ctypes.c_int)(address)()


def _memory(findings: Findings) -> None:
    """The memory of a visible process may be written only where that process is filtered too."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/mem", "r+b", buffering=0):
                pass
        except OSError as error:
            findings.add(f"memory of pid {name}", "filtered or refused", str(error), True)
            continue
        with open(f"/proc/{name}/status", encoding="ascii") as file:
            filtered = any(line.split() == ["Seccomp:", "2"] for line in file)
        got = "writable, filtered" if filtered else "writable, unfiltered"
        findings.add(f"memory of pid {name}", "filtered or refused", got, filtered)
