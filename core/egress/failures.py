"""What an upstream's refusal means, and what a person should do about it."""

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from core.egress.providers import Again, ProviderError
from core.egress.secret import Striker

MAX_ERROR_BODY_BYTES = 8 << 10
_MAX_DETAIL_CHARACTERS = 300
_MAX_RETRY_AFTER_S = 3_600
# whatever could move a terminal's cursor, forge a log line or hide text: controls, bidirectional
# overrides, zero widths
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\s]+")


def status_error(
    provider: str, status: int, retry_after: str | None, detail: str, now: datetime
) -> ProviderError:
    """An answer that isn't 200, as an error. ``detail`` is sanitised already (or empty).

    No tokens are counted for it: servers charge for answers.
    """
    error = _status_error(provider, status, retry_after, detail, now)
    error.spent = "nothing"
    return error


def _status_error(
    provider: str, status: int, retry_after: str | None, detail: str, now: datetime
) -> ProviderError:
    wait_s = parse_retry_after(retry_after, now)
    said = f" It said: {detail}" if detail else ""
    if status in (401, 403):
        return ProviderError(
            "upstream_auth",
            f"{provider} refused our key (HTTP {status}): have the operator check this provider's"
            f" line in the provider key file.{said}",
            again="elsewhere",
        )
    if status == 429:
        when = f" Try again in {wait_s} s." if wait_s else " Try again later."
        return ProviderError(
            "upstream_rate_limit",
            f"{provider} is limiting our rate or our quota is used up (HTTP 429).{when}{said}",
            wait_s,
            "retry",
        )
    if status in (408, 504):
        return ProviderError(
            "upstream_timeout",
            f"{provider} ran out of time (HTTP {status}). Try again.{said}",
            wait_s,
            "retry",
        )
    again: Again = "retry" if status >= 500 else "no"
    return ProviderError("upstream", f"{provider} {_meaning(status)}{said}", wait_s, again)


def _meaning(status: int) -> str:
    if 300 <= status < 400:
        return (
            f"sent us elsewhere (HTTP {status}), and redirects are not followed:"
            " have the operator correct base_url."
        )
    if status == 404:
        return "has no such model, or its base_url is wrong (HTTP 404)."
    if 400 <= status < 500:
        return f"did not accept the request (HTTP {status})."
    if status >= 500:
        return f"failed (HTTP {status}). Try again later."
    return f"answered with HTTP {status}, where 200 was expected."


def parse_retry_after(value: str | None, now: datetime) -> int | None:
    """Retry-After (RFC 9110, 10.2.3) in whole seconds, at most an hour; None where it is none."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(int(value[:12]), _MAX_RETRY_AFTER_S)
    try:
        when = parsedate_to_datetime(value[:64])
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    seconds = (when - now).total_seconds()
    return int(min(max(seconds, 0), _MAX_RETRY_AFTER_S))


def error_detail(body: bytes, striker: Striker) -> str:
    """The sentence in an upstream's error body: one line, bounded, secrets struck out, or empty."""
    text = body[:MAX_ERROR_BODY_BYTES].decode("utf-8", "replace")
    try:
        text = _sentence(msgspec.json.decode(body))
    except (msgspec.MsgspecError, RecursionError):
        if text.lstrip().startswith("<"):
            return ""  # a proxy's page of HTML tells a person nothing
    return sanitise(text, striker)


def sanitise(text: str, striker: Striker) -> str:
    """One visible line of bounded length without secrets."""
    line = striker.clean(_UNSEEN.sub(" ", text).strip())
    if len(line) > _MAX_DETAIL_CHARACTERS:
        line = line[:_MAX_DETAIL_CHARACTERS] + "..."
    return line


def _sentence(value: Any) -> str:
    """The message in the shapes that servers use: error.message, error, message, detail."""
    for _ in range(3):
        if isinstance(value, str):
            return value
        if not isinstance(value, dict):
            return ""
        value = next((value[k] for k in ("error", "message", "detail") if value.get(k)), "")
    return value if isinstance(value, str) else ""
