"""The least that could do the job: an aiohttp WebSocket that sends messages, and no log, user or turn.

A client says ``COUNT SIZE`` and is sent so many messages of so many bytes. Prints its port and serves
until its standard input ends.
"""

import signal
import socket
import sys
import threading

from aiohttp import WSMsgType, web


async def serve(request: web.Request) -> web.WebSocketResponse:
    """GET /: a WebSocket."""
    ws = web.WebSocketResponse(compress=False)
    await ws.prepare(request)
    async for message in ws:
        if message.type is WSMsgType.TEXT:
            count, size = map(int, message.data.split())
            text = "x" * size
            for _ in range(count):
                await ws.send_str(text)
    return ws


async def _say_port(app: web.Application) -> None:
    print(app["port"], flush=True)


def main() -> None:
    """Serve on a free port of 127.0.0.1."""
    sock = socket.create_server(("127.0.0.1", 0))
    app = web.Application()
    app["port"] = sock.getsockname()[1]
    app.router.add_get("/", serve)
    app.on_startup.append(_say_port)
    threading.Thread(target=_end_with_input, daemon=True).start()
    web.run_app(app, sock=sock, print=None)


def _end_with_input() -> None:
    sys.stdin.read()
    signal.raise_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
