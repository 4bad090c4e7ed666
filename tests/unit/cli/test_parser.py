import importlib

import pytest

from core.cli import main
from core.cli.parser import build_parser

COMMANDS = [
    "serve",
    "doctor --json",
    "demo --json",
    "chat",
    "chat -m hello --session s --model a --url http://h:1 --token-file f",
    "approval list --json",
    "approval allow approval_1 --url http://h:1",
    "approval refuse approval_1",
    "user add alice",
    "user list --json",
    "user disable alice",
    "user enable alice",
    "user delete alice --yes",
    "token new alice --label phone",
    "token list",
    "token list alice",
    "token revoke tok_1",
    "provider add x --preset ollama --kind openai --base-url http://h/v1 --users a,b --fallback p/m --no-key",
    "provider list --json",
    "provider test x --model m",
    "provider remove x",
    "egress list --json",
    "egress allow api.example.com --port 8443 --http --methods GET,PUT --path /v1 --skill notes",
    "egress remove rule_1a2b3c4d --user alice",
    "agent set x --fallbacks a/m,b/m",
    "config check",
    "config show --json",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_is_served_by_a_function_that_exists(line: str) -> None:
    arguments = build_parser().parse_args(line.split())
    module = importlib.import_module(arguments.module)
    assert callable(getattr(module, arguments.function))


@pytest.mark.parametrize("line", ["--data-dir /d user list", "user list --data-dir /d"])
def test_places_may_stand_before_or_after_the_command(line: str) -> None:
    assert build_parser().parse_args(line.split()).data_dir == "/d"


def test_the_later_of_two_places_counts() -> None:
    line = "--config /a --data-dir /b user list --config /c"
    arguments = build_parser().parse_args(line.split())
    assert (arguments.config, arguments.data_dir) == ("/c", "/b")


@pytest.mark.parametrize("line", ["", "user", "user add", "nonsense", "serve --what", "token revoke"])
def test_wrong_arguments_end_with_code_2(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert "usage: certosa" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--help", "serve --help", "user add --help"])
def test_help_documents_the_exit_codes(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 0
    assert "3  the server is not reachable" in capsys.readouterr().out


def test_a_token_is_never_an_argument() -> None:
    for option in ("--token", "--api-key"):
        with pytest.raises(SystemExit):
            build_parser().parse_args(["chat", option, "secret"])
