"""What a forked worker becomes: the interpreter it is already, as if freshly started with a program.

``python3 -I -S FILE`` and ``python3 -I -S -c CODE`` are run by this interpreter; any other program
replaces it, by execve, in the same jail.
"""

import os
import signal
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Final

from jail.host.profile import WORKER
from jail.peer import start as worker
from jail.template import kernel
from jail.template.errors import BuildError

_ISOLATED: Final = ("-I", "-S")
_PYTHON: Final = os.path.realpath(sys.executable)
_CHANGED_SIGNALS: Final = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)  # by the interpreter


def _command_line_place() -> tuple[int, int]:
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return int(fields[45]), int(fields[46])  # arg_start, arg_end; see proc(5)


_COMMAND_LINE: Final = _command_line_place()


def prepare_program(program: tuple[str, ...]) -> Callable[[], int]:
    """What runs ``program`` and returns its exit status; raises BuildError for none."""
    if len(program) < 1:
        raise BuildError("no program")
    python, *args = program
    if not _is_this(python) or tuple(args[:2]) != _ISOLATED or len(args) < 3:
        return lambda: _execute(program)
    _show_command_line(program)
    sys.orig_argv[:] = program
    if tuple(args) == WORKER:
        sys.argv[:] = args[2:]
        return worker.main
    if args[2] == "-c":
        sys.argv[:] = ["-c", *args[4:]]
        return lambda: _run(lambda: compile(args[3], "<string>", "exec"), None)
    sys.argv[:] = args[2:]
    return lambda: _run(lambda: _read(args[2]), args[2])


def _is_this(python: str) -> bool:
    return _PYTHON in (python, os.path.realpath(python))


def _read(path: str) -> CodeType:
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    assert isinstance(code, CodeType)
    return code


def _run(load: Callable[[], CodeType], path: str | None) -> int:
    """Run code as ``__main__``; its exit status, as the interpreter's own would be."""
    main = ModuleType("__main__")
    if path is not None:
        main.__file__ = path
    sys.modules["__main__"] = main
    try:
        exec(load(), main.__dict__)  # noqa: S102 - the program that was asked for
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        sys.stderr.write(f"{left.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - as the interpreter does at the top
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _execute(program: tuple[str, ...]) -> int:
    for number in _CHANGED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.execve(program[0], program, dict(os.environ))  # noqa: S606


def _show_command_line(program: tuple[str, ...]) -> None:
    """Have /proc/PID/cmdline show ``program``, where it has just the length of what is there."""
    wanted = b"".join(os.fsencode(arg) + b"\0" for arg in program)
    start, end = _COMMAND_LINE
    if end - start == len(wanted):
        kernel.write_memory(start, wanted)
