"""The tools, through a worker: what they do, what they refuse, how they are bounded."""

import os
import socket
import time
from pathlib import Path

import pytest
from msgspec.structs import asdict, astuple

from jail.wire.schema import (
    MAX_PICTURE_BYTES,
    ChatCall,
    Message,
    Picture,
    PictureShown,
    ToolEnded,
    ToolProgress,
    ToolStarted,
)
from tests.actor.peer.conftest import Pair, Start
from tests.actor.peer.scripts import agent, call, say, use
from tests.fakes.pictures import png


def run(pair: Pair, *calls: ChatCall, **limits: int) -> list[ToolEnded]:
    """The results of these calls, made in one round."""
    pair.core.answers = [use(*calls), say("Done.")]
    return list(pair.core.run_turn(agent(**limits)).of(ToolEnded))


def one(pair: Pair, the_call: ChatCall, **limits: int) -> ToolEnded:
    """The result of one call."""
    (ended,) = run(pair, the_call, **limits)
    return ended


@pytest.fixture
def pair(start: Start) -> Pair:
    """A worker and core's end."""
    return start()


def put(pair: Pair, name: str, content: str | bytes) -> Path:
    """A file in the worker's home."""
    path = pair.worker.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_list_files_shows_kinds_and_sizes_in_order(pair: Pair) -> None:
    put(pair, "b.txt", "12345")
    put(pair, "a/inner.txt", "")
    (pair.worker.home / "link").symlink_to("b.txt")
    os.mkfifo(pair.worker.home / "pipe")

    flat, deep = run(pair, call("list_files"), call("list_files", recursive=True))

    lines = ["a/", "b.txt (5 bytes)", "link -> b.txt", "pipe [not a regular file]"]
    assert flat.text.splitlines() == lines
    assert deep.text.splitlines() == [*lines, "a/inner.txt (0 bytes)"]


def test_list_files_is_bounded_and_says_so(pair: Pair) -> None:
    for n in range(1_200):
        (pair.worker.home / f"{n:04}").touch()

    ended = one(pair, call("list_files"))

    lines = ended.text.splitlines()
    assert len(lines) == 1_001
    assert "more than 1000 entries" in lines[-1]


def test_read_file_reads_lines_from_where_it_is_told(pair: Pair) -> None:
    put(pair, "f", "".join(f"line {n}\n" for n in range(1, 101)))

    part, rest, past = run(
        pair,
        call("read_file", path="f", offset=10, limit=2),
        call("read_file", path="f", offset=100),
        call("read_file", path="f", offset=101),
    )

    assert part.text.startswith("line 10\nline 11\n[lines 10 to 11;")
    assert "offset 12" in part.text
    assert rest.text == "line 100\n"
    assert (past.ok, past.text) == (False, "The file has 100 lines; offset 101 is past its end.")


def test_read_file_stays_within_a_result_without_storing_a_copy(pair: Pair) -> None:
    put(pair, "lines", "word " * 3 + "\n" + "abc\n" * 100_000)
    put(pair, "line", "x" * 5_000_000)

    lines, line = run(pair, call("read_file", path="lines"), call("read_file", path="line"))

    assert "read on with offset 2001" in lines.text
    assert "bytes of this line left out" in line.text
    assert len(line.text) < 20_000
    assert not (pair.worker.home / ".certosa").exists()


def test_binary_files_are_told_apart(pair: Pair) -> None:
    put(pair, "b", b"\x7fELF\0\0")

    ended = one(pair, call("read_file", path="b"))

    assert not ended.ok
    assert "binary (6 bytes)" in ended.text


def test_what_is_no_file_is_refused_at_once(pair: Pair) -> None:
    home = pair.worker.home
    os.mkfifo(home / "fifo")
    (home / "dir").mkdir()
    names = ["fifo", "dir", "/dev/zero", "missing", "dir/x/y", "a\0b", "", "sock"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(home / "sock"))
        began = time.monotonic()
        results = run(
            pair,
            *[
                ended
                for name in names
                for ended in (
                    call("read_file", path=name),
                    call("write_file", path=name, content="x"),
                    call("edit_file", path=name, old_text="x", new_text="y"),
                )
                if not (name in ("missing", "dir/x/y") and ended.call.name == "write_file")
            ],
            repeats=50,
        )
        assert time.monotonic() - began < 3

    assert [item.text for item in results if item.ok] == []
    assert "a FIFO" in results[0].text
    assert "list_files shows" in results[3].text
    assert "a device" in results[6].text


def test_write_file_makes_directories_keeps_modes_and_follows_links(pair: Pair) -> None:
    script = put(pair, "run.sh", "old")
    script.chmod(0o750)
    (pair.worker.home / "link").symlink_to("run.sh")

    run(
        pair,
        call("write_file", path="x/y/z.txt", content="deep"),
        call("write_file", path="link", content="new"),
    )

    assert (pair.worker.home / "x/y/z.txt").read_text() == "deep"
    assert script.read_text() == "new"
    assert script.stat().st_mode & 0o777 == 0o750
    assert (pair.worker.home / "link").is_symlink()


def test_edit_file_wants_one_exact_match(pair: Pair) -> None:
    path = put(pair, "f", "a b a\r\n")

    twice, none, once, every = run(
        pair,
        call("edit_file", path="f", old_text="a", new_text="c"),
        call("edit_file", path="f", old_text="z", new_text="c"),
        call("edit_file", path="f", old_text="b", new_text="B"),
        call("edit_file", path="f", old_text="a", new_text="A", replace_all=True),
    )

    assert (twice.ok, "2 times" in twice.text) == (False, True)
    assert (none.ok, "not in f" in none.text) == (False, True)
    assert (once.ok, every.ok) == (True, True)
    assert path.read_bytes() == b"A B A\r\n"


def test_an_edit_that_would_grow_without_bound_changes_nothing(pair: Pair) -> None:
    path = put(pair, "f", "a" * 100_000)

    ended = one(pair, call("edit_file", path="f", old_text="a", new_text="b" * 1_000, replace_all=True))

    assert not ended.ok
    assert path.read_text() == "a" * 100_000


def test_search_files_finds_lines_and_skips_binary(pair: Pair) -> None:
    put(pair, "a.py", "import os\nprint('Needle')\n")
    put(pair, "b.txt", "needle\n")
    put(pair, "c.bin", b"needle\0")
    os.mkfifo(pair.worker.home / "pipe")

    exact, loose, globbed, nothing, wrong = run(
        pair,
        call("search_files", pattern="[Nn]eedle"),
        call("search_files", pattern="NEEDLE", ignore_case=True),
        call("search_files", pattern="(?i)needle", glob="*.py"),
        call("search_files", pattern="absent"),
        call("search_files", pattern="(("),
    )

    assert exact.text == "a.py:2: print('Needle')\nb.txt:1: needle\n"
    assert loose.text == exact.text
    assert globbed.text == "a.py:2: print('Needle')\n"
    assert nothing.text == "[no match]"
    assert (wrong.ok, "not a regular expression" in wrong.text) == (False, True)


def test_a_search_that_would_take_for_ever_is_ended(pair: Pair) -> None:
    put(pair, "f", "a" * 40 + "b\n")

    ended = one(pair, call("search_files", pattern="(a+)+$"), tool_s=1)

    assert not ended.ok
    assert "stopped after 1 s" in ended.text
    assert pair.worker.descendants() == []


def test_a_search_result_is_bounded(pair: Pair) -> None:
    put(pair, "f", "x\n" * 1_000)

    ended = one(pair, call("search_files", pattern="x"))

    assert ended.text.count("\n") == 201
    assert "stopped at 200 matches" in ended.text


def test_run_command_reports_output_and_status(pair: Pair) -> None:
    both, failed, killed = run(
        pair,
        call("run_command", command="echo out; echo err >&2; cat; pwd"),
        call("run_command", command="exit 3"),
        call("run_command", command="kill -SEGV $$"),
    )

    assert both.text == f"out\nerr\n{pair.worker.home}\n[exit status 0]"
    assert (failed.ok, failed.text) == (False, "[exit status 3]")
    assert (killed.ok, killed.text) == (False, "[ended by SIGSEGV]")


def test_a_command_past_its_time_is_ended_with_all_it_started(pair: Pair) -> None:
    command = "trap '' TERM; echo begun; (setsid sh -c 'trap \"\" TERM; sleep 300' &); sleep 301"

    ended = one(pair, call("run_command", command=command, timeout_s=1))

    assert not ended.ok
    assert ended.text == "begun\n[ended: it took longer than 1 s]"
    assert pair.worker.descendants() == []


def test_what_a_command_leaves_in_its_session_ends_with_it(pair: Pair) -> None:
    began = time.monotonic()

    ended = one(pair, call("run_command", command="sleep 300 & echo started"))

    assert ended.text == "started\n[exit status 0]"
    assert time.monotonic() - began < 5
    assert pair.worker.descendants() == []


def test_a_command_that_floods_its_output_is_ended_in_bounded_memory(pair: Pair) -> None:
    ended = one(pair, call("run_command", command="yes"))

    assert not ended.ok
    assert "too much output" in ended.text
    status = Path(f"/proc/{pair.worker.process.pid}/status").read_text()
    peak_kb = int(status.split("VmHWM:")[1].split()[0])
    assert peak_kb < 64 * 1024


def test_output_comes_while_a_command_runs(pair: Pair) -> None:
    os.mkfifo(pair.worker.home / "gate")
    pair.core.answers = [
        use(call("run_command", command="echo ready; read x < gate; echo $x")),
        say("Done."),
    ]
    log = pair.core.start_turn(agent())
    pair.core.pump(lambda: log.of(ToolProgress) == [ToolProgress(1, "ready\n")])

    with open(pair.worker.home / "gate", "w") as gate:
        gate.write("through\n")
    pair.core.pump(lambda: log.outcome is not None)

    assert log.of(ToolEnded)[0].text == "ready\nthrough\n[exit status 0]"


def test_a_tool_inherits_nothing_but_its_output(pair: Pair) -> None:
    ended = one(pair, call("run_python", code="import os; print(sorted(os.listdir('/proc/self/fd')))"))

    assert ended.text.startswith("['0', '1', '2', '3']"), "3 is the listing itself"


def test_run_python_runs_a_program_and_leaves_no_script(pair: Pair) -> None:
    good, bad = run(
        pair,
        call("run_python", code="print(6 * 7)"),
        call("run_python", code="print(__file__)\nraise ValueError('no')"),
    )

    assert good.text == "42\n[exit status 0]"
    assert not bad.ok
    assert "ValueError: no" in bad.text
    assert not Path(bad.text.split("\n", 1)[0]).exists()


def test_names_that_are_no_text_do_not_break_anything(pair: Pair) -> None:
    with open(os.fsencode(pair.worker.home) + b"/bad\xff", "wb") as file:
        file.write(b"needle \xff\n")

    listed, found, written = run(
        pair,
        call("list_files"),
        call("search_files", pattern="needle"),
        call("run_command", command="printf '\\377\\n'"),
    )

    assert listed.text == "bad? (9 bytes)"
    assert found.ok
    assert written.text == "\ufffd\n[exit status 0]"


GIF = b"GIF89a\2\0\2\0\0\0\0" + bytes(20)
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF\0" + bytes(20)
WEBP = b"RIFF\x20\0\0\0WEBPVP8 " + bytes(20)


def show(pair: Pair, path: str, caption: str = "") -> PictureShown | str:
    """What the user was shown, or why they were shown nothing."""
    pair.core.answers = [use(call("show_picture", path=path, caption=caption)), say("Done.")]
    log = pair.core.run_turn(agent())
    shown = log.of(PictureShown)
    (ended,) = log.of(ToolEnded)
    assert ended.ok is bool(shown)
    assert pair.core.appended[-2].picture == (Picture(*astuple(shown[0])[:4]) if shown else None)
    if not shown:
        return str(ended.text)
    (picture,) = shown
    assert isinstance(picture, PictureShown)
    return picture


def test_a_picture_is_shown_between_its_call_and_the_result_and_kept_with_that(pair: Pair) -> None:
    data = png()
    put(pair, "plots/a.png", data)
    pair.core.answers = [use(call("show_picture", path="plots/a.png", caption="What I drew")), say("Done.")]

    log = pair.core.run_turn(agent())

    begun, shown, ended = log.items[:3]
    picture = Picture("plots/a.png", "image/png", len(data), "What I drew")
    assert begun == ToolStarted(1, "show_picture", '{"path": "plots/a.png", "caption": "What I drew"}')
    assert shown == PictureShown(**asdict(picture), step=1)
    text = f"The user sees plots/a.png now (image/png, {len(data)} bytes)."
    assert ended == ToolEnded(1, True, text)
    assert pair.core.appended[1] == Message("tool", text, tool_call_id="c1", picture=picture)


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.png", png(), "image/png"),
        ("a.gif", GIF, "image/gif"),
        ("a.jpg", JPEG, "image/jpeg"),
        ("a.webp", WEBP, "image/webp"),
        ("no-ending", GIF, "image/gif"),
        ("wrong.png", JPEG, "image/jpeg"),
        ("größe & co/ä b.png", png(), "image/png"),
        (".certosa/a.png", png(), "image/png"),
        ("least.png", png()[:33], "image/png"),
    ],
)
def test_a_picture_is_what_it_holds_whatever_its_name(pair: Pair, name: str, data: bytes, kind: str) -> None:
    put(pair, name, data)
    assert show(pair, name) == PictureShown(name, kind, len(data), "", 1)  # type: ignore[arg-type]


def test_however_a_model_names_it_the_user_is_told_its_place_below_the_home(pair: Pair) -> None:
    home = pair.worker.home
    put(pair, "plots/a.png", GIF)
    (home / "link.png").symlink_to("plots/a.png")
    (home / "absolute.png").symlink_to(home / "plots/a.png")
    (home / "folder").symlink_to("plots")
    for name in (
        "./plots//a.png", "~/plots/a.png", "plots/../plots/a.png", str(home / "plots/a.png"), "link.png",
        "absolute.png", "folder/a.png",
    ):  # fmt: skip
        assert show(pair, name) == PictureShown("plots/a.png", "image/gif", len(GIF), "", 1), name


def test_what_is_no_picture_of_the_home_is_not_shown_and_the_model_is_told_what_to_do(
    pair: Pair, tmp_path: Path
) -> None:
    home = pair.worker.home
    (tmp_path / "outside.png").write_bytes(GIF)
    (tmp_path / "home-of-another").mkdir()
    (tmp_path / "home-of-another/a.png").write_bytes(GIF)
    (home / "out.png").symlink_to(tmp_path / "outside.png")
    (home / "away").symlink_to(tmp_path)
    (home / "circle.png").symlink_to("circle.png")
    (home / "nothing.png").symlink_to("missing")
    os.mkfifo(home / "fifo.png")
    (home / "folder.png").mkdir()
    put(pair, "empty.png", b"")
    put(pair, "text.png", "This is no picture.")
    put(pair, "drawing.svg", "<svg xmlns='http://www.w3.org/2000/svg'/>")
    put(pair, "magic.png", png()[:5])
    put(pair, "cut.png", png()[:20])
    put(pair, "line\nbreak.png", GIF)
    with open(os.fsencode(home) + b"/\xff.png", "wb") as file:
        file.write(GIF)
    (home / "odd.png").symlink_to(os.fsdecode(b"\xff.png"))
    with open(put(pair, "sparse.png", png()), "r+b") as file:
        file.truncate(1 << 30)
    outside = "outside the home. Copy it into the home first."
    expected = {
        str(tmp_path / "outside.png"): outside,
        str(tmp_path / "home-of-another/a.png"): outside,
        "../outside.png": outside,
        "../home-of-another/a.png": outside,
        "out.png": outside,
        "away/outside.png": outside,
        "/dev/zero": outside,
        ".": outside,
        "circle.png": "circle.png",
        "nothing.png": "There is no nothing.png. list_files shows what there is.",
        "missing.png": "There is no missing.png.",
        "fifo.png": "a FIFO, not a file",
        "folder.png": "a directory; list_files shows what is in it",
        "empty.png": "no PNG, JPEG, GIF or WebP picture",
        "text.png": "by what is in it. Convert it to one.",
        "drawing.svg": "no PNG, JPEG, GIF or WebP picture",
        "magic.png": "no PNG, JPEG, GIF or WebP picture",
        "cut.png": "only the beginning of a picture. Write it anew.",
        "line\nbreak.png": "Rename it.",
        "odd.png": "Rename it.",
        "sparse.png": f"1073741824 bytes; {MAX_PICTURE_BYTES} can be shown. Make it smaller.",
        "a\0b": "a name without NUL characters",
        "": "a name without NUL characters",
    }
    began = time.monotonic()
    for name, words in expected.items():
        told = show(pair, name)
        assert isinstance(told, str), name
        assert words in told, name
    assert time.monotonic() - began < 10  # nothing waits, and a gigabyte is not read

    put(pair, "fine.png", GIF)
    assert isinstance(show(pair, "fine.png"), PictureShown)


def test_the_largest_picture_is_shown_and_one_byte_more_is_not(pair: Pair) -> None:
    path = put(pair, "a.gif", GIF)
    os.truncate(path, MAX_PICTURE_BYTES)
    assert show(pair, "a.gif") == PictureShown("a.gif", "image/gif", MAX_PICTURE_BYTES, "", 1)
    os.truncate(path, MAX_PICTURE_BYTES + 1)
    assert "Make it smaller" in str(show(pair, "a.gif"))


def test_a_caption_is_one_line_of_bounded_length(pair: Pair) -> None:
    put(pair, "a.gif", GIF)

    def caption(text: str) -> str:
        shown = show(pair, "a.gif", text)
        return shown.caption if isinstance(shown, PictureShown) else shown

    assert caption(" two\n\nlines\tand \x1b[2J\u2028more\x9b ") == "two lines and [2J more"
    assert caption("ü" * 500) == "ü" * 500
    assert "length <= 500" in caption("x" * 501)
    assert "length <= 500" in caption("x" * 100_000)
