"""Processes: only one's own can be seen and touched, all are filtered, none survives its jail."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from jail.host.executing import Jail
from jail.host.guard import Guard
from jail.host.oneshot import advance
from jail.host.profile import ENVIRONMENT, Limits
from jail.host.running import Phase
from jail.wire.schema import Message, ToolEnded
from tests.actor.peer.scripts import agent, call, say, use
from tests.fakes.core_end import CoreEnd
from tests.fakes.jails import House, ShellJail, alive, is_root
from tests.jail.conftest import Enter


@pytest.mark.wall("visible")
def test_only_the_jails_own_processes_are_visible(alice: ShellJail) -> None:
    code = "import os; print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()), os.getpid())"

    status, text = alice.python(code)

    assert status == 0
    pids, own = text.rsplit(" ", 1)
    assert json.loads(pids) == [1, int(own)]


@pytest.mark.wall("capabilities")
@pytest.mark.wall("writable-memory")
def test_every_process_is_filtered_and_without_capabilities(alice: ShellJail) -> None:
    code = """
import os
for pid in [p for p in os.listdir('/proc') if p.isdigit()]:
    for line in open(f'/proc/{pid}/status'):
        if line.startswith(('Cap', 'NoNewPrivs', 'Seccomp:')): print(line.split()[1])
"""
    status, text = alice.python(code)

    assert status == 0
    assert text.split() == 2 * (5 * ["0" * 16] + ["1", "2"])


@pytest.mark.wall("writable-memory")
@pytest.mark.wall("environment")
def test_pid_one_is_the_command_and_not_bwrap(alice: ShellJail) -> None:
    status, text = alice.sh("readlink /proc/1/exe; tr '\\0' '\\n' < /proc/1/environ | sort")

    exe, *environment = text.splitlines()
    assert status == 0
    assert exe.startswith("/usr/bin/python3")
    pairs = [f"{name}={value}" for name, value in {**ENVIRONMENT, "PWD": "/home/user"}.items()]
    assert environment == sorted(pairs)


@pytest.mark.wall("descriptor")
def test_a_command_has_dev_null_and_the_listener_and_no_other_descriptor(enter: Enter) -> None:
    code = (
        "import os, socket; fds = {f: os.readlink('/proc/self/fd/' + f) for f in "
        "os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' + f) or f == '3'};"
        "c, _ = socket.socket(fileno=3).accept(); import json;"
        "c.sendall(json.dumps(fds).encode()); c.close()"
    )
    jail = enter("alice", command=("/usr/bin/python3", "-I", "-S", "-c", code))
    jail.jail.edge.settimeout(60)
    fds = json.loads(jail.jail.edge.recv(65_536))

    assert fds.pop("3").startswith("socket:")
    assert fds == {"0": "/dev/null", "1": "/dev/null", "2": "/dev/null"}


@pytest.mark.wall("visible")
def test_kill_of_everything_leaves_other_jails_alive(enter: Enter) -> None:
    first, second = enter("alice"), enter("bob")

    first.sh("kill -9 -1")

    assert second.sh("echo here") == (0, "here\n")


@pytest.mark.wall("end")
def test_the_end_of_pid_one_is_the_end_of_all_in_its_jail(enter: Enter) -> None:
    jail = enter("alice")
    marker = f"3{os.getpid()}5"
    jail.sh(f"sleep {marker} > /dev/null 2>&1 & (setsid sleep {marker} > /dev/null 2>&1 &)")
    asleep = f"sleep\0{marker}\0".encode()
    # the shell has ended; what it left behind may still be on its way from its fork to its program
    deadline_s = time.monotonic() + 60
    while len(inside := [pid for pid in _pids() if _cmdline(pid) == asleep]) < 2:
        assert time.monotonic() < deadline_s, f"asleep are {inside}"
        time.sleep(0.01)

    jail.end()

    assert not [pid for pid in inside if alive(pid)]


def test_a_worker_that_ends_is_noticed_with_its_status(enter: Enter) -> None:
    jail = enter("alice", command=("/bin/sh", "-c", "exit 7"))
    jail.advance_until(lambda: jail.jail.phase is Phase.ENDED)

    assert jail.jail.how == "exit 7"


@pytest.mark.wall("zombies")
def test_a_flood_of_orphans_is_reaped_by_the_worker(enter: Enter) -> None:
    jail = enter("alice", command=())
    flood = "i=0; while [ $i -lt 100 ]; do (true &) ; i=$((i+1)); done; echo done"
    count = "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
    rounds = [use(call("run_command", command=command)) for command in (flood, count)]
    core = CoreEnd(jail.jail.edge, [*rounds, say("Done.")], [Message("user", "Hello")])

    texts = [ended.text for ended in core.run_turn(agent()).of(ToolEnded)]

    assert texts[0].startswith("done")
    assert texts[1].startswith("0")


@pytest.mark.wall("stderr")
def test_a_flood_on_stderr_blocks_nothing(enter: Enter) -> None:
    code = "import os; [os.write(2, b'x' * 65536) for _ in range(2000)]; os._exit(4)"
    jail = enter("alice", command=("/usr/bin/python3", "-I", "-S", "-c", code))
    jail.advance_until(lambda: jail.jail.phase is Phase.ENDED)

    assert jail.jail.how == "exit 4"


@pytest.mark.wall("process-count")
def test_processes_are_counted_for_the_jail_alone(enter: Enter) -> None:
    # an ordinary user may have many more outside
    jail = enter("alice", limits=Limits(processes=16))
    code = """
import os, time
made = 0
for _ in range(40):
    try:
        pid = os.fork()
    except BlockingIOError:
        break
    if pid == 0:
        null = os.open('/dev/null', os.O_RDWR); os.dup2(null, 1); os.dup2(null, 2)
        time.sleep(600)
    made += 1
print(made)
"""
    status, text = jail.python(code)

    assert status == 0
    assert 10 <= int(text) <= 15


@pytest.mark.wall("limits")
@pytest.mark.parametrize(
    ("name", "limit"),
    [("NOFILE", 100), ("FSIZE", 1 << 20), ("AS", 1 << 30), ("NPROC", 20), ("CORE", 0)],
)
def test_limits_hold_inside_and_cannot_be_raised(enter: Enter, name: str, limit: int) -> None:
    limits = Limits(processes=20, open_files=100, file_bytes=1 << 20, address_bytes=1 << 30)
    code = f"""
import resource
print(resource.getrlimit(resource.RLIMIT_{name}))
try:
    resource.setrlimit(resource.RLIMIT_{name}, ({limit + 1}, {limit + 1}))
except (ValueError, PermissionError):
    print('refused')
"""
    assert enter("alice", limits=limits).python(code) == (0, f"({limit}, {limit})\nrefused\n")


@pytest.mark.wall("address-space")
def test_the_memory_limit_stops_a_program_that_wants_more(enter: Enter) -> None:
    jail = enter("alice", limits=Limits(address_bytes=256 << 20))

    assert jail.python("x = bytearray(10 << 20); print(len(x))") == (0, "10485760\n")
    assert "MemoryError" in jail.python("bytearray(300 << 20)")[1]


@pytest.mark.wall("setuid-program")
def test_setuid_programs_give_nothing(alice: ShellJail) -> None:
    status, text = alice.sh("find /usr/bin -perm -4000 | head -3; grep NoNewPrivs /proc/self/status")

    assert status == 0
    assert text.split()[-1] == "1"


@pytest.mark.wall("thread")
def test_a_jail_lives_on_when_another_thread_of_its_starter_ends(house: House, enter: Enter) -> None:
    jail = enter("alice")
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()

    assert jail.sh("echo here") == (0, "here\n")


@pytest.mark.wall("uids")
@pytest.mark.skipif(not is_root(), reason="an ordinary user's jails share a uid")
def test_host_uids_are_apart(house: House, enter: Enter) -> None:
    for user in ("alice", "bob"):
        jail = enter(user)
        info = Path(f"/proc/{jail.jail.init_pid}").stat()
        assert (info.st_uid, info.st_gid) == (house.uid(user), house.uid(user))
        status = Path(f"/proc/{jail.jail.init_pid}/status").read_text()
        assert "Groups:\t \n" in status


# the thread that calls execve becomes pid 1, without the signal that its leader asked for
SHAKE_OFF = (
    "import os, threading;threading.Thread(target=os.execv, args=('/bin/sleep', ['sleep', '600'])).start()"
)


@pytest.mark.wall("shake-off")
@pytest.mark.parametrize("kind", ["exec"])
def test_a_worker_that_shook_off_its_parents_death_dies_with_bwrap(enter: Enter) -> None:
    jail = enter("alice", command=("/usr/bin/python3", "-I", "-S", "-c", SHAKE_OFF))
    assert isinstance(jail.jail, Jail)
    pid, bwrap = jail.jail.init_pid, jail.jail.bwrap_pid
    assert bwrap is not None
    _wait_for_sleep(jail, pid)

    os.kill(bwrap, signal.SIGKILL)
    jail.advance_until(lambda: jail.jail.phase is Phase.ENDED)

    assert not alive(pid)


@pytest.mark.wall("shake-off")
def test_a_worker_that_shook_off_its_parents_death_dies_by_the_guard(enter: Enter) -> None:
    jail = enter("alice", command=("/usr/bin/python3", "-I", "-S", "-c", SHAKE_OFF))
    pid, pidfd = jail.jail.init_pid, jail.jail.init_pidfd
    assert pidfd is not None
    guard = Guard()
    guard.watch([pidfd])
    _wait_for_sleep(jail, pid)

    guard.close()  # as the spawner's end does
    os.waitpid(guard.pid, 0)
    jail.advance_until(lambda: jail.jail.phase is Phase.ENDED)

    assert not alive(pid)


def _wait_for_sleep(jail: ShellJail, pid: int) -> None:
    deadline = time.monotonic() + 60
    while b"sleep\0" not in _cmdline(pid):
        assert time.monotonic() < deadline
        advance(jail.jail, 0.02)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
