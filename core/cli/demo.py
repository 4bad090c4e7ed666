"""``certosa demo``: two users at work, and five ways across the wall between them."""

import argparse
import secrets
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.cli.api import ApiClient
from core.cli.demo_server import DemoServer, demo_server
from core.cli.demo_wall import Attempt, attempts
from core.cli.failure import FAILED, CommandFailed
from core.cli.output import harmless, print_json

_USERS = ("alice", "bob")
_EXPECTED = "refused"
_MEASURED_S = 60.0


@dataclass(frozen=True, slots=True)
class TurnReport:
    """A turn: how long until its first piece of text and until its end, and the tools it called."""

    user: str
    request: str
    first_token_s: float
    total_s: float
    tools: tuple[str, ...]
    ok: bool


@dataclass(frozen=True, slots=True)
class IsolationReport:
    """An attempt across the wall: what came of it, and of the same act where it is allowed."""

    user: str
    attempt: str
    expected: str
    got: str
    control: str
    ok: bool


@dataclass(frozen=True, slots=True)
class _Done:
    """A turn that has ended: its report and what its tools gave."""

    report: TurnReport
    output: str


class _Person:
    """A user of the demonstration's server, who talks to their agent over the public API."""

    def __init__(self, server: DemoServer, name: str) -> None:
        server.admin.call("POST", "/v1/users", {"name": name})
        token = server.admin.call("POST", f"/v1/users/{name}/tokens", {"label": "demo"})["token"]
        self.name = name
        self.secret = secrets.token_hex(12)
        self._client = ApiClient(f"http://127.0.0.1:{server.hub_port}", token)

    def ask(self, text: str) -> _Done:
        """Run one turn in a session of its own."""
        began_s = time.monotonic()
        first_s = 0.0
        tools: list[str] = []
        results: list[str] = []
        well = True
        turn = self._client.start_turn(text, f"demo-{secrets.token_hex(6)}")
        for piece in turn.pieces():
            if piece.kind == "text":
                first_s = first_s or time.monotonic() - began_s
            elif piece.kind == "tool_call":
                tools.append(piece.name)
            elif piece.kind == "tool_result":
                results.append(piece.text)
                well = well and piece.ok
        total_s = time.monotonic() - began_s
        ok = well and bool(tools) and first_s > 0
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        report = TurnReport(self.name, shown, round(first_s, 4), round(total_s, 4), tuple(tools), ok)
        return _Done(report, "\n".join(results))


def demo(arguments: argparse.Namespace) -> int:
    """Run it all; 0 only if every turn went well and every attempt was refused."""
    # SIGTERM is as Ctrl-C: the server is ended and the directory removed on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _note(arguments, "Starting a server in a temporary directory ...")
    with demo_server() as server:
        people = [_Person(server, name) for name in _USERS]
        turns = [report for person in people for report in _work(arguments, person)]
        isolation = _try_the_wall(arguments, server, people)
        jails = _jails(server)
        _note(arguments, "Ending the server ...")
    measured = {jail["user"] for jail in jails if jail["start_s"] and jail["memory_bytes"]}
    everyone = measured >= set(_USERS)
    ok = everyone and all(r.ok for r in turns) and all(r.ok for r in isolation)
    result: dict[str, Any] = {
        "ok": ok,
        "turns": [asdict(report) for report in turns],
        "isolation": [asdict(report) for report in isolation],
        "jails": jails,
    }
    if arguments.json:
        print_json(result)
    else:
        _print_report(result)
    return 0 if ok else FAILED


def _work(arguments: argparse.Namespace, person: _Person) -> list[TurnReport]:
    """A person has their agent write a file and read it again."""
    reports = []
    for request in (f"write secret.txt: {person.secret}", "read secret.txt"):
        done = person.ask(request)
        reports.append(done.report)
        _note(arguments, f"{person.name}: {request.split(':')[0]} ({done.report.total_s:.2f} s)")
    if person.secret not in done.output:
        raise CommandFailed(
            f"{person.name}'s agent did not read what it wrote: {harmless(done.output)[:300]}"
        )
    return reports


def _try_the_wall(
    arguments: argparse.Namespace, server: DemoServer, people: list[_Person]
) -> list[IsolationReport]:
    """The first person's agent tries to reach what is the second's, and the server's."""
    intruder, other = people
    _require_targets(server.data_dir, other)
    reports = []
    for attempt in attempts(server.data_dir, other.name, other.secret, intruder.secret, server.hub_port):
        report = _try(intruder, attempt)
        reports.append(report)
        _note(arguments, f"{intruder.name} tries to {report.attempt}: {report.got}")
    return reports


def _try(person: _Person, attempt: Attempt) -> IsolationReport:
    output = person.ask(f"run: {attempt.act.command}").output
    control = person.ask(f"run: {attempt.control.command}").output
    refused = attempt.act.was_refused(output)
    allowed = attempt.control.succeeded(control)
    said = "crossed the wall" if attempt.act.succeeded(output) else attempt.act.read(output)
    return IsolationReport(
        user=person.name,
        attempt=attempt.name,
        expected=_EXPECTED,
        got=f"refused ({said.removeprefix('NO ')})" if refused else harmless(said),
        control="allowed" if allowed else harmless(attempt.control.read(control)),
        ok=refused and allowed,
    )


def _require_targets(data_dir: Path, other: _Person) -> None:
    """What the attempts are after has to be there, or their failing would show nothing."""
    for target in (
        data_dir / "users" / other.name / "home" / "secret.txt",
        data_dir / "_keys" / "master.key",
    ):
        try:
            target.stat()
        except OSError as error:
            raise CommandFailed(f"the target of an attempt is not there: {error}") from None


def _jails(server: DemoServer) -> list[dict[str, Any]]:
    return [
        {
            "user": jail["user"],
            "start_s": round(jail["start_s"], 4),
            "memory_bytes": jail["memory_bytes"] or 0,
        }
        for jail in _measured(server)
    ]


def _measured(server: DemoServer) -> list[dict[str, Any]]:
    """The jails, once the server has measured them, which it does every other second."""
    deadline_s = time.monotonic() + _MEASURED_S
    while True:
        jails: list[dict[str, Any]] = server.status()["jails"]
        if all(jail["memory_bytes"] for jail in jails) or time.monotonic() > deadline_s:
            return jails
        time.sleep(0.2)


def _note(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json:
        print(text, file=sys.stderr, flush=True)


def _print_report(result: dict[str, Any]) -> None:
    print("\nTurns")
    for turn in result["turns"]:
        print(
            f"  {turn['user']}: first token after {turn['first_token_s']:.3f} s,"
            f" done after {turn['total_s']:.3f} s  ({', '.join(turn['tools'])})"
        )
    print("Jails")
    for jail in result["jails"]:
        memory = jail["memory_bytes"] / 2**20
        print(f"  {jail['user']}: started in {jail['start_s']:.3f} s, {memory:.1f} MiB")
    print("Ways across the wall, each beside the same act where it is allowed")
    for report in result["isolation"]:
        mark = "ok " if report["ok"] else "BAD"
        print(f"  {mark} {report['attempt']}: {report['got']}; control: {report['control']}")
    print("\nAll as expected." if result["ok"] else "\nNOT as expected: see above.")
