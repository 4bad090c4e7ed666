"""One frame is one message: a msgpack array ``[version, kind, id, body]``.

Decoding never trusts a length the peer wrote: every string, array, map and the number of nodes
altogether is limited, so that a frame of N bytes cannot become more than a few times N of
objects (1 MB of empty maps would be 71 MB of dicts).
"""

import math
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple, NoReturn

import msgpack

from jail.wire.errors import LocalFault, PeerFault
from jail.wire.shape import check_shape

PROTOCOL_VERSION = 1
"""Raised with every change a peer of the version before would not understand."""

MAX_FRAME_BYTES = 1 << 20
"""One frame, either way. Contexts and results that could be longer are cut before (design.md 5)."""

_MAX_ARRAY = 1024
_MAX_MAP = 64
_MAX_NODES = 32_768
_MAX_DEPTH = 8
_MAX_ID = 2**53
# The C unpacker knows neither nodes nor depth, and allocates a list of the announced length at once.
# Of so few bytes it can make 170 such lists, 1.4 MB for an instant; longer frames are looked through first.
_UNSEEN_BYTES = 512

Scalar = int | float | bool | str | bytes | None


class Kind(IntEnum):
    """What a frame is. Requests and their answers go both ways with ids of their own."""

    HELLO = 0  # worker to core, first of all
    WELCOME = 1  # core to worker, its answer
    REQUEST = 2  # opens id; body names the verb
    ITEM = 3  # answerer: one piece of a streamed answer
    REPLY = 4  # answerer: closes id with a result
    ERROR = 5  # answerer: closes id with a code and a message
    CREDIT = 6  # asker: that many more items may come
    CANCEL = 7  # asker: no longer wanted; a REPLY or ERROR still closes id


_KINDS = tuple(Kind)  # by number, which is a fifth of what the enumeration's own lookup costs
_KIND_NAMES = tuple(kind.name.lower() for kind in _KINDS)
_PLAIN = frozenset({str, int, bool, bytes, type(None)})


class Frame(NamedTuple):
    """A decoded frame: the kind, the request's id it belongs to (0 for the handshake), the body."""

    kind: Kind
    id: int
    body: Any


def kind_name(frame: bytes) -> str:
    """What an encoded frame is, without looking into it; "other" for what is none of ours."""
    # an array of four, the version, and a kind, each a byte
    if len(frame) > 2 and frame[0] == 0x94 and frame[2] < len(_KINDS):
        return _KIND_NAMES[frame[2]]
    return "other"


def encode_frame(kind: Kind, request_id: int, body: Any) -> bytes:
    """Pack a frame whose body is builtin objects only.

    Raises LocalFault past the frame limit and for what msgpack cannot say (lone surrogates).
    """
    try:
        data: bytes = msgpack.packb([PROTOCOL_VERSION, int(kind), request_id, body])
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalFault(f"{kind.name} cannot be packed: {type(error).__name__}") from None
    if len(data) > MAX_FRAME_BYTES:
        raise LocalFault(f"{kind.name} of {len(data)} bytes, limit {MAX_FRAME_BYTES}")
    return data


def _to_map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if not isinstance(key, str):
            raise PeerFault("encoding", "a map's key is not a string")
        if key in found:
            raise PeerFault("encoding", "duplicate key")
        found[key] = value
    return found


def _refuse_extension(code: int, data: bytes) -> NoReturn:  # noqa: ARG001 - msgpack's signature
    raise PeerFault("encoding", "extension type")


def decode_frame(data: bytes) -> Frame:
    """Unpack one frame, or raise :class:`PeerFault` saying which rule it broke."""
    if len(data) > MAX_FRAME_BYTES:
        raise PeerFault("oversize", f"frame of {len(data)} bytes, limit {MAX_FRAME_BYTES}")
    if len(data) > _UNSEEN_BYTES:
        check_shape(data, _MAX_NODES, _MAX_DEPTH)
    try:
        parts = msgpack.unpackb(
            data,
            object_pairs_hook=_to_map,
            ext_hook=_refuse_extension,
            max_str_len=MAX_FRAME_BYTES,
            max_bin_len=MAX_FRAME_BYTES,
            max_array_len=_MAX_ARRAY,
            max_map_len=_MAX_MAP,
            max_ext_len=0,
        )
    except PeerFault:
        raise
    except (ValueError, msgpack.UnpackException, UnicodeDecodeError) as error:
        raise PeerFault("encoding", type(error).__name__) from None
    _check_values((parts,), 0)
    return _to_frame(parts)


def _check_values(values: Iterable[Any], depth: int) -> None:
    """Refuse what has no place in a frame; ``depth`` is that of these values, 0 for the frame itself."""
    for value in values:
        if depth > _MAX_DEPTH:
            raise PeerFault("encoding", f"deeper than {_MAX_DEPTH}")
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is dict:
            _check_values(value.values(), depth + 1)
        elif kind is list:
            _check_values(value, depth + 1)
        elif kind is not float:
            raise PeerFault("encoding", "a type that does not belong here")
        elif not math.isfinite(value):
            raise PeerFault("encoding", "NaN or infinity")


def _to_frame(parts: Any) -> Frame:
    if type(parts) is not list or len(parts) != 4:
        raise PeerFault("schema", "a frame is [version, kind, id, body]")
    version, kind, request_id, body = parts
    if type(version) is not int or version != PROTOCOL_VERSION:
        shown = version if type(version) is int else type(version).__name__
        raise PeerFault("version", f"protocol {shown}, {PROTOCOL_VERSION} is spoken here")
    if type(kind) is not int or not 0 <= kind <= Kind.CANCEL:
        raise PeerFault("schema", "unknown kind of frame")
    if type(request_id) is not int or not 0 <= request_id <= _MAX_ID:
        raise PeerFault("schema", "a frame's id is an integer from 0 to 2**53")
    return Frame(_KINDS[kind], request_id, body)
