"""Connecting users' accounts: by a browser that comes back with a code, or by a device's code.

What is begun lives in this process's memory alone: begun before a restart, it is begun again.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic

import structlog

from core.audit.records import Auditor, Kind, Outcome, Record
from core.egress.messages import Ok, Refused
from core.egress.oauth_messages import (
    AskConnect,
    BeginConnect,
    ConnectBegun,
    ConnectSeen,
    ConnectTold,
    FinishConnect,
    Flow,
    ListOAuth,
    LookConnect,
    OAuthAnswer,
    OAuthInfo,
    OAuthListed,
    OAuthQuestion,
)
from core.egress.vault_access import VaultAccess, VaultUnavailable
from core.oauth.client import OAuthClient
from core.oauth.grant import DeviceCode, Grant, OAuthError, authorize_url, fresh_secret
from core.oauth.pending import BROWSER_LIFE_S, Pending, PendingTable, TooMany
from core.oauth.section import CALLBACK, OAuthSection
from core.vault.errors import VaultRefusal
from core.vault.terms import CredentialTerms, check_name, check_terms, is_client_secret, is_provider_key

_SLOWER_S = 5.0  # RFC 8628, 3.5
_LONGEST_INTERVAL_S = 60.0
_GONE = "this link is none, was used already, or is too old: begin again with `certosa credential connect`"
_log = structlog.get_logger(__name__)


class Connecting:
    """Answers core's questions. On the event loop.

    Args:
        sections: by name; ``public_url`` is hub.public_url. Both may be replaced by :meth:`use`.
        clock_s: a monotonic time.
        second_s: how long a second of a device's interval lasts here.
        mounts: names of a user's credentials that lie in their jail as files, as no account can.
    """

    def __init__(
        self,
        vault: VaultAccess,
        client: OAuthClient,
        auditor: Auditor,
        sections: Mapping[str, OAuthSection],
        public_url: str,
        clock_s: Callable[[], float] = monotonic,
        second_s: float = 1.0,
        mounts: Callable[[str], tuple[str, ...]] = lambda _: (),
    ) -> None:
        self._mounts = mounts
        self._vault, self._client, self._auditor = vault, client, auditor
        self._clock_s, self._second_s = clock_s, second_s
        self._table = PendingTable()
        self._polls: set[asyncio.Task[None]] = set()
        self.use(sections, public_url)

    def use(self, sections: Mapping[str, OAuthSection], public_url: str) -> None:
        """Use another configuration, from the next question on."""
        self._sections, self._public_url = sections, public_url.rstrip("/")

    def forget(self, owner: str) -> None:
        """A user is removed: what they began comes to nothing."""
        self._table.drop(owner)

    def stop(self) -> list["asyncio.Task[None]"]:
        """Ask no server any more; what is then to be waited for."""
        for task in self._polls:
            task.cancel()
        return list(self._polls)

    async def answer(self, question: OAuthQuestion) -> OAuthAnswer | Ok | Refused:
        """Answer one question."""
        try:
            match question:
                case BeginConnect():
                    return await self._begin(question)
                case AskConnect(id, owner, name):
                    found = self._table.get(owner, name, self._clock_s())
                    if found is None:
                        return Refused(id, f"{name} is not being connected")
                    return ConnectTold(id, found.provider, found.status, found.message)
                case LookConnect(id, provider, state):
                    waits = self._table.look(provider, state, self._clock_s())
                    return Refused(id, _GONE) if waits is None else ConnectSeen(id, waits.owner, waits.name)
                case FinishConnect():
                    return await self._finish(question)
                case ListOAuth(id, owner):
                    return OAuthListed(id, await self._list(owner))
        except (OAuthError, VaultUnavailable, VaultRefusal, TooMany) as error:
            return Refused(question.id, str(error))

    # -- beginning ----------------------------------------------------------------------------------

    async def _begin(self, ask: BeginConnect) -> ConnectBegun:
        section = self._sections.get(ask.provider)
        if section is None or not section.admits(ask.owner):
            raise VaultRefusal(
                f"there is no {ask.provider[:64]!r} to connect with; `certosa oauth list` names what there is"
            )
        terms, flow = self._terms(ask, section), self._flow(ask, section)
        scopes = ask.scopes or section.scopes
        if ask.name in self._mounts(ask.owner):
            raise VaultRefusal(_mounted(ask.name))
        if strange := set(scopes) - set(section.scopes):
            raise VaultRefusal(f"scopes: {ask.provider} may not be asked for {', '.join(sorted(strange))}")
        self._table.admit(ask.owner, self._clock_s())
        pending = Pending(ask.owner, ask.name, ask.provider, flow, terms, scopes, 0.0)
        if flow == "browser":
            return self._begin_browser(ask.id, section, pending)
        code = await self._client.begin_device(ask.provider, section, scopes)
        return self._begin_device(ask.id, section, pending, code)

    def _begin_browser(self, id: int, section: OAuthSection, pending: Pending) -> ConnectBegun:
        state, pending.verifier = fresh_secret(), fresh_secret()
        pending.redirect_uri = self._public_url + CALLBACK.format(provider=pending.provider)
        now_s = self._clock_s()
        pending.until_s = now_s + BROWSER_LIFE_S
        self._table.add(pending, state, now_s)
        url = authorize_url(section, pending.redirect_uri, pending.scopes, state, pending.verifier)
        return ConnectBegun(id, "browser", url, "", int(BROWSER_LIFE_S))

    def _begin_device(
        self, id: int, section: OAuthSection, pending: Pending, code: DeviceCode
    ) -> ConnectBegun:
        now_s = self._clock_s()
        pending.until_s = now_s + code.expires_in_s * self._second_s
        self._table.add(pending, "", now_s)
        task = asyncio.get_running_loop().create_task(self._poll(section, pending, code))
        self._polls.add(task)
        task.add_done_callback(self._polls.discard)
        return ConnectBegun(id, "device", code.url, code.user_code, code.expires_in_s)

    @staticmethod
    def _terms(ask: BeginConnect, section: OAuthSection) -> CredentialTerms:
        if is_provider_key(ask.name) or is_client_secret(ask.name):
            raise VaultRefusal("such a name is for keys, which are set: choose another")
        host = ask.host or section.hosts[0]
        if host not in section.hosts:
            raise VaultRefusal(f"host: tokens of {ask.provider} go to {', '.join(section.hosts)} alone")
        terms = CredentialTerms(kind="oauth2", host=host, path=ask.path)
        check_name(ask.name)
        check_terms(ask.name, terms)
        return terms

    def _flow(self, ask: BeginConnect, section: OAuthSection) -> Flow:
        flows = self._flows(section)
        if not flows:
            raise VaultRefusal(
                "a browser could not come back: have the operator set hub.public_url, the address at which"
                " browsers reach this server"
            )
        if ask.flow is not None and ask.flow not in flows:
            raise VaultRefusal(f"{ask.provider} cannot be connected by {ask.flow} here")
        return ask.flow or flows[0]

    def _flows(self, section: OAuthSection) -> tuple[Flow, ...]:
        browser: tuple[Flow, ...] = ("browser",) if section.authorize_url and self._public_url else ()
        return (*browser, "device") if section.device_url else browser

    async def _list(self, owner: str) -> tuple[OAuthInfo, ...]:
        found = []
        for name, section in sorted(self._sections.items()):
            if owner and not section.admits(owner):
                continue
            ready = section.client_auth == "none" or await self._vault.open("", f"oauth:{name}") is not None
            found.append(OAuthInfo(name, self._flows(section), section.hosts, section.scopes, ready))
        return tuple(found)

    # -- finishing ----------------------------------------------------------------------------------

    async def _finish(self, ask: FinishConnect) -> Ok | Refused:
        pending = self._table.take(ask.provider, ask.state, self._clock_s())
        if pending is None:
            return Refused(ask.id, _GONE)
        section = self._sections.get(ask.provider)
        if section is None:
            self._fail(pending, f"{ask.provider} is not in this server's configuration any more")
        elif ask.error or not ask.code:
            # the browser's word, so anybody's: not repeated
            said = "refused by its owner" if ask.error == "access_denied" else "refused by the provider"
            self._fail(pending, f"it was {said}: nothing was connected")
        else:
            await self._exchange(section, pending, ask.code)
        return Ok(ask.id) if pending.status == "done" else Refused(ask.id, pending.message)

    async def _exchange(self, section: OAuthSection, pending: Pending, code: str) -> None:
        try:
            grant = await self._client.exchange(
                pending.provider, section, code, pending.verifier, pending.redirect_uri
            )
        except OAuthError as error:
            self._fail(pending, str(error))
        else:
            await self._keep(pending, grant)

    async def _poll(self, section: OAuthSection, pending: Pending, code: DeviceCode) -> None:
        interval_s = code.interval_s
        while self._table.is_current(pending):
            await asyncio.sleep(interval_s * self._second_s)
            if self._clock_s() >= pending.until_s:
                self._fail(pending, "the code has run out: begin again")
                return
            try:
                grant = await self._client.poll_device(pending.provider, section, code.device_code)
            except OAuthError as error:
                if error.code == "slow_down":
                    interval_s += _SLOWER_S
                elif error.code == "unreachable":
                    interval_s = min(2 * interval_s, _LONGEST_INTERVAL_S)
                elif error.code != "authorization_pending":
                    self._fail(pending, _device_refusal(error))
                    return
            else:
                await self._keep(pending, grant)
                return

    async def _keep(self, pending: Pending, grant: Grant) -> None:
        if not self._table.is_current(pending):
            # what nobody waits for is not kept
            self._fail(pending, "it was begun anew meanwhile: go on with that one")
            return
        if pending.name in self._mounts(pending.owner):
            # since it began; the key that lies there by that name would be lost
            self._fail(pending, _mounted(pending.name))
            return
        try:
            await self._vault.keep_grant(pending.owner, pending.name, pending.terms, grant)
        except VaultUnavailable as error:
            self._fail(pending, f"it could not be kept: {error}")
            return
        self._table.settle(pending, "done", "", self._clock_s())
        _log.info(
            "grant_kept", user=pending.owner, credential=pending.name, provider=pending.provider
        )  # fmt: skip
        self._note(pending, "credential_set", "done", f"connected with {pending.provider}")

    def _fail(self, pending: Pending, message: str) -> None:
        self._table.settle(pending, "failed", message, self._clock_s())
        _log.warning(
            "not_connected", user=pending.owner, credential=pending.name, provider=pending.provider
        )  # fmt: skip
        self._note(pending, "credential_refused", "refused", f"not connected with {pending.provider}")

    def _note(self, pending: Pending, kind: Kind, outcome: Outcome, detail: str) -> None:
        self._auditor.note(Record(kind, outcome, user=pending.owner, on=pending.name, detail=detail))


def _mounted(name: str) -> str:
    return (
        f"{name} is, by the operator's configuration, a key that lies in your jail as a file; an"
        " account's token changes and cannot: choose another name"
    )


def _device_refusal(error: OAuthError) -> str:
    if error.code == "access_denied":
        return "it was refused by its owner: nothing was connected"
    if error.code == "expired_token":
        return "the code has run out: begin again"
    return str(error)
