"""What an Anthropic client is told when something is wrong: its API's shape and kinds of errors.

https://docs.anthropic.com/en/api/errors
"""

import msgspec

from core.hub.errors import HubError

_PATH = "/v1/messages"
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
}


def speaks(path: str) -> bool:
    """Whether a request's path is of Anthropic's API."""
    return path == _PATH or path.startswith(_PATH + "/")


def as_dict(error: HubError) -> dict[str, object]:
    """``{"type": "error", "error": {type, message}}``; the message begins with the field's name."""
    kind = _TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    message = error.message
    if error.param and error.param not in message:
        message = f"{error.param}: {message}"
    return {"type": "error", "error": {"type": kind, "message": message}}


def body(error: HubError, request_id: str) -> bytes:
    """The error as the body of an answer."""
    return msgspec.json.encode({**as_dict(error), "request_id": request_id})
