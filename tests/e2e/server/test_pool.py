"""A server with two jails at most: who gets one, who waits, who has to go."""

import subprocess
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.fakes.real_server import UNATTACKED, Person, RealServer, command, real_server, until
from tests.fakes.running_turn import Running, cancel, code


@pytest.fixture(scope="module")
def small() -> Iterator[RealServer]:
    with real_server({"pool": {"max_jails": 2, "wait_s": 3.0}}, before=UNATTACKED) as server:
        yield server


@pytest.fixture(scope="module")
def people(small: RealServer) -> list[Person]:
    return [small.new_user(name) for name in ("ann", "bob", "cid")]


def jails(server: RealServer) -> dict[str, dict[str, Any]]:
    return {jail["user"]: jail for jail in server.admin.call("GET", "/v1/pool")["jails"]}


def test_a_third_user_takes_the_place_of_the_one_idle_longest_and_nothing_is_lost(
    small: RealServer, people: list[Person]
) -> None:
    ann, bob, cid = people
    ann.ask("write kept.txt: still here", session="s-ann")
    bob.run("true")
    assert set(jails(small)) == {"ann", "bob"}
    assert cid.run("echo hello").startswith("hello")
    assert set(jails(small)) == {"bob", "cid"}
    assert "still here" in ann.ask("read kept.txt", session="s-ann").output
    assert small.logged("jail_evicted", user="ann", why="room")


def test_a_third_user_is_refused_while_two_are_busy_and_served_once_one_is_not(
    small: RealServer, people: list[Person]
) -> None:
    ann, bob, cid = people
    with Running(ann, "run: sleep 60") as first, Running(bob, "run: sleep 60") as second:
        first.wait_for("tool_call")
        second.wait_for("tool_call")
        with pytest.raises(openai.RateLimitError, match="in use") as refused:
            cid.ask("help")
        assert refused.value.response.headers["Retry-After"] == "5"
        cancel(ann, first)
        assert cid.run("echo at last").startswith("at last")
        assert "bob" in jails(small), "a busy jail is never given up"
        cancel(bob, second)
        assert {code(first.wait()), code(second.wait())} == {"cancelled"}


def test_an_operator_sees_evicts_kills_and_drains(small: RealServer, people: list[Person]) -> None:
    ann, bob, _ = people
    ann.run("true")
    until("a measured jail", lambda: jails(small)["ann"]["memory_bytes"])
    told = certosa(small, "pool", "show", "--sort", "memory")
    lines = [line.split() for line in told.stdout.splitlines()]
    assert lines[1] == ["USER", "STATE", "AGE", "IDLE", "MEMORY", "CPU", "USES", "START"]
    assert ["ann", "idle"] in [line[:2] for line in lines]
    assert certosa(small, "pool", "evict", "ann").returncode == 0
    until("ann's jail to go", lambda: "ann" not in jails(small))
    missing = certosa(small, "pool", "evict", "ann")
    assert (missing.returncode, missing.stderr) == (1, "certosa: ann has no jail now\n")
    with Running(bob, "run: sleep 60") as turn:
        turn.wait_for("tool_call")
        assert certosa(small, "pool", "kill", "bob").returncode == 0
        assert code(turn.wait()) == "worker"
    assert certosa(small, "pool", "drain").returncode == 0
    until("all jails to go", lambda: not jails(small))
    with pytest.raises(openai.RateLimitError, match="drained"):
        bob.ask("help")
    assert certosa(small, "pool", "open").returncode == 0
    assert bob.run("echo back").startswith("back")
    watched = certosa(small, "pool", "show", "--watch")
    assert watched.returncode == 2
    assert "--watch is for a terminal" in watched.stderr


def certosa(server: RealServer, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command("", "--config", str(server.config_path), *arguments),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
