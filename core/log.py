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

    shared: list[Processor] = [
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
        wrapper_class=structlog.make_filtering_bound_logger(level),
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
    # libraries speak up for warnings only; what is ordinary there is noise here
    root.setLevel(max(logging.getLevelNamesMapping()[level.upper()], logging.WARNING))
