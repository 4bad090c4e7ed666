"""The jail's system call filter, as a pure function from a machine to BPF bytes.

A list of what is refused, for the kernel's attack surface and for the ways around a namespace;
what the namespaces, the dropped capabilities and no_new_privs already refuse is listed again where
one bug in them would matter. Calls that a C library falls back from answer ENOSYS, others EPERM.
"""

import errno
from typing import Final

from jail.host import bpf
from jail.host.syscalls import AUDIT_ARCH, LAST_KNOWN, Machine, number

_X32_BIT: Final = 0x4000_0000

# Fallbacks exist: libc takes clone, event loops take epoll. io_uring runs calls past the filter.
# clone3 hands its flags over in memory, which a filter cannot read.
_MISSING: Final = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")

_FORBIDDEN: Final = (
    # other namespaces: a new user namespace gives all capabilities inside it
    "setns",
    # the caller's session keyring is not part of any namespace
    "keyctl", "add_key", "request_key",
    # large kernel surfaces with a history, none needed by an agent
    "bpf", "perf_event_open", "userfaultfd",
    # another process's memory and descriptors
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease",
    "kcmp", "pidfd_getfd", "move_pages", "migrate_pages",
    # what is mounted, by the old calls and the new
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "statmount", "listmount",
    # a file by its handle leads out of a mount namespace
    "open_by_handle_at", "name_to_handle_at",
    # the machine itself
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module",
    "create_module", "get_kernel_syms", "query_module", "reboot", "swapon", "swapoff", "acct",
    "quotactl", "quotactl_fd", "syslog", "sethostname", "setdomainname", "vhangup",
    "fanotify_init", "fanotify_mark", "lookup_dcookie",
    # the clock is everybody's
    "clock_settime", "clock_adjtime", "settimeofday", "adjtimex",
    # ports and segments of the processor, and calls long out of use
    "iopl", "ioperm", "modify_ldt", "uselib", "ustat", "sysfs", "_sysctl", "nfsservctl",
)  # fmt: skip

_CLONE_NEW: Final = 0x7E02_0000  # NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_CLONE_NEWTIME: Final = 0x80  # for unshare only: clone's low byte is the exit signal

# TIOCSTI and TIOCLINUX type into a terminal, TIOCSETD loads line disciplines. The kernel looks at
# the low 32 bits of the request only, so the filter does too.
_IOCTLS: Final = (0x5412, 0x541C, 0x5423)

_FAMILIES: Final = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK

# PER_LINUX and the question "which is it?"; others switch off address randomisation or emulate
# old systems with their bugs
_PERSONALITIES: Final = (0, 0xFFFF_FFFF)


def filter_program(machine: Machine) -> bytes:
    """The filter for a machine, ready for seccomp(2) or bwrap's --seccomp."""
    program = _preamble(machine)
    for names, error in ((_MISSING, errno.ENOSYS), (_FORBIDDEN, errno.EPERM)):
        for name in names:
            program += _refuse(number(name, machine), error)
    program += _refuse_bits(number("clone", machine), 0, _CLONE_NEW)
    program += _refuse_bits(number("unshare", machine), 0, _CLONE_NEW | _CLONE_NEWTIME)
    program += _refuse_values(number("ioctl", machine), 1, _IOCTLS)
    for name in ("socket", "socketpair"):
        program += _allow_values(number(name, machine), 0, _FAMILIES, errno.EAFNOSUPPORT)
    program += _allow_values(number("personality", machine), 0, _PERSONALITIES, errno.EPERM)
    return bpf.assemble([*program, bpf.returns(bpf.RET_ALLOW)])


def _preamble(machine: Machine) -> list[bpf.Instruction]:
    program = [
        # a 32-bit call on a 64-bit kernel has other numbers: no list of ours would fit
        bpf.load(bpf.ARCH_OFFSET),
        bpf.if_equal_skip(AUDIT_ARCH[machine], 1),
        bpf.returns(bpf.RET_KILL_PROCESS),
        bpf.load(bpf.NR_OFFSET),
    ]
    if machine == "x86_64":
        program += [
            bpf.unless_at_least_skip(_X32_BIT, 1),
            bpf.returns(bpf.RET_KILL_PROCESS),
        ]
    # what a newer kernel adds is unknown to this list
    return [*program, bpf.unless_greater_skip(LAST_KNOWN, 1), bpf.fails(errno.ENOSYS)]


def _refuse(nr: int | None, error: int) -> list[bpf.Instruction]:
    return [] if nr is None else [bpf.unless_equal_skip(nr, 1), bpf.fails(error)]


def _guarded(nr: int | None, body: list[bpf.Instruction]) -> list[bpf.Instruction]:
    """``body`` for this call only; it falls through with the call's number loaded again."""
    if nr is None:
        return []
    whole = [*body, bpf.load(bpf.NR_OFFSET)]
    return [bpf.unless_equal_skip(nr, len(whole)), *whole]


def _refuse_bits(nr: int | None, argument: int, bits: int) -> list[bpf.Instruction]:
    body = [
        bpf.load_argument(argument),
        bpf.unless_any_bit_skip(bits, 1),
        bpf.fails(errno.EPERM),
    ]
    return _guarded(nr, body)


def _refuse_values(nr: int | None, argument: int, values: tuple[int, ...]) -> list[bpf.Instruction]:
    body = [bpf.load_argument(argument)]
    for value in values:
        body += [bpf.unless_equal_skip(value, 1), bpf.fails(errno.EPERM)]
    return _guarded(nr, body)


def _allow_values(
    nr: int | None, argument: int, values: tuple[int, ...], error: int
) -> list[bpf.Instruction]:
    body = [bpf.load_argument(argument)]
    for index, value in enumerate(values):
        body.append(bpf.if_equal_skip(value, len(values) - index))
    return _guarded(nr, [*body, bpf.fails(error)])
