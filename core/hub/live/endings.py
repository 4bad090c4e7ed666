"""Why a connection or a watch ends, in words and in codes of WebSockets (RFC 6455, 7.4)."""

from core.hub.live.requests import WatchEnd

CLOSE_CODES: dict[WatchEnd, int] = {
    "stopping": 1001,
    "policy": 1008,
    "internal": 1011,
    "unavailable": 1013,
    "signed_out": 4001,
    "idle": 4002,
    "slow": 4003,
}
MESSAGES: dict[WatchEnd, str] = {
    "stopping": "the server is stopping; connect again in a moment",
    "policy": "too many requests that could not be served, or too many small frames at once",
    "internal": "the server failed; it was logged",
    "unavailable": "the log cannot be read just now; watch again in a moment",
    "signed_out": "the token is not valid any more",
    "idle": "nothing happened here for long",
    "slow": "the client did not read what it was sent",
    "behind": "the log was cut past the last event; load the session, then watch from the oldest",
    "deleted": "the session was deleted",
}
_MAX_REASON_BYTES = 123


def reason(why: WatchEnd, last: dict[str, int]) -> bytes:
    """A close frame's reason: why, and the last id of each watch, as far as 123 bytes go."""
    said = why.encode()
    for session, event in last.items():
        more = (f" last={event}" if len(last) == 1 else f" {session}={event}").encode()
        if len(said) + len(more) > _MAX_REASON_BYTES:
            break
        said += more
    return said
