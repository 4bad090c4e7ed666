"""Who may ask for what outside: nobody for anything, unless rules say so. Pure."""

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from core.config import EgressRule, EgressSection, OpenRule
from core.egress.addresses import Network
from core.egress.target import Target


class Decision(NamedTuple):
    """Whether a request may go out, and to which networks beside public ones."""

    allowed: bool
    why: str = ""
    networks: tuple[Network, ...] = ()


class Policy:
    """The operator's rules, and how a user's own stand below them.

    A request may go out where an ``allow`` of the operator's for this user fits it, or where one of the
    user's own rules and one of the operator's ``ceiling`` both do.
    """

    def __init__(self, section: EgressSection) -> None:
        self._allow = section.allow
        self._ceiling = section.ceiling

    def decide(self, user: str, method: str, target: Target, own: Sequence[EgressRule]) -> Decision:
        """Whether ``user`` may make this request, given the user's own rules."""
        for rule in self._allow:
            if (rule.users is None or user in rule.users) and fits(rule, method, target):
                return Decision(True, networks=networks(rule))
        wanted = any(fits(rule, method, target) for rule in own)
        for rule in self._ceiling:
            if (rule.users is None or user in rule.users) and fits(rule, method, target):
                if wanted:
                    return Decision(True, networks=networks(rule))
                return Decision(
                    False, f"no rule of yours lets {method} go to this place: `certosa egress allow` adds one"
                )
        if wanted:
            return Decision(False, "your rule allows it, but the operator's ceiling does not")
        return Decision(False, f"no rule lets {method} go to this place: ask the operator")


def fits(rule: EgressRule, method: str, target: Target) -> bool:
    """Whether a rule speaks of this request."""
    port = rule.port or (443 if rule.scheme == "https" else 80)
    return (
        rule.scheme == target.scheme
        and port == target.port
        and method in rule.methods
        and _is_host(rule.host, target.host)
        and target.is_below(rule.path)
    )


def networks(rule: OpenRule) -> tuple[Network, ...]:
    """What an operator's rule opens beyond public addresses."""
    return tuple(ipaddress.ip_network(text) for text in rule.networks)


def _is_host(pattern: str, host: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern[1:])
    return host == pattern.strip("[]")
