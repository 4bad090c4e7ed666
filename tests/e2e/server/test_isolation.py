"""What an agent's own run_command and run_python can do to others: each denial beside its control."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.fakes.real_server import (
    UNATTACKED,
    Person,
    RealServer,
    alive,
    processes,
    real_server,
    until,
    workers,
)

# small, so that what fills them up is quickly done
LIMITS = {"address_bytes": 512 << 20, "tmp_bytes": 16 << 20}
READ = """
import errno, os
def read(path):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            return "GOT " + os.read(fd, 400).decode(errors="replace")
        finally:
            os.close(fd)
    except OSError as error:
        return "NO " + errno.errorcode.get(error.errno, "?")
"""


@pytest.fixture(scope="module", params=["fork", "exec"])
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    """However a jail is started, it is the same jail."""
    with real_server({"jail": {**LIMITS, "start": request.param}}, before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return server.new_user("alice")


@pytest.fixture(scope="module")
def bob(server: RealServer) -> Person:
    return server.new_user("bob")


@pytest.fixture
def secret(bob: Person) -> str:
    """Something in bob's home that alice is after."""
    word = f"secret-{uuid4().hex}"
    bob.ask(f"write secret.txt: {word}")
    assert word in bob.ask("read secret.txt").output
    return word


def attempts(person: Person, paths: list[str]) -> dict[str, str]:
    """What reading each path gave: GOT and the content, or NO and why."""
    got = person.python(f"{READ}\nimport json\nprint(json.dumps({{p: read(p) for p in {paths!r}}}))")
    answers: dict[str, str] = json.loads(got.splitlines()[0])
    assert list(answers) == paths
    return answers


def test_another_users_file_is_not_there_by_any_path(alice: Person, bob: Person, secret: str) -> None:
    data = alice.server.data_dir
    alice.put("own.txt", "own words")
    foreign = [
        str(bob.home / "secret.txt"),
        f"/home/user/../../..{bob.home}/secret.txt",
        "/home/bob/secret.txt",
        "/home/user/../bob/home/secret.txt",
        f"/proc/self/root{bob.home}/secret.txt",
        f"/proc/1/root{bob.home}/secret.txt",
        f"/proc/1/cwd/../../../../../..{bob.home}/secret.txt",
        "/agents/../../bob/home/secret.txt",
        f"/certosa/lib/../../../..{bob.home}/secret.txt",
        str(data / "users" / "alice" / "home" / "own.txt"),
    ]
    own = ["/home/user/own.txt", "/proc/self/root/home/user/own.txt", "/proc/1/cwd/own.txt"]
    got = attempts(alice, foreign + own)
    assert {path: got[path][:3] for path in foreign} == dict.fromkeys(foreign, "NO ")
    assert {path: got[path] for path in own} == dict.fromkeys(own, "GOT own words")
    for path in foreign[:3]:
        done = alice.ask(f"read {path}")
        assert secret not in done.output + done.text


def test_every_visible_process_leads_nowhere_but_home(alice: Person, bob: Person, secret: str) -> None:
    got = alice.python(
        READ
        + f"""
pids = [p for p in os.listdir("/proc") if p.isdigit()]
print("pids", len(pids))
for pid in pids:
    for way in ("root", "cwd/../../../../../.."):
        answer = read(f"/proc/{{pid}}/{{way}}{bob.home}/secret.txt")
        assert answer.startswith("NO "), answer
    for fd in os.listdir(f"/proc/{{pid}}/fd"):
        try:
            target = os.readlink(f"/proc/{{pid}}/fd/{{fd}}")
        except FileNotFoundError:
            continue
        if target.startswith("/") and os.path.isdir(target):
            print("directory", target)
    print("root", os.path.exists(f"/proc/{{pid}}/root/home/user"))
print("uids", {{os.stat(f"/proc/{{p}}").st_uid for p in pids}})
"""
    )
    assert "Traceback" not in got, got
    assert secret not in got
    assert "root True" in got
    (count,) = [int(line.split()[1]) for line in got.splitlines() if line.startswith("pids")]
    assert count <= 4
    assert "uids {1000}" in got
    for line in got.splitlines():
        if line.startswith("directory"):
            assert line.split()[1] in ("/home/user", "/tmp")


def test_the_servers_own_files_are_not_there(alice: Person) -> None:
    data = alice.server.data_dir
    targets = [
        data / "_keys" / "master.key",
        data / "_keys" / "vault.db",
        data / "_system" / "core.db",
        data / "_system" / "admin.sock",
        data / "sealed" / "alice.db",
        data / "_run" / "lock",
        alice.server.config_path,
        alice.server.log_path,
    ]
    alice.ask("hello", "any")  # makes sealed/alice.db
    assert all(path.exists() for path in targets)
    foreign = [prefix + str(path) for path in targets for prefix in ("", "/proc/1/root")]
    got = attempts(alice, [*foreign, "/etc/passwd", "/etc/shadow"])
    assert got.pop("/etc/passwd").startswith("GOT user:x:1000")
    assert set(got.values()) == {"NO ENOENT"}, got
    directories = (
        data,
        data / "_keys",
        data / "sealed",
        data / "_system",
        "/var/lib",
        "/root",
        "/sys",
        "/run",
    )
    assert alice.run(f"ls -dA {' '.join(map(str, directories))}").count("No such file") == len(directories)
    assert "No such file" not in alice.run("ls -dA /usr /tmp /home/user")


def test_core_cannot_be_reached_over_loopback_or_abstract_sockets(alice: Person) -> None:
    server = alice.server
    name = f"certosa-test-{uuid4().hex[:8]}"
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(f"\0{name}")
        outside.listen(4)
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(f"\0{name}")
        got = alice.python(f"""
import errno, socket
def connect(family, address):
    sock = socket.socket(family)
    sock.settimeout(5)
    try:
        sock.connect(address)
        return "GOT"
    except OSError as error:
        return "NO " + errno.errorcode.get(error.errno, str(error))
    finally:
        sock.close()
for port in ({server.hub_port}, {server.admin_port}):
    print("v4", connect(socket.AF_INET, ("127.0.0.1", port)))
    print("v6", connect(socket.AF_INET6, ("::1", port)))
    print("any", connect(socket.AF_INET, ("0.0.0.0", port)))
print("metadata", connect(socket.AF_INET, ("169.254.169.254", 80)))
print("out", connect(socket.AF_INET, ("192.0.2.1", 80)))
print("admin", connect(socket.AF_UNIX, {str(server.data_dir / "_system" / "admin.sock")!r}))
print("abstract", connect(socket.AF_UNIX, "\\0{name}"))
listener = socket.create_server(("127.0.0.1", 0))
print("own", connect(socket.AF_INET, listener.getsockname()))
inner = socket.socket(socket.AF_UNIX)
inner.bind("\\0{name}")
inner.listen(1)
print("inner", connect(socket.AF_UNIX, "\\0{name}"))
""")
    answers = [line.split(" ", 1) for line in got.splitlines() if " " in line and not line.startswith("[")]
    assert len(answers) == 12, got
    for what, answer in answers:
        if what in ("own", "inner"):
            assert answer == "GOT", what
        else:
            assert answer.startswith("NO "), (what, answer)
    for port in (server.hub_port, server.admin_port):
        socket.create_connection(("127.0.0.1", port), 10).close()


def test_every_visible_process_is_bare_and_locked(alice: Person) -> None:
    got = alice.python("""
import os
allowed = {"HOME", "PATH", "LANG", "TZ", "PYTHONDONTWRITEBYTECODE", "PWD", "CERTOSA_REQUEST_ID"}
for pid in [int(p) for p in os.listdir("/proc") if p.isdigit()]:
    try:
        text = open(f"/proc/{pid}/environ").read()
    except PermissionError:
        text = ""
    names = {pair.split("=", 1)[0] for pair in text.split("\\0") if pair}
    print("environ", sorted(names - allowed))
    if pid == os.getpid():
        print("own", dict(pair.split("=", 1) for pair in text.split("\\0") if pair)["HOME"])
    status = dict(l.split(":", 1) for l in open(f"/proc/{pid}/status").read().splitlines())
    print("caps", {status[k].strip() for k in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")})
    print("locks", status["NoNewPrivs"].strip(), status["Seccomp"].strip())
""")
    assert "Traceback" not in got, got
    lines = got.splitlines()
    assert [line for line in lines if line.startswith("own")] == ["own /home/user"]  # it can be read
    assert {line for line in lines if line.startswith("environ")} == {"environ []"}
    assert {line for line in lines if line.startswith("caps")} == {"caps {'0000000000000000'}"}
    assert {line for line in lines if line.startswith("locks")} == {"locks 1 2"}


def test_killing_everything_ends_only_the_own_jail(alice: Person, bob: Person) -> None:
    server = alice.server
    bob.run("true")
    core, egress = server.pid("core"), server.pid("egress")
    before = {p.pid for p in workers(server)}
    done = alice.ask("python: import os, signal\nos.kill(-1, signal.SIGKILL)\nprint('still here')")
    assert done.calls
    assert "still here" in done.output or "SIGKILL" in done.output, done
    assert alice.run("echo again").startswith("again")
    assert bob.run("echo unharmed").startswith("unharmed")
    assert (server.pid("core"), server.pid("egress")) == (core, egress)
    assert all(alive(pid) for pid in (core, egress, server.process.pid))
    # bob's jail is the one that he had
    assert len(before & {p.pid for p in workers(server)}) >= 1


def test_a_fork_bomb_stays_within_its_jail(alice: Person, bob: Person) -> None:
    bob.run("true")
    done = alice.ask(
        "python: import os, time\n"
        "made = 0\n"
        "try:\n"
        "    while made < 4000:\n"
        "        if os.fork() == 0:\n"
        "            time.sleep(60)\n"
        "            os._exit(0)\n"
        "        made += 1\n"
        "except OSError as error:\n"
        "    print('stopped', error.errno, made)\n"
    )
    stopped = [line.split() for line in done.output.splitlines() if line.startswith("stopped")]
    assert stopped, done.output
    assert 8 <= int(stopped[0][2]) < 128
    assert bob.run("echo unharmed").startswith("unharmed")
    assert alice.run("echo again").startswith("again")
    seen = "ls /proc | grep -c '^[0-9]'"  # the worker, the shell, ls, grep
    until("the end of what was forked", lambda: int(alice.run(seen).split()[0]) <= 6)


def test_memory_and_tmpfs_are_bounded_and_the_neighbour_goes_on(alice: Person, bob: Person) -> None:
    core = alice.server.pid("core")
    got = alice.python("""
import mmap
try:
    held = [bytearray(64 << 20) for _ in range(32)]
    print("GOT all of it")
except MemoryError:
    print("NO memory")
""")
    assert "NO memory" in got or "SIGKILL" in got, got
    for place in ("/tmp", "/dev/shm"):
        got = alice.python(f"""
import errno
import os
file = open("{place}/big", "wb", buffering=0)
try:
    for _ in range(64):
        file.write(bytes(1 << 20))
    print("GOT all of it")
except OSError as error:
    print("NO", errno.errorcode[error.errno], file.tell() >> 20)
os.unlink("{place}/big")
""")
        assert "NO ENOSPC" in got, got
    for place in ("/", "/dev"):
        assert "Read-only" in alice.run(f"echo x > {place}/file")
    assert alice.run("echo x > /tmp/small && echo x > small && cat /tmp/small small").startswith("x\nx")
    assert bob.run("echo unharmed").startswith("unharmed")
    assert alive(core)


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_something_else_than_a_file_at_a_files_name_is_refused_at_once(alice: Person, kind: str) -> None:
    name = f"odd-{kind}"
    make = {
        "fifo": f"mkfifo {name}",
        "socket": f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"{name}\")'",
        "device": f"ln -s /dev/zero {name}",
    }[kind]
    assert "exit status 0" in alice.run(make)
    for request in (f"read {name}", f"write {name}: text"):
        done = alice.ask(request)
        assert [ok for ok, _ in done.results] == [False], done.results
    assert alice.ask("search: nothing-of-the-kind").results[0][0]
    alice.run(f"rm {name}")
    assert alice.ask(f"write {name}: text").results[0][0]
    assert "text" in alice.ask(f"read {name}").output
    alice.run(f"rm {name}")


def test_a_setuid_file_is_nobodys_but_the_users(alice: Person) -> None:
    got = alice.run(
        "cp /bin/true made && chmod 6755 made && stat -c %a made; id -u;"
        " python3 -c 'import os; os.chown(\"made\", 0, 0)'"
    )
    assert "1000" in got
    info = (alice.home / "made").stat()
    home = alice.home.stat()
    assert (info.st_uid, info.st_gid) == (home.st_uid, home.st_gid)
    assert "PermissionError" in got or "Operation not permitted" in got or "Invalid argument" in got
    if os.geteuid() == 0:
        assert info.st_uid >= 100_000
    else:
        assert info.st_uid == os.geteuid()
    alice.run("rm made")


def test_links_out_of_the_home_are_followed_by_nobody(alice: Person, bob: Person, secret: str) -> None:
    alice.run(f"ln -s /etc/shadow shadow; ln -s {bob.home}/secret.txt theirs; ln -s {bob.home} dir")
    assert (alice.home / "theirs").read_text().strip() == secret  # outside the link leads there
    for name in ("shadow", "theirs", "dir/secret.txt"):
        done = alice.ask(f"read {name}")
        assert secret not in json.dumps(done.events) + done.text
        assert not done.results[0][0]
    assert secret not in alice.ask(f"search: {secret[:20]}").output.replace(f"search: {secret[:20]}", "")
    alice.run("rm shadow theirs dir")


def test_an_agents_file_that_is_a_link_or_a_fifo_is_not_read(alice: Person, bob: Person) -> None:
    agents = alice.home.parent / "agents"
    alice.add_agent("proper", 'prompt = "x"\n')
    assert alice.ask("help", model="proper").finish == "stop"
    assert "Read-only" in alice.run("touch /agents/x") or "denied" in alice.run("touch /agents/x")
    (agents / "linked.toml").symlink_to("/etc/passwd")
    os.mkfifo(agents / "fifo.toml")
    try:
        for name in ("linked", "fifo"):
            with pytest.raises(Exception, match=r"agent|regular|read"):
                alice.ask("help", model=name)
    finally:
        (agents / "linked.toml").unlink()
        (agents / "fifo.toml").unlink()


def test_core_and_egress_are_closed_to_others_of_their_uid(server: RealServer) -> None:
    for service in ("core", "egress"):
        pid = server.pid(service)
        line = [f"/proc/{pid}/mem", f"/proc/{pid}/environ", f"/proc/{pid}/root/etc/passwd"]
        code = (
            "import os, sys\n"
            "for path in sys.argv[2:]:\n"
            "    try:\n"
            "        os.close(os.open(path, os.O_RDONLY)); print('GOT', path)\n"
            "    except PermissionError:\n"
            "        print('NO')\n"
        )
        argv = [sys.executable, "-c", code, "x", *line, "/proc/self/environ"]
        more: dict[str, Any] = {}
        if os.geteuid() == 0:
            uid = processes()[pid].uid
            assert uid != 0
            more = {"user": uid, "group": uid, "extra_groups": []}
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60, **more)
        assert done.stdout.splitlines() == ["NO"] * 3 + ["GOT /proc/self/environ"]
