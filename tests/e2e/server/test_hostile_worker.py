"""A worker that turned hostile, in a real jail: its jail ends with one clear error, nobody else notices."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import openai
import pytest

from core.cli.failure import CommandFailed
from tests.fakes.hostile_jail import BEFORE, FAULTS, FAULTS_BEFORE_THE_TURN, PEER
from tests.fakes.plain_client import PlainClient
from tests.fakes.real_server import Person, RealServer, alive, memory_bytes, real_server, until
from tests.fakes.running_turn import Running, cancel, code

_ENOUGH_BYTES = 64 << 20
LOAD_AGENT = 'provider = "builtin"\nmodel = "load"\n[limits]\nwall_s = 900\n'


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    # at the pace of [edge] one that reads nothing would be ended for that first, after half a minute
    edge = {"frames_per_s": 1_000_000.0, "burst": 1_000_000}
    with real_server({"jail": {"start_timeout_s": 4.0}, "edge": edge}, before=BEFORE) as running:
        yield running


@pytest.fixture(scope="module")
def alice(server: RealServer) -> Person:
    return server.new_user("alice")


@pytest.fixture(scope="module")
def bob(server: RealServer) -> Person:
    person = server.new_user("bob")
    person.add_agent("load", LOAD_AGENT)
    return person


@contextmanager
def hostile(person: Person, program: str) -> Iterator[None]:
    """Their next jails run this program; afterwards the real worker again, as a control."""
    end_jail(person)
    person.put("peer.py", PEER + program)
    try:
        yield
    finally:
        (person.home / "peer.py").unlink()
        end_jail(person)
    assert person.run("echo the real one").startswith("the real one")


def end_jail(person: Person) -> None:
    """End what jail of theirs there is, and wait until core knows."""

    def gone() -> bool:
        jails = person.server.admin.call("GET", "/v1/status")["jails"]
        mine = [jail for jail in jails if jail["user"] == person.name]
        for jail in mine:
            if jail["pid"]:
                with suppress(ProcessLookupError):
                    os.kill(jail["pid"], signal.SIGKILL)
        return all(jail["state"] == "cold" for jail in mine)

    until("the end of the jail", gone)
    with suppress(CommandFailed):  # what died at once, by the program's doing or by ours, is held
        person.server.admin.call("POST", f"/v1/pool/{person.name}/release")


@pytest.fixture
def long_stream(bob: Person) -> Iterator[Running]:
    """A turn of bob's that streams all the while, and loses nothing to the end.

    One for each test: a turn that had to last for all of them would meet its time limit.
    """
    with Running(bob, "tokens=90000 rate=40", "long", "load") as turn:
        turn.wait_for("text")
        yield turn
        cancel(bob, turn)
        assert code(turn.wait()) == "cancelled"
    numbers = [int(word) for word in turn.done.text.split()]
    assert [n % 10_000 for n in range(len(numbers))] == numbers


@contextmanager
def undisturbed(stream: Running) -> Iterator[None]:
    """Meanwhile the stream goes on."""
    before = len(stream.done.text)
    yield
    until("more of the neighbour's stream", lambda: stream.error or len(stream.done.text) > before)
    assert stream.error is None


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_ends_that_jail_with_one_clear_error(
    server: RealServer, alice: Person, long_stream: Running, case: str
) -> None:
    program, reason = FAULTS[case]
    core = server.pid("core")
    before = memory_bytes(core)
    count = len(server.logged("peer_faulted", user="alice"))
    with undisturbed(long_stream), hostile(alice, program):
        with pytest.raises(openai.APIError) as raised:
            alice.ask("hello", "kept")  # in a kept session: credit comes back with the disk, not at once
        faults = server.logged("peer_faulted", user="alice")[count:]
    error = raised.value
    assert [fault["reason"] for fault in faults][:1] == [reason], faults
    if case in FAULTS_BEFORE_THE_TURN:
        assert error.code == "unavailable"
        assert "your jail fails at every start" in error.message
        assert len(faults) == 3
    else:
        assert error.code == "worker"
        assert f"broke the protocol ({reason})" in error.message
        assert len(faults) == 1
    assert (server.pid("core"), alive(core)) == (core, True)
    assert memory_bytes(core) - before < _ENOUGH_BYTES


def test_a_jail_that_dies_at_every_start_is_held_until_it_is_released(
    server: RealServer, bob: Person
) -> None:
    held = server.new_user("held")
    with hostile(held, "sys.exit(3)"):
        with pytest.raises(openai.APIError, match="your jail fails at every start"):
            held.ask("hello")
        with pytest.raises(openai.APIStatusError, match="it is held for a while") as refused:
            held.ask("hello")
        assert int(refused.value.response.headers["Retry-After"]) >= 1
        (shown,) = server.admin.call("GET", "/v1/pool")["held"]
        assert (shown["user"], shown["deaths"] >= 3) == ("held", True)
        assert server.logged("jail_held", user="held")
        assert bob.ask("tokens=3 rate=0", model="load").finish == "stop"
    # released by the block's end: its control ran in a fresh jail
    assert server.admin.call("GET", "/v1/pool")["held"] == []


def test_a_silent_handshake_and_half_a_frame_end_on_their_deadlines(
    server: RealServer, long_stream: Running
) -> None:
    silent, half = server.new_user("silent"), server.new_user("half")
    half.add_agent("brief", "[limits]\nwall_s = 1\n")
    first_only = (
        "if not os.path.exists('/home/user/tried'):\n"
        "    open('/home/user/tried', 'w').close()\n"
        "    stay()\n"
        "end(begin(), 'the second life spoke')\n"
    )
    half_frame = "begin(); sock.sendall(struct.pack('>BQ', 2, 1000) + b'half'); stay()"
    with undisturbed(long_stream), hostile(silent, first_only), hostile(half, half_frame):
        with Running(silent, "hi") as one, Running(half, "hi", model="brief") as other:
            assert one.wait() is None
            assert code(other.wait()) == "limit"
        assert one.done.text == "the second life spoke"
        assert "longer than 1 s" in str(other.error)
    assert server.wait_logged("peer_faulted", user="silent")["reason"] == "deadline"


def test_a_flood_of_questions_slows_nobody_else(server: RealServer, alice: Person, bob: Person) -> None:
    core = server.pid("core")
    before = memory_bytes(core)
    program = (
        "a = begin()\nstop = time.monotonic() + 1.5\ncount = 0\n"
        "while time.monotonic() < stop:\n"
        "    for _ in range(20):\n"
        "        say(connection.request(LogLine(a.body.turn, 'info', 'flooding'))[1])\n"
        "    for _ in range(20):\n"
        "        while not [e for e in events if isinstance(e, (Replied, Failed))]: pump()\n"
        "        events.pop(0)\n"
        "        count += 1\n"
        "end(a, f'asked {count} times')\n"
    )
    with hostile(alice, program), Running(alice, "hi") as flood:
        for _ in range(5):
            assert bob.ask("tokens=3 rate=0", model="load").finish == "stop"
        assert flood.wait() is None
        assert int(flood.done.text.split()[1]) > 500
    assert memory_bytes(core) - before < _ENOUGH_BYTES
    assert len(server.logged("worker_logged", worker_event="flooding")) <= 50


def test_pictures_that_are_not_there_are_words_alone_and_a_flood_of_them_is_bounded(
    server: RealServer, alice: Person, bob: Person
) -> None:
    core = server.pid("core")
    before = memory_bytes(core)
    bob.put("lie.png", "bob's own")
    program = (
        "a = begin()\nstop = time.monotonic() + 1.5\ncount = 0\n"
        "lie = PictureShown('lie.png', 'image/png', 9, 'c' * 500, 99_999)\n"
        "while time.monotonic() < stop:\n"
        "    while not connection.credit(a.id): pump()\n"
        "    say(connection.item(a.id, lie))\n"
        "    count += 1\n"
        "while not connection.credit(a.id): pump()\n"
        "end(a, f'showed {count} times')\n"
    )
    with hostile(alice, program), Running(alice, "hi", "flooded") as flood:
        for _ in range(5):
            assert bob.ask("tokens=3 rate=0", model="load").finish == "stop"
        assert flood.wait() is None
        count = int(flood.done.text.split()[1])
        assert count > 100
    assert memory_bytes(core) - before < _ENOUGH_BYTES
    shown = [event for event in flood.done.events if event["type"] == "picture"]
    assert len(shown) == count
    path = f"/v1/files/content?path={shown[0]['path']}"
    for person, status in ((alice, 404), (bob, 200)):  # each in their own home
        client = PlainClient(server.url, {"Authorization": f"Bearer {person.token}"})
        assert client.ask("GET", path).status == status


def test_a_descriptor_sent_along_is_ignored(server: RealServer, alice: Person) -> None:
    core = server.pid("core")
    alice.run("true")
    before = descriptors(core)
    program = (
        "a = begin()\n"
        "fd = os.open('/home/user', os.O_RDONLY)\n"
        "for _ in range(50):\n"
        "    data = zmtp.encode(connection.request(LogLine(a.body.turn, 'info', 'x'))[1])\n"
        "    rights = array.array('i', [fd] * 20)\n"
        "    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])\n"
        "    pump()\n"
        "end(a, 'sent')\n"
    )
    with hostile(alice, program):
        assert alice.ask("hi").text == "sent"
        assert descriptors(core) <= before + 8


def descriptors(pid: int) -> int:
    """How many a process holds; 0 where only root may know."""
    return len(os.listdir(f"/proc/{pid}/fd")) if os.geteuid() == 0 else 0


def test_no_second_peer_can_come(server: RealServer, alice: Person) -> None:
    program = (
        "a = begin()\n"
        "listener.setblocking(False)\n"
        "found = []\n"
        "try:\n    listener.accept(); found.append('a second connection')\n"
        "except BlockingIOError:\n    pass\n"
        "name = listener.getsockname()\n"
        "try:\n    socket.socket(socket.AF_UNIX).connect(name); found.append('connected')\n"
        "except OSError:\n    pass\n"
        "end(a, 'found ' + repr(found))\n"
    )
    with hostile(alice, program):
        assert alice.ask("hi").text == "found []"
    left = [p.name for p in Path(server.data_dir / "_run").iterdir()] if os.geteuid() == 0 else []
    assert not [name for name in left if name.startswith("edge-")]


def test_another_users_turn_cannot_be_named(server: RealServer, alice: Person, bob: Person) -> None:
    with Running(bob, "tokens=9999 rate=50", "s", "load") as theirs:
        theirs.wait_for("text")
        program = (
            f"a = begin()\ntheirs = {theirs.done.turn!r}\nheard = []\n"
            "for body in (SessionLoad(theirs), SessionAppend(theirs, (Message('user', 'forged'),)),\n"
            "             ProviderChat(theirs, (Message('user', 'forged'),)), StepEnd(theirs, 1, True)):\n"
            "    say(connection.request(body)[1])\n"
            "    heard.append(until(Failed).failure.code)\n"
            "say(connection.request(SessionLoad(a.body.turn))[1])\n"
            "own = until(ItemCame).body.messages\n"
            "end(a, f'{heard} {[m.text for m in own]}')\n"
        )
        with hostile(alice, program):
            text = alice.ask("of my own").text
        cancel(bob, theirs)
        assert code(theirs.wait()) == "cancelled"
    assert text == "['not_found', 'not_found', 'not_found', 'not_found'] ['of my own']"
