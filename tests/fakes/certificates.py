"""Certificates that sign themselves, for an address of this machine."""

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Made(NamedTuple):
    """PEM of both; ``encrypted`` is the key under a passphrase."""

    certificate: bytes
    key: bytes
    encrypted: bytes
    serial: int

    def write(self, directory: Path, name: str = "tls") -> tuple[str, str]:
        """Put both there, the key for its owner alone; returns their paths."""
        certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
        certificate.write_bytes(self.certificate)
        key.touch(mode=0o600)
        key.write_bytes(self.key)
        return str(certificate), str(key)


def make_certificate(address: str = "127.0.0.1") -> Made:
    """A new key and a certificate of it for this address, good for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, address)])
    now = datetime.datetime.now(datetime.UTC)
    serial = x509.random_serial_number()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]), False)
        .sign(key, hashes.SHA256())
    )
    return Made(
        certificate.public_bytes(serialization.Encoding.PEM),
        _pem(key, serialization.NoEncryption()),
        _pem(key, serialization.BestAvailableEncryption(b"secret")),
        serial,
    )


def _pem(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
