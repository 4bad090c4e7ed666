import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def packages(file: str) -> dict[str, str]:
    """Each locked package with its version."""
    text = (ROOT / "requirements" / file).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("file", ["run.txt", "test.txt"])
def test_every_package_has_one_version_and_hashes_and_no_place(file: str) -> None:
    text = (ROOT / "requirements" / file).read_text()
    for entry in re.split(r"\n(?=[a-z0-9])", text):
        if entry.startswith("#"):
            continue
        assert re.match(r"[a-z0-9-]+==\S+( ; [^\\]+)? \\\n", entry), entry[:80]
        assert "--hash=sha256:" in entry
    assert "://" not in text
    assert not re.search(r"^(-|.* @ )", text, re.MULTILINE)


def test_what_the_setup_asks_for_is_locked() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    run, test = packages("run.txt"), packages("test.txt")
    for wanted, locked in (
        (setup["options"]["install_requires"], run),
        (setup["options.extras_require"]["test"], test),
    ):
        for line in wanted.split():
            assert re.split(r"[><=!~\[]", line)[0].lower() in locked, line
    assert run.items() <= test.items()


def test_the_interpreter_that_scripts_accept_is_the_one_the_package_needs() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["python_requires"] == ">=3.11"
    assert "(3, 11)" in (ROOT / "scripts" / "setup.sh").read_text()
    ruff = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert ruff["target-version"] == "py311"
