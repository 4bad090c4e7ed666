"""An authorization server (RFC 6749, 7636, 8628) that answers over a real socket, well and on purpose badly.

It gives a new refresh token with each renewal and, as servers that look for theft do, ends the whole
grant when an old one comes back. ``/v1/api/whoami`` is what its access tokens open.
"""

import asyncio
import base64
import hashlib
import secrets
import ssl
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote, urlencode

from aiohttp import web

Misbehaviour = Literal[
    "refuse", "echo", "fail", "slow", "huge", "not_json", "redirect", "cut", "mac", "short", "lost",
    "slow_down",
]  # fmt: skip
CLIENT, SECRET = "certosa-test", "client-canary-9c8b7a6f5e4d"


@dataclass
class Family:
    """One grant: its tokens as they follow each other."""

    access: list[str] = field(default_factory=list)
    refresh: list[str] = field(default_factory=list)
    ended: bool = False


@dataclass
class Code:
    """An authorization code, or a device's."""

    challenge: str = ""
    redirect_uri: str = ""
    used: bool = False
    approved: bool = False
    denied: bool = False


class FakeAuthServer:
    """Start and stop it in one event loop; all else is for any thread.

    ``life_s`` is what access tokens are said to last; ``rotates`` gives a new refresh token each time.
    """

    def __init__(self, client_auth: str = "basic", life_s: int | None = 3_600, rotates: bool = True) -> None:
        self.client_auth, self.life_s, self.rotates = client_auth, life_s, rotates
        self.redirect_uri = ""
        self.url = ""
        self.forms: list[dict[str, str]] = []
        """Every form that came to the token endpoint."""
        self.opened: list[str] = []
        """Access tokens that came to the resource, right ones."""
        self.families: list[Family] = []
        self.codes: dict[str, Code] = {}
        self.came_s: list[float] = []
        """When each form came, by the loop's clock."""
        self.device_life_s, self.interval_s = 600, 1
        self.held: asyncio.Event | None = None
        """While it is there and not set, the token endpoint takes forms and answers none."""
        self.came = threading.Semaphore(0)
        """Released with each form."""
        self._bad: deque[Misbehaviour] = deque()
        self._runner: web.AppRunner | None = None
        self._closing = asyncio.Event()

    def misbehave(self, *how: Misbehaviour) -> None:
        """What the next forms are answered with."""
        self._bad.extend(how)

    def revoke(self) -> None:
        """Its owner takes every grant back."""
        for family in self.families:
            family.ended = True

    def decide(self, user_code: str, yes: bool = True) -> None:
        """The person at the device's page says yes or no."""
        code = self.codes[f"device-{user_code}"]
        code.approved, code.denied = yes, not yes

    def section(self, **more: Any) -> dict[str, Any]:
        """Of the configuration."""
        base = self.url
        return {
            "client_id": CLIENT, "client_auth": self.client_auth, "token_url": f"{base}/token",
            "authorize_url": f"{base}/authorize", "device_url": f"{base}/device",
            "hosts": ["127.0.0.1"], "scopes": ["read", "write"], **more,
        }  # fmt: skip

    async def start(self) -> "FakeAuthServer":
        """Listen on 127.0.0.1."""
        app = web.Application()
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/device", self._device)
        app.router.add_get("/v1/api/whoami", self._whoami)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def show_resource(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen there too, with TLS: where the tokens are good for something. Raises OSError."""
        assert self._runner is not None
        await web.TCPSite(self._runner, host, port, ssl_context=context).start()

    async def stop(self) -> None:
        """Close everything."""
        self._closing.set()
        if self._runner is not None:
            await self._runner.cleanup()

    async def __aenter__(self) -> "FakeAuthServer":
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # -- what it serves -----------------------------------------------------------------------------

    async def _authorize(self, request: web.Request) -> web.Response:
        query = request.query
        right = (
            query.get("response_type") == "code"
            and query.get("client_id") == CLIENT
            and query.get("redirect_uri") == self.redirect_uri
            and query.get("code_challenge_method") == "S256"
            and len(query.get("code_challenge", "")) == 43
            and len(query.get("state", "")) >= 43
        )
        if not right:
            return web.Response(status=400, text="this request is none")
        code = secrets.token_urlsafe(24)
        self.codes[code] = Code(query["code_challenge"], query["redirect_uri"], approved=True)
        answer = {"code": code, "state": query["state"]}
        raise web.HTTPFound(f"{self.redirect_uri}?{urlencode(answer)}")

    async def _device(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        if not self._knows(request.headers, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        user_code = f"{secrets.token_hex(2)}-{secrets.token_hex(2)}".upper()
        self.codes[f"device-{user_code}"] = Code()
        return web.json_response({
            "device_code": f"device-{user_code}", "user_code": user_code,
            "verification_uri": f"{self.url}/activate", "expires_in": self.device_life_s,
            "interval": self.interval_s,
        })  # fmt: skip

    async def _token(self, request: web.Request) -> web.StreamResponse:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append(form)
        self.came_s.append(asyncio.get_running_loop().time())
        self.came.release()
        if self.held is not None:
            await self.held.wait()
        if self._bad and (bad := await self._misbehaves(request, form, self._bad.popleft())) is not None:
            return bad
        if not self._knows(request.headers, form):
            return web.json_response({"error": "invalid_client"}, status=401)
        match form.get("grant_type"):
            case "authorization_code":
                return self._exchange(form)
            case "refresh_token":
                return self._refresh(form)
            case "urn:ietf:params:oauth:grant-type:device_code":
                return self._poll(form)
        return _refuse("unsupported_grant_type")

    def _exchange(self, form: Mapping[str, str]) -> web.Response:
        code = self.codes.get(form.get("code", ""))
        hashed = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
        if code is None or code.used or code.challenge != proof:
            return _refuse("invalid_grant")
        if code.redirect_uri != form.get("redirect_uri"):
            return _refuse("invalid_grant")
        code.used = True
        return self._grant(Family())

    def _poll(self, form: Mapping[str, str]) -> web.Response:
        code = self.codes.get(form.get("device_code", ""))
        if code is None or code.used:
            return _refuse("expired_token")
        if code.denied:
            return _refuse("access_denied")
        if not code.approved:
            return _refuse("authorization_pending")
        code.used = True
        return self._grant(Family())

    def _refresh(self, form: Mapping[str, str]) -> web.Response:
        given = form.get("refresh_token", "")
        family = next((one for one in self.families if given in one.refresh), None)
        if family is None or family.ended:
            return _refuse("invalid_grant")
        if given != family.refresh[-1]:
            family.ended = True  # somebody has a copy
            return _refuse("invalid_grant")
        return self._grant(family)

    def _grant(self, family: Family) -> web.Response:
        if family not in self.families:
            self.families.append(family)
        family.access.append(f"access-canary-{secrets.token_hex(12)}")
        new = not family.refresh or self.rotates
        if new:
            family.refresh.append(f"refresh-canary-{secrets.token_hex(12)}")
        answer: dict[str, Any] = {"access_token": family.access[-1], "token_type": "bearer"}
        if new:
            answer["refresh_token"] = family.refresh[-1]
        if self.life_s is not None:
            answer["expires_in"] = self.life_s
        return web.json_response(answer)

    async def _whoami(self, request: web.Request) -> web.Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not any(not one.ended and one.access[-1] == token for one in self.families):
            return web.json_response({"error": "invalid_token"}, status=401)
        self.opened.append(token)
        return web.json_response({"login": "alice-elsewhere"})

    def _knows(self, headers: Mapping[str, str], form: Mapping[str, str]) -> bool:
        if self.client_auth == "basic":
            pair = base64.b64decode(headers.get("Authorization", "").removeprefix("Basic ")).decode()
            given = [unquote(part) for part in pair.split(":")]
            return given == [CLIENT, SECRET] and "client_secret" not in form
        if form.get("client_id") != CLIENT or "Authorization" in headers:
            return False
        return form.get("client_secret") == (SECRET if self.client_auth == "body" else None)

    async def _misbehaves(
        self, request: web.Request, form: Mapping[str, str], how: Misbehaviour
    ) -> web.StreamResponse | None:
        match how:
            case "refuse":
                return _refuse("temporarily_unavailable", "come back later")
            case "slow_down":
                return _refuse("slow_down")
            case "echo":
                pieces = " ".join([*form.values(), *request.headers.values(), SECRET])
                return _refuse("invalid_request", f"what is {pieces}?")
            case "fail":
                return web.Response(status=503, text="<html>down</html>")
            case "slow":
                await self._closing.wait()
            case "huge":
                return web.Response(body=b'{"access_token": "' + b"x" * (1 << 20))
            case "not_json":
                return web.Response(text="access_token=abcdefghijkl&token_type=bearer")
            case "redirect":
                return web.Response(status=307, headers={"Location": f"{self.url}/token"})
            case "cut":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()  # to nobody
            case "lost":
                self._refresh(form)  # it is done, and nobody hears of it
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            case "mac":
                return web.json_response({"access_token": "abcdefghijkl", "token_type": "mac"})
            case "short":
                return web.json_response({"access_token": "abc", "token_type": "bearer"})
        return None


def _refuse(code: str, description: str = "") -> web.Response:
    more = {"error_description": description} if description else {}
    return web.json_response({"error": code, **more}, status=400)


@contextmanager
def running_auth_server(
    client_auth: str = "basic", resource: tuple[str, int, ssl.SSLContext] | None = None, **more: Any
) -> Iterator[FakeAuthServer]:
    """One in a thread of its own, for tests without an event loop; ``resource``: see ``show_resource``."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="auth-server")
    thread.start()

    async def make() -> FakeAuthServer:
        made = await FakeAuthServer(client_auth, **more).start()
        if resource is not None:
            await made.show_resource(*resource)
        return made

    server = asyncio.run_coroutine_threadsafe(make(), loop).result(20)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
