"""Ways across the wall between two users, each beside the same act where it is allowed.

Every act is a small program that an agent runs in its own jail by its own ``run_command`` tool.
It says ``GOT <what>`` on a line of its own where it succeeds, or ``NO <why>``.
"""

import base64
import re
from dataclasses import dataclass
from pathlib import Path

_READ = """
import errno, sys
def attempt(path):
    try:
        with open(path, errors="replace") as file:
            return "GOT " + file.read(200).strip().replace("\\n", " ")
    except OSError as error:
        return "NO " + errno.errorcode.get(error.errno, "?")
"""

_ROOTS = (
    _READ
    + """
import os
found, answers = [], []
for pid in filter(str.isdigit, os.listdir("/proc")):
    for way in WAYS:
        answers.append(attempt("/proc/" + pid + "/" + way + PATH))
        if answers[-1].startswith("GOT"):
            found.append(answers[-1])
print((found or answers or ["NO process is visible"])[0])
"""
)

_CONNECT = """
import errno, socket
if OWN:
    listener = socket.create_server(("127.0.0.1", 0))
    PORT = listener.getsockname()[1]
try:
    socket.create_connection(("127.0.0.1", PORT), 10).close()
    print("GOT a connection")
except OSError as error:
    print("NO " + errno.errorcode.get(error.errno, str(error)))
"""

# clone(2) is called by its number, so that no library stands between the act and the kernel.
_CLONE = """
import ctypes, errno, os, platform, signal
number = {"x86_64": 56, "aarch64": 220, "riscv64": 220}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
pid = libc.syscall(number, ctypes.c_ulong(FLAGS | signal.SIGCHLD), None, None, None, None)
if pid == 0:
    os._exit(0)
if pid < 0:
    print("NO " + errno.errorcode.get(ctypes.get_errno(), "?"))
else:
    os.waitpid(pid, 0)
    print("GOT a process")
"""
_CLONE_NEWUSER_NEWNS = 0x1002_0000

_ANSWER = re.compile(r"^(GOT|NO) (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Act:
    """A program to run in a jail, and what it says where it succeeds (a part of it)."""

    program: str
    secret: str

    @property
    def command(self) -> str:
        """One line for a shell; base64 because what carries it may not keep quotes and lines."""
        packed = base64.b64encode(self.program.encode()).decode()
        return f"""python3 -I -c "import base64; exec(base64.b64decode('{packed}'))\""""

    def read(self, output: str) -> str:
        """What the program said, out of its tool's result: ``GOT ...``, ``NO ...`` or ``?``."""
        answers = _ANSWER.findall(output)
        return " ".join(answers[-1]) if answers else "?"

    def succeeded(self, output: str) -> bool:
        """Whether it got what it was after. The secret alone is proof, wherever it stands."""
        return self.secret in output

    def was_refused(self, output: str) -> bool:
        """Whether it ran to its end and got nothing."""
        return self.read(output).startswith("NO ") and not self.succeeded(output)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An act across the wall, and the same act on what is allowed."""

    name: str
    act: Act
    control: Act


def attempts(
    data_dir: Path, other: str, other_secret: str, own_secret: str, hub_port: int
) -> tuple[Attempt, ...]:
    """Five ways out of a jail.

    Args:
        data_dir: the server's, as the machine knows it.
        other: the user on the other side of the wall; ``secret.txt`` in their home is the target.
        other_secret, own_secret: what stands in the other's and in the own ``secret.txt``.
        hub_port: where core listens on 127.0.0.1 of the machine.
    """
    target = str(data_dir / "users" / other / "home" / "secret.txt")
    key = str(data_dir / "_keys" / "master.key")
    own = "/home/user/secret.txt"
    return (
        Attempt(
            "read another user's file by its path",
            Act(_reading(target), other_secret),
            Act(_reading(own), own_secret),
        ),
        Attempt(
            "read another user's file through /proc/*/root and /proc/*/cwd",
            Act(_through_proc(target), other_secret),
            Act(_through_proc(own), own_secret),
        ),
        Attempt(
            "read the master key",
            Act(_reading(key), "GOT "),
            Act(_reading(own), own_secret),
        ),
        Attempt(
            "reach the server's port on loopback",
            Act(f"OWN = False\nPORT = {hub_port}\n{_CONNECT}", "GOT a connection"),
            Act(f"OWN = True\n{_CONNECT}", "GOT a connection"),
        ),
        Attempt(
            "make a process in a user and mount namespace of its own",
            Act(f"FLAGS = {_CLONE_NEWUSER_NEWNS}\n{_CLONE}", "GOT a process"),
            Act(f"FLAGS = 0\n{_CLONE}", "GOT a process"),
        ),
    )


def _reading(path: str) -> str:
    return f"{_READ}\nprint(attempt({path!r}))\n"


def _through_proc(path: str) -> str:
    up = "cwd" + "/.." * 12
    return f"PATH = {path!r}\nWAYS = ('root', {up!r})\n{_ROOTS}"
