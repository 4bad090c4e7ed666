"""What the audit log records: closed kinds, bounded words, never a secret or a message's text."""

from typing import Any, Literal, Protocol, get_args

import msgspec

from core.errors import CoreError

CoreKind = Literal[
    "user_added", "user_deleted", "user_disabled", "user_enabled",
    "token_made", "token_revoked", "admin_token_made",
    "jail_evicted", "jail_ended", "jail_released", "pool_drained", "pool_opened",
    "provider_tested", "provider_set", "provider_removed", "oauth_set", "oauth_removed",
    "config_reloaded", "limits_set", "backup_made",
    # asked for over the API; egress adds what came of it
    "credential_changed", "key_rotated",
    "egress_rule_changed",  # by a user, or an administrator for one
    "jail_killed", "login_failed",
]  # fmt: skip
"""What core may report. Nothing else is taken from it: it cannot speak in egress's name."""

EgressKind = Literal[
    "server_started", "limit_reached", "egress_allowed", "egress_refused",
    "credential_set", "credential_deleted", "credential_used", "credential_refused", "credential_renewed",
    "credential_mounted",
    "egress_rule_added", "egress_rule_removed",
    "log_opened", "log_damaged", "log_gap",
]  # fmt: skip

Kind = CoreKind | EgressKind
Outcome = Literal["asked", "done", "failed", "allowed", "refused", "soft", "hard", "noted"]
"""``asked`` stands before an act and is on disk when it begins; ``done`` or ``failed`` follow."""

KINDS: frozenset[str] = frozenset((*get_args(CoreKind), *get_args(EgressKind)))
CORE_KINDS: frozenset[str] = frozenset(get_args(CoreKind))

_MOST = {"who": 64, "user": 32, "on": 256, "request": 64, "detail": 200}


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing that happened.

    ``who`` acted: ``user:NAME``, ``uid:NUMBER`` (of the command line), ``token:ID`` (of an
    administrator's), or empty for the server itself. ``user`` is whose affair it was, ``on`` the thing
    (a host, a credential's name, a token's id), ``request`` the id in the answer, ``detail`` a few
    bounded words of ours. Longer words are cut, unprintable ones replaced, when it is written.
    """

    kind: Kind
    outcome: Outcome
    who: str = ""
    user: str = ""
    on: str = ""
    request: str = ""
    detail: str = ""
    count: int = 1
    """How often, where alike ones were gathered into one."""


def bounded(record: Record) -> Record:
    """The record as it may be written."""
    changes: dict[str, Any] = {}
    for field, most in _MOST.items():
        text: str = getattr(record, field)
        # controls, zero widths, bidirectional overrides: what forges a line on a screen
        clean = "".join(c if c.isprintable() else "?" for c in text[:most])
        if clean != text:
            changes[field] = clean
    return msgspec.structs.replace(record, **changes) if changes else record


class AuditUnavailable(CoreError):
    """The record could not be written (a full disk?); what it was about must not be done."""


class Auditor(Protocol):
    """The log, as seen from the event loop of egress or any other thread of its."""

    def note(self, record: Record) -> None:
        """Record what happened; thread-safe, never blocks, never raises.

        On disk within a second. Where a user's records of a kind flood, alike ones are gathered; where
        it cannot be written, the loss is counted, logged, and recorded as ``log_gap`` later.
        """
        ...

    async def act(self, record: Record) -> None:
        """Record what is about to be done (outcome ``asked``); on disk on return.

        Raises AuditUnavailable: then it must not be done. On the event loop only.
        """
        ...
