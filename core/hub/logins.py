"""Limits on wrong tokens: who guesses has to wait, and longer each time. Decisions only, no clock of its own.

A token has 256 random bits, so nobody guesses one; what is limited is the work and the noise that
trying makes, and whoever tries tokens that leaked elsewhere.

- An address may send ``free`` wrong tokens. Each further one makes it wait: ``first_wait_s``, then twice
  as long, up to ``longest_wait_s``; meanwhile what it sends is refused unseen.
- A token's public id that was tried wrongly ``free`` times, from wherever, makes every address that
  tries it wrongly again wait at once: guessing one token from many addresses gains nothing.
- The right token from another address is let in whatever others did; so is one that this address used
  rightly before, so that a neighbour behind the same router or proxy locks nobody out.

Memory is bounded: past ``most`` entries the one that failed longest ago is forgotten.
"""

import hashlib
import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

from core.config import AccessSection
from core.vault.tokens import public_id

_MOST = 10_000
_HARD_EXPONENT = 40  # 2**40 times any wait is past any limit


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last_s: float = 0.0
    until_s: float = 0.0


class FailedLogins:
    """Used on one thread.

    Args:
        limits: may be replaced at any time.
        most: addresses, ids and good pairs that are remembered, each.
    """

    def __init__(self, limits: AccessSection, most: int = _MOST) -> None:
        self.limits = limits
        self._most = most
        self._addresses: OrderedDict[str, _Failures] = OrderedDict()
        self._ids: OrderedDict[str, _Failures] = OrderedDict()
        self._good: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def wait_s(self, address: str, token: str, now_s: float) -> float:
        """How long this address has to wait before a token of its is looked at; 0: look at it."""
        found = self._addresses.get(address_group(address))
        if found is None or found.until_s <= now_s or _pair(address, token) in self._good:
            return 0.0
        return found.until_s - now_s

    def failed(self, address: str, token: str, now_s: float) -> float:
        """A token was wrong; returns how long the address has to wait now, 0 while failures are free."""
        limits = self.limits
        self._good.pop(_pair(address, token), None)
        tried = public_id(token)
        hunted = False
        if tried is not None:
            hunted = self._note(self._ids, tried, now_s).count > limits.free_failures
        failures = self._note(self._addresses, address_group(address), now_s)
        if hunted:
            failures.count = max(failures.count, limits.free_failures + 1)
        over = failures.count - limits.free_failures
        if over <= 0:
            return 0.0
        wait_s = min(limits.longest_wait_s, limits.first_wait_s * 2.0 ** min(over - 1, _HARD_EXPONENT))
        failures.until_s = now_s + wait_s
        return wait_s

    def succeeded(self, address: str, token: str) -> None:
        """A token was right. What the address did wrong stays counted: its neighbours may be guessing."""
        pair = _pair(address, token)
        self._good[pair] = None
        self._good.move_to_end(pair)
        if len(self._good) > self._most:
            self._good.popitem(last=False)

    def _note(self, table: OrderedDict[str, _Failures], key: str, now_s: float) -> _Failures:
        found = table.get(key)
        if found is None or now_s - found.last_s > self.limits.forget_s:
            found = table[key] = _Failures()
        table.move_to_end(key)
        if len(table) > self._most:
            table.popitem(last=False)
        found.count += 1
        found.last_s = now_s
        return found


def address_group(address: str) -> str:
    """Who shares an address: of IPv6 a customer has at least a /64."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return str(parsed.ipv4_mapped) if parsed.version == 6 else address


def _pair(address: str, token: str) -> tuple[str, bytes]:
    # a token is not kept; its hash tells nothing about 256 random bits
    return address_group(address), hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
