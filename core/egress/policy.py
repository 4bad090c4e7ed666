"""Who may ask for what outside: nobody for anything, unless rules say so. Pure."""

import ipaddress
from collections.abc import Iterable, Sequence
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

    def decide(
        self, user: str, origin: str, method: str, target: Target, own: Sequence[EgressRule]
    ) -> Decision:
        """Whether ``origin`` of ``user``'s may make this request, given the user's own rules."""

        def fitting(rules: Iterable[OpenRule]) -> list[OpenRule]:
            return [rule for rule in rules if is_for(rule, user) and fits(rule, origin, method, target)]

        if allowed := fitting(self._allow):
            return Decision(True, networks=_networks(allowed))
        below = fitting(self._ceiling)
        wanted = any(fits(rule, origin, method, target) for rule in own)
        if wanted and below:
            return Decision(True, networks=_networks(below))
        return Decision(False, _why(origin, method, target, wanted, bool(below)))


def is_for(rule: OpenRule, user: str) -> bool:
    """Whether an operator's rule speaks of this user."""
    return rule.users is None or user in rule.users


def fits(rule: EgressRule, origin: str, method: str, target: Target) -> bool:
    """Whether a rule speaks of this request."""
    port = rule.port or (443 if rule.scheme == "https" else 80)
    return (
        rule.origin == origin
        and rule.scheme == target.scheme
        and port == target.port
        and method in rule.methods
        and _is_host(rule.host, target.host)
        and target.is_below(rule.path)
    )


def _why(origin: str, method: str, target: Target, wanted: bool, below: bool) -> str:
    """What rule is missing, as it would be written."""
    asked = f"{method} {target.without_query[:300]}"
    if wanted:
        return (
            f"your own rule allows {asked}, but the operator's ceiling does not: ask the operator for an"
            " [[egress.ceiling]] that covers it"
        )
    if not below:
        return (
            f"no rule lets the {origin} {asked}, and a rule of its user's could not: ask the operator for an"
            f' [[egress.allow]] or [[egress.ceiling]] with host = "{_host(target)}"'
        )
    port = "" if target.port == (443 if target.scheme == "https" else 80) else f" --port {target.port}"
    http = " --http" if target.scheme == "http" else ""
    return (
        f"no rule lets the {origin} {asked}: its user may add one with"
        f" `certosa egress allow {_host(target)}{port}{http} --methods {method}`"
    )


def _host(target: Target) -> str:
    return f"[{target.host}]" if ":" in target.host else target.host


def _networks(rules: Iterable[OpenRule]) -> tuple[Network, ...]:
    """What operator's rules open beyond public addresses."""
    return tuple(ipaddress.ip_network(text) for rule in rules for text in rule.networks)


def _is_host(pattern: str, host: str) -> bool:
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern[1:])
    return host == pattern.strip("[]")
