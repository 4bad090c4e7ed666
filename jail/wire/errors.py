"""The root of every error of Certosa's, and the two kinds the wire knows.

Who is to blame decides what happens: a :class:`PeerFault` ends the peer (its jail is killed),
a :class:`LocalFault` is a bug of ours and is loud.
"""

from typing import Literal

FaultReason = Literal[
    "greeting",  # not ZMTP 3.x with the NULL mechanism
    "oversize",  # a frame past its limit
    "multipart",  # a second part announced
    "command",  # a ZMTP command that has no place here
    "encoding",  # not the msgpack we speak: trailing bytes, extension, NaN, duplicate key, depth
    "schema",  # well-formed, but not a message of this protocol
    "version",  # another protocol version
    "order",  # a message that may not come now: before HELLO, an unknown or repeated id
    "replay",  # a request id that was used before
    "credit",  # more stream items than were granted
    "flood",  # more requests at once, or more bytes unread, than allowed
    "deadline",  # silent past a deadline
    "rate",  # faster than its pace, and never a pause
]


class CertosaError(Exception):
    """The root: everything Certosa raises on purpose is one of these."""


class WireError(CertosaError):
    """The root of the wire's errors."""


class PeerFault(WireError):
    """The peer broke the protocol. It gets no answer; its connection ends.

    Args:
        reason: one of :data:`FaultReason`, a closed set that serves as a metric's label.
        detail: what exactly, for the log. Never contains the peer's own bytes.
    """

    def __init__(self, reason: FaultReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason: FaultReason = reason
        self.detail = detail


class LocalFault(WireError):
    """We were about to break the protocol ourselves: a bug on this side."""
