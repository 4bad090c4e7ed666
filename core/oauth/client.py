"""Asking authorization servers: a form posted, its answer read within limits.

The rules are those of requests to model servers: addresses are the operator's, TLS is verified, no
redirect is followed, no proxy or cookie of the environment's counts, and what a server says is cut
and cleaned of secrets before anybody reads it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import time
from urllib.parse import quote, quote_plus

import aiohttp
import msgspec

from core.egress.failures import sanitise
from core.egress.secret import Secret, Striker
from core.oauth.grant import DeviceCode, Grant, OAuthError, basic, error_code, parse_device, parse_tokens
from core.oauth.section import OAuthSection

_ANSWER_S = 15.0
"""For all of one request: below what core waits for an answer of ours."""
_MAX_ANSWER_BYTES = 64 << 10
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"

FindSecret = Callable[[str], Awaitable[Secret | None]]
"""A provider's name to its client's secret in the vault."""


class OAuthClient:
    """One HTTP client for all authorization servers. Make it within a running event loop.

    Args:
        secret: finds a client's secret.
        answer_s: how long one answer may take, in seconds.
        wall_s: the time as Unix seconds.

    Every method raises OAuthError.
    """

    def __init__(
        self, secret: FindSecret, answer_s: float = _ANSWER_S, wall_s: Callable[[], float] = time
    ) -> None:
        self._secret = secret
        self._answer_s = answer_s
        self._wall_s = wall_s
        self._session = aiohttp.ClientSession(
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "certosa",
            },
            connector=aiohttp.TCPConnector(limit=64, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def exchange(
        self, name: str, section: OAuthSection, code: str, verifier: str, redirect_uri: str
    ) -> Grant:
        """An authorization code for a grant (RFC 6749, 4.1.3; RFC 7636, 4.5)."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": verifier,
        }
        return await self._tokens(name, section, form, (code, verifier))

    async def renew(self, section: OAuthSection, grant: Grant) -> Grant:
        """The next grant (RFC 6749, 6); its refresh token may be another one."""
        form = {"grant_type": "refresh_token", "refresh_token": grant.refresh}
        return await self._tokens(grant.provider, section, form, (grant.refresh, grant.access), grant.refresh)

    async def begin_device(self, name: str, section: OAuthSection, scopes: tuple[str, ...]) -> DeviceCode:
        """A code for a person to type in elsewhere (RFC 8628, 3.1)."""
        form = {"scope": " ".join(scopes)} if scopes else {}
        return parse_device(name, await self._post(name, section, section.device_url, form, ()))

    async def poll_device(self, name: str, section: OAuthSection, device_code: str) -> Grant:
        """Whether the person did it; OAuthError ``authorization_pending`` or ``slow_down`` until then."""
        form = {"grant_type": _DEVICE_GRANT, "device_code": device_code}
        return await self._tokens(name, section, form, (device_code,))

    async def _tokens(
        self,
        name: str,
        section: OAuthSection,
        form: Mapping[str, str],
        secrets: tuple[str, ...],
        before: str = "",
    ) -> Grant:
        data = await self._post(name, section, section.token_url, form, secrets)
        return parse_tokens(name, data, self._wall_s(), before)

    async def _post(
        self, name: str, section: OAuthSection, url: str, form: Mapping[str, str], secrets: tuple[str, ...]
    ) -> bytes:
        """The body of an answer that is no error."""
        headers, sent = {}, dict(form)
        if section.client_auth != "basic":
            sent["client_id"] = section.client_id
        if section.client_auth != "none":
            secret = await self._secret(name)
            if secret is None:
                raise OAuthError(
                    "no_secret", f"the vault has no client secret for {name}: have the operator set it"
                )
            secrets = (*secrets, secret.reveal())
            if section.client_auth == "basic":
                headers["Authorization"] = basic(section.client_id, secret.reveal())
                # an answer may bring it back as it was sent
                secrets = (*secrets, headers["Authorization"].removeprefix("Basic "))
            else:
                sent["client_secret"] = secret.reveal()
        try:
            async with asyncio.timeout(self._answer_s):
                status, data = await self._exchange(name, url, sent, headers)
        except TimeoutError:
            raise OAuthError(
                "unreachable", f"{name} did not answer in {self._answer_s:g} s; try again"
            ) from None
        except aiohttp.ClientError as error:
            # "from None": these carry our request, and that the secrets
            raise OAuthError(
                "unreachable", f"{name} cannot be reached ({type(error).__name__}); try again"
            ) from None
        if status == 200 and not error_code(data):
            return data
        forms = {form for text in secrets if text for form in (text, quote(text, safe=""), quote_plus(text))}
        raise _refusal(name, status, data, Striker(Secret(text) for text in forms))

    async def _exchange(
        self, name: str, url: str, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        async with self._session.post(url, data=form, headers=headers, allow_redirects=False) as response:
            body = bytearray()
            async for data in response.content.iter_any():
                body += data
                if len(body) > _MAX_ANSWER_BYTES:
                    raise OAuthError(
                        "bad_answer", f"{name} sent more than {_MAX_ANSWER_BYTES} bytes in one answer"
                    )
            return response.status, bytes(body)


def _refusal(name: str, status: int, data: bytes, striker: Striker) -> OAuthError:
    code = error_code(data) or ("unreachable" if status >= 500 or status == 429 else "bad_answer")
    detail = _description(data, striker)
    said = f" It said: {detail}" if detail else ""
    if code == "invalid_client":
        return OAuthError(
            code, f"{name} does not know this server by its client id and secret: tell the operator.{said}"
        )
    if 300 <= status < 400:
        return OAuthError(code, f"{name} sent us elsewhere (HTTP {status}), which is not followed.")
    return OAuthError(code, f"{name} refused ({striker.clean(code)}, HTTP {status}).{said}")


def _description(data: bytes, striker: Striker) -> str:
    """What the server says for people: RFC 6749's error_description, or what else it has."""
    try:
        said = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        text = msgspec.json.decode(said["error_description"], type=str)[:_MAX_ANSWER_BYTES]
    except (msgspec.MsgspecError, UnicodeError, RecursionError, KeyError):
        return ""
    return sanitise(text, striker)
