"""The hub's HTTP applications, served on sockets that were bound elsewhere."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog
from aiohttp import web

from core.acting import WHO
from core.approvals import ApprovalDesk
from core.config import AccessSection, AdminSection, HubSection, LiveSection
from core.exposition import Ask, Exposition
from core.hub.access import ACCESS, Access
from core.hub.acts import ActsApi, Reporter
from core.hub.admin import AdminApi, Administration
from core.hub.admin_access import guard_admin, guard_socket
from core.hub.admission import Admission
from core.hub.agent_api import AgentApi
from core.hub.agents import Agents
from core.hub.approvals import ApprovalApi
from core.hub.bodies import as_json
from core.hub.cancel import Cancel
from core.hub.chat import Chat
from core.hub.connecting import ConnectApi, Connector
from core.hub.credentials import CredentialApi, Keeper, KeyApi, the_operator
from core.hub.delivery import KEEP_ALIVE_S, STALL_S, Delivery
from core.hub.egress import EgressApi, RuleKeeper, named_user
from core.hub.files import Files
from core.hub.http_log import http_logger
from core.hub.insight import Insight
from core.hub.intake import Intake
from core.hub.jail_call import JailCalls
from core.hub.listening import Door
from core.hub.live import Live, LiveParts
from core.hub.messages import Messages
from core.hub.middleware import PAGES, answering, finish_headers
from core.hub.models import Models
from core.hub.openapi import ADMIN, PUBLIC, openapi_route
from core.hub.sessions import Sessions
from core.hub.tls import Tls
from core.hub.tokens import Verifier, authenticate
from core.hub.turns import GONE, Starter, Turns
from core.hub.usage import Accounts, AccountsApi, UsageApi
from core.lag import watch_loop
from core.metrics import Metrics
from core.sessions import GoesOn, Library, SessionsService
from core.vault.handle import UserHandle
from jail.wire.schema import Agent

_MAX_ADMIN_BODY_BYTES = 64 << 10
_MAX_ADMIN_CONNECTIONS = 256
_CANCEL_S = 3.0
_STOPPED = "the server was stopped before the turn was done: start it again when it is back"
_CLOSE_S = 2.0
_DISK_PERIOD_S = 1.0
_MAX_LINE_BYTES = 8_190
# what was sent and is not acknowledged, or not read, for so long ends the connection: tcp(7)
_TCP_USER_TIMEOUT_MS = 90_000

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class HubParts:
    """What the hub is given.

    ``login_failed`` is told the address and the public id of each wrong token; ``missing`` names what
    the server still waits for before it is ready (empty: ready). ``home_excess`` says by what a user's
    home is over its limit, or "". ``held_s`` is how long a turn may wait for answers of its user's beside
    its own time. ``others_metrics``: see core.exposition.Exposition.
    """

    config: HubSection
    live: LiveSection
    verifier: Verifier
    turns: Turns
    calls: JailCalls
    sessions: SessionsService
    library: Library
    approvals: ApprovalDesk
    agents: Agents
    metrics: Metrics
    administration: Administration
    credentials: Keeper
    mounts: Callable[[str], tuple[str, ...]]
    egress: RuleKeeper
    connector: Connector
    reporter: Reporter
    accounts: Accounts
    login_failed: Callable[[str, str], None]
    insight: Insight
    missing: Callable[[], Sequence[str]]
    held_s: float
    admin: AdminSection
    access: AccessSection
    free_bytes: Callable[[], int] | None = None
    others_metrics: Mapping[str, Ask] = field(default_factory=dict)
    home_excess: Callable[[str], str] = lambda _: ""
    hub_tls: Tls | None = None
    admin_tls: Tls | None = None
    stall_s: float = STALL_S
    keep_alive_s: float = KEEP_ALIVE_S


class HubServer:
    """The applications and their listeners; made and used on one event loop."""

    def __init__(self, parts: HubParts) -> None:
        self._parts = parts
        self.admission = Admission(parts.config, parts.metrics, parts.home_excess)
        self._access = Access(parts.access, parts.login_failed, parts.metrics)
        self._exposition = Exposition(parts.metrics, parts.others_metrics)
        self._starter = Starter(parts.turns, parts.sessions, self.admission, parts.metrics)
        self._live = Live(
            LiveParts(
                config=parts.live,
                verifier=parts.verifier,
                starter=self._starter,
                sessions=parts.sessions,
                agents=parts.agents,
                approvals=parts.approvals,
                metrics=parts.metrics,
                stall_s=parts.stall_s,
                keep_alive_s=parts.keep_alive_s,
            )
        )
        self._runners: list[web.AppRunner] = []
        self._doors: list[Door] = []
        self._lag: asyncio.Task[None] | None = None
        self._disk: asyncio.Task[None] | None = None

    async def start(
        self,
        public: Iterable[socket.socket],
        admin: Iterable[socket.socket],
        command: Iterable[socket.socket],
    ) -> None:
        """Serve on listening sockets: clients', operators' (TCP), and the command line's (Unix).

        The sockets are closed by :meth:`stop`.
        """
        self._resume_found()
        self._lag = asyncio.create_task(watch_loop(self._lagged), name="loop-lag")
        self._disk = asyncio.create_task(self._watch_disk(), name="disk-space")
        most = self._parts.config.max_connections
        hub_tls, admin_tls = self._parts.hub_tls, self._parts.admin_tls
        for name, app, sockets, most_here, tls in (
            ("hub", self._public_app(), public, most, hub_tls),
            ("admin", self._admin_app(), admin, _MAX_ADMIN_CONNECTIONS, admin_tls),
            ("command", self._command_app(), command, _MAX_ADMIN_CONNECTIONS, None),
        ):
            await self._serve(name, app, sockets, most_here, tls)

    def _resume_found(self) -> None:
        """Have turns go on that an earlier process left, as their users come back."""
        loop = asyncio.get_running_loop()

        def find(user: str, name: str) -> Agent:
            return self._parts.agents.get(user, name)

        def start(handle: UserHandle, turn: GoesOn) -> None:
            try:
                loop.call_soon_threadsafe(self._starter.resume, handle, turn, find)
            except RuntimeError:  # the loop has ended: this process leaves the turn to the next
                _log.info("turn_left_open", user=handle.user, turn=turn.turn)

        self._parts.sessions.resume_by(start)

    async def stop(self, grace_s: float) -> None:
        """No new turns; running ones get ``grace_s`` seconds, then are cancelled; close all."""
        self.admission.stopping = True
        if not await self.admission.drained(grace_s):
            cancelled = self._starter.cancel_all(_STOPPED)
            _log.warning("turns_cancelled_at_stop", turns=cancelled)
            if not await self.admission.drained(_CANCEL_S):
                _log.error("turns_left_at_stop", turns=self.admission.running)
        for door in self._doors:
            door.shut()
        self._doors.clear()
        await self._live.stop()  # after the turns: who watches is given their ends
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()
        for task in (self._lag, self._disk):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def describe(self) -> list[dict[str, object]]:
        """The turns that run, for a dump of states."""
        return self._starter.describe()

    def apply(self, hub: HubSection, access: AccessSection) -> None:
        """Use what counts at once of another configuration: bounds on turns, and who may come in."""
        self.admission.apply(hub)
        self._access.apply(access)

    def cut_off(self, user: str) -> int:
        """End a user's connections that watch, and their turns; how many turns. On the loop's thread."""
        self._live.end_user(user)
        return self._starter.cancel_all(GONE, user)

    async def recheck_tokens(self) -> None:
        """End connections that were opened with a token which is none any more."""
        await self._live.recheck()

    async def _serve(
        self,
        name: str,
        app: web.Application,
        sockets: Iterable[socket.socket],
        most: int,
        tls: Tls | None,
    ) -> None:
        runner = web.AppRunner(
            app,
            handle_signals=False,
            handler_cancellation=True,  # a client that leaves ends its handler at once
            shutdown_timeout=_CLOSE_S,
        )
        options = {
            "access_log": None,
            "logger": http_logger(),
            "auto_decompress": False,  # a small body must not become a large one
            "max_line_size": _MAX_LINE_BYTES,
            "max_field_size": _MAX_LINE_BYTES,
            "lingering_time": 2.0,
            "keepalive_timeout": 75.0,  # from the start on: also what a request's headers may take
        }
        await runner.setup()
        self._runners.append(runner)
        door = Door(runner, name, most, tls, options)
        self._doors.append(door)
        for sock in sockets:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _TCP_USER_TIMEOUT_MS)
            door.open(sock)

    def _public_app(self) -> web.Application:
        parts = self._parts
        delivery = Delivery(
            parts.agents,
            self._starter,
            parts.metrics,
            parts.library,
            parts.held_s,
            parts.stall_s,
            parts.keep_alive_s,
        )
        intake = Intake(parts.agents, parts.calls, parts.config)
        chat = Chat(parts.verifier, delivery, intake)
        messages = Messages(parts.verifier, delivery, intake)
        models = Models(parts.verifier, parts.agents)
        app = self._app(int(parts.config.max_body_bytes), admin=False)
        app[PAGES] = True
        app.router.add_post("/v1/chat/completions", chat.completions)
        app.router.add_post("/v1/messages", messages.create)
        cancel = Cancel(parts.verifier, self._starter)
        app.router.add_post("/v1/turns/{turn}/cancel", cancel.cancel)
        app.router.add_get("/v1/models", models.all)
        app.router.add_get("/v1/models/{name}", models.one)
        files = Files(parts.verifier, parts.calls, int(parts.config.max_upload_bytes), parts.home_excess)
        app.router.add_get("/v1/files", files.look, allow_head=False)
        app.router.add_delete("/v1/files", files.delete)
        app.router.add_get("/v1/files/content", files.download)
        app.router.add_put("/v1/files/content", files.upload)
        app.add_routes(Sessions(parts.verifier, parts.library).routes())
        app.add_routes(self._live.routes())
        app.add_routes(ApprovalApi(parts.verifier, parts.approvals).routes())
        app.add_routes(AgentApi(parts.verifier, parts.agents).routes())
        app.add_routes(CredentialApi(parts.credentials, self._user, parts.mounts).routes())
        app.add_routes(EgressApi(parts.egress, self._rules_of).routes("/v1"))
        app.add_routes(ConnectApi(parts.connector, self._user).routes())
        app.add_routes([openapi_route(PUBLIC)])
        app.add_routes(UsageApi(parts.verifier, parts.accounts).routes())
        self._add_health(app)
        return app

    async def _rules_of(self, request: web.Request) -> tuple[str, UserHandle]:
        handle = await self._user(request)
        return handle.user, handle

    async def _user(self, request: web.Request) -> UserHandle:
        handle = await authenticate(request, self._parts.verifier)
        WHO.set(f"user:{handle.user}")  # for the audit log
        return handle

    def _admin_app(self) -> web.Application:
        parts = self._parts
        app = self._app(_MAX_ADMIN_BODY_BYTES, admin=False)
        open_paths = {"/healthz", "/readyz", *(["/metrics"] if parts.admin.open_metrics else [])}
        app.middlewares.append(guard_admin(parts.verifier, frozenset(open_paths)))
        app.router.add_get("/metrics", self._metrics)
        app.add_routes(AdminApi(parts.administration, parts.insight).routes("/admin/v1"))
        app.add_routes(AccountsApi(parts.accounts).routes("/admin/v1"))
        app.add_routes(EgressApi(parts.egress, named_user).routes("/admin/v1/users/{name}"))
        app.add_routes([openapi_route(ADMIN)])  # for administrators alone, as everything there
        self._add_health(app)
        return app

    def _command_app(self) -> web.Application:
        app = self._app(_MAX_ADMIN_BODY_BYTES, admin=True)
        app.middlewares.append(guard_socket)
        app.add_routes(AdminApi(self._parts.administration, self._parts.insight).routes("/v1"))
        app.add_routes(CredentialApi(self._parts.credentials, the_operator).routes())
        app.add_routes(KeyApi(self._parts.credentials).routes())
        app.add_routes(ActsApi(self._parts.reporter).routes())
        app.add_routes(AccountsApi(self._parts.accounts).routes("/v1"))
        app.add_routes(EgressApi(self._parts.egress, named_user).routes("/v1/users/{name}"))
        return app

    def _app(self, max_body_bytes: int, admin: bool) -> web.Application:
        app = web.Application(
            client_max_size=max_body_bytes, middlewares=[answering(self._parts.metrics, admin)]
        )
        app[ACCESS] = self._access
        app.on_response_prepare.append(finish_headers)
        return app

    def _add_health(self, app: web.Application) -> None:
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)

    async def _healthz(self, _: web.Request) -> web.Response:
        return as_json({"ok": True})

    async def _readyz(self, _: web.Request) -> web.Response:
        missing = [*self._parts.missing(), *(["stopping"] if self.admission.stopping else [])]
        return as_json({"ready": not missing, "missing": missing}, 503 if missing else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._exposition.render(request.headers.get("Accept", ""))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _watch_disk(self) -> None:
        look = self._parts.free_bytes
        while look is not None:
            try:
                # in a thread: a disk that hangs must not take the loop along
                self.admission.note_free(await asyncio.to_thread(look))
            except OSError as error:
                _log.error("disk_not_looked_at", error=str(error))
            await asyncio.sleep(_DISK_PERIOD_S)

    def _lagged(self, lag_s: float) -> None:
        self.admission.lag_s = lag_s
        self._parts.metrics.lagged("hub", lag_s)
