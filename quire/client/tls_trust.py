"""Which brokers a client trusts when it connects with TLS, and the certificate that it shows."""

import os
import ssl

from quire.errors import InvalidArgument

CA = "QUIRE_TLS_CA"
"""The environment variable that names a file with the authorities to trust, PEM, instead of the system's."""

CERTIFICATE = "QUIRE_TLS_CERTIFICATE"
"""The environment variable that names a file with the client's own certificate and its key, PEM."""


def client_context() -> ssl.SSLContext:
    """What a client connects with: TLS 1.2 or newer; the name of the broker must be in its certificate.

    Raises:
        InvalidArgument: a file that the environment names cannot be used.
    """
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
