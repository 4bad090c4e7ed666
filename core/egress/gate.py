"""Whether a fetch's request may go where it wants to, and with which credentials; each answer is audited."""

from collections.abc import Sequence
from typing import Literal

from core.audit.records import Record
from core.egress.addresses import Address
from core.egress.dialing import checked_addresses
from core.egress.fetch_messages import FetchStart
from core.egress.fetch_stream import FetchError
from core.egress.outside import Outside
from core.egress.placeholders import Filled, Header, PlaceholderError, fill, names_in, values_of
from core.egress.target import Target
from core.vault.cabinet import Credential


class Gate:
    """One fetch's."""

    def __init__(self, ask: FetchStart, outside: Outside) -> None:
        self._ask, self._outside = ask, outside
        self._credentials: dict[str, Credential] = {}

    @property
    def values(self) -> frozenset[str]:
        """What is to be struck out of the answer."""
        return values_of(self._credentials.values()) | self._outside.sent.of(self._ask.user)

    async def addresses(self, method: str, target: Target) -> list[Address]:
        """Where a hop may connect to. Raises FetchError where policy or address refuse it."""
        ask, outside = self._ask, self._outside
        own = await outside.rules(ask.user)
        decision = outside.policy.decide(ask.user, ask.origin, method, target, own)
        if not decision.allowed:
            self._note("egress_refused", target, f"{method}: no rule")
            raise FetchError("refused", decision.why)
        try:
            found = await checked_addresses(
                ask.user, target, decision.networks, outside.resolve, outside.section.connect_s
            )
        except FetchError as error:
            refused = error.failure.code == "refused"
            self._note("egress_refused", target, f"{method}: {'address' if refused else 'name'}")
            raise
        self._note("egress_allowed", target, f"{method} to {found[0]}")
        return found

    async def fill(self, target: Target, headers: Sequence[Header]) -> Filled:
        """The request with the values in it. Raises PlaceholderError where one does not belong there."""
        user = self._ask.user
        try:
            names = names_in(target, headers)
            used = [await self._open(name) for name in names]
            if used and any(name.lower() == "range" for name, _ in headers):
                # the parts of a value in several answers would be no value in any of them
                raise PlaceholderError("a request with a credential asks for no Range", names[0])
            filled = fill(target, headers, used)
        except PlaceholderError as error:
            on = error.credential
            detail = f"for {target.scheme}://{target.host}:{target.port}"
            self._outside.auditor.note(
                Record("credential_refused", "refused", user=user, on=on, detail=detail)
            )
            raise
        for credential in used:
            detail = f"{target.scheme}://{target.host}:{target.port}"
            self._outside.auditor.note(
                Record("credential_used", "done", user=user, on=credential.name, detail=detail)
            )
        self._outside.sent.note(user, values_of(used))
        return filled

    async def _open(self, name: str) -> Credential:
        found = await self._outside.credentials(self._ask.user, name) if ":" not in name else None
        if found is None:
            raise PlaceholderError(
                f"there is no credential {name!r}: `certosa credential list` shows what there is", name
            )
        # the one of an earlier hop stays known: what was sent is struck out, renewed or not
        self._credentials.setdefault(f"{name} {len(self._credentials)}", found)
        return found

    def _note(self, kind: Literal["egress_allowed", "egress_refused"], target: Target, detail: str) -> None:
        ask = self._ask
        outcome: Literal["allowed", "refused"] = "allowed" if kind == "egress_allowed" else "refused"
        on = f"{target.scheme}://{target.host}:{target.port}"
        detail = f"{ask.origin} {detail}, {ask.turn}"
        self._outside.auditor.note(Record(kind, outcome, user=ask.user, on=on, detail=detail))
