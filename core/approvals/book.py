"""Writes questions and how they were decided into their user's own store, for the user's actor."""

import time
from collections.abc import Callable

import structlog

from actors.asking import ApprovalWanted, Resolution
from actors.service import TurnSpec
from core.errors import CoreError, SealError
from core.metrics import Metrics
from core.sessions import Storage, StorageError, StoredSession
from core.sessions.approvals import ApprovalRecords
from core.sessions.store import UserStore
from core.vault.handle import UserHandle
from jail.wire.schema import Failure

_log = structlog.get_logger()

_Done = Callable[[Failure | None], None]


class Book:
    """An :class:`actors.service.ApprovalBook`. Thread-safe; answers from the storage threads."""

    def __init__(self, storage: Storage, metrics: Metrics) -> None:
        self._storage = storage
        self._metrics = metrics

    def keep(self, spec: TurnSpec, wanted: ApprovalWanted, done: _Done) -> None:
        """Write a question down."""
        session = spec.session.session_id if isinstance(spec.session, StoredSession) else None

        def work(store: UserStore) -> None:
            ApprovalRecords(store).add(spec.turn, session, wanted, int(time.time()))

        self._write(spec, work, done, len(wanted.arguments))
        _log.info("approval_wanted", user=spec.handle.user, turn=spec.turn, approval=wanted.approval)

    def settle(self, spec: TurnSpec, approval: str, outcome: Resolution, done: _Done) -> None:
        """Write down how a question was decided."""

        def work(store: UserStore) -> None:
            ApprovalRecords(store).settle(approval, outcome, int(time.time()))

        self._write(spec, work, done, 0)
        self._metrics.approval_resolved(outcome)
        _log.info(
            "approval_resolved", user=spec.handle.user, turn=spec.turn, approval=approval, outcome=outcome
        )

    def _write(self, spec: TurnSpec, work: Callable[[UserStore], None], done: _Done, size: int) -> None:
        def failed(error: CoreError) -> None:
            _log.error("approval_not_stored", user=spec.handle.user, error=str(error))
            done(_failure(error))

        # its actor has checked that the turn is this user's own
        if not isinstance(spec.handle, UserHandle):
            raise TypeError("a turn without a handle of the vault's")
        self._storage.submit(spec.handle, work, lambda _: done(None), failed, size_bytes=size)


def _failure(error: CoreError) -> Failure:
    if isinstance(error, StorageError):
        return Failure(error.code, str(error), 1 if error.code == "overloaded" else None)
    if isinstance(error, SealError):
        return Failure("internal", "what is stored did not open; tell the operator")
    return Failure("unavailable", str(error))
