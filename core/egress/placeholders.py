"""``{{credential:NAME}}`` in a request: found, checked against the credential's terms, and filled in.

A placeholder is filled in only where its credential says: in one header, one parameter of the query, or
as basic authentication, on the way to one host, port and path prefix. Anywhere else the request is
refused: a body or a path with one in it would hand the value to whoever can read it back.
"""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from core.egress.secret import Secret
from core.egress.target import Target
from core.errors import CoreError
from core.vault.cabinet import Credential

_FOUND = re.compile(r"\{\{credential:([^{}]{0,64})\}\}")
_BEGUN = re.compile(r"\{\{\s*credential", re.IGNORECASE)
MARK = b"{{credential:"
Header = tuple[str, str]


class PlaceholderError(CoreError):
    """The request is refused; the message says what is wrong with its placeholder.

    ``credential`` is the name in it, or empty.
    """

    def __init__(self, message: str, credential: str = "") -> None:
        super().__init__(message)
        self.credential = credential


class Filled(NamedTuple):
    """A request with values in it."""

    target: Target
    headers: tuple[Header, ...]
    secret_headers: frozenset[str]
    """Names, in lower case, of headers that hold a value."""

    def __repr__(self) -> str:
        return "Filled()"


def has_mark(text: str) -> bool:
    """Whether anything like a placeholder is in a text."""
    return _BEGUN.search(unquote(text)) is not None


def names_in(target: Target, headers: Iterable[Header]) -> list[str]:
    """The credentials that a request names. Raises PlaceholderError where none may stand."""
    _refuse(target.path, "the path")
    names: list[str] = []
    for name, value in headers:
        _refuse(name, "a header's name")
        names += _names(value)
    for part in (target.query or "").split("&"):
        key, _, value = part.partition("=")
        _refuse(key, "the name of a query parameter")
        names += _names(unquote(value))
    return list(dict.fromkeys(names))


def fill(target: Target, headers: Sequence[Header], credentials: Sequence[Credential]) -> Filled:
    """Put the values in. Raises PlaceholderError where terms do not fit."""
    known = {credential.name: credential for credential in credentials}
    for credential in credentials:
        _check_bound(credential, target)
    filled: list[Header] = []
    secret: set[str] = set()
    for name, value in headers:
        names = _names(value)
        if names:
            secret.add(name.lower())
            value = _fill_header(name, value, [known[one] for one in names])
        filled.append((name, value))
    return Filled(_fill_query(target, known), tuple(filled), frozenset(secret))


def values_of(credentials: Iterable[Credential]) -> frozenset[str]:
    """What has to be struck out of the answer."""
    found: set[str] = set()
    for credential in credentials:
        found.add(credential.secret.reveal())
        if credential.terms.place == "basic":
            found.add(_basic(credential.terms.username, credential.secret))
    return frozenset(found)


class BodyGuard:
    """Refuses a body with a placeholder in it, also where its pieces part one."""

    def __init__(self) -> None:
        self._tail = b""

    def check(self, data: bytes) -> None:
        """Look at the next piece. Raises PlaceholderError."""
        joined = self._tail + data
        if MARK in joined:
            raise _misplaced("the body")
        self._tail = joined[-(len(MARK) - 1) :]


def _names(text: str) -> list[str]:
    names = _FOUND.findall(text)
    if len(_BEGUN.findall(unquote(text))) != len(names):
        raise PlaceholderError("a placeholder is written {{credential:NAME}}, with nothing else in it")
    return names


def _refuse(text: str, where: str) -> None:
    if has_mark(text):
        raise _misplaced(where)


def _misplaced(where: str) -> PlaceholderError:
    return PlaceholderError(
        f"a credential's placeholder stands in {where}: it may stand in a header's value or a query"
        " parameter's, as the credential says"
    )


def _check_bound(credential: Credential, target: Target) -> None:
    terms = credential.terms
    bound = (terms.scheme, terms.host.strip("[]"), terms.port_number)
    if target.origin != bound:
        raise PlaceholderError(
            f"the credential {credential.name} is not for this scheme, host and port", credential.name
        )
    if not target.is_below(terms.path):
        raise PlaceholderError(f"the credential {credential.name} is not for this path", credential.name)


def _fill_header(name: str, value: str, credentials: Sequence[Credential]) -> str:
    for credential in credentials:
        terms = credential.terms
        if terms.place == "query" or terms.parameter.lower() != name.lower():
            raise PlaceholderError(
                f"the credential {credential.name} does not go into the header {name[:64]}", credential.name
            )
        mark = f"{{{{credential:{credential.name}}}}}"
        if terms.place == "basic":
            if value.strip() != f"Basic {mark}":
                raise PlaceholderError(
                    f"the credential {credential.name} goes into `Authorization: Basic {mark}` alone",
                    credential.name,
                )
            return f"Basic {_basic(terms.username, credential.secret)}"
        value = value.replace(mark, credential.secret.reveal())
    return value


def _fill_query(target: Target, known: dict[str, Credential]) -> Target:
    if target.query is None:
        return target
    parts: list[str] = []
    for part in target.query.split("&"):
        key, _, value = part.partition("=")
        names = _names(unquote(value))
        if not names:
            # what is left of braces is no placeholder
            parts.append(part.replace("{", "%7B").replace("}", "%7D"))
            continue
        terms = known[names[0]].terms
        if (
            terms.place != "query"
            or unquote(key) != terms.parameter
            or _FOUND.fullmatch(unquote(value)) is None
        ):
            raise PlaceholderError(
                f"the credential {names[0]} does not go into this query parameter, or has text beside it",
                names[0],
            )
        parts.append(f"{key}={quote(known[names[0]].secret.reveal(), safe='')}")
    return target._replace(query="&".join(parts))


def _basic(username: str, password: Secret) -> str:
    return base64.b64encode(f"{username}:{password.reveal()}".encode()).decode()
