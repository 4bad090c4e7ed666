"""Logging, set up once a process: JSON lines on stderr, or something readable on a terminal.

An event's name is constant snake_case in the past tense; what varies is in keys. A secret or a
message's text is never logged.
"""

import logging
import sys
from typing import Any, Literal

import structlog
from structlog.typing import Processor

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "console"]

_numbers = logging.getLevelNamesMapping()
_least = _numbers["INFO"]


def set_level(level: Level) -> None:
    """Drop what is below ``level`` from now on, in every logger that there is."""
    global _least  # noqa: PLW0603 - loggers are cached, so the level has to lie outside of them
    _least = _numbers[level.upper()]
    # libraries speak up for warnings only; what is ordinary there is noise here
    logging.getLogger().setLevel(max(_least, logging.WARNING))


def _drop_quiet(_logger: Any, method: str, event: Any) -> Any:
    if _numbers.get(method.upper(), logging.ERROR) < _least:
        raise structlog.DropEvent
    return event


def configure_logging(level: Level, format_: Format, process: str) -> None:
    """Set up structlog, and the standard library's logging into it, for this process.

    Args:
        level: what is below it is dropped.
        format_: ``auto`` is JSON unless a terminal looks on.
        process: which of our processes this is; on every line.
    """
    console = format_ == "console" or (format_ == "auto" and sys.stderr.isatty())

    def name_process(_logger: Any, _method: str, event: Any) -> Any:
        event["process"] = process
        return event

    set_level(level)
    shared: list[Processor] = [
        _drop_quiet,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        name_process,
    ]
    # plain tracebacks: those with locals would carry secrets and messages into the log
    plain = structlog.dev.plain_traceback
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
        if console
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger("debug"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
