"""What every fetch needs of the egress process around it."""

import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from core.audit.records import Auditor
from core.config import EgressRule, EgressSection
from core.egress.policy import Policy
from core.egress.resolving import Resolve
from core.egress.vault_access import OpenCredential
from core.ledger.metering import Met, Meter

OwnRules = Callable[[str], Awaitable[Sequence[EgressRule]]]
"""A user to the user's own rules; raises VaultUnavailable."""
_MAX_USERS = 1_000
_MAX_VALUES = 16


class SentValues:
    """Values that went out lately, by user: a server may keep what it got and give it back later.

    The latest 16 of each of the latest 1,000 users; what a process ended took with it is not known.
    """

    def __init__(self) -> None:
        self._by_user: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def note(self, user: str, values: Iterable[str]) -> None:
        """These go out now."""
        known = self._by_user.setdefault(user, OrderedDict())
        self._by_user.move_to_end(user)
        for value in values:
            known[value] = None
            known.move_to_end(value)
        while len(known) > _MAX_VALUES:
            known.popitem(last=False)
        while len(self._by_user) > _MAX_USERS:
            self._by_user.popitem(last=False)

    def forget(self, user: str) -> None:
        """A user is removed."""
        self._by_user.pop(user, None)

    def of(self, user: str) -> frozenset[str]:
        """What has to be struck out of this user's answers."""
        return frozenset(self._by_user.get(user, ()))

    def __repr__(self) -> str:
        return "SentValues()"


class Outside(NamedTuple):
    """The process, as a fetch sees it.

    Args:
        credentials: the value to send now, by owner and name; each use asks anew.
        limit_met: told a fetch's id and a limit of its user's that it met.
        tls: what servers' certificates are verified with; None: the system's authorities.
    """

    section: EgressSection
    policy: Policy
    credentials: OpenCredential
    rules: OwnRules
    resolve: Resolve
    meter: Meter
    auditor: Auditor
    limit_met: Callable[[int, Met], None]
    sent: SentValues
    tls: ssl.SSLContext | None = None
