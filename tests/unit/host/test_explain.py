"""What bwrap says, and what a person is told to do."""

from pathlib import Path

import pytest

from jail.host.explain import explain, is_wsl1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("bwrap: setting up uid map: Permission denied", "AppArmor profile"),
        (("bwrap: No permissions to create new namespace, likely because the kernel does not allow "
         "non-privileged user namespaces."), "unprivileged_userns_clone"),
        ("bwrap: No permissions to create a new namespace, likely because", "seccomp profile"),
        (("bwrap: Creating new namespace failed, likely because the maximum number of namespaces "
         "exceeded (ENOSPC)"), "max_user_namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "unmask"),
        ("bwrap: Unexpected capabilities but not setuid, old file caps config?", "ambient"),
        ("bwrap: Creating new namespace failed: Resource temporarily unavailable", "ulimit -u"),
        ("bwrap: Unknown option --disable-userns", "0.8 or later"),
        ("bwrap: Can't find source path /data/users/x/home: Permission denied", "parents"),
        ("bwrap: Creating new namespace failed: Invalid argument", "WSL 2"),
    ],
)  # fmt: skip
def test_each_known_text_tells_what_to_do(said: str, told: str) -> None:
    text = explain(said)

    assert told in text
    assert said[:60] in text


def test_an_unknown_text_is_quoted_and_cut() -> None:
    assert "it said: bwrap: whatever" in explain("bwrap: whatever\n")
    assert len(explain("x" * 10_000)) < 500
    assert "nothing" in explain("")


def test_wsl_1_is_told_apart_from_wsl_2(tmp_path: Path) -> None:
    release = tmp_path / "osrelease"

    release.write_text("4.4.0-19041-Microsoft\n")
    assert is_wsl1(release)
    release.write_text("5.15.90.1-microsoft-standard-WSL2\n")
    assert not is_wsl1(release)
    assert not is_wsl1(tmp_path / "missing")
