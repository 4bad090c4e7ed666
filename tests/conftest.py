"""Every test cleans up after itself: what it leaves behind fails it.

Compared before and after each test: threads, child processes (orphans of children become ours, as
this process is a subreaper), open descriptors, mounts. What a wider fixture set up before the test
began is none of its business. A test that has to leave something is marked ``outlives("why")``.
"""

import ctypes
import gc
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from tests.fakes.staged import forget_staged
from tests.wall.outcomes import Outcomes

_SETTLE_S = 2.0
_PR_SET_CHILD_SUBREAPER = 36
# opened once by the standard library or the test runner and kept on purpose
_KEPT = ("/dev/null", "/dev/urandom", "/dev/random", "/proc/", "/sys/")
# a server's own directory in another process of this run: its fixture unmounts what it mounts there, or fails
_ANOTHERS = "/certosa-e2e-"


def pytest_addoption(parser: pytest.Parser) -> None:
    """See :mod:`tests.wall.outcomes`."""
    parser.addoption(
        "--wall-report", type=Path, help="keep the outcomes of the tests of the wall in this file"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Adopt orphans, so that a jail whose starter died is still found."""
    config.addinivalue_line("markers", "outlives(reason): leaves something behind on purpose")
    config.addinivalue_line("markers", "wall(case, start): shows that a case of tests/wall/cases.py holds")
    config.pluginmanager.register(Outcomes(config.getoption("--wall-report")), "wall")
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # structlog's own default draws tracebacks with every local, which stalls an event loop for seconds
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=repr),
        ]
    )


def pytest_unconfigure() -> None:
    """Remove what :mod:`tests.fakes.staged` kept for all tests of this process."""
    forget_staged()


@dataclass(frozen=True)
class _Held:
    threads: frozenset[threading.Thread]
    children: dict[int, str]
    descriptors: dict[int, str]
    mounts: frozenset[str]


@pytest.fixture(autouse=True)
def _leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    before = _held()
    yield
    if request.node.get_closest_marker("outlives") is not None:
        return
    leaked = _leaked(before)
    if leaked:
        gc.collect()
        leaked = _settle(before)
    if leaked:
        _end_children(before)
        pytest.fail("left behind: " + "; ".join(leaked), pytrace=False)


def _settle(before: _Held) -> list[str]:
    deadline = time.monotonic() + _SETTLE_S
    while (leaked := _leaked(before)) and time.monotonic() < deadline:
        _wait_for_change(before)
    return leaked


def _wait_for_change(before: _Held) -> None:
    """Wait until a leaked child or thread ends, or briefly for what has no event."""
    poll = select.poll()
    fds = []
    for pid in _children().keys() - before.children.keys():
        with suppress(ProcessLookupError):
            fds.append(os.pidfd_open(pid))
    for fd in fds:
        poll.register(fd, select.POLLIN)
    poll.poll(50)
    for fd in fds:
        os.close(fd)


def _held() -> _Held:
    return _Held(
        frozenset(threading.enumerate()),
        _children(),
        _descriptors(),
        frozenset(
            line for line in Path("/proc/self/mountinfo").read_text().splitlines() if _ANOTHERS not in line
        ),
    )


def _leaked(before: _Held) -> list[str]:
    _reap_orphans(before)
    now = _held()
    threads = [thread.name for thread in now.threads - before.threads if thread.is_alive()]
    children = [f"{pid} {now.children[pid]}" for pid in now.children.keys() - before.children.keys()]
    descriptors = [
        f"{fd} {target}"
        for fd, target in now.descriptors.items()
        if before.descriptors.get(fd) != target and not target.startswith(_KEPT)
    ]
    found = {
        "threads": threads,
        "processes": children,
        "descriptors": descriptors,
        "mounts": sorted(now.mounts - before.mounts),
    }
    return [f"{kind} {items}" for kind, items in found.items() if items]


def _children() -> dict[int, str]:
    """Pids of our children, with their names; zombies too."""
    found = {}
    for task in os.listdir("/proc/self/task"):
        try:
            pids = Path(f"/proc/self/task/{task}/children").read_text().split()
        except FileNotFoundError:
            continue  # a thread that has just ended
        for pid in pids:
            with suppress(FileNotFoundError, ProcessLookupError):
                found[int(pid)] = Path(f"/proc/{pid}/comm").read_text().strip()
    return found


def _reap_orphans(before: _Held) -> None:
    """Wait for new zombies: Popen objects that were never waited for warn by themselves."""
    for pid in _children().keys() - before.children.keys():
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _descriptors() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _end_children(before: _Held) -> None:
    """End what leaked, so that only this test fails for it."""
    for pid in _children().keys() - before.children.keys():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _SETTLE_S
    while _children().keys() - before.children.keys() and time.monotonic() < deadline:
        _reap_orphans(before)
        _wait_for_change(before)
