"""Connections that were begun and are not done: bounded, forgotten in time, found by their state once.

Pure. A state is kept as a hash, is its user's and its provider's, and counts once.
"""

import hashlib
from collections import deque
from dataclasses import dataclass

from core.egress.oauth_messages import ConnectStatus, Flow
from core.vault.terms import CredentialTerms

BROWSER_LIFE_S = 600.0
_SHOWN_S = 600.0
"""How long what came of one can be asked."""
_MAX_PER_OWNER = 8
_MAX = 2_000
_MAX_BEGUN, _BEGUN_WITHIN_S = 30, 600.0


@dataclass(slots=True, repr=False)
class Pending:
    """One. ``until_s`` is monotonic; what it is depends on ``status``: when it lapses, or is forgotten."""

    owner: str
    name: str
    provider: str
    flow: Flow
    terms: CredentialTerms
    scopes: tuple[str, ...]
    until_s: float
    verifier: str = ""
    redirect_uri: str = ""
    status: ConnectStatus = "waiting"
    message: str = ""


class TooMany(Exception):
    """There is no room for another; the message is for whoever began it."""


class PendingTable:
    """The connections. A credential has one at a time: another takes the place of the one before."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], Pending] = {}
        self._by_state: dict[bytes, Pending] = {}
        self._begun: dict[str, deque[float]] = {}

    def admit(self, owner: str, now_s: float) -> None:
        """Before anything is begun: nobody makes this server ask others without end. Raises TooMany."""
        for known, times in list(self._begun.items()):
            while times and times[0] <= now_s - _BEGUN_WITHIN_S:
                times.popleft()
            if not times:
                del self._begun[known]
        times = self._begun.setdefault(owner, deque())
        if len(times) >= _MAX_BEGUN:
            raise TooMany("you began to connect accounts too often; try again in ten minutes")
        times.append(now_s)

    def add(self, pending: Pending, state: str, now_s: float) -> None:
        """Keep one; ``state`` is empty for a device's. Raises TooMany."""
        self._sweep(now_s)
        self.drop(pending.owner, pending.name)
        if len(self._of) >= _MAX:
            raise TooMany("too many accounts are being connected on this server; try again in ten minutes")
        if sum(owner == pending.owner for owner, _ in self._of) >= _MAX_PER_OWNER:
            raise TooMany(f"you are connecting {_MAX_PER_OWNER} accounts already; finish some, or wait")
        self._of[pending.owner, pending.name] = pending
        if state:
            self._by_state[_digest(state)] = pending

    def get(self, owner: str, name: str, now_s: float) -> Pending | None:
        """What was begun, or came of it, of late."""
        self._sweep(now_s)
        return self._of.get((owner, name))

    def look(self, provider: str, state: str, now_s: float) -> Pending | None:
        """The one that waits for this state to come back from this provider; it waits on."""
        self._sweep(now_s)
        found = self._by_state.get(_digest(state))
        return found if found is not None and found.provider == provider else None

    def take(self, provider: str, state: str, now_s: float) -> Pending | None:
        """The same, for good: the state is none any more."""
        found = self.look(provider, state, now_s)
        if found is not None:
            del self._by_state[_digest(state)]
        return found

    def is_current(self, pending: Pending) -> bool:
        """Whether no other has taken its place."""
        return self._of.get((pending.owner, pending.name)) is pending

    def settle(self, pending: Pending, status: ConnectStatus, message: str, now_s: float) -> None:
        """It came to an end."""
        pending.status, pending.message, pending.until_s = status, message, now_s + _SHOWN_S
        pending.verifier = ""

    def drop(self, owner: str, name: str | None = None) -> None:
        """Forget a credential's, or all of an owner's."""
        for key in [key for key in self._of if key[0] == owner and name in (None, key[1])]:
            self._remove(self._of[key])

    def _sweep(self, now_s: float) -> None:
        for pending in [one for one in self._of.values() if now_s >= one.until_s]:
            if pending.status == "waiting" and pending.flow == "browser":
                self._forget_state(pending)
                self.settle(pending, "failed", "nobody came back in time: begin again", now_s)
            elif pending.status != "waiting":
                self._remove(pending)

    def _remove(self, pending: Pending) -> None:
        self._forget_state(pending)
        del self._of[pending.owner, pending.name]

    def _forget_state(self, pending: Pending) -> None:
        for digest in [digest for digest, one in self._by_state.items() if one is pending]:
            del self._by_state[digest]


def _digest(state: str) -> bytes:
    # looked up by hash: what the table's timing tells is about a hash nobody can steer
    return hashlib.sha256(state.encode()).digest()
