"""The systemd unit that is shipped fits the server that it starts."""

from pathlib import Path

from core.config import Config
from core.master_keys import CREDENTIAL

_ROOT = Path(__file__).resolve().parents[2]
_UNIT = _ROOT / "docs/deploy/certosa.service"


def settings() -> dict[str, str]:
    lines = _UNIT.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def test_the_master_key_has_the_name_that_the_server_looks_for() -> None:
    assert settings()["LoadCredential"].split(":") == [CREDENTIAL, "/etc/certosa/master.key"]


def test_the_program_that_it_starts_is_in_the_checkout() -> None:
    program, *arguments = settings()["ExecStart"].split()

    assert arguments == ["serve"]
    assert (_ROOT / Path(program).relative_to("/opt/certosa")).is_file()


def test_the_server_has_time_to_end_by_itself() -> None:
    # core's margin of 5 s and the rest's of 10 s, as in jail.host.spawner
    assert int(settings()["TimeoutStopSec"]) >= Config().server.grace_s + 15


def test_what_the_server_needs_of_systemd_is_on_and_what_bwrap_cannot_bear_is_not() -> None:
    found = settings()

    assert (found["Type"], found["Delegate"], found["OOMPolicy"]) == ("notify", "yes", "continue")
    assert int(found["WatchdogSec"]) > 0
    hurtful = {
        "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc", "ProcSubset", "PrivateDevices",
        "DevicePolicy", "ProtectHostname", "RestrictNamespaces", "PrivateUsers", "ProtectControlGroups",
        "LockPersonality", "MemoryDenyWriteExecute", "RestrictSUIDSGID",
    }  # fmt: skip
    assert not hurtful & {*found}
