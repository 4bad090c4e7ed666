"""The command line. A command's module is imported when it is run, so that ``--help`` is quick."""

import importlib
import os
import sys
from collections.abc import Sequence

from core.cli.failure import FAILED, USAGE, CommandFailed
from core.cli.parser import build_parser
from core.errors import ConfigError
from jail.wire.errors import CertosaError

_INTERRUPTED = 130
"""What a shell reports for a program that SIGINT ended (128 + 2)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``certosa ARGV`` (the process's own arguments by default) and return its exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        run = getattr(importlib.import_module(arguments.module), arguments.function)
        status: int = run(arguments)
        sys.stdout.flush()
        return status
    except CommandFailed as error:
        return _say(str(error), error.status)
    except ConfigError as error:
        return _say(str(error), USAGE)
    except CertosaError as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has gone. Without this the interpreter would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _say(message: str, status: int) -> int:
    print(f"certosa: {message}", file=sys.stderr)
    return status
