"""What every client of a broker needs, whichever protocol it speaks: the broker's errors, trust, and who answers.

Whichever front door told of an error, it is raised as the type that it had there (``remote_error``). ``client_context``
says which brokers a client trusts when it connects with TLS, and has the certificate that it shows. ``protocol_of``
knows the protocol that a port speaks by the first bytes of what it answers.
"""

import os
import ssl
from typing import Any

from quire.errors import InvalidArgument, QuireError


def remote_error(code: str, text: str, data: dict[str, Any]) -> QuireError:
    """The error for a code the broker sent; a plain ``QuireError`` for a code only a newer broker knows."""
    for error_class in error_classes():
        if error_class.code == code:
            return error_class(text, **data)
    return QuireError(f"{text} ({code})", **data)


def error_classes() -> list[type[QuireError]]:
    found = [QuireError]
    for error_class in found:
        found += error_class.__subclasses__()
    return found


CA = "QUIRE_TLS_CA"
"""The environment variable that names a file with the authorities to trust, PEM, instead of the system's."""

CERTIFICATE = "QUIRE_TLS_CERTIFICATE"
"""The environment variable that names a file with the client's own certificate and its key, PEM."""


def client_context() -> ssl.SSLContext:
    """What a client connects with: TLS 1.2 or newer; the name of the broker must be in its certificate."""
    ca, certificate = os.environ.get(CA), os.environ.get(CERTIFICATE)
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if certificate:
            context.load_cert_chain(certificate)
    except OSError as error:  # an SSLError is one
        text = f"the files of {CA} and {CERTIFICATE} cannot be used: {ca or '-'}, {certificate or '-'}: {error}"
        raise InvalidArgument(text, argument=CA) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


_BEGINNINGS = {
    "HTTP": b"HTTP/", "STOMP": b"ERROR", "HTTPS": b"\x15\x03", "AMQP": b"AMQP", "SSH": b"SSH-",
}  # fmt: skip
"""How the answers of protocols begin; that of a TLS port to a plain request is an alert (RFC 8446, section 6)."""

QUESTION = b"GET / HTTP/1.0\r\n\r\n"
"""What every port answers that speaks a protocol of text, if only with an error."""


def protocol_of(answer: bytes) -> str:
    """The protocol of an answer; empty if it is none that is known."""
    for name, begin in _BEGINNINGS.items():
        if answer.startswith(begin):
            return name
    return "OpenWire" if b"ActiveMQ" in answer[:16] else ""
