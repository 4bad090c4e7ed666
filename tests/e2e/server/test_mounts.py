"""Token scope `mount` in the real server: one user's jail has the file, and nobody else the value."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.real_server import (
    UNATTACKED,
    Person,
    RealServer,
    below,
    real_server,
    run_certosa,
    until,
    workers,
)
from tests.fakes.search import Needles

ALICES = "mount-canary-alice-7d1f4b0c9a8e4f62b3d5"
BOBS = "mount-canary-bob-5e4d3c2b1a0f9e8d7c6b"
NEXT = "mount-canary-next-1a2b3c4d5e6f708192a3"
PLACE = "/run/credentials/signing-key"
MOUNT = {"credential": "signing-key", "users": ["alice"]}

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may read the memory of these processes")


def started(kind: str, **sections: Any) -> dict[str, Any]:
    return {"jail": {"start": kind}, "vault": {"mount": [MOUNT]}, **sections}


@pytest.fixture(params=["fork", "exec"], scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[RealServer]:
    with real_server(started(request.param), before=UNATTACKED) as running:
        yield running


@pytest.fixture(scope="module")
def people(server: RealServer) -> tuple[Person, Person]:
    """Both have a credential of that name."""
    found = server.new_user("alice"), server.new_user("bob")
    for person, value in zip(found, (ALICES, BOBS), strict=True):
        keep(server, person, value)
    return found


def keep(server: RealServer, person: Person, value: str) -> None:
    run_certosa(server, "credential set signing-key --host api.example.com", value, person)


def length(person: Person) -> str:
    """Of what lies there: the value itself must not come out of the jail, or it would be in core by that."""
    return person.run(f"wc -c < {PLACE}; stat -c '%a %u' {PLACE}")


def test_alice_has_it_and_bob_does_not(server: RealServer, people: tuple[Person, Person]) -> None:
    alice, bob = people
    assert f"{len(ALICES)}\n400 1000" in length(alice)
    assert "No such file" in bob.run("ls /run")

    listed = [json.loads(run_certosa(server, "credential list --json", "", p).stdout) for p in people]
    rows = [row for found in listed for row in found["credentials"] if row["name"] == "signing-key"]
    assert [(row["scope"], row["mounted_at"]) for row in rows] == [("mount", PLACE), ("broker", None)]
    assert PLACE in run_certosa(server, "credential list", "", alice).stdout
    until("the record", lambda: mounted(server, "alice"))


def mounted(server: RealServer, user: str) -> list[str]:
    """Whatever the audit log says was put into a user's jails."""
    lines = json.loads(run_certosa(server, f"audit show --user {user} --json").stdout)["lines"]
    return [line["on"] for line in lines if line["kind"] == "credential_mounted"]


@as_root
def test_the_value_is_in_egress_and_alices_jail_alone(
    server: RealServer, people: tuple[Person, Person]
) -> None:
    alice, bob = people
    assert alice.python(f"print(len(open('{PLACE}').read()))").startswith(f"{len(ALICES)}\n")
    bob.run("true")
    needles = {"alice": Needles(ALICES), "bob": Needles(BOBS)}
    spawner, core, egress = server.process.pid, server.pid("core"), server.pid("egress")
    jails = workers(server)
    assert len(jails) == 2
    everybody = {spawner, *(p.pid for p in below(spawner))}
    assert {core, egress, *(j.pid for j in jails)} < everybody

    with_it = [j.pid for j in jails if Path(f"/proc/{j.pid}/root{PLACE}").exists()]
    assert [Path(f"/proc/{pid}/root{PLACE}").read_text() for pid in with_it] == [ALICES]
    assert Path(f"/proc/{with_it[0]}/root{PLACE}").stat().st_uid == alice.home.stat().st_uid

    assert Needles("credential_mounted").in_memory(egress)
    assert Needles("signing-key").in_memory(core)
    for name, needle in needles.items():
        assert [pid for pid in everybody - {egress} if needle.in_memory(pid)] == [], name
        assert [pid for pid in everybody if needle.in_arguments(pid) or needle.in_environment(pid)] == []
        assert [pid for pid in everybody if needle.in_descriptors(pid)] == [], name
        assert needle.in_files(server.directory) == [], name
    assert Needles("jail_started").in_files(server.directory) == [server.log_path]
    # the control of that search: what she copies into her home is found
    alice.run(f"cp {PLACE} kept; chmod 600 kept")
    assert needles["alice"].in_files(server.directory) == [alice.home / "kept"]
    alice.run("rm kept")


def test_another_value_or_none_counts_in_the_next_jail(
    server: RealServer, people: tuple[Person, Person]
) -> None:
    alice, bob = people
    assert f"{len(ALICES)}\n" in length(alice)
    bob.run("true")
    before = gone(server, "alice")

    keep(server, alice, NEXT)
    until("the end of her jail", lambda: gone(server, "alice") > before)
    assert f"{len(NEXT)}\n" in length(alice)
    before = gone(server, "alice")
    run_certosa(server, "credential delete signing-key", "", alice)
    until("the end of that jail", lambda: gone(server, "alice") > before)
    assert "No such file" in length(alice)
    keep(server, alice, ALICES)
    assert f"{len(ALICES)}\n" in until("the value of before", lambda: found(length(alice)))

    # what is not mounted is no reason to end a jail
    evicted = len(server.logged("jail_evicted"))
    keep(server, bob, BOBS)
    run_certosa(server, "credential set other --host api.example.com", NEXT, alice)
    assert f"{len(ALICES)}\n" in length(alice)
    assert len(server.logged("jail_evicted")) == evicted


def found(text: str) -> str:
    return "" if "No such file" in text else text


def gone(server: RealServer, user: str) -> int:
    """How many of a user's jails were given up and have drained."""
    return len(server.logged("jail_ended", user=user, reason="drained"))


def test_a_mount_that_the_operator_takes_out_goes_at_the_reload(
    server: RealServer, people: tuple[Person, Person]
) -> None:
    alice, bob = people
    assert f"{len(ALICES)}\n" in length(alice)
    before, reloads = gone(server, "alice"), len(server.logged("config_reloaded"))

    server.write_config({"vault": {"mount": [{**MOUNT, "users": ["bob"]}]}})
    server.process.send_signal(signal.SIGHUP)
    server.wait_logged("config_reloaded", reloads + 1)
    until("the end of her jail", lambda: gone(server, "alice") > before)

    assert "No such file" in length(alice)
    assert f"{len(BOBS)}\n" in until("his", lambda: found(length(bob)))
    server.write_config()
    server.process.send_signal(signal.SIGHUP)
    server.wait_logged("config_reloaded", reloads + 2)
    assert f"{len(ALICES)}\n" in until("hers again", lambda: found(length(alice)))
    until("his gone", lambda: "No such file" in bob.run("ls /run"))


def test_an_egress_that_was_started_again_gives_it_to_the_next_jail(
    server: RealServer, people: tuple[Person, Person]
) -> None:
    alice, _ = people
    assert f"{len(ALICES)}\n" in length(alice)
    before, starts = gone(server, "alice"), len(server.logged("service_started", service="egress"))
    os.kill(server.pid("egress"), signal.SIGKILL)
    server.wait_logged("service_started", starts + 1, service="egress")
    server.wait_ready()
    run_certosa(server, "pool evict alice")
    until("the end of her jail", lambda: gone(server, "alice") > before)

    assert f"{len(ALICES)}\n" in length(alice)
