"""What is a forked start's alone: what its memory holds, where its files lie, and the template's end."""

import json
import os
import secrets
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jail.host.doctor import DoctorConfig, run_doctor
from jail.host.forking import ForkStarter
from jail.host.launcher import HostUids
from jail.host.messages import HostError
from jail.host.oneshot import advance
from jail.host.profile import Limits
from jail.host.running import Phase, RunningJail
from jail.host.starters import check_interpreter
from jail.host.template import Template
from tests.fakes import jail_shell
from tests.fakes.jails import USER_UIDS, House, is_root, with_profile
from tests.fakes.memory import holds, private_bytes, wait_for_a_program
from tests.jail.conftest import Enter


@pytest.fixture
def kind() -> str:
    return "fork"


@pytest.fixture
def starter(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkStarter]:
    """A starter with a template of its own, which the house uses for this test."""
    made = ForkStarter(
        house.bwrap, house.layout.run_dir, HostUids(USER_UIDS), house.machine, house.system.python,
        house.staged.app,
    )  # fmt: skip
    monkeypatch.setitem(house.starters, "fork", made)
    yield made
    made.close()


@pytest.mark.wall("canary")
@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_nothing_of_the_spawners_memory_is_in_a_worker(starter: ForkStarter, enter: Enter, kind: str) -> None:
    canary = secrets.token_hex(24).encode()
    jail = enter("alice", command=())
    wait_for_a_program(jail.jail.init_pid)

    assert holds(os.getpid(), canary)
    assert not holds(jail.jail.init_pid, canary)
    assert (starter.template.pid is not None) == (kind == "fork")
    if starter.template.pid is not None:
        assert not holds(starter.template.pid, canary)


@pytest.mark.wall("canary")
@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_nothing_of_a_users_is_in_the_memory_of_anothers_worker(
    starter: ForkStarter, enter: Enter, kind: str
) -> None:
    canary = secrets.token_hex(24)
    alice = enter("alice")
    assert alice.run("echo", canary) == (0, f"{canary}\n")
    bob = enter("bob", command=())
    wait_for_a_program(bob.jail.init_pid)

    assert holds(alice.jail.init_pid, canary.encode())
    assert not holds(bob.jail.init_pid, canary.encode())
    assert (starter.template.pid is not None) == (kind == "fork")
    if starter.template.pid is not None:
        assert not holds(starter.template.pid, canary.encode())


@pytest.mark.wall("canary", start="fork")
def test_not_even_a_users_name_reaches_the_template(house: House, starter: ForkStarter, enter: Enter) -> None:
    name = f"u{secrets.token_hex(12)}"
    house.add(name)
    theirs = enter(name)
    others = enter("bob")
    assert starter.template.pid is not None

    assert theirs.jail.init_pid != others.jail.init_pid
    assert holds(os.getpid(), name.encode())
    assert not holds(others.jail.init_pid, name.encode())
    assert not holds(starter.template.pid, name.encode())


def test_a_rehearsed_template_has_one_thread_and_no_more_open_than_it_needs(
    house: House, starter: ForkStarter, enter: Enter
) -> None:
    enter("alice")  # it forks when it has rehearsed, never before
    pid = starter.template.pid
    links = [_link(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    kinds = [link.partition(":")[0] for link in links]

    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    assert kinds.count("socket") == 1  # the spawner's
    assert kinds.count("pipe") == 2  # where its forks say that they were taken
    assert not [link for link in links if "eventpoll" in link or "eventfd" in link or "epoll" in link]
    assert not [link for link in links if link.startswith(str(house.layout.run_dir))]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # one of a fork that has just ended
        return ""


def test_a_template_without_the_spawners_directory_is_refused_with_its_name(
    house: House, tmp_path: Path
) -> None:
    template = Template(house.system.python, house.staged.app, tmp_path / "nowhere")

    with pytest.raises(HostError, match="nowhere: No such file"):
        template.warm()
    assert template.pid is None


def test_a_forked_worker_has_less_than_half_of_an_executed_ones_memory_to_itself(enter: Enter) -> None:
    own = {}
    for kind in ("fork", "exec"):
        jail = enter("alice", command=(), start=kind)
        jail.jail.edge.settimeout(60)
        assert jail.jail.edge.recv(1) == b"\xff"  # ZMTP's signature: the worker has its socket
        own[kind] = private_bytes(jail.jail.init_pid)

    assert 1 << 20 < own["fork"] < own["exec"] / 2


@pytest.mark.wall("random")
@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_random_numbers_of_two_workers_differ(enter: Enter) -> None:
    body = "import random, uuid; found = [random.random(), str(uuid.uuid4()), os.urandom(8).hex()]"
    seen = [_ask_python(enter, body) for _ in range(3)]

    assert len({str(part) for found in seen for part in found}) == 9


def _ask_python(enter: Enter, body: str) -> Any:
    """Run code in a forked worker's own interpreter; what it left in ``found``."""
    code = (
        f"import json, os, socket\nfound = None\n{body}\n"
        "c, _ = socket.socket(fileno=3).accept(); c.sendall(json.dumps(found).encode()); c.close()"
    )
    jail = enter("alice", command=("/usr/bin/python3", "-I", "-S", "-c", code))
    jail.jail.edge.settimeout(60)
    return json.loads(jail.jail.edge.recv(65_536))


ACTS = """
import stat
def tried(act):
    try:
        act()
        return 'done'
    except OSError as error:
        return 'refused'
def link(path):
    os.link(path, '/home/user/linked', follow_symlinks=True)
    os.unlink('/home/user/linked')
def acts(path):
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return {
        'write': tried(lambda: os.close(os.open(path, os.O_WRONLY))),
        'append': tried(lambda: os.close(os.open(path, os.O_RDWR | os.O_APPEND))),
        'truncate': tried(lambda: os.truncate(path, os.stat(path).st_size)),
        'chmod': tried(lambda: os.chmod(path, mode)),
        'utime': tried(lambda: os.utime(path)),
        'chown': tried(lambda: os.chown(path, os.getuid(), os.getgid())),
        'link': tried(lambda: link(path)),
    }
"""


@pytest.mark.wall("interpreter")
@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_the_interpreter_behind_proc_self_exe_cannot_be_changed(enter: Enter) -> None:
    body = (
        ACTS
        + """
open('/home/user/own', 'w').close()
fd = os.open('/proc/self/exe', os.O_RDONLY)
found = [acts('/home/user/own'), acts('/proc/self/exe'), acts('/proc/1/exe'), acts(f'/proc/self/fd/{fd}')]
"""
    )
    found = _ask_python(enter, body)

    assert isinstance(found, list)
    assert set(found[0].values()) == {"done"}
    assert [set(acts.values()) for acts in found[1:]] == 3 * [{"refused"}]


@pytest.mark.wall("another-user", start="fork")
def test_no_mapped_file_and_no_link_in_proc_leads_to_the_hosts_mounts(enter: Enter) -> None:
    body = """
maps = os.listdir('/proc/self/map_files')
opened = []
for name in maps:
    try:
        os.close(os.open('/proc/self/map_files/' + name, os.O_RDONLY)); opened.append(name)
    except PermissionError:
        pass
beyond = []
for path in ('/proc/self/exe/..', '/proc/self/exe/../../etc/shadow', '/proc/self/root/var',
             '/proc/self/cwd/../../var',
             '/proc/1/root/root', '/proc/self/task/1/root/var', '/proc/self/fd/3/..'):
    try:
        os.stat(path); beyond.append(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
found = [len(maps) > 5, opened, beyond, os.stat('/proc/self/root/usr/bin').st_size > 0]
"""
    assert _ask_python(enter, body) == [True, [], [], True]


def test_what_is_imported_late_comes_from_the_jails_own_library(enter: Enter) -> None:
    body = (
        "import sys, jail.peer, jail.peer.probes.files as f, html.parser as h, zmq\n"
        "found = [f.__file__, h.__file__, jail.peer.__path__, zmq.__file__,"
        "         [path for path in sys.path if '/tmp' in path]]"
    )
    assert _ask_python(enter, body) == [
        "/certosa/lib/jail/peer/probes/files.py", f"{os.path.dirname(os.__file__)}/html/parser.py",
        ["/certosa/lib/jail/peer"], "/certosa/lib/zmq/__init__.py", [],
    ]  # fmt: skip


def test_a_template_that_died_is_replaced(starter: ForkStarter, enter: Enter) -> None:
    first = enter("alice")
    assert starter.template.pid is not None
    os.kill(starter.template.pid, signal.SIGKILL)
    os.waitpid(starter.template.pid, 0)
    starter.reaped(starter.template.pid)

    assert enter("bob").sh("echo here") == (0, "here\n")
    assert first.sh("echo still") == (0, "still\n")


def test_a_start_in_flight_survives_the_templates_end(starter: ForkStarter, house: House) -> None:
    starter.template.warm()
    pid = starter.template.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    jail = starter.start(house.spec("alice", Limits(), jail_shell.COMMAND))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    starter.reaped(pid)
    while jail.phase is Phase.STARTING:
        advance(jail, 10.0)

    try:
        assert jail.phase is Phase.RUNNING
        assert jail_shell.ask(jail.edge, "echo", "here") == (0, "here\n")
    finally:
        _end(jail)


def test_a_start_whose_template_dies_twice_fails(starter: ForkStarter, house: House) -> None:
    jail = None
    for _ in range(2):
        starter.template.warm()
        pid = starter.template.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        if jail is None:
            jail = starter.start(house.spec("alice", Limits(), jail_shell.COMMAND))
        else:
            advance(jail, 10.0)  # asks the second
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        starter.reaped(pid)
    assert jail is not None
    while jail.phase is Phase.STARTING:
        advance(jail, 10.0)

    assert jail.phase is Phase.ENDED
    assert jail.why == "its builder ended without a word"
    _end(jail)


@pytest.mark.wall("killed-start", start="fork")
@pytest.mark.parametrize("hard", [False, True])
def test_a_start_can_be_killed_at_any_moment(house: House, kind: str, hard: bool) -> None:
    """And leaves nothing behind, as every test is looked through for."""
    for steps in range(12):
        jail = house.starters[kind].start(house.spec("alice", Limits(), jail_shell.COMMAND))
        for _ in range(steps):
            advance(jail, 0.002)
        if hard:
            jail.kill_hard()
        else:
            jail.kill()
        _end(jail)
        assert jail.phase is Phase.ENDED


def test_a_jail_that_cannot_be_built_says_why(house: House) -> None:
    change = with_profile(agents=Path("/nonexistent/agents"))
    jail = house.starters["fork"].start(change(house.spec("alice", Limits(), ())))
    while jail.phase is Phase.STARTING:
        advance(jail, 10.0)

    assert jail.phase is Phase.ENDED
    assert "bwrap said" in jail.why
    assert "/nonexistent/agents" in jail.why
    _end(jail)


@pytest.mark.wall("interpreter", start="fork")
def test_an_interpreter_that_a_jail_could_change_is_not_forked(house: House, tmp_path: Path) -> None:
    check_interpreter(house.system.python)
    mine = tmp_path / "python3"
    mine.write_bytes(b"")
    mine.chmod(0o777 if is_root() else 0o755)

    with pytest.raises(HostError, match="could be changed by the uid that jails run as"):
        check_interpreter(str(mine))


def test_where_a_fork_cannot_work_the_doctor_says_so_and_tries_exec(house: House) -> None:
    config = DoctorConfig(
        house.data_dir, house.bwrap, house.machine, house.system, house.staged.lib, house.staged.etc,
        house.owners, USER_UIDS, app=Path("/nonexistent"), start="fork",
    )  # fmt: skip
    report = run_doctor(config)

    assert (report.ok, report.start) == (True, "exec")
    assert report.machine["start"].startswith("exec; a fork cannot work here: /nonexistent/")
    assert run_doctor(replace(config, app=house.staged.app)).machine["start"] == "fork"


def _end(jail: RunningJail) -> None:
    if jail.phase is not Phase.ENDED:
        jail.kill()
    while jail.phase is not Phase.ENDED:
        advance(jail, 10.0)
    jail.close()
