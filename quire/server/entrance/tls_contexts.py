"""The certificates of the broker, read again when they have changed."""

import logging
import ssl
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from quire.errors import InvalidSettings
from quire.logs import event
from quire.settings import TlsSettings

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_ASKED = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsContexts:
    """What new connections are encrypted with. Those that are open keep what they began with.

    Attributes:
        current: the certificate and what clients have to show; None while there is no certificate.
        ends_at: when the certificate ends, in seconds since the epoch; None while there is no certificate.
        fingerprint: the SHA-256 of the certificate; empty while there is none.
        failures: how often TLS could not be agreed.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings
        self.current = load_context(settings)
        self.ends_at = certificate_end(settings)
        self.fingerprint = fingerprint(settings)
        self.failures = 0

    def reload(self, settings: TlsSettings) -> None:
        """Read the files again; files that cannot be used change nothing."""
        try:
            self.current = load_context(settings)
            self.ends_at = certificate_end(settings)
            self.fingerprint = fingerprint(settings)
        except InvalidSettings as error:
            event("tls.refused", f"the certificates stay as they are: {error}", logging.ERROR, code=error.code)
            return
        self.settings = settings
        if self.current is not None:
            event("tls.reloaded", f"the certificate {settings.certificate} was read again", path=settings.certificate)


def load_context(settings: TlsSettings) -> ssl.SSLContext | None:
    """Read a certificate, its key and the authorities of clients.

    Raises:
        InvalidSettings: a file cannot be used.
    """
    if not settings.certificate:
        _check(settings)
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # a client that connects anew agrees anew: a certificate that has ended is seen
    _read("certificate", settings.certificate, lambda: _load_pair(context, settings))
    if settings.client_certificates != "none":
        if not settings.client_ca:
            text = "tls.client_certificates needs tls.client_ca: the authorities whose client certificates are accepted"
            raise InvalidSettings(text, key="tls.client_ca")
        _read("client_ca", settings.client_ca, lambda: context.load_verify_locations(settings.client_ca))
        context.verify_mode = _ASKED[settings.client_certificates]
    return context


def certificate_end(settings: TlsSettings) -> float | None:
    """When a certificate that was read ends, in seconds since the epoch; None without one."""
    if not settings.certificate:
        return None
    return _certificate(settings).not_valid_after_utc.timestamp()


def fingerprint(settings: TlsSettings) -> bytes:
    """The SHA-256 of a certificate that was read; empty without one."""
    if not settings.certificate:
        return b""
    from cryptography.hazmat.primitives.serialization import Encoding

    return sha256(_certificate(settings).public_bytes(Encoding.DER)).digest()


def _certificate(settings: TlsSettings) -> "Certificate":
    # What it imports takes 8 MB of memory.
    from cryptography.x509 import load_pem_x509_certificate

    return load_pem_x509_certificate(Path(settings.certificate).read_bytes())


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    # A key with a password would have OpenSSL ask for it at the terminal.
    context.load_cert_chain(settings.certificate, settings.key or None, password=_no_password)


def _no_password() -> str:
    raise ValueError("the key has a password: store it without one, readable to the broker alone")


def _check(settings: TlsSettings) -> None:
    if settings.key or settings.client_ca or settings.client_certificates != "none":
        text = "tls.certificate is not set, and other settings of [tls] are: there is no TLS without a certificate"
        raise InvalidSettings(text, key="tls.certificate")


def _read(name: str, path: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidSettings(f"tls.{name}: {path} cannot be used: {reason}", key=f"tls.{name}", path=path) from error
