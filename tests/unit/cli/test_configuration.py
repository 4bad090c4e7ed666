import json
from pathlib import Path

import pytest

from core.cli import main
from core.config import load_config, parse_config

FULL = """\
[server]
data_dir = "/srv/certosa data"
[hub]
port = 9000
[agent]
provider = "local"
prompt = "Say \\"hi\\"\\nand go. \\u00eb"
[agent.limits]
rounds = 7
[providers.local]
base_url = "http://127.0.0.1:8080/v1"
[verbs]
"step.begin" = "off"
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "certosa.toml"
    file.write_text(FULL)
    return file


def test_check_says_that_a_right_configuration_is_right(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "check", "--config", str(config_file)]) == 0
    assert "/srv/certosa data" in capsys.readouterr().out


def test_check_names_the_file_the_line_and_the_key(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_file.write_text("[hub]\nprot = 9000\n")
    assert main(["config", "check", "--config", str(config_file)]) == 1
    said = capsys.readouterr().err
    assert f"certosa: {config_file}:2: hub.prot: unknown key; did you mean port?\n" == said


def test_check_answers_a_program_in_json(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config_file.write_text("[hub]\nport = true\n")
    assert main(["config", "check", "--json", "--config", str(config_file)]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert "hub.port" in answer["error"]


def test_what_show_prints_is_the_same_configuration_again(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "show", "--config", str(config_file)]) == 0
    assert load_config(config_file) == parse_config(capsys.readouterr().out)


def test_show_prints_rules_for_requests_outside_as_the_same_again(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = '[egress]\nmax_ratio = 7\n[[egress.allow]]\nhost = "*"\nusers = ["alice"]\n'
    config_file.write_text(f'{rules}[[egress.ceiling]]\nhost = "b.example"\nnetworks = ["10.0.0.0/8"]\n')
    assert main(["config", "show", "--config", str(config_file)]) == 0
    shown = parse_config(capsys.readouterr().out)
    assert shown == load_config(config_file)
    assert (shown.egress.allow[0].users, shown.egress.ceiling[0].users) == (("alice",), None)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('host = "API.example"', "egress.allow.0.host"),
        ('host = "x"\ncolour = 1', "colour"),
        ('host = "x"\npath = "/a/../b"', "egress.allow.path"),
        ('host = "x"\nmethods = ["TRACE"]', "TRACE"),
        ('host = "x"\nnetworks = ["10.0.0.1/8"]', "egress.allow.networks: 10.0.0.1/8 has host bits set"),
    ],
)
def test_check_says_what_is_wrong_with_a_rule(
    config_file: Path, capsys: pytest.CaptureFixture[str], rule: str, words: str
) -> None:
    config_file.write_text(f"[[egress.allow]]\n{rule}\n")
    assert main(["config", "check", "--config", str(config_file)]) == 1
    assert words in capsys.readouterr().err


def test_the_data_directory_of_the_command_line_counts(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--config", str(config_file), "--data-dir", "/elsewhere", "config", "show", "--json"]
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out)["server"]["data_dir"] == "/elsewhere"


def test_another_command_ends_with_code_2_where_the_configuration_is_wrong(
    config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config_file.write_text("nonsense")
    assert main(["user", "list", "--config", str(config_file)]) == 2
    assert "not TOML" in capsys.readouterr().err


def test_a_configuration_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["user", "list", "--config", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: no such file" in capsys.readouterr().err
