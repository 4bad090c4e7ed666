"""A stream sealed under a passphrase: what was cut, changed, added or put in another order does not open.

    magic, length of the header (>I), header (JSON: scrypt's parameters, salt, key check), chunks

A chunk is up to CHUNK_BYTES of plain text, AES-256-GCM, with its length before it. Its nonce is its
number and whether it is the last (STREAM, Hoang et al. 2015), its associated data the header's hash; the
key is this file's alone, so no nonce comes twice.
"""

import hashlib
import hmac
import os
import struct
from typing import IO

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from core.backup.errors import BackupError

_MAGIC = b"certosa backup 1\n"
_LENGTH = struct.Struct(">I")
_NONCE = struct.Struct(">3xQ?")
CHUNK_BYTES = 1 << 20
_TAG_BYTES = 16
_MAX_HEADER_BYTES = 4_096
# RFC 7914; 128 MiB and half a second for a guess
_SCRYPT_LOG_N, _SCRYPT_R, _SCRYPT_P = 17, 8, 1
_MAX_LOG_N, _MAX_R, _MAX_P = 20, 16, 4  # a file that is not ours must not ask for all memory
MIN_PASSPHRASE = 8

_CHANGED = "the file is damaged or was changed: nothing of it is used; take another backup"
_CUT = "the file ends too early: it was cut, or its writing did not finish; take another backup"


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    log_n: int
    r: int
    p: int
    salt: bytes
    check: bytes


def _keys(passphrase: str, header_salt: bytes, log_n: int, r: int, p: int) -> tuple[bytes, bytes]:
    derived = Scrypt(salt=header_salt, length=64, n=2**log_n, r=r, p=p).derive(passphrase.encode())
    return derived[:32], hashlib.sha256(b"certosa backup key check\0" + derived[32:]).digest()


class SealedWriter:
    """Seals what is written to ``file``; :meth:`finish` or it will not open. Raises OSError."""

    def __init__(self, file: IO[bytes], passphrase: str, log_n: int = _SCRYPT_LOG_N) -> None:
        salt = os.urandom(32)
        key, check = _keys(passphrase, salt, log_n, _SCRYPT_R, _SCRYPT_P)
        header = msgspec.json.encode(_Header(log_n, _SCRYPT_R, _SCRYPT_P, salt, check))
        self._file = file
        self._cipher = AESGCM(key)
        self._associated = hashlib.sha256(header).digest()
        self._number = 0
        self._buffer = bytearray()
        file.write(_MAGIC + _LENGTH.pack(len(header)) + header)

    def write(self, data: bytes) -> None:
        """Add bytes."""
        self._buffer += data
        while len(self._buffer) > CHUNK_BYTES:  # never the last one, which finish has to say
            self._put(bytes(self._buffer[:CHUNK_BYTES]), last=False)
            del self._buffer[:CHUNK_BYTES]

    def finish(self) -> None:
        """Write the last chunk."""
        self._put(bytes(self._buffer), last=True)

    def _put(self, data: bytes, last: bool) -> None:
        sealed = self._cipher.encrypt(_NONCE.pack(self._number, last), data, self._associated)
        self._file.write(_LENGTH.pack(len(sealed)) + sealed)
        self._number += 1


class SealedReader:
    """Opens a sealed file. Raises BackupError, also for a wrong passphrase, and OSError."""

    def __init__(self, file: IO[bytes], passphrase: str) -> None:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise BackupError("this is no backup of Certosa's, or of a version that this one does not know")
        (length,) = _LENGTH.unpack(_exactly(file, _LENGTH.size))
        if length > _MAX_HEADER_BYTES:
            raise BackupError(_CHANGED)
        data = _exactly(file, length)
        try:
            header = msgspec.json.decode(data, type=_Header)
        except (msgspec.MsgspecError, UnicodeError):
            raise BackupError(_CHANGED) from None
        if not (1 <= header.log_n <= _MAX_LOG_N and 1 <= header.r <= _MAX_R and 1 <= header.p <= _MAX_P):
            raise BackupError(_CHANGED)
        key, check = _keys(passphrase, header.salt, header.log_n, header.r, header.p)
        if not hmac.compare_digest(check, header.check):
            raise BackupError("the passphrase is wrong, or the file's beginning was changed")
        self._file = file
        self._cipher = AESGCM(key)
        self._associated = hashlib.sha256(data).digest()
        self._number = 0
        self._last = False
        self._buffer = bytearray()

    def read(self, size: int) -> bytes:
        """Exactly ``size`` bytes; b"" at the end; BackupError where fewer are left."""
        while len(self._buffer) < size and not self._last:
            self._buffer += self._next()
        if not self._buffer and self._last:
            return b""
        if len(self._buffer) < size:
            raise BackupError(_CHANGED)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _next(self) -> bytes:
        (length,) = _LENGTH.unpack(_exactly(self._file, _LENGTH.size))
        if not _TAG_BYTES <= length <= CHUNK_BYTES + _TAG_BYTES:
            raise BackupError(_CHANGED)
        sealed = _exactly(self._file, length)
        for last in (False, True):
            try:
                data = self._cipher.decrypt(_NONCE.pack(self._number, last), sealed, self._associated)
            except InvalidTag:
                continue
            self._number += 1
            self._last = last
            if last and self._file.read(1):
                raise BackupError(_CHANGED)
            return data
        raise BackupError(_CHANGED)


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise BackupError(_CUT)
    return data
