"""The real hub on a loop of its own, in a thread, on loopback sockets; its neighbours are fakes."""

import asyncio
import socket
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from core.approvals import ApprovalDesk, Book
from core.config import (
    AccessSection,
    AdminSection,
    Config,
    HubSection,
    LiveSection,
    ProviderSection,
    SessionsSection,
)
from core.egress.credential_messages import CredentialInfo, KeyRotated
from core.egress.messages import TokenInfo
from core.egress.oauth_messages import ConnectBegun, ConnectSeen, ConnectTold, OAuthInfo
from core.hub import AdministrationError, Agents, HubParts, HubServer, MadeToken
from core.hub.connecting import ConnectBody
from core.hub.credentials import NewValue
from core.hub.tls import Tls
from core.metrics import Metrics
from core.sessions import Library, SessionsService, Storage
from core.users import User
from core.vault.box import Box
from core.vault.terms import CredentialTerms
from tests.fakes.accounts import FakeAccounts
from tests.fakes.egress_rules import FakeRules
from tests.fakes.home_calls import HomeCalls
from tests.fakes.scripted_turns import ScriptedTurns
from tests.fakes.token_book import TokenBook

WAIT_S = 15.0
_T = TypeVar("_T")


class FakeAdministration:
    """Implements core.hub.Administration in memory."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.tokens: dict[str, TokenInfo] = {}
        self.jail_acts: list[tuple[str, str]] = []

    async def add_user(self, name: str) -> User:
        if name in self.users:
            raise AdministrationError("exists", f"there is a user {name} already")
        self.users[name] = User(name, 1_900_001_000 + len(self.users), 1, False)
        return self.users[name]

    async def list_users(self) -> list[User]:
        return list(self.users.values())

    async def set_user_disabled(self, name: str, disabled: bool) -> None:
        self.users[name] = self._user(name)._replace(disabled=disabled)

    async def delete_user(self, name: str) -> None:
        self._user(name)
        del self.users[name]

    async def new_token(self, user: str, label: str) -> MadeToken:
        self._user(user)
        token_id = f"tok{len(self.tokens)}"
        self.tokens[token_id] = TokenInfo(token_id, user, label, 1, None)
        return MadeToken(token_id, f"token-{user}")

    async def list_tokens(self, user: str | None) -> list[TokenInfo]:
        return [token for token in self.tokens.values() if user in (None, token.user)]

    async def new_admin_token(self, label: str) -> MadeToken:
        token_id = f"adm{len(self.tokens)}"
        self.tokens[token_id] = TokenInfo(token_id, "", label, 1, None)
        return MadeToken(token_id, f"admin-{token_id}")

    async def list_admin_tokens(self) -> list[TokenInfo]:
        return [token for token in self.tokens.values() if not token.user]

    async def revoke_token(self, token_id: str) -> None:
        if self.tokens.pop(token_id, None) is None:
            raise AdministrationError("not_found", f"there is no token {token_id}")

    async def test_provider(self, name: str, model: str) -> dict[str, Any]:
        if name != "local":
            raise AdministrationError("not_found", f"the running server has no provider {name!r} to test")
        return {
            "models": ["m1"], "models_error": "", "model": model or "m1", "chat_error": "", "answer_s": 0.1
        }  # fmt: skip

    async def evict_jail(self, user: str) -> None:
        self._user(user)
        self.jail_acts.append(("evict", user))

    async def kill_jail(self, user: str) -> None:
        self._user(user)
        self.jail_acts.append(("kill", user))

    async def release_jail(self, user: str) -> None:
        self._user(user)
        self.jail_acts.append(("release", user))

    async def drain_pool(self, on: bool) -> None:
        self.jail_acts.append(("drain", str(on)))

    async def status(self) -> dict[str, Any]:
        return {"users": len(self.users)}

    def _user(self, name: str) -> User:
        if name not in self.users:
            raise AdministrationError("not_found", f"there is no user {name}")
        return self.users[name]


class FakeKeeper:
    """Implements core.hub.credentials.Keeper in memory."""

    def __init__(self) -> None:
        self.box = Box()
        self.kept: dict[tuple[str, str], tuple[CredentialTerms, str]] = {}

    async def list(self, owner: str) -> list[CredentialInfo]:
        return [
            CredentialInfo(name, terms, 1, 1_000, None)
            for (whose, name), (terms, _) in sorted(self.kept.items())
            if whose == owner
        ]

    async def set(self, owner: str, name: str, terms: CredentialTerms, new: NewValue) -> int:
        if name.startswith("-"):
            raise AdministrationError("invalid", "a credential's name begins otherwise")
        value = self.box.open(name, new.sealed) if new.sealed else new.value
        version = 2 if (owner, name) in self.kept else 1
        self.kept[owner, name] = terms, value
        return version

    async def delete(self, owner: str, name: str) -> None:
        if self.kept.pop((owner, name), None) is None:
            raise AdministrationError("not_found", "no such credential")

    async def box_key(self) -> bytes:
        return self.box.public

    async def rotate(self) -> KeyRotated:
        return KeyRotated(1, len({owner for owner, _ in self.kept}), len(self.kept))


class FakeConnector:
    """Implements core.hub.connecting.Connector: one state waits, alice's; ``finished`` is what was done."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, str, ConnectBody]] = []
        self.finished: list[tuple[str, str, str, str]] = []

    async def begin(self, owner: str, name: str, body: ConnectBody) -> ConnectBegun:
        if body.provider != "acme":
            raise AdministrationError("invalid", f"there is no {body.provider!r} to connect with")
        self.begun.append((owner, name, body))
        return ConnectBegun(1, body.flow or "browser", "https://acme.example/authorize?state=s", "", 600)

    async def told(self, owner: str, name: str) -> ConnectTold:
        if (owner, name) not in [(whose, which) for whose, which, _ in self.begun]:
            raise AdministrationError("not_found", f"{name} is not being connected")
        return ConnectTold(1, "acme", "done" if self.finished else "waiting", "")

    async def look(self, provider: str, state: str) -> ConnectSeen:
        if (provider, state) != ("acme", "the-state"):
            raise AdministrationError("invalid", "this link is <none>")
        return ConnectSeen(1, "alice", "mail")

    async def finish(self, provider: str, state: str, code: str, error: str) -> None:
        await self.look(provider, state)
        self.finished.append((provider, state, code, error))
        if error:
            raise AdministrationError("invalid", "it was refused by its owner: nothing was connected")

    async def providers(self, owner: str) -> tuple[OAuthInfo, ...]:
        return (OAuthInfo("acme", ("browser",), ("api.acme.example",), ("read",), True),)


class FakeReporter:
    """Implements core.hub.acts.Reporter: keeps what it is told, or says why not."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str]] = []
        self.refusal = ""

    async def report(self, kind: str, outcome: str, on: str, detail: str) -> None:
        if self.refusal:
            raise AdministrationError("unavailable", self.refusal)
        self.told.append((kind, outcome, on, detail))


class FakeInsight:
    """Implements core.hub.Insight: says which question was asked."""

    async def health(self) -> dict[str, Any]:
        return {"of": "health"}

    async def pool(self) -> dict[str, Any]:
        return {"of": "pool"}

    async def configuration(self) -> dict[str, Any]:
        return {"of": "configuration"}

    async def providers(self) -> list[dict[str, Any]]:
        return [{"name": "builtin"}]

    async def sizes(self) -> list[dict[str, Any]]:
        return [{"user": "alice", "bytes": 1}]

    async def sizes_of(self, user: str) -> dict[str, Any]:
        return {"user": user, "sessions": 1}


class HubProcess:
    """Starts at once; ``url``, ``admin_url`` and ``command_path`` say where."""

    def __init__(
        self,
        directory: Path,
        stall_s: float = 30.0,
        keep_alive_s: float = 15.0,
        live: LiveSection | None = None,
        sessions: SessionsSection | None = None,
        access: AccessSection | None = None,
        admin: AdminSection | None = None,
        tls: Tls | None = None,
        **hub: Any,
    ) -> None:
        self.directory = directory
        self.users_dir = directory / "users"
        self.users_dir.mkdir(parents=True, exist_ok=True)
        self.config = Config(
            hub=HubSection(**{"max_lag_s": 60.0, **hub}),
            live=live or LiveSection(),
            admin=admin or AdminSection(),
            access=access or AccessSection(),
            providers={"local": ProviderSection(base_url="http://x/v1")},
        )
        self.turns = ScriptedTurns()
        self.calls = HomeCalls(self.users_dir)
        self.book = TokenBook()
        self.metrics = Metrics()
        self.administration = FakeAdministration()
        self.credentials = FakeKeeper()
        self.rules = FakeRules()
        self.connector = FakeConnector()
        self.reporter = FakeReporter()
        self.accounts = FakeAccounts()
        self.failed_logins: list[tuple[str, str]] = []
        self.missing: list[str] = []
        self.storage = Storage(directory / "sealed", 1)
        self.sessions = SessionsService(self.storage, sessions or SessionsSection())
        self.turns.book = Book(self.storage, self.metrics)
        self._tls = tls
        self._limits = stall_s, keep_alive_s
        self._stopped = False
        public, operators, command = self._listen()
        self.address = public.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self.admin_url = f"http://127.0.0.1:{operators.getsockname()[1]}"
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="hub")
        self._thread.start()
        self.server = self.run(self._start(public, operators, command))

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run something on the hub's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(WAIT_S)

    def stop(self, grace_s: float = 0.0) -> None:
        """Stop the hub alone, as SIGTERM would."""
        self._stopped = True
        self.run(self.server.stop(grace_s))

    def close(self) -> None:
        self.turns.close()
        if not self._stopped:
            self.stop(1.0)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_S)
        self.loop.close()
        self.calls.close()
        self.storage.stop()

    def write_agent(self, user: str, name: str, text: str) -> Path:
        path = self.users_dir / user / "agents" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def sample(self, name: str, **labels: str) -> float:
        """A metric's value now."""
        found = self.metrics.registry.get_sample_value(name, labels)
        assert found is not None, f"no metric {name}"
        return found

    def _listen(self) -> tuple[socket.socket, socket.socket, socket.socket]:
        command = socket.socket(socket.AF_UNIX)
        self.command_path = self.directory / "command.sock"
        command.bind(str(self.command_path))
        command.listen()
        tcp = [socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(2)]
        return tcp[0], tcp[1], command

    async def _start(self, public: socket.socket, admin: socket.socket, command: socket.socket) -> HubServer:
        parts = HubParts(
            config=self.config.hub,
            live=self.config.live,
            verifier=self.book,
            turns=self.turns,
            calls=self.calls,
            sessions=self.sessions,
            library=Library(self.storage, self.sessions),
            approvals=ApprovalDesk(self.storage, self.turns),
            held_s=0.0,
            agents=Agents(self.users_dir, self.config),
            metrics=self.metrics,
            administration=self.administration,
            credentials=self.credentials,
            mounts=lambda user: ("signing-key",) if user == "alice" else (),
            egress=self.rules,
            connector=self.connector,
            reporter=self.reporter,
            accounts=self.accounts,
            login_failed=lambda address, token_id: self.failed_logins.append((address, token_id)),
            insight=FakeInsight(),
            admin=self.config.admin,
            access=self.config.access,
            missing=lambda: self.missing,
            hub_tls=self._tls,
            stall_s=self._limits[0],
            keep_alive_s=self._limits[1],
        )
        server = HubServer(parts)
        await server.start([public], [admin], [command])
        return server
