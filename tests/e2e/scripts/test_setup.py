"""scripts/setup.sh with played package managers and interpreters; nothing is installed."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[3] / "scripts" / "setup.sh"
BASH = "/bin/bash"
AS_ROOT = os.geteuid() == 0
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only directory on the PATH: what the script needs, and what a test plays."""
    found = tmp_path / "programs"
    found.mkdir()
    for name in ("dirname", "env", "cat"):
        (found / name).symlink_to(f"/usr/bin/{name}")
    tmp_path.chmod(0o755)
    return found


def play(programs: Path, name: str, body: str) -> None:
    script = programs / name
    script.write_text(f"#!{BASH}\n{body}\n")
    script.chmod(0o755)


def shell(programs: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = f'set -euo pipefail; source "{SETUP}"; {code}'
    return subprocess.run(
        [BASH, "-c", script, "setup", *arguments],
        env={"PATH": str(programs), "LOG": str(programs.parent / "log")}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def said(programs: Path) -> list[str]:
    log = programs.parent / "log"
    return log.read_text().splitlines() if log.exists() else []


def play_sudo(programs: Path) -> None:
    """sudo that runs what it is given; root does not call it."""
    play(programs, "sudo", '[[ $1 == -n ]] && shift; exec "$@"')


def test_apt_fetches_its_lists_only_where_the_first_try_fails(programs: Path) -> None:
    play_sudo(programs)
    play(programs, "apt-get", 'echo "$*" >>"$LOG"')
    assert shell(programs, "install_packages bwrap bubblewrap").returncode == 0
    assert [" update" in line for line in said(programs)] == [False]
    (programs.parent / "log").unlink()
    play(
        programs,
        "apt-get",
        'echo "$*" >>"$LOG"; [[ -e $LOG.updated || $* == *update* ]] && : >"$LOG.updated"',
    )
    assert shell(programs, "install_packages bwrap bubblewrap").returncode == 0
    assert [" update" in line for line in said(programs)] == [False, True, False]
    assert all("bubblewrap" in line or "update" in line for line in said(programs))


@pytest.mark.parametrize(
    ("manager", "wanted"),
    [
        ("apt-get", "python3 python3-venv"),
        ("dnf", "python3.12"),
        ("pacman", "python"),
        ("zypper", "python312"),
        ("apk", "python3"),
    ],
)
def test_each_package_manager_is_asked_in_its_own_words(programs: Path, manager: str, wanted: str) -> None:
    play_sudo(programs)
    play(programs, manager, 'echo "$*" >>"$LOG"')
    assert shell(programs, "install_packages Python python").returncode == 0
    assert said(programs)[0].endswith(wanted)


def test_a_failed_installation_ends_with_a_sentence(programs: Path) -> None:
    play_sudo(programs)
    play(programs, "apt-get", "echo 'E: no network' >&2; exit 100")
    done = shell(programs, "install_packages bwrap bubblewrap; echo went-on")
    assert done.returncode == 1
    assert "apt-get could not install bubblewrap" in done.stderr
    assert "E: no network" in done.stderr
    assert "went-on" not in done.stdout


def test_without_a_package_manager_it_says_what_to_install(programs: Path) -> None:
    play_sudo(programs)
    done = shell(programs, "install_packages bwrap bubblewrap")
    assert done.returncode == 1
    assert "bwrap is missing and no package manager is known here" in done.stderr


@pytest.mark.skipif(AS_ROOT, reason="root needs no sudo")
def test_an_ordinary_user_without_sudo_is_told_so(programs: Path) -> None:
    done = shell(programs, "install_packages bwrap bubblewrap")
    assert done.returncode == 1
    assert "there is no sudo" in done.stderr


def test_an_interpreter_that_is_too_old_or_broken_is_passed_over(programs: Path) -> None:
    play(programs, "old-python", "exit 1")
    play(programs, "no-venv-python", "echo 'No module named ensurepip' >&2; exit 1")
    code = (
        'interpreters() { printf "%s\\n" "$@"; }; candidates=("$@");'
        'interpreters() { printf "%s\\n" "${candidates[@]}"; }; choose_interpreter'
    )
    good = os.path.realpath(sys.executable)
    bad = [str(programs / "old-python"), str(programs / "no-venv-python")]
    done = shell(programs, code, *bad, good)
    assert (done.returncode, done.stdout) == (0, f"{good}\n"), done.stderr


def test_where_no_interpreter_will_do_one_is_installed_and_then_it_gives_up(programs: Path) -> None:
    play_sudo(programs)
    play(programs, "apt-get", 'echo "$*" >>"$LOG"')
    done = shell(programs, "interpreters() { :; }; x=$(choose_interpreter); echo went-on")
    assert done.returncode == 1
    assert "no usable Python" in done.stderr
    assert "went-on" not in done.stdout
    assert len(said(programs)) == 1


@pytest.mark.skipif(not AS_ROOT, reason="only root's interpreter has to be everyone's")
def test_an_interpreter_below_a_private_directory_will_not_do_for_root(
    programs: Path, tmp_path: Path
) -> None:
    (programs / "setpriv").symlink_to("/usr/bin/setpriv")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "python3").symlink_to(os.path.realpath(sys.executable))
    assert shell(programs, f"usable {private}/python3").returncode != 0
    assert shell(programs, f"usable {os.path.realpath(sys.executable)}").returncode == 0


def test_the_callers_directory_and_arguments_are_kept_and_its_python_settings_are_not(
    programs: Path, tmp_path: Path
) -> None:
    code = f"python={sys.executable}; cd '{tmp_path}'; export PYTHONPATH=/nowhere PYTHONSTARTUP=/no; start "
    program = 'import os; import core; print(os.getcwd(), sys.argv[1:], "/nowhere" in sys.path)'
    done = shell(programs, f"{code}'{program}' a 'b c'")
    assert done.stdout == f"{tmp_path} ['a', 'b c'] False\n", done.stderr
