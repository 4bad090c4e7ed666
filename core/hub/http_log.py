"""What the HTTP library logs by itself, without what clients sent.

Its errors about malformed requests quote the line that was wrong, and that may hold a token.
"""

import logging

import structlog
from aiohttp.http_exceptions import HttpProcessingError

_log = structlog.get_logger()


class _Unquoted(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        # the peer's fault, which anybody can have as often as they like: not loud
        _log.debug("request_malformed", reason=type(error).__name__)
        return False


def http_logger() -> logging.Logger:
    """The logger to give to the library's server."""
    logger = logging.getLogger("aiohttp.server")
    if not logger.filters:
        logger.addFilter(_Unquoted())
    return logger
