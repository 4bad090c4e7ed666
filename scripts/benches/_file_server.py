"""The least that could do the job: aiohttp, a file, no user and no jail.

Prints its port and serves until SIGTERM, or until its standard input ends.
"""

import socket
import sys
import tempfile
from pathlib import Path

from aiohttp import web


async def upload(request: web.Request) -> web.Response:
    """PUT: the body becomes the file, as it comes, and is on the disk when the answer goes."""
    with (_directory / "file").open("wb") as file:
        async for data in request.content.iter_any():
            file.write(data)
    return web.Response(status=201)


async def download(_: web.Request) -> web.FileResponse:
    """GET: the file, by sendfile(2) where it can be."""
    return web.FileResponse(_directory / "file")


async def _say_port(app: web.Application) -> None:
    print(app["port"], flush=True)


def main() -> None:
    """Serve on a free port of 127.0.0.1."""
    sock = socket.create_server(("127.0.0.1", 0))
    app = web.Application(client_max_size=1 << 40)
    app["port"] = sock.getsockname()[1]
    app.router.add_put("/file", upload)
    app.router.add_get("/file", download)
    app.on_startup.append(_say_port)
    web.run_app(app, sock=sock, print=None)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="certosa-files-") as name:
        _directory = Path(name)
        main()
        sys.exit(0)
