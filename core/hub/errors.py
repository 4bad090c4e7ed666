"""What a client is told when something is wrong: OpenAI's error shape, a status, and what to do."""

from collections.abc import Mapping

import msgspec
import structlog

from core.errors import CoreError, SealError
from core.sessions import StorageError
from jail.wire.schema import ErrorCode, Failure

_log = structlog.get_logger()

CLIENT_CLOSED = 499  # nginx's number for a request that its client gave up

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    409: "conflict_error",
    410: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}

_STATUS: dict[ErrorCode, int] = {
    "unavailable": 503,
    "refused": 403,
    "approval_required": 403,
    "not_found": 404,
    "invalid": 400,
    "limit": 400,
    "quota": 429,
    "overloaded": 429,
    "timeout": 504,
    "cancelled": CLIENT_CLOSED,
    "upstream": 502,
    # the client's own token is fine: a 401 would send people looking at the wrong key
    "upstream_auth": 502,
    "upstream_rate_limit": 429,
    "upstream_timeout": 504,
    "worker": 502,
    "internal": 500,
}


def over_quota(what: str) -> "HubError":
    """For a user whose home is over its limit; ``what`` says by what."""
    return HubError(
        507,
        f"{what}: delete files first, as by DELETE /v1/files",
        "disk_quota",
        headers={"x-should-retry": "false"},
    )


class HubError(CoreError):
    """A request that gets an error answer.

    Args:
        status: HTTP status.
        message: what happened and what to do, for people.
        code: the same for programs.
        param: the field or header that is wrong, if one is.
        retry_after_s: when trying again makes sense, in seconds.
        headers: what else to send.
        extra: what else the error says, for programs.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(retry_after_s)

    def body(self) -> bytes:
        """The error as JSON, as OpenAI's clients read it."""
        return msgspec.json.encode(self.as_dict())

    def as_dict(self) -> dict[str, object]:
        """``{"error": {message, type, param, code}}``."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "certosa_error")
        if self.code == "insufficient_quota":
            kind = self.code  # OpenAI's name of it, as type and as code
        return {
            "error": {
                "message": self.message, "type": kind, "param": self.param, "code": self.code,
                **self.extra,
            }
        }  # fmt: skip


def invalid(message: str, code: str, param: str | None = None) -> HubError:
    """A 400."""
    return HubError(400, message, code, param=param)


def from_failure(failure: Failure, acted: bool) -> HubError:
    """A failed turn as an answer; ``acted``: it may have had effects, so nobody should repeat it."""
    status = _STATUS[failure.code]
    retry_after_s = failure.retry_after_s
    if failure.code == "limit" and retry_after_s is not None:
        status = 429
    if status in (429, 503) and retry_after_s is None:
        retry_after_s = 5
    # OpenAI's clients repeat 429 and 5xx by themselves unless this header says not to
    headers = {"x-should-retry": "false"} if acted or failure.code == "quota" else {}
    code = "insufficient_quota" if failure.code == "quota" else failure.code
    return HubError(status, failure.message, code, retry_after_s=retry_after_s, headers=headers)


def from_storage(error: StorageError | SealError) -> HubError:
    """What the session store could not do, as an answer."""
    match error:
        case StorageError(code="overloaded"):
            return HubError(429, str(error), "overloaded", retry_after_s=1)
        case StorageError():
            return HubError(503, str(error), "unavailable", retry_after_s=10)
    _log.critical("record_not_opened", error=str(error))
    return HubError(500, "what is stored did not open; tell the operator", "internal")
