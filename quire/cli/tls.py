"""``quire tls``: make certificates, and look at them."""

import socket
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from quire.cli.certificates import Pair, make_authority, make_client, make_server, read_pair, write_pair
from quire.cli.output import Output, output_option
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable, InvalidArgument
from quire.settings import split_address

DAYS = 825
"""For how many days a certificate is good, unless something else is said: the most that all clients accept."""

CONNECT_LIMIT = 10.0
"""How long a connection to a broker may take, in seconds."""


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
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
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
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    content = _read(Path(source)) if Path(source).exists() else _fetched(source)
    try:
        certificate = x509.load_pem_x509_certificate(content)
    except ValueError as error:
        raise InvalidArgument(f"{source} has no certificate in PEM: {error}", source=source) from error
    output.record(_described(certificate, now))


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
