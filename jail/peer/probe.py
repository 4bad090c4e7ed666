"""What `certosa doctor` runs in a jail in the worker's place: it attacks, and reports how that went.

Reads one line of JSON from the connection waiting on descriptor 3, answers with one JSON list of
findings and exits. Every finding is ``{"attempt", "expected", "got", "ok"}``; ``control: `` marks
acts that have to succeed, so that a jail in which nothing works does not pass.

The line has the keys ``forbidden`` (paths on the host), ``host`` and ``port`` (a listener of the
doctor's), ``abstract`` (an abstract socket of the doctor's) and ``environment`` (as it must be).
"""

import json
import os
import socket
import sys

_LISTEN_FD = 3
_MAX_TASK_BYTES = 65_536
_TASK_S = 120.0  # an emulated machine is slow


def _descriptors() -> dict[str, str]:
    found = {}
    with os.scandir("/proc/self/fd") as entries:
        names = [entry.name for entry in entries]
    for name in names:
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}").split(":")[0]
        except FileNotFoundError:
            continue  # the one that listed them
    return found


def _read_task(connection: socket.socket) -> dict[str, object]:
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(_MAX_TASK_BYTES)
        if not piece or len(data) > _MAX_TASK_BYTES:
            raise SystemExit(3)
        data += piece
    task = json.loads(data)
    assert isinstance(task, dict)  # the doctor's own words
    return task


def _main() -> int:
    descriptors = _descriptors()  # before anything of ours is opened
    here = os.path.abspath(__file__)
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(here))))
    from jail.peer.probes import files, kernel, network, processes
    from jail.peer.probes.finding import Findings

    listener = socket.socket(fileno=_LISTEN_FD)
    listener.settimeout(_TASK_S)
    connection, _ = listener.accept()
    connection.settimeout(_TASK_S)
    task = _read_task(connection)
    findings = Findings()
    findings.equal(
        "descriptors",
        {"0": "/dev/null", "1": "/dev/null", "2": "/dev/null", "3": "socket"},
        descriptors,
    )
    findings.equal("environment", task["environment"], dict(os.environ))
    forbidden = task["forbidden"]
    assert isinstance(forbidden, list)
    files.probe(findings, [str(path) for path in forbidden])
    network.probe(findings, str(task["host"]), int(str(task["port"])), str(task["abstract"]))
    processes.probe(findings)
    kernel.probe(findings)
    connection.sendall(json.dumps(findings.as_json()).encode())
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(_main())
