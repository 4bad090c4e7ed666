"""Who may administer: root and core's own uid on the Unix socket, an administrator's token on TCP."""

import os
import socket
import struct
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from core.acting import WHO
from core.hub.errors import HubError
from core.hub.tokens import Verifier, authenticate_admin

_UCRED = struct.Struct("3i")  # pid, uid, gid: unix(7), SO_PEERCRED


@web.middleware
async def guard_socket(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Of the command line's application."""
    WHO.set(f"uid:{check_peer(request)}")
    return await handler(request)


def guard_admin(verifier: Verifier, open_paths: frozenset[str]) -> Middleware:
    """Of the operators' application: a token for everything but ``open_paths``, also for what isn't there."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in open_paths:
            return await handler(request)
        token_id = await authenticate_admin(request, verifier)
        # whatever is logged of this request says who asked for it
        WHO.set(f"token:{token_id}")
        with structlog.contextvars.bound_contextvars(admin_token=token_id):
            return await handler(request)

    return guard


def check_peer(request: web.Request) -> int:
    """The uid at the other end of the Unix socket; HubError 403 unless it is root or core's own."""
    sock = request.transport.get_extra_info("socket") if request.transport else None
    uid = _peer_uid(sock) if sock is not None and sock.family == socket.AF_UNIX else None
    if uid is None or uid not in (0, os.geteuid()):
        raise HubError(403, "only root and the server's own user may do this", "forbidden")
    return uid


def _peer_uid(sock: Any) -> int:
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return int(_UCRED.unpack(found)[1])
