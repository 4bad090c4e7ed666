"""TLS of a listener: from bytes that were handed over, replaced while it serves.

Core may not be able to read the files themselves (their owner is root), so the spawner opens them
and hands over descriptors; OpenSSL loads from files alone, so the bytes lie in a memory file meanwhile.
"""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from core.egress.keyfile import read_descriptor
from core.errors import ConfigError

MAX_FILE_BYTES = 1 << 20
HANDSHAKE_S = 10.0


class TlsFiles(NamedTuple):
    """The contents of both files, PEM. Its repr shows neither."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "TlsFiles()"


class Tls:
    """A listener's TLS. Raises ConfigError where certificate or key won't do, or don't belong together.

    Args:
        name: the section's, for messages.
    """

    def __init__(self, name: str, files: TlsFiles) -> None:
        self._name = name
        self.context = _context(name, files)

    def replace(self, files: TlsFiles) -> None:
        """Use others from the next connection on; ConfigError, and the old ones stay."""
        self.context = _context(self._name, files)


def read_tls(name: str, fds: Mapping[str, int]) -> TlsFiles:
    """A listener's certificate and key; closes their descriptors. Raises ConfigError."""
    return TlsFiles(
        *(
            read_descriptor(fds[f"{name}-{what}"], MAX_FILE_BYTES, f"{name}.{key}")
            for what, key in (("certificate", "tls_certificate"), ("key", "tls_key"))
        )
    )


def _context(name: str, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # a client's renegotiation would be work that it can ask for at will
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        with _memory_file(files.certificate) as certificate, _memory_file(files.key) as key:
            context.load_cert_chain(certificate, key, password=_no_passphrase)
    except ssl.SSLError as error:
        what = error.reason or "not PEM"
        raise ConfigError(
            f"{name}.tls_certificate and tls_key: OpenSSL does not take them ({what}): both have to be PEM,"
            " the certificate first in its file, the key its own and not encrypted"
        ) from None
    except OSError as error:
        raise ConfigError(f"{name}.tls_certificate and tls_key: {error}") from None
    return context


def _no_passphrase() -> str:
    # without this OpenSSL would ask whoever sits at the terminal
    return ""


@contextmanager
def _memory_file(data: bytes) -> Iterator[str]:
    fd = os.memfd_create("tls", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
