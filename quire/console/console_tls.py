"""TLS of the console: towards browsers, and towards the brokers whose HTTP APIs it calls."""

import ssl
from pathlib import Path
from typing import NamedTuple

from quire.client.tls_trust import client_context
from quire.errors import InvalidArgument

_END = "-----END CERTIFICATE-----"


class ConsoleTls(NamedTuple):
    """What a console encrypts with.

    Attributes:
        certificate: the file with its certificate, PEM; empty: browsers connect without TLS.
        key: the file with the key of the certificate; empty: the same file.
        pinned: the file with the certificate of the broker, whatever its names; empty: as other clients trust brokers.
    """

    certificate: str = ""
    key: str = ""
    pinned: str = ""

    @property
    def scheme(self) -> str:
        """How the URL of the console begins."""
        return "https" if self.certificate else "http"

    def trust(self) -> ssl.SSLContext:
        """What calls of ``https://`` APIs are made with.

        Raises:
            InvalidArgument: a file cannot be used.
        """
        if not self.pinned:
            return client_context()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The broker itself has named the file: this very certificate is trusted, and none that its authority signed.
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            text = Path(self.pinned).read_text()
            context.load_verify_locations(cadata=text[: text.index(_END)] + _END)
        except (OSError, ValueError) as error:
            text = f"the certificate {self.pinned} cannot be used: {error}"
            raise InvalidArgument(text, argument="tls.certificate") from error
        return context
