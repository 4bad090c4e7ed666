"""The filter, call by call, on both machines."""

import errno

import pytest

from jail.host.bpf import RET_ALLOW, RET_KILL_PROCESS
from jail.host.seccomp import filter_program
from jail.host.syscalls import AUDIT_ARCH, LAST_KNOWN, Machine, number
from tests.fakes.bpf_machine import run

MACHINES: tuple[Machine, ...] = ("x86_64", "aarch64")
EPERM = 0x50000 | errno.EPERM
ENOSYS = 0x50000 | errno.ENOSYS
EAFNOSUPPORT = 0x50000 | errno.EAFNOSUPPORT
pytestmark = pytest.mark.parametrize("machine", MACHINES)

# the calls a worker makes all day, by the kernel's tables
EVERYDAY: dict[Machine, tuple[int, ...]] = {
    "x86_64": (0, 1, 2, 3, 9, 11, 12, 39, 57, 58, 59, 60, 61, 62, 202, 231, 232, 257, 281, 288, 293,
               302, 317, 318, 319, 332, 424, 434, 436, 439, 444, 462),
    "aarch64": (22, 56, 57, 63, 64, 93, 94, 95, 98, 129, 172, 214, 215, 221, 222, 242, 260, 261, 277,
                278, 279, 291, 424, 434, 436, 439, 444, 462),
}  # fmt: skip


def call(machine: Machine, nr: int | None, *args: int) -> int:
    assert nr is not None
    return run(filter_program(machine), AUDIT_ARCH[machine], nr, *args)


def test_everyday_calls_are_allowed(machine: Machine) -> None:
    assert {nr: call(machine, nr, *(2**64 - 1,) * 6) for nr in EVERYDAY[machine]} == dict.fromkeys(
        EVERYDAY[machine], RET_ALLOW
    )


def test_a_foreign_architecture_is_killed(machine: Machine) -> None:
    program = filter_program(machine)
    foreign = {0x4000_0003, 0x4000_0028, *AUDIT_ARCH.values()} - {AUDIT_ARCH[machine]}

    assert {run(program, arch, 39) for arch in foreign} == {RET_KILL_PROCESS}


def test_x32_calls_are_killed_and_never_allowed(machine: Machine) -> None:
    got = call(machine, 0x4000_0000 | 39)

    assert got == (RET_KILL_PROCESS if machine == "x86_64" else ENOSYS)


@pytest.mark.parametrize("nr", [LAST_KNOWN + 1, 500, 512, 547, 100_000, 0x3FFF_FFFF])
def test_what_is_newer_than_the_list_is_missing(machine: Machine, nr: int) -> None:
    assert call(machine, nr) == ENOSYS


@pytest.mark.parametrize("name", ["io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"])
def test_calls_with_a_fallback_are_missing(machine: Machine, name: str) -> None:
    assert call(machine, number(name, machine)) == ENOSYS


@pytest.mark.parametrize(
    "name",
    ["setns", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "ptrace",
     "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "mount",
     "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount",
     "fspick", "mount_setattr", "open_by_handle_at", "name_to_handle_at", "kexec_load",
     "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot", "swapon",
     "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "vhangup", "fanotify_init",
     "fanotify_mark", "lookup_dcookie", "clock_settime", "clock_adjtime", "settimeofday",
     "adjtimex"],
)  # fmt: skip
def test_dangerous_calls_are_not_permitted(machine: Machine, name: str) -> None:
    assert call(machine, number(name, machine)) == EPERM


@pytest.mark.parametrize("name", ["iopl", "ioperm", "modify_ldt"])
def test_calls_of_one_machine_alone_are_refused_there(machine: Machine, name: str) -> None:
    nr = number(name, machine)

    assert nr is None or call(machine, nr) == EPERM
    assert (nr is None) == (machine == "aarch64")


@pytest.mark.parametrize("bit", [17, 25, 26, 27, 28, 29, 30])
@pytest.mark.parametrize("name", ["clone", "unshare"])
def test_a_new_namespace_is_not_permitted(machine: Machine, name: str, bit: int) -> None:
    nr = number(name, machine)

    assert call(machine, nr, 1 << bit | 0x11) == EPERM
    assert call(machine, nr, 1 << bit | 1 << 40) == EPERM


def test_a_plain_clone_and_a_thread_are_allowed(machine: Machine) -> None:
    clone = number("clone", machine)

    assert call(machine, clone, 17) == RET_ALLOW
    assert call(machine, clone, 0x3D0F00) == RET_ALLOW
    assert call(machine, number("unshare", machine), 0x400) == RET_ALLOW  # CLONE_FILES
    assert call(machine, number("unshare", machine), 0x80) == EPERM  # CLONE_NEWTIME


@pytest.mark.parametrize("request_", [0x5412, 0x541C, 0x5423])
@pytest.mark.parametrize("high", [0, 1 << 32, 0xFFFF_FFFF << 32])
def test_terminal_requests_are_refused_by_their_low_bits(machine: Machine, request_: int, high: int) -> None:
    assert call(machine, number("ioctl", machine), 0, request_ | high) == EPERM


def test_other_terminal_requests_are_allowed(machine: Machine) -> None:
    for request_ in (0x5401, 0x5413, 0x541B, 0x5421, 0x5412_0000):
        assert call(machine, number("ioctl", machine), 0, request_) == RET_ALLOW


@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_four_socket_families_are_allowed_and_no_other(machine: Machine, name: str) -> None:
    nr = number(name, machine)
    allowed = {family for family in range(64) if call(machine, nr, family) == RET_ALLOW}

    assert allowed == {1, 2, 10, 16}
    assert call(machine, nr, 40) == EAFNOSUPPORT
    # the kernel looks at the low 32 bits
    assert call(machine, nr, 1 << 32 | 2) == RET_ALLOW
    assert call(machine, nr, 1 << 32 | 40) == EAFNOSUPPORT


def test_the_personality_stays(machine: Machine) -> None:
    nr = number("personality", machine)

    assert call(machine, nr, 0) == call(machine, nr, 0xFFFF_FFFF) == RET_ALLOW
    assert call(machine, nr, 8) == call(machine, nr, 0x40000) == EPERM


def test_every_jump_lands_inside_and_the_program_is_short_enough(machine: Machine) -> None:
    program = filter_program(machine)

    assert len(program) % 8 == 0
    assert len(program) // 8 < 4_096
    for nr in range(LAST_KNOWN + 3):
        for argument in (0, 1, 0x5412, 1 << 28, 2**64 - 1):
            call_result = run(program, AUDIT_ARCH[machine], nr, argument, argument)
            assert call_result in (RET_ALLOW, EPERM, ENOSYS, EAFNOSUPPORT)
