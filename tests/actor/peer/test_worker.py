"""The worker's life: handshake, drain, the end of its peer, its children."""

import os
import signal

from jail.peer.worker import EXIT_DRAINED, EXIT_PEER_FAULT, EXIT_PEER_GONE
from jail.wire.schema import ChatDelta, Done, Failure, Ping, ToolEnded, ToolProgress, TurnEnd
from tests.actor.peer.conftest import Start
from tests.actor.peer.scripts import agent, call, say, use
from tests.fakes.core_end import Answer

_TREE = "(setsid sh -c 'echo inner; exec sleep 300' &) ; sleep 301"


def test_the_start_script_says_hello_on_descriptor_three(start: Start) -> None:
    core = start(say("Hello"), start_script=True).core

    assert core.run_turn(agent()).text == "Hello"


def test_a_ping_is_answered(start: Start) -> None:
    core = start().core

    ping = core.request(Ping())
    core.pump(lambda: ping in core.closed_requests)

    assert core.closed_requests[ping] == Done()


def test_drain_lets_a_turn_finish_and_refuses_new_ones(start: Start) -> None:
    pair = start(use(call("run_command", command="read x < gate; echo through")), say("End."))
    os.mkfifo(pair.worker.home / "gate")
    log = pair.core.start_turn(agent(), "turn_0000000000000001")
    pair.core.pump(lambda: len(pair.core.steps) == 1)

    drain = pair.core.drain()
    refused = pair.core.start_turn(agent(), "turn_0000000000000002")
    pair.core.pump(lambda: refused.outcome is not None)
    assert isinstance(refused.outcome, Failure)
    assert refused.outcome.code == "unavailable"
    with open(pair.worker.home / "gate", "w") as gate:
        gate.write("go\n")
    pair.core.pump_to_end()

    assert isinstance(log.outcome, TurnEnd)
    assert log.text == "End."
    assert pair.core.closed_requests[drain] == Done()
    assert pair.worker.wait(2) == EXIT_DRAINED


def test_the_end_of_core_is_the_end_of_the_worker_and_its_tools(start: Start) -> None:
    pair = start(use(call("run_command", command=_TREE)))
    log = pair.core.start_turn(agent())
    pair.core.pump(lambda: any("inner" in item.text for item in log.of(ToolProgress)))
    tree = pair.worker.descendants()
    assert len(tree) >= 2

    pair.core.sock.close()

    assert pair.worker.wait(2) == EXIT_PEER_GONE
    assert [pid for pid in tree if _runs(pid)] == []


def test_a_peer_of_another_mechanism_ends_the_worker(start: Start) -> None:
    pair = start()
    greeting = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\0" * 32

    pair.core.sock.setblocking(True)
    pair.core.sock.sendall(greeting)

    assert pair.worker.wait(5) == EXIT_PEER_GONE


def test_a_core_that_breaks_the_protocol_ends_the_worker_loudly(start: Start) -> None:
    pair = start()
    pair.core.pump(lambda: pair.core.connection.ready)

    pair.core.send(b"\xc1")
    pair.core.pump_to_end()

    assert pair.worker.wait(2) == EXIT_PEER_FAULT
    assert "core broke the protocol: encoding" in pair.worker.close()


def test_a_bug_in_one_turn_is_answered_and_logged_and_the_others_go_on(start: Start) -> None:
    before = (
        "import jail.peer.loop_state as m\n"
        "def broken(self, calls, failed): raise ZeroDivisionError('secret')\n"
        "m.LoopState.end_round = broken\n"
    )
    pair = start(Answer([ChatDelta("first")], None), use(call("list_files")), say("well"), before=before)
    other = pair.core.start_turn(agent(), "turn_0000000000000001")
    pair.core.pump(lambda: other.text == "first")

    log = pair.core.start_turn(agent(), "turn_0000000000000002")
    pair.core.pump(lambda: log.outcome is not None)

    assert isinstance(log.outcome, Failure)
    assert log.outcome.code == "worker"
    assert "ZeroDivisionError" in log.outcome.message
    (line,) = pair.core.logs
    assert (line.level, line.event) == ("error", "turn_crashed")
    assert "secret" not in line.detail
    assert other.outcome is None
    after = pair.core.start_turn(agent(), "turn_0000000000000003")
    pair.core.pump(lambda: after.outcome is not None)
    assert after.text == "well"


def test_a_flood_of_zombies_is_reaped_and_no_status_is_lost(start: Start) -> None:
    flood = "i=0; while [ $i -lt 400 ]; do (true &) ; i=$((i+1)); done; exit 7"
    pair = start(use(call("run_command", command=flood)), say("Done."))

    log = pair.core.run_turn(agent())
    pair.core.settle()

    (ended,) = log.of(ToolEnded)
    assert ended.text.endswith("[exit status 7]")
    assert pair.worker.zombies() == 0


def test_a_worker_killed_while_it_writes_leaves_the_old_file_or_the_new_one(start: Start) -> None:
    old, new = "old " * 50_000, "new " * 50_000
    # stops for good between the write and the rename
    before = (
        "import os, time\n"
        "rename = os.rename\n"
        "def stuck(a, b):\n"
        "    open('stuck', 'w').close(); time.sleep(600)\n"
        "os.rename = stuck\n"
    )
    pair = start(use(call("write_file", path="f.txt", content=new)), before=before)
    target = pair.worker.home / "f.txt"
    target.write_text(old)
    pair.core.start_turn(agent())
    pair.core.pump((pair.worker.home / "stuck").exists)

    pair.worker.process.send_signal(signal.SIGKILL)
    pair.worker.process.wait(5)

    assert target.read_text() == old
    assert len(list(pair.worker.home.glob(".certosa-*.tmp"))) == 1


def test_what_a_killed_write_left_is_taken_over_by_the_next(start: Start) -> None:
    pair = start(
        use(call("write_file", path="f.txt", content="one")),
        use(call("write_file", "c2", path="f.txt", content="two")),
        say("Done."),
        before="import os; os.open('.certosa-73cb2baa.tmp', os.O_CREAT)",
    )

    pair.core.run_turn(agent())

    assert (pair.worker.home / "f.txt").read_text() == "two"
    assert list(pair.worker.home.glob(".certosa-*.tmp")) == []


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
