"""The doctor finds the wall standing, and finds a hole where there is one."""

from dataclasses import replace
from pathlib import Path

import pytest

from jail.host import bpf, doctor, launcher
from jail.host.doctor import DoctorConfig, run_doctor
from jail.host.messages import Start
from tests.fakes.jails import USER_UIDS, House, is_root


@pytest.fixture
def config(house: House, kind: Start) -> DoctorConfig:
    return DoctorConfig(
        house.data_dir, house.bwrap, house.machine, house.system, house.staged.lib,
        house.staged.etc, house.owners, USER_UIDS, secrets=(Path("/etc/shadow"),),
        app=house.staged.app, start=kind,
    )  # fmt: skip


@pytest.mark.wall("doctor")
@pytest.mark.wall("server")
def test_every_attack_fails_and_every_control_succeeds(config: DoctorConfig) -> None:
    report = run_doctor(config)

    assert [finding for finding in report.findings if not finding.ok] == []
    assert (report.ok, report.error) == (True, "")
    attempts = " ".join(finding.attempt for finding in report.findings)
    for what in ("control: own file", "loopback", "abstract", "resolve", "unshare", "memory of pid 1",
                 "ptrace", "io_uring", "ioctl 0x5412", "/etc/shadow", "_keys", "descriptors"):  # fmt: skip
        assert what in attempts
    assert report.machine["bwrap"].startswith("bubblewrap")
    assert report.machine["uids_apart"].startswith("yes" if is_root() else "no")


def test_nothing_stays_behind(config: DoctorConfig) -> None:
    run_doctor(config)

    assert not list(config.data_dir.glob("_doctor*"))


@pytest.mark.wall("doctor")
def test_a_jail_without_a_filter_is_found_out(config: DoctorConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_all = bpf.assemble([bpf.returns(bpf.RET_ALLOW)])
    monkeypatch.setattr(launcher, "filter_program", lambda machine: allow_all)

    report = run_doctor(config)

    assert not report.ok
    failed = {finding.attempt for finding in report.findings if not finding.ok}
    assert {"io_uring_setup", "clone3", "keyctl"} <= failed


@pytest.mark.wall("doctor")
def test_a_jail_that_mounts_too_much_is_found_out(config: DoctorConfig) -> None:
    secret = Path("/var/log")  # stands for anything that every uid may read
    hole = replace(config.system, mounts=(*config.system.mounts, "/var"))

    closed = run_doctor(replace(config, secrets=(secret,)))
    opened = run_doctor(replace(config, system=hole, secrets=(secret,)))

    assert closed.ok
    assert not opened.ok
    assert f"read {secret}" in {finding.attempt for finding in opened.findings if not finding.ok}


def test_why_no_jail_can_be_built_is_said(config: DoctorConfig) -> None:
    report = run_doctor(replace(config, lib=Path("/nonexistent/lib")))

    assert not report.ok
    assert report.findings == ()
    assert "a directory the jail mounts is missing" in report.error
    assert "/nonexistent/lib" in report.error


def test_a_probe_that_dies_is_no_clean_report(config: DoctorConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PROBE", ("-c", "import os; os._exit(9)"))

    report = run_doctor(config)

    assert not report.ok
    assert "exit 9" in report.error
