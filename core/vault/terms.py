"""What a credential is and where it may go: said by its owner, checked here. Pure."""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from core.vault.errors import VaultRefusal

Kind = Literal["key", "basic", "oauth2"]
Place = Literal["header", "query", "basic"]

MIN_VALUE_CHARACTERS = 8
"""A shorter value could be a word of an answer, which could then not be struck out of it."""
MAX_VALUE_CHARACTERS = 4_096
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.ASCII)
_BY_NAME = re.compile(r"(?:provider|oauth):[A-Za-z0-9][A-Za-z0-9_.:/-]{0,95}", re.ASCII)
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}|\[[0-9a-f:.]+\]", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)  # RFC 9110, 5.6.2
_PARAMETER = re.compile(r"[A-Za-z0-9_.~-]{1,64}", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,1023}", re.ASCII)
_FORBIDDEN_HEADERS = frozenset({
    "host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect",
    "keep-alive", "accept-encoding", "proxy-connection", "range",
})  # fmt: skip


class CredentialTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What it is, and the one place it may be put into.

    Args:
        kind: ``key``, an API key or bearer token; ``basic``, a user's name and password; ``oauth2``, a
            grant that is kept fresh, whose access token is what is sent.
        host: the only host it is sent to, in lower case; empty for what its name says where it goes.
        port: the only port; 0 is the scheme's own.
        scheme: ``http`` only where its owner says so.
        path: the prefix of paths it is sent to, in whole segments.
        place: into a header, a parameter of the query, or ``Authorization: Basic``.
        parameter: the header's or the parameter's name.
        username: of ``basic``.
    """

    kind: Kind = "key"
    host: Annotated[str, Meta(max_length=253)] = ""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    scheme: Literal["https", "http"] = "https"
    path: Annotated[str, Meta(max_length=1_024)] = "/"
    place: Place = "header"
    parameter: Annotated[str, Meta(max_length=64)] = "Authorization"
    username: Annotated[str, Meta(max_length=256)] = ""

    @property
    def port_number(self) -> int:
        """The port itself."""
        return self.port or (443 if self.scheme == "https" else 80)


def is_provider_key(name: str) -> bool:
    """Whether a credential's name makes it the key of a model provider."""
    return name.startswith("provider:")


def is_client_secret(name: str) -> bool:
    """Whether a credential's name makes it this server's own secret at an authorization server."""
    return name.startswith("oauth:")


def check_name(name: str) -> None:
    """Raises VaultRefusal for what no credential can be called."""
    if _NAME.fullmatch(name) is None and _BY_NAME.fullmatch(name) is None:
        raise VaultRefusal(
            "a credential's name has 1 to 64 of the characters a-z, 0-9, _ . and -, and begins with a letter"
            " or a digit; a provider's key is called provider:NAME, a client's secret oauth:NAME"
        )


def check_terms(name: str, terms: CredentialTerms) -> None:
    """Raises VaultRefusal for terms that make no sense, saying which."""
    if is_provider_key(name) or is_client_secret(name):
        if terms != CredentialTerms():
            raise VaultRefusal("a provider's key goes where the provider is: it has no other terms")
        return
    if _HOST.fullmatch(terms.host) is None:
        raise VaultRefusal("host: a name or an address (IPv6 in brackets), in lower case, without a port")
    if _PATH.fullmatch(terms.path) is None or {".", ".."} & set(terms.path.split("/")) or "//" in terms.path:
        raise VaultRefusal("path: begins with /, and has neither . nor .. nor anything percent-encoded")
    if (terms.kind == "basic") != (terms.place == "basic"):
        raise VaultRefusal("place: basic is for kind basic, and for nothing else")
    if terms.kind == "basic":
        _check_text("username", terms.username)
        if ":" in terms.username or terms.parameter.lower() != "authorization":
            raise VaultRefusal("username: has no colon, and goes into Authorization")
    elif terms.kind == "oauth2" and (terms.place, terms.parameter) != ("header", "Authorization"):
        raise VaultRefusal("place: an access token goes into the header Authorization")
    elif terms.username:
        raise VaultRefusal("username: is for kind basic")
    if terms.place == "header" and (
        _TOKEN.fullmatch(terms.parameter) is None or terms.parameter.lower() in _FORBIDDEN_HEADERS
    ):
        raise VaultRefusal("parameter: is not the name of a header that a secret can go into")
    if terms.place == "query" and _PARAMETER.fullmatch(terms.parameter) is None:
        raise VaultRefusal("parameter: a query parameter's name has 1 to 64 of A-Z, a-z, 0-9, _ . ~ and -")


def check_value(name: str, value: str) -> None:
    """Raises VaultRefusal, which never has a part of the value in it."""
    least = 1 if is_provider_key(name) or is_client_secret(name) else MIN_VALUE_CHARACTERS
    if not least <= len(value) <= MAX_VALUE_CHARACTERS:
        raise VaultRefusal(
            f"the value has to have {least} to {MAX_VALUE_CHARACTERS} characters: shorter ones could not be"
            " told from words in an answer"
        )
    _check_text("the value", value)


def _check_text(what: str, text: str) -> None:
    if not text.isascii() or not text.isprintable() or not text.strip() or text != text.strip():
        # it goes into a header: no line ends, nothing that could be read as another one
        raise VaultRefusal(f"{what}: printable ASCII, without spaces at its ends")
