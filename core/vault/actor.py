"""The vault's actor: a thread of its own, since SQLite waits for the disk."""

import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import structlog

from actors.base import Actor
from core.egress.messages import Refused, TokenRejected
from core.metrics import EgressMetrics
from core.oauth.grant import Grant
from core.vault.cabinet import Credential
from core.vault.errors import VaultRefusal
from core.vault.terms import CredentialTerms
from core.vault.vault import Answer, Question, Vault

_DISK = "the vault's disk failed; is it full? The server's log has the reason"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, repr=False)
class Ask:
    """A question; ``answered`` is called once, on the actor's thread, and must not block."""

    question: Question
    answered: Callable[[Answer], None]


Opened = Credential | str | None
"""A credential, None where there is none, or why it cannot be opened."""


@dataclass(frozen=True, slots=True, repr=False)
class OpenOne:
    """A credential for use in this process; core has no way to say this. ``opened`` is as ``answered``."""

    owner: str
    name: str
    opened: Callable[[Opened], None]


Kept = int | str | None
"""A grant's version, None where what it was to replace is gone, or why it cannot be kept."""


@dataclass(frozen=True, slots=True, repr=False)
class KeepGrant:
    """A grant to be kept: a new one under ``terms``, or one in the place of ``version``."""

    owner: str
    name: str
    grant: Grant
    place: CredentialTerms | int
    kept: Callable[[Kept], None]


def _operation(question: type) -> str:
    """``NewToken`` to ``new_token``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", question.__name__).lower()


OPERATIONS = tuple(sorted(_operation(question) for question in (*get_args(Question), OpenOne, KeepGrant)))
"""What the vault may be asked, as metrics name it."""


class VaultActor(Actor):
    """Answers :class:`Ask`, :class:`OpenOne` and :class:`KeepGrant`. Told, never asked.

    Args:
        vault: open already, so that a wrong key is known before anything starts.
        ended: called on the actor's thread when its life ends, by a bug or because it was stopped.
        metrics: told of every question.
    """

    use_daemon_thread = True  # a disk that hangs must not keep the process from its end

    def __init__(self, vault: Vault, ended: Callable[[], None], metrics: EgressMetrics) -> None:
        super().__init__("vault")
        self._metrics = metrics
        self._vault = vault
        self._ended = ended

    def handle(self, message: Any) -> None:
        """Answer one question; a failing disk is a refusal, not the end."""
        began_s = time.perf_counter()
        if isinstance(message, OpenOne):
            opened = self._open(message)
            self._tell(message, "refused" if isinstance(opened, str) else "ok", began_s)
            message.opened(opened)
            return
        if isinstance(message, KeepGrant):
            kept = self._keep(message)
            self._tell(message, "refused" if isinstance(kept, str) else "ok", began_s)
            message.kept(kept)
            return
        if not isinstance(message, Ask):
            raise TypeError(f"not a message of the vault's: {type(message).__name__}")
        outcome = ""
        try:
            answer = self._vault.answer(message.question)
        except sqlite3.Error as error:
            _log.error("vault_disk_failed", error=type(error).__name__, detail=str(error))
            outcome = "failed"
            answer = Refused(
                message.question.id,
                _DISK,
            )
        refused = isinstance(answer, Refused | TokenRejected)
        self._tell(message.question, outcome or ("refused" if refused else "ok"), began_s)
        message.answered(answer)

    def _tell(self, question: Any, outcome: str, began_s: float) -> None:
        waiting = self.actor_inbox.qsize()  # type: ignore[attr-defined]
        operation = _operation(type(question))
        self._metrics.vault_answered(operation, outcome, time.perf_counter() - began_s, waiting)

    def _open(self, wanted: OpenOne) -> Opened:
        try:
            return self._vault.open(wanted.owner, wanted.name)
        except VaultRefusal as refusal:
            return str(refusal)
        except sqlite3.Error as error:
            _log.error("vault_disk_failed", error=type(error).__name__, detail=str(error))
            return _DISK

    def _keep(self, wanted: KeepGrant) -> Kept:
        vault, place = self._vault, wanted.place
        try:
            if isinstance(place, int):
                return vault.renew_grant(wanted.owner, wanted.name, place, wanted.grant)
            return vault.put_grant(wanted.owner, wanted.name, place, wanted.grant)
        except VaultRefusal as refusal:
            return str(refusal)
        except sqlite3.Error as error:
            _log.error("vault_disk_failed", error=type(error).__name__, detail=str(error))
            return _DISK

    def teardown(self) -> None:
        """Write what is pending."""
        try:
            self._vault.close()
        finally:
            self._ended()
