"""`certosa doctor`: attacks from within a live jail, and what of the wall this machine gives.

The jail is built by the launcher that builds everybody's, from the same profile; only its command is
the probe (:mod:`jail.peer.probe`) instead of the worker.
"""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from jail.host.cgroups import UseCgroups
from jail.host.diagnosis import Diagnosis
from jail.host.enforcement import enforced_by
from jail.host.launcher import HostUids, JailSpec, Starter
from jail.host.layout import Layout, Owners
from jail.host.messages import HostError, Start
from jail.host.oneshot import follow
from jail.host.process import subreaper
from jail.host.profile import ENVIRONMENT, Limits, Profile, System, user_paths
from jail.host.starters import make_starter
from jail.host.syscalls import Machine

_PROBE: Final = ("-I", "-S", "/certosa/lib/jail/peer/probe.py")
_PROBE_S: Final = 120.0  # an emulated machine needs twenty times the second this takes
_MAX_REPORT_BYTES: Final = 1 << 20
_VERSION_S: Final = 60.0


class Finding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attempt from within the jail."""

    attempt: str
    expected: str
    got: str
    ok: bool


class Report(msgspec.Struct, frozen=True):
    """What the doctor found.

    Args:
        ok: every attempt went as it had to.
        start: how the attacked jail was started: "exec" where "fork" is wanted and cannot work.
    """

    ok: bool
    error: str  # why no jail could be attacked, and what to do; empty otherwise
    findings: tuple[Finding, ...]
    machine: dict[str, str]
    start: Start = "exec"


@dataclass(frozen=True, slots=True)
class DoctorConfig:
    """What the doctor has to know; as in :class:`jail.host.spawner.SpawnerConfig`.

    Args:
        owners: core's and egress's ids when root; the two uids before ``user_uids`` serve as the
            doctor's patients.
        secrets: paths that no jail may read beside those the doctor makes: keys, configuration.
        app, start: how jails are started; see :func:`jail.host.starters.make_starter`.
    """

    data_dir: Path
    bwrap: Path
    machine: Machine
    system: System
    lib: Path
    etc: Path
    owners: Owners | None
    user_uids: range
    limits: Limits = field(default_factory=Limits)
    secrets: tuple[Path, ...] = ()
    app: Path | None = None
    start: Start = "fork"
    cgroups: UseCgroups = "auto"


def run_doctor(config: DoctorConfig) -> Report:
    """Attack a live jail and report. Takes about a second; nothing stays behind.

    Never raises for what a machine may lack: that is the report's ``error``.
    """
    findings, error = _try_attack(config)
    start = config.start
    if error and start == "fork":
        why, start = error, "exec"
        findings, error = _try_attack(replace(config, start=start))
        started = f"exec; a fork cannot work here: {why}"
    else:
        started = start
    ok = not error and bool(findings) and all(finding.ok for finding in findings)
    return Report(ok, error, findings, {"start": started, **describe_machine(config)}, start)


def _try_attack(config: DoctorConfig) -> tuple[tuple[Finding, ...], str]:
    try:
        return _attack(config), ""
    except HostError as failed:
        return (), str(failed)


def _attack(config: DoctorConfig) -> tuple[Finding, ...]:
    Layout(config.data_dir, config.owners).prepare()
    place = Path(tempfile.mkdtemp(prefix="_doctor-", dir=config.data_dir))
    try:
        if config.owners is not None:
            place.chmod(0o711)
        return _attack_in(config, place)
    except OSError as error:
        raise HostError(f"the doctor's patients could not be made: {error}") from None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _attack_in(config: DoctorConfig, place: Path) -> tuple[Finding, ...]:
    """Two users in a data directory of their own; one is attacked from the other's jail."""
    first = config.user_uids.start - 2
    uids = (first, first + 1) if config.owners else (0, 0)
    layout = Layout(place, config.owners)
    layout.prepare()
    for user, uid in zip(("patient", "attacker"), uids, strict=True):
        layout.prepare_user(user, uid)
    secret = user_paths(place, "patient").home / "secret"
    secret.write_bytes(b"nobody else's")
    if config.owners:
        os.chown(secret, uids[0], uids[0])
    paths = user_paths(place, "attacker")
    command = (config.system.python, *_PROBE)
    spec = JailSpec(
        Profile(config.system, config.lib, config.etc, paths.home, paths.agents, config.limits, command),
        uids[1],
    )
    forbidden = [secret, secret.parent, *_server_paths(config), *config.secrets]
    patients = HostUids(range(first, first + 2))
    with subreaper():
        starter = make_starter(config, layout.run_dir, patients)
        try:
            return _run_probe(starter, spec, forbidden)
        finally:
            starter.close()


def _server_paths(config: DoctorConfig) -> list[Path]:
    return [config.data_dir / name for name in ("_keys", "_system", "sealed", "_run", "users")]


def _run_probe(starter: Starter, spec: JailSpec, forbidden: Sequence[Path]) -> tuple[Finding, ...]:
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0certosa-doctor-{os.getpid()}")
        abstract.listen(1)
        host, port = tcp.getsockname()
        _check_listeners(host, port, abstract)
        task = {
            "forbidden": [str(path) for path in forbidden],
            "host": host,
            "port": port,
            "abstract": abstract.getsockname()[1:].decode(),
            "environment": {**ENVIRONMENT, "PWD": "/home/user"},
        }
        jail = starter.start(spec)
        report = bytearray()
        jail.edge.send(json.dumps(task).encode() + b"\n")

        def read() -> bool:
            try:
                data = jail.edge.recv(65_536)
            except ConnectionResetError:  # it ended without taking its task
                return False
            report.extend(data[: _MAX_REPORT_BYTES - len(report)])
            return bool(data)

        started: list[bool] = []
        how = follow(jail, _PROBE_S, {jail.edge.fileno(): read}, lambda: started.append(True))
    if not started:
        raise HostError(jail.why or _why(starter, spec))
    if how != "exit 0":
        raise HostError(f"the probe ended by itself ({how}); nothing can be said of the jail")
    try:
        return msgspec.json.decode(bytes(report), type=tuple[Finding, ...])
    except msgspec.MsgspecError as error:
        raise HostError(f"the probe's report is not one: {error}") from None


def _check_listeners(host: str, port: int, abstract: socket.socket) -> None:
    """The positive control: what the jail must not reach can be reached from here."""
    socket.create_connection((host, port), timeout=_VERSION_S).close()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(_VERSION_S)
        sock.connect(abstract.getsockname())


def _why(starter: Starter, spec: JailSpec) -> str:
    diagnosis = Diagnosis(starter.plain, spec)
    try:
        follow(diagnosis.jail, _VERSION_S)
    except HostError as error:
        return str(error)
    return diagnosis.text()


def describe_machine(config: DoctorConfig) -> dict[str, str]:
    """What this machine gives: versions, namespaces, uids, controllers, and who enforces what."""
    apart = config.owners is not None
    return {
        "bwrap": _bwrap_version(config.bwrap),
        "kernel": f"{os.uname().release} {config.machine}",
        "python": config.system.python,
        "user_namespaces": _read("/proc/sys/user/max_user_namespaces"),
        "unprivileged_userns_clone": _read("/proc/sys/kernel/unprivileged_userns_clone"),
        "apparmor_restricts_userns": _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        "uids_apart": "yes" if apart else "no: all jails share one uid; only namespaces part them",
        "cgroup_controllers": cgroup_controllers() or "none usable",
        "files": "mount namespace" + (" and file modes: each user has a uid" if apart else ""),
        "processes": "pid and user namespaces, seccomp filter, no capabilities",
        "network": "an empty network namespace",
        **enforced_by(Layout(config.data_dir, config.owners).run_dir, config.cgroups),
    }


def cgroup_controllers() -> str:
    """Names of controllers, by v2's list or as v1 mounts; a v2 mount without them counts for none."""
    v2 = _read("/sys/fs/cgroup/cgroup.controllers").split()
    if v2 and v2 != ["missing"]:
        return "v2: " + " ".join(v2)
    v1 = [name for name in ("memory", "pids", "cpu") if Path("/sys/fs/cgroup", name).is_dir()]
    return "v1: " + " ".join(v1) if v1 else ""


def _bwrap_version(bwrap: Path) -> str:
    try:
        done = subprocess.run(
            [str(bwrap), "--version"],
            capture_output=True, timeout=_VERSION_S, check=True, env={}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    return done.stdout.decode(errors="replace").strip()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return "missing"
