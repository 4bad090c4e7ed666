"""The egress process's composition: vault, providers and streams behind the link to core."""

import asyncio
import os
import signal
import socket
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import msgspec
import pykka
import structlog

from actors.base import tell
from core.config import Config
from core.egress.account_messages import AccountQuestion
from core.egress.accounts import Accounts, OpenAccounts
from core.egress.credential_audit import record_of
from core.egress.credential_messages import Credentials, ListCredentials
from core.egress.fetch_messages import FetchQuestion
from core.egress.fetches import Fetches
from core.egress.keyfile import read_provider_keys
from core.egress.link import Link
from core.egress.messages import (
    AskMetrics,
    ChatCancel,
    ChatCredit,
    ChatFile,
    ChatStart,
    LimitMet,
    ListProviders,
    MetricsTold,
    Ok,
    Ping,
    ProvidersListed,
    ProviderState,
    Refused,
    RemoveUser,
    TryProvider,
)
from core.egress.mounting import Mounting
from core.egress.oauth_messages import OAuthQuestion
from core.egress.outside import Outside, SentValues
from core.egress.own_rules import OwnRules
from core.egress.policy import Policy
from core.egress.process import read_config
from core.egress.provider_keys import ProviderKeys
from core.egress.registry import Registry, make_providers
from core.egress.resolving import Resolver
from core.egress.secret import Secret, Striker
from core.egress.streams import StreamLimits, Streams
from core.egress.trial import try_provider
from core.egress.vault_access import VaultAccess
from core.errors import ConfigError, LinkError
from core.families import Family, families_of
from core.lag import watch_loop
from core.ledger.metering import LedgerUnavailable, Met
from core.log import set_level
from core.metrics import EgressMetrics
from core.mounts import Mounts
from core.oauth.desk import OAuthDesk
from core.vault.actor import OPERATIONS, Ask, VaultActor
from core.vault.vault import Answer, Vault
from jail.host.measure import own_use

_MAX_QUESTIONS = 4_096  # before the vault at once: the bound on its inbox
_VAULT_STOP_S = 5.0
_MAX_TRIALS = 4
_TRIAL_STOP_S = 2.0
_log = structlog.get_logger(__name__)


class Egress:
    """Deals core's messages out. Make it within a running loop; all on the loop's thread.

    Args:
        config: the whole configuration.
        vault: open; this takes it over and closes it.
        opened: the ledger and the audit log; this takes them over.
        keys: providers' keys by provider.
    """

    def __init__(
        self, config: Config, vault: Vault, opened: OpenAccounts, keys: Mapping[str, Secret]
    ) -> None:
        striker = self._striker = Striker(keys.values())
        self._metrics = EgressMetrics(("builtin", *config.providers), OPERATIONS)
        self._loop = asyncio.get_running_loop()
        self.vault_ended = self._loop.create_future()
        self._vault: pykka.ActorRef[VaultActor] = VaultActor.start(vault, self._on_vault_ended, self._metrics)
        self._access = VaultAccess(self._vault)
        self.link = Link(self._received, self._opened)
        self.accounts_ended = self._loop.create_future()
        self._accounts = Accounts(opened, config, self.link.send, self._on_accounts_ended, self._metrics)
        self._mounts = Mounts(config.vault)
        self._oauth = OAuthDesk(self._access, self._accounts.auditor, config, self.link.send, self._mounts)
        self.mounting = Mounting(self._mounts, self._access.open, self._accounts.auditor)
        self._registry = self._make_providers(config, keys, striker)
        self._keyed = frozenset(keys)
        self._config = config
        self._keys = {name: key.reveal() for name, key in keys.items()}
        self._trials: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._removals: set[asyncio.Task[None]] = set()
        self._streams = Streams(
            self._registry.chat,
            self.link.send,
            striker,
            _limits(config),
            self._registry.single,
            self._metrics.fell_back,
        )
        self._sent, self._resolver = SentValues(), Resolver()
        self._own_rules = OwnRules(self._vault)
        self._fetches = Fetches(self._outside(config), self.link.send, self._metrics.fetches)
        self._questions = 0

    async def serve(self, core: socket.socket) -> LinkError | None:
        """Serve until core is gone, the vault's actor ends or SIGTERM comes.

        Returns the error where it was neither an end of file nor a signal.
        """
        stop = self._loop.create_future()
        self._loop.add_signal_handler(signal.SIGTERM, _settle, stop)
        # a terminal's Ctrl-C is the spawner's, which ends us in its order
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        lag = self._loop.create_task(watch_loop(self._metrics.lagged))
        try:
            await self._loop.create_connection(lambda: self.link, sock=core)
            _log.info("egress_started", providers=sorted(self._registry.chat))
            ends = (self.link.ended, self.vault_ended, self.accounts_ended, stop)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self.vault_ended.done():
                return LinkError("the vault's actor ended")
            if self.accounts_ended.done():
                return LinkError("the ledger or the audit log ended")
            return self.link.ended.result() if self.link.ended.done() else None
        finally:
            lag.cancel()
            await self._close()

    def reload(self, handed: dict[str, int]) -> None:
        """Use another configuration and other keys; the spawner has seen to it that they will do.

        Chats that run go on with what they began with. Providers of which nothing changed, keys neither,
        are left alone, with what their breakers know.
        """
        try:
            config = read_config(handed.pop("config"))
            keys: dict[str, Secret] = {}
            if (fd := handed.pop("provider-keys", None)) is not None:
                keys = read_provider_keys(fd, config.providers)
        except (ConfigError, KeyError) as error:
            _log.error("config_not_used", reason=str(error))
            return
        finally:
            for fd in handed.values():
                os.close(fd)
        set_level(config.server.log_level)
        said = {name: key.reveal() for name, key in keys.items()}
        if (config.providers, said) != (self._config.providers, self._keys):
            # what was secret stays so: chats of before may still bring it back
            old = [Secret(text) for text in self._striker.texts]
            self._striker = Striker([*keys.values(), *old])
            before, self._registry = self._registry, self._make_providers(config, keys, self._striker)
            self._keys, self._keyed = said, frozenset(keys)
            left = self._use_providers(config)
            closing = self._loop.create_task(_close_when_unused(before, {*left, *self._trials}))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            _log.info("providers_replaced", providers=sorted(self._registry.chat), chats_left=len(left))
        else:
            self._use_providers(config)
        self._config = config
        self._accounts.use(config)
        self._fetches.use(self._outside(config))
        self._oauth.use(config)
        self._mounts.use(config.vault)
        _log.info("config_used")

    def _use_providers(self, config: Config) -> set["asyncio.Task[None]"]:
        registry = self._registry
        return self._streams.use(registry.chat, self._striker, _limits(config), registry.single)

    def _outside(self, config: Config) -> Outside:
        accounts = self._accounts
        return Outside(
            config.egress, Policy(config.egress), self._oauth.credentials.open, self._own_rules.of,
            self._resolver.resolve, accounts.meter, accounts.auditor, self._limit_met, self._sent,
        )  # fmt: skip

    async def state(self) -> dict[str, Any]:
        """What an operator reads beside the stacks."""
        return {
            "questions_at_the_vault": self._questions,
            "chats": self._streams.describe(),
            "fetches": self._fetches.describe(),
            "providers": msgspec.to_builtins(self._states()),
        }

    async def _close(self) -> None:
        await self._streams.close()
        await self._fetches.close()
        tasks = self._trials | self._removals
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_TRIAL_STOP_S)
        for task in self._closing:
            task.cancel()  # closes them at once
        if self._closing:
            await asyncio.wait(self._closing, timeout=_TRIAL_STOP_S)
        for provider in self._registry.chat.values():
            await provider.close()
        await self._oauth.close()
        await self._accounts.close()
        self._vault.stop(block=False)
        await asyncio.wait((self.vault_ended,), timeout=_VAULT_STOP_S)
        if not self.vault_ended.done():
            _log.error("vault_stop_timed_out", limit_s=_VAULT_STOP_S)
        self.link.close()  # behind the vault's last answers

    def _received(self, message: Any) -> None:
        if isinstance(message, ChatStart):
            self._streams.start(message)
        elif isinstance(message, ChatFile):
            self._streams.file(message)
        elif isinstance(message, ChatCredit):
            self._streams.credit(message)
        elif isinstance(message, ChatCancel):
            self._streams.cancel(message)
        elif isinstance(message, TryProvider):
            self._try(message)
        elif isinstance(message, ListProviders):
            self._list_providers(message.id)
        elif isinstance(message, AskMetrics):
            self.link.send(MetricsTold(message.id, self._measured()))
        elif isinstance(message, FetchQuestion):
            self._fetches.take(message)
        elif isinstance(message, Ping):
            self.link.send(Ok(message.id))
        elif isinstance(message, AccountQuestion):
            self._accounts.take(message)
        elif isinstance(message, OAuthQuestion):
            self._oauth.take(message)
        elif isinstance(message, RemoveUser):
            self._remove_user(message)
        else:
            self._ask_vault(message)

    def _remove_user(self, question: RemoveUser) -> None:
        """The ledger first: a crash in between leaves a user who is removed again."""

        async def run() -> None:
            try:
                await self._accounts.forget(question.user)
            except LedgerUnavailable as error:
                self.link.send(Refused(question.id, str(error)))
            else:
                self._oauth.forget(question.user)
                self._sent.forget(question.user)
                self._ask_vault(question)

        task = self._loop.create_task(run())
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    def _make_providers(self, config: Config, keys: Mapping[str, Secret], striker: Striker) -> Registry:
        found = ProviderKeys(self._access.open, keys, striker)
        finders = {name: found.of(name) for name in config.providers}
        self._metrics.use(config.providers)
        return make_providers(config, finders, striker, self._accounts.meter, self._limit_met, self._metrics)

    def _limit_met(self, id: int, met: Met) -> None:
        self.link.send(LimitMet(id, met.level, met.dimension, met.text))

    def _list_providers(self, id: int) -> None:
        """Which have a key is the vault's to say too, which answers from its own thread."""

        def listed(answer: Answer) -> None:
            kept = answer.credentials if isinstance(answer, Credentials) else ()
            named = {one.name for one in kept}
            self.link.send(ProvidersListed(id, self._states(named)))

        def pass_on(answer: Answer) -> None:
            self._loop.call_soon_threadsafe(listed, answer)

        if not tell(self._vault, Ask(ListCredentials(id, ""), pass_on)):
            self.link.send(Refused(id, "the egress process is ending; try again"))

    def _states(self, in_vault: Collection[str] = ()) -> tuple[ProviderState, ...]:
        now_s = self._loop.time()
        found = [ProviderState("builtin", "closed", 0, 0, False)]
        for name, upstream in sorted(self._registry.upstreams.items()):
            has_key = name in self._keyed or f"provider:{name}" in in_vault
            found.append(upstream.state(now_s, has_key))
        return tuple(found)

    def _measured(self) -> tuple[Family, ...]:
        for state in self._states():
            self._metrics.breaker(state.name, state.breaker)
        self._metrics.processes.show("egress", own_use())
        return families_of(self._metrics.registry)

    def _try(self, question: TryProvider) -> None:
        if len(self._trials) >= _MAX_TRIALS:
            self.link.send(Refused(question.id, "other tests of providers run; try again when they are done"))
            return

        async def run() -> None:
            self.link.send(await try_provider(question, self._registry.servers, self._config.agent))

        task = self._loop.create_task(run())
        self._trials.add(task)
        task.add_done_callback(self._trials.discard)

    def _ask_vault(self, question: Any) -> None:
        if self._questions >= _MAX_QUESTIONS:
            self.link.send(Refused(question.id, "the vault is overloaded; try again in a second"))
            return
        self._questions += 1
        if not tell(self._vault, Ask(question, partial(self._answered, question))):
            self._questions -= 1
            self.link.send(Refused(question.id, "the egress process is ending; try again"))

    def _answered(self, question: Any, answer: Answer) -> None:
        """On the vault's thread."""
        self._loop.call_soon_threadsafe(self._pass_answer, question, answer)

    def _pass_answer(self, question: Any, answer: Answer) -> None:
        if (record := record_of(question, answer)) is not None:
            self._accounts.auditor.note(record)
        self._questions -= 1
        self._accounts.vault_answered(question, answer)
        self.link.send(answer)

    def _opened(self, is_open: bool) -> None:
        self._streams.set_open(is_open)
        self._fetches.set_open(is_open)

    def _on_vault_ended(self) -> None:
        """On the vault's thread; harmless when it is we who stopped it."""
        self._loop.call_soon_threadsafe(_settle, self.vault_ended)

    def _on_accounts_ended(self) -> None:
        """On a thread of theirs; harmless when it is we who stopped them."""
        self._loop.call_soon_threadsafe(_settle, self.accounts_ended)


def _limits(config: Config) -> StreamLimits:
    # twice the hub's: chats that were cancelled and are closing must not refuse new ones
    return StreamLimits(2 * config.hub.max_turns, 2 * config.hub.max_turns_per_user)


async def _close_when_unused(registry: Registry, tasks: set["asyncio.Task[None]"]) -> None:
    try:
        if tasks:
            await asyncio.wait(tasks)  # a chat has its own longest time
    finally:
        for provider in registry.chat.values():
            await provider.close()


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
