from pathlib import Path

import pytest

from core.cli.demo_wall import Act, attempts

WAYS = attempts(Path("/data"), "bob", "s3cret-of-bob", "s3cret-of-alice", 8700)


def test_there_are_five_ways_and_each_has_its_control() -> None:
    assert len({way.name for way in WAYS}) == 5
    assert all(way.act.program != way.control.program for way in WAYS)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_every_program_compiles_and_fits_on_one_line(way: object) -> None:
    for act in (way.act, way.control):  # type: ignore[attr-defined]
        compile(act.program, "program", "exec")
        assert "\n" not in act.command


def test_a_secret_anywhere_in_the_output_is_a_breach() -> None:
    act = Act("", "s3cret")
    assert act.succeeded("NO ENOENT\nbut s3cret stands here")
    assert not act.was_refused("NO ENOENT\nbut s3cret stands here")


def test_a_program_that_said_nothing_was_not_refused() -> None:
    act = Act("", "s3cret")
    for output in ("", "Traceback (most recent call last):", "python3: not found", "the time is up"):
        assert not act.was_refused(output)
        assert not act.succeeded(output)
        assert act.read(output) == "?"


def test_a_refusal_is_read_out_of_the_tool_result_around_it() -> None:
    act = Act("", "s3cret")
    assert act.was_refused("exit code 0\nNO EACCES\n")
    assert act.read("exit code 0\nNO EACCES\n") == "NO EACCES"


def test_outside_a_jail_the_same_programs_succeed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The acts can work at all: here, where nothing stands in their way, they do."""
    for path in ("users/bob/home/secret.txt", "_keys/master.key"):
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text("s3cret-of-bob\n")
    for way in attempts(tmp_path, "bob", "s3cret-of-bob", "s3cret-of-alice", 1)[:3]:
        exec(way.act.program, {})
        assert way.act.succeeded(capsys.readouterr().out), way.name
