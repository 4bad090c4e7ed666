"""The ledger and the audit log in the egress process: opened, asked, closed."""

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from time import time
from typing import Any, NamedTuple

import msgspec
import structlog

from core.audit.chain import Chain
from core.audit.desk import AuditDesk
from core.audit.files import AuditLog
from core.audit.records import KINDS, AuditUnavailable, Kind, Record
from core.audit.search import Wanted, find
from core.audit.verify import verify
from core.config import Config
from core.egress.account_messages import (
    AccountQuestion,
    ActAudit,
    AskAudit,
    AskStanding,
    AskUsage,
    AuditTold,
    AuditVerified,
    NoteAudit,
    SetLimits,
    StandingTold,
    UsageLine,
    UsageTold,
    VerifyAudit,
)
from core.egress.messages import (
    AddUser,
    NewAdminToken,
    NewToken,
    Ok,
    Refused,
    RemoveUser,
    RevokeToken,
    SetUserDisabled,
)
from core.ledger.book import Book, Standing
from core.ledger.desk import LedgerDesk
from core.ledger.limits import to_money
from core.ledger.metering import DIMENSIONS, Dimension, LedgerUnavailable, Level
from core.ledger.opening import open_ledger, terms_of
from core.ledger.store import LedgerStore, UsageRow
from core.metrics import EgressMetrics
from core.vault.errors import VaultError

MAX_ROWS = 2_500
"""With the longest names still below the link's largest message."""
_MAX_LOOKS = 4
_AGAIN_S = 0.2
_ACTS: dict[type[Any], Kind] = {
    AddUser: "user_added",
    RemoveUser: "user_deleted",
    SetUserDisabled: "user_disabled",
    NewToken: "token_made",
    NewAdminToken: "admin_token_made",
    RevokeToken: "token_revoked",
}
_log = structlog.get_logger(__name__)


class OpenAccounts(NamedTuple):
    """What :func:`open_accounts` opened; handed to :class:`Accounts`, which closes it."""

    store: LedgerStore
    book: Book
    log: AuditLog
    chain: Chain
    directory: Path


def open_accounts(keys_dir: Path, config: Config, key: bytes, fresh: bool) -> OpenAccounts:
    """Open both; VaultError where they cannot be.

    Args:
        keys_dir: ``DATA/_keys``.
        key: of the audit log; ``fresh`` where it was made just now.
    """
    store, book = open_ledger(keys_dir, config)
    try:
        chain, directory, section = Chain(key), keys_dir / "audit", config.audit
        log = AuditLog(directory, chain, fresh, section.file_bytes, section.keep_files, time)
    except BaseException:
        store.close()
        raise
    return OpenAccounts(store, book, log, chain, directory)


class Accounts:
    """Made and used on the event loop. ``meter`` and ``auditor`` are for whoever sends requests out.

    Args:
        opened: taken over.
        config: the whole.
        send: takes a message for core.
        ended: called on a thread of theirs when one of the two ends.
        metrics: told what is recorded, and how long writing takes.
    """

    def __init__(
        self,
        opened: OpenAccounts,
        config: Config,
        send: Callable[[msgspec.Struct], None],
        ended: Callable[[], None],
        metrics: EgressMetrics,
    ) -> None:
        self._send = send
        self._usage = config.usage
        self._config = config
        self._chain, self._directory = opened.chain, opened.directory
        self.auditor = AuditDesk(opened.log, config.audit.lines_per_minute, ended, metrics)
        self.meter = LedgerDesk(opened.store, opened.book, self.auditor, ended, stores=metrics.stores)
        self._looks = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._note("server_started", config)

    def use(self, config: Config) -> None:
        """Use another configuration's limits and prices, from the next request on."""
        self._note("config_reloaded", config)
        for record in changed_sections(self._config, config):
            self.auditor.note(record)
        self._config = config

        async def apply() -> None:
            try:
                await self.meter.call(lambda book, _: book.use(terms_of(config)))
            except LedgerUnavailable as error:
                _log.error("limits_not_used", reason=str(error))

        self._usage = config.usage
        task = asyncio.get_running_loop().create_task(apply())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _note(self, kind: Kind, config: Config) -> None:
        """A changed configuration shows as another digest; what it says is nobody's business here."""
        digest = hashlib.sha256(msgspec.json.encode(config, order="deterministic")).hexdigest()[:16]
        self.auditor.note(Record(kind, "noted", detail=f"configuration {digest}"))

    async def close(self) -> None:
        """Write what waits."""
        for task in list(self._tasks):
            task.cancel()
        await self.meter.stop()
        await self.auditor.stop()

    def take(self, question: AccountQuestion) -> None:
        """Take a question of core's; the answer is sent when it is there."""
        if isinstance(question, NoteAudit):
            self.auditor.note_by("core", question.record.record())
            return

        async def answer() -> None:
            try:
                self._send(await self._answer(question))
            except (LedgerUnavailable, AuditUnavailable) as error:
                self._send(Refused(question.id, str(error)))
            except (OSError, VaultError) as error:
                _log.error("audit_read_failed", error=str(error))
                self._send(Refused(question.id, f"the audit log cannot be read: {error}"))

        task = asyncio.get_running_loop().create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def vault_answered(self, question: Any, answer: Any) -> None:
        """Record what the vault did for core: a core that was taken over keeps silent about it."""
        kind = _ACTS.get(type(question))
        if kind is None or isinstance(answer, Refused):
            return
        if isinstance(question, SetUserDisabled):
            kind = "user_disabled" if question.disabled else "user_enabled"
        on: str = getattr(question, "token_id", "") or getattr(answer, "token_id", "")
        self.auditor.note(Record(kind, "noted", user=getattr(question, "user", ""), on=on))

    async def forget(self, user: str) -> None:
        """A user is removed: the next of that name begins anew. Raises LedgerUnavailable."""
        await self.meter.call(lambda book, _: book.forget(user))

    async def _answer(self, question: AccountQuestion) -> msgspec.Struct:
        match question:
            case AskUsage():
                return await self._usage_of(question)
            case AskStanding(id, user):
                standing = await self.meter.call(lambda book, now_s: book.standing(user, now_s))
                return self._told(id, user, standing)
            case SetLimits(id, user, changes):
                by_level: dict[Level, dict[Dimension, int | str | None]] = {"soft": {}, "hard": {}}
                for change in changes:
                    by_level[change.level][change.dimension] = "default" if change.default else change.most
                await self.meter.call(lambda book, _: book.set_limits(user, by_level))
                self.auditor.note(Record("limits_set", "noted", user=user))
                return Ok(id)
            case ActAudit(id, record):
                await self.auditor.act_by("core", record.record())
                return Ok(id)
            case AskAudit() | VerifyAudit():
                return await self._look(question)
            case NoteAudit():
                raise TypeError("a note has no answer")

    async def _usage_of(self, ask: AskUsage) -> UsageTold:
        rows = await self.meter.call(
            lambda book, now_s: book.rows(ask.user, ask.since, ask.until, MAX_ROWS + 1, now_s)
        )
        usage = self._usage
        lines = tuple(_line(row) for row in rows[:MAX_ROWS])
        return UsageTold(ask.id, lines, len(rows) > MAX_ROWS, usage.currency, usage.zone)

    def _told(self, id: int, user: str, standing: Standing) -> StandingTold:
        of = {"used": standing.used, "held": standing.held, "soft": standing.soft, "hard": standing.hard}
        dimensions: dict[str, dict[str, int | str | None]] = {
            name: {what: _value(name, getattr(sums, name)) for what, sums in of.items()}
            for name in DIMENSIONS
        }
        own = tuple(
            f"{level}.{name}" for level, names in sorted(standing.own.items()) for name in sorted(names)
        )
        usage = self._usage
        return StandingTold(
            id, user, standing.day, int(standing.resets_at_s), usage.currency, usage.zone, dimensions, own
        )

    async def _look(self, question: AskAudit | VerifyAudit) -> AuditTold | AuditVerified | Refused:
        """In a thread: the log may be long."""
        if self._looks >= _MAX_LOOKS:
            return Refused(question.id, "others look at the audit log just now; try again in a moment")
        self._looks += 1
        try:
            if isinstance(question, VerifyAudit):
                verdict = await asyncio.to_thread(verify, self._directory, self._chain)
                if verdict.faults:
                    await asyncio.sleep(_AGAIN_S)  # it may have been written to just then
                    verdict = await asyncio.to_thread(verify, self._directory, self._chain)
                return AuditVerified(question.id, verdict)
            if question.kind and question.kind not in KINDS:
                return Refused(
                    question.id, f"no kind {question.kind!r}; there are: {', '.join(sorted(KINDS))}"
                )
            wanted = Wanted(question.user, question.kind, question.since, question.until, question.most)
            return AuditTold(question.id, tuple(await asyncio.to_thread(find, self._directory, wanted)))
        finally:
            self._looks -= 1


def changed_sections(before: Config, after: Config) -> list[Record]:
    """What a reload changed of the servers that this process talks to, whoever edited the file."""
    found = []
    kinds: tuple[tuple[Mapping[str, Any], Mapping[str, Any], Kind, Kind], ...] = (
        (before.providers, after.providers, "provider_set", "provider_removed"),
        (before.oauth, after.oauth, "oauth_set", "oauth_removed"),
    )
    for was, now, changed, gone in kinds:
        found += [Record(gone, "noted", on=name) for name in sorted(was.keys() - now.keys())]
        found += [Record(changed, "noted", on=name) for name in sorted(now) if was.get(name) != now[name]]
    return found


def _line(row: UsageRow) -> UsageLine:
    priced = row.kind == "chat" and row.unpriced < row.requests
    return UsageLine(*row[:9], to_money(row.cost) if priced or row.cost else "", *row[10:])


def _value(dimension: str, value: int | None) -> int | str | None:
    return to_money(value) if dimension == "cost" and value is not None else value
