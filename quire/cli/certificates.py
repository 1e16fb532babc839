"""Certificates of an authority of one's own: for trials, tests, and small sites that need no other one."""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quire.errors import InvalidArgument

AUTHORITY_DAYS = 3650
"""For how many days the authority is good."""


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(now: datetime) -> Pair:
    """An authority that signs certificates."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Quire authority")])
    signs = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    made = (
        _begun(name, key, now, AUTHORITY_DAYS)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signs, critical=True)
    )
    return Pair(made.sign(key, hashes.SHA256()), key)


def make_server(authority: Pair, hosts: Sequence[str], now: datetime, days: int) -> Pair:
    """The certificate of a broker that is reached under some names and addresses."""
    names = x509.SubjectAlternativeName([_name_of(host) for host in hosts])
    return _signed(authority, hosts[0], now, days, names, ExtendedKeyUsageOID.SERVER_AUTH)


def make_client(authority: Pair, name: str, now: datetime, days: int) -> Pair:
    """The certificate of a client; its subject is ``CN=`` and the name."""
    return _signed(authority, name, now, days, None, ExtendedKeyUsageOID.CLIENT_AUTH)


def read_pair(certificate: Path, key: Path) -> Pair:
    """A pair that was written before.

    Raises:
        InvalidArgument: the files cannot be read, or were not made here.
    """
    try:
        made = x509.load_pem_x509_certificate(certificate.read_bytes())
        read = serialization.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"{certificate} and {key} cannot be used: {error}", file=str(certificate)) from error
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise InvalidArgument(f"{key} is not a key that `quire tls make` has made", file=str(key))
    return Pair(made, read)


def write_pair(pair: Pair, certificate: Path, key: Path, *more: x509.Certificate, joined: bool = False) -> None:
    """Write a certificate, followed by others, and its key; only the owner may read the key.

    Args:
        joined: whether the key stands in the file of the certificate too: clients name one file.
    """
    chain = b"".join([made.public_bytes(serialization.Encoding.PEM) for made in (pair.certificate, *more)])
    secret = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(certificate, *((chain + secret, 0o600) if joined else (chain, 0o644)))
    _write(key, secret, 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file: a broker that reads it again sees the old one or the new one."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    fresh.replace(path)


def _signed(
    authority: Pair, name: str, now: datetime, days: int, names: x509.SubjectAlternativeName | None,
    usage: x509.ObjectIdentifier,
) -> Pair:  # fmt: skip
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        _begun(subject, key, now, days)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
        )
    )  # fmt: skip
    if names is not None:
        made = made.add_extension(names, critical=False)
    return Pair(made.sign(authority.key, hashes.SHA256()), key)


def _begun(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:  # fmt: skip
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - timedelta(hours=1))  # clocks differ
        .not_valid_after(now.astimezone(UTC) + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidArgument(f"{host!r} is not a name of a host: write it in ASCII", host=host) from error
