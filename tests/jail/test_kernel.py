"""Kernel: what the filter, the namespaces and the lack of capabilities refuse, tried for real."""

import platform

import pytest

from jail.host import bpf
from tests.fakes.jails import House, ShellJail
from tests.jail.conftest import Enter

X86 = platform.machine() == "x86_64"
NEW_USER = 0x1000_0000

CALL = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    got = libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(a) for a in args))
    return 'done' if got != -1 else errno.errorcode[ctypes.get_errno()]
"""


def numbers(x86_64: int, aarch64: int) -> int:
    return x86_64 if X86 else aarch64


def call(jail: ShellJail, number: int, *args: int) -> str:
    status, text = jail.python(f"{CALL}\nprint(call({number}, {', '.join(map(str, args))}))")
    return text.strip() if status == 0 else f"signal {-status}"


@pytest.mark.wall("calls")
def test_a_plain_call_works(alice: ShellJail) -> None:
    assert call(alice, numbers(39, 172)) == "done"


@pytest.mark.wall("namespaces")
@pytest.mark.parametrize("flag", [0x20000, 0x2000000, 0x4000000, 0x8000000, NEW_USER, 0x20000000])
def test_no_new_namespace_by_unshare_or_clone(alice: ShellJail, flag: int) -> None:
    assert call(alice, numbers(272, 97), flag) == "EPERM"
    assert call(alice, numbers(272, 97), flag | 1 << 40) == "EPERM"
    assert call(alice, numbers(56, 220), flag | 17, 0, 0, 0, 0) == "EPERM"


@pytest.mark.wall("namespaces")
def test_clone3_says_it_is_missing_so_that_libraries_fall_back(alice: ShellJail) -> None:
    assert call(alice, 435, 0, 88) == "ENOSYS"
    assert alice.python("import threading; t=threading.Thread(target=print); t.start(); t.join()") == (
        0,
        "\n",
    )


@pytest.mark.wall("namespaces")
def test_the_kernel_itself_refuses_user_namespaces_without_the_filter(
    house: House, kind: str, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_all = bpf.assemble([bpf.returns(bpf.RET_ALLOW)])
    monkeypatch.setattr(house.starters[kind].plain, "filter", allow_all)
    jail = enter("alice")

    assert call(jail, numbers(272, 97), 0) == "done"
    assert call(jail, numbers(272, 97), NEW_USER) == "ENOSPC"
    assert call(jail, numbers(165, 40), 0, 0, 0, 0, 0) in {"EPERM", "EFAULT"}
    assert call(jail, numbers(161, 51), 0) in {"EPERM", "EFAULT"}


@pytest.mark.wall("calls")
@pytest.mark.wall("ptrace")
@pytest.mark.parametrize(
    ("x86_64", "aarch64"),
    [
        (165, 40), (166, 39), (155, 41), (161, 51), (428, 428), (429, 429), (430, 430), (442, 442),
        (101, 117), (310, 270), (311, 271), (438, 438), (312, 272), (250, 219), (248, 217),
        (249, 218), (321, 280), (298, 241), (323, 282), (304, 265), (303, 264), (227, 112),
        (246, 104), (175, 105), (308, 268), (300, 262), (103, 116),
    ],
)  # fmt: skip
def test_a_dangerous_call_is_not_permitted(alice: ShellJail, x86_64: int, aarch64: int) -> None:
    assert call(alice, numbers(x86_64, aarch64), 0, 0, 0, 0, 0) == "EPERM"


@pytest.mark.wall("new-calls")
@pytest.mark.parametrize("number", [425, 426, 427, 463, 600, 100_000])
def test_io_uring_and_calls_newer_than_the_list_are_missing(alice: ShellJail, number: int) -> None:
    assert call(alice, number, 1, 0, 0, 0, 0) == "ENOSYS"


@pytest.mark.wall("terminal")
@pytest.mark.parametrize("request_", [0x5412, 0x541C, 0x5423])
@pytest.mark.parametrize("high", [0, 1 << 32, 0xFFFFFFFF << 32])
def test_typing_into_a_terminal_is_refused(alice: ShellJail, request_: int, high: int) -> None:
    assert call(alice, numbers(16, 29), 0, request_ | high, 0) == "EPERM"


@pytest.mark.wall("terminal")
def test_another_ioctl_reaches_the_kernel(alice: ShellJail) -> None:
    assert call(alice, numbers(16, 29), 0, 0x5401, 0) == "ENOTTY"


@pytest.mark.wall("sockets")
@pytest.mark.parametrize(
    ("family", "got"),
    [(1, "done"), (2, "done"), (10, "done"), (17, "EAFNOSUPPORT"), (38, "EAFNOSUPPORT"),
     (40, "EAFNOSUPPORT"), (31, "EAFNOSUPPORT")],
)  # fmt: skip
def test_sockets_are_of_the_families_listed(alice: ShellJail, family: int, got: str) -> None:
    assert call(alice, numbers(41, 198), family, 1, 0) == got


@pytest.mark.wall("sockets")
def test_a_raw_socket_needs_a_capability_nobody_has(alice: ShellJail) -> None:
    assert call(alice, numbers(41, 198), 2, 3, 1) == "EPERM"


@pytest.mark.wall("foreign")
@pytest.mark.skipif(not X86, reason="needs the machine code of x86")
def test_a_system_call_of_a_foreign_architecture_kills(alice: ShellJail) -> None:
    code = f"""{CALL}
import mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(b'\\xb8\\x14\\x00\\x00\\x00' + {{code}} + b'\\xc3')
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
print('lived')
"""
    # the same page with a harmless instruction in the place of int 0x80
    assert alice.python(code.replace("{code}", "b'\\x90\\x90'")) == (0, "lived\n")
    assert alice.python(code.replace("{code}", "b'\\xcd\\x80'"))[0] == -31


@pytest.mark.wall("foreign")
@pytest.mark.skipif(not X86, reason="x32 is of x86")
def test_an_x32_call_kills(alice: ShellJail) -> None:
    assert call(alice, 0x4000_0000 | 39) == "signal 31"


@pytest.mark.wall("personality")
def test_personality_can_be_asked_and_not_changed(alice: ShellJail) -> None:
    assert call(alice, numbers(135, 92), 0xFFFFFFFF) == "done"
    assert call(alice, numbers(135, 92), 0x40000) == "EPERM"
