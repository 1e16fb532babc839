"""``quire tls``: make certificates of an authority of one's own, and look at them.

They are for trials, tests, and small sites that need no other authority.
"""

import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quire.cli.output import Output, output_option
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable, InvalidArgument
from quire.settings import split_address

AUTHORITY_DAYS = 3650  # for how many days the authority is good


class Pair(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_authority(now: datetime) -> Pair:
    signs = x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    return _made("Quire authority", None, now, AUTHORITY_DAYS, (constraints, True), (signs, True))


def make_server(authority: Pair, hosts: Sequence[str], now: datetime, days: int) -> Pair:
    """The certificate of a broker that is reached under some names and addresses."""
    names = x509.SubjectAlternativeName([_name_of(host) for host in hosts])
    return _signed(authority, hosts[0], now, days, ExtendedKeyUsageOID.SERVER_AUTH, (names, False))


def make_client(authority: Pair, name: str, now: datetime, days: int) -> Pair:
    return _signed(authority, name, now, days, ExtendedKeyUsageOID.CLIENT_AUTH)


def read_pair(certificate: Path, key: Path) -> Pair:
    try:
        made = x509.load_pem_x509_certificate(certificate.read_bytes())
        read = serialization.load_pem_private_key(key.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidArgument(f"{certificate} and {key} cannot be used: {error}", file=str(certificate)) from error
    if not isinstance(read, ec.EllipticCurvePrivateKey):
        raise InvalidArgument(f"{key} is not a key that `quire tls make` has made", file=str(key))
    return Pair(made, read)


def write_pair(pair: Pair, certificate: Path, key: Path, *more: x509.Certificate, joined: bool = False) -> None:
    """Write a certificate, followed by others, and its key, into the same file too if ``joined``: clients name one."""
    chain = b"".join([made.public_bytes(serialization.Encoding.PEM) for made in (pair.certificate, *more)])
    secret = pair.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(certificate, *((chain + secret, 0o600) if joined else (chain, 0o644)))
    _write(key, secret, 0o600)


def _write(path: Path, content: bytes, mode: int) -> None:
    # A broker that reads it again sees the old file or the new one.
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    fresh.replace(path)


Extension = tuple[x509.ExtensionType, bool]  # and whether it is critical


def _signed(
    authority: Pair, name: str, now: datetime, days: int, usage: x509.ObjectIdentifier, *more: Extension
) -> Pair:
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    return _made(
        name, authority, now, days, (constraints, True), (x509.ExtendedKeyUsage([usage]), False), (issuer, False), *more
    )


def _made(name: str, issuer: Pair | None, now: datetime, days: int, *extensions: Extension) -> Pair:
    """A certificate, which without an issuer signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - timedelta(hours=1))  # clocks differ
        .not_valid_after(now.astimezone(UTC) + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    return Pair(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidArgument(f"{host!r} is not a name of a host: write it in ASCII", host=host) from error


DAYS = 825  # for how many days a certificate is good, unless something else is said: the most that all clients accept
CONNECT_LIMIT = 10.0  # how long a connection to a broker may take, in seconds


@click.group()
@output_option
def tls() -> None:
    """Make and show certificates."""


@tls.command()
@click.argument("directory", default="tls", type=click.Path(path_type=Path))
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name or address under which clients reach it.")
@click.option("--client", metavar="NAME", help="Make the certificate of a client instead; its subject is CN=NAME.")
@click.option("--days", default=DAYS, type=click.IntRange(1), show_default=True, help="For how many days it is good.")
@output_option
@click.pass_obj
def make(output: Output, directory: Path, hosts: tuple[str, ...], client: str | None, days: int) -> None:
    """Make an authority and the certificate of a broker, signed by it.

    DIRECTORY gets ca.pem, which clients need, and server.pem with server.key for [tls]; it is tls if it is not given.
    With --client it gets NAME.pem, the certificate and the key of a client in one file, and NAME.key.
    An authority that is there already is used again: so a certificate is renewed.
    """
    now = _now()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _authority(directory, now)
        name = "server" if client is None else client
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name in ("ca", "..", "."):
            raise InvalidArgument(f"{name!r} is not a name for a file: use letters, digits, - and _", name=name)
        certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
        known = hosts or (socket.gethostname(), "localhost", "127.0.0.1", "::1")
        pair = make_server(authority, known, now, days) if client is None else make_client(authority, name, now, days)
        write_pair(pair, certificate, key, authority.certificate, joined=client is not None)
    except OSError as error:
        raise InvalidArgument(f"{error.filename} cannot be written: {error.strerror}", file=error.filename) from error
    ca = directory / "ca.pem"
    output.done(
        f"wrote {certificate} and {key}; "
        + (f"clients check them with {ca}" if client is None else f"{client} sets QUIRE_TLS_CERTIFICATE={certificate}"),
        {"ca": str(ca), "certificate": str(certificate), "key": str(key), **_described(pair.certificate, now)},
    )


@tls.command()
@click.argument("source")
@output_option
@click.pass_obj
def show(output: Output, source: str) -> None:
    """Show a certificate: whose it is, who signed it, until when it is good.

    SOURCE is a file, or the address HOST:PORT of a broker, whose certificate is shown whichever authority signed it.
    """
    content = _read(Path(source)) if Path(source).exists() else _fetched(source)
    try:
        certificate = x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise InvalidArgument(f"{source} has no certificate in PEM: {error}", source=source) from error
    output.record(_described(certificate, _now()))


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)


def _authority(directory: Path, now: datetime) -> Pair:
    certificate, key = directory / "ca.pem", directory / "ca.key"
    if certificate.exists() or key.exists():
        return read_pair(certificate, key)
    authority = make_authority(now)
    write_pair(authority, certificate, key)
    return authority


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}", source=str(path)) from error


def _fetched(address: str) -> bytes:
    try:
        host, port = split_address(address)
        return ssl.get_server_certificate((host, port), timeout=CONNECT_LIMIT).encode()
    except ValueError as error:
        raise InvalidArgument(f"{address} is no file, and no address HOST:PORT", source=address) from error
    except OSError as error:
        text = f"no server answers with a certificate at {address}: {error}"
        raise BrokerUnreachable(text, address=address) from error


def _described(certificate: x509.Certificate, now: datetime) -> dict[str, Any]:
    until = certificate.not_valid_after_utc
    return {
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "names": ", ".join(_names(certificate)),
        "from": certificate.not_valid_before_utc.isoformat(),
        "to": until.isoformat(),
        "days_left": (until - now).days,
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(":"),
    }


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(name.value) for name in found]
