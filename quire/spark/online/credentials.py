"""What a broker is shown, and whom a client trusts: read in the driver, carried to tasks, printed nowhere."""

import base64
import functools
import os
import ssl
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from quire.client.remote import CA, CERTIFICATE
from quire.errors import InvalidArgument
from quire.spark.options import Options


@dataclass(frozen=True, slots=True)
class Credentials:
    """The contents of the files that options or the environment name, so that executors need no such files.

    Attributes:
        authorization: the value of the header; empty for no login.
        authorities: those to trust, PEM; empty for the system's.
        certificate: the client's own certificate with its key, PEM; empty for none.
    """

    authorization: str = field(default="", repr=False)
    authorities: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the files.

        Raises:
            InvalidArgument: one cannot be read, or the options do not fit together.
        """
        return cls(
            _authorization(options),
            _content(options.tls_ca or os.environ.get(CA), "tlsCa"),
            _content(options.tls_certificate or os.environ.get(CERTIFICATE), "tlsCertificate"),
        )

    def without_login(self) -> "Credentials":
        """The same for a server that wants a token of its own."""
        return replace(self, authorization="")

    def context(self) -> ssl.SSLContext:
        """What to connect with (``quire.client.remote.client_context``)."""
        return _context(self.authorities, self.certificate)


NO_CREDENTIALS = Credentials()


def _authorization(options: Options) -> str:
    user, password_file, token_file = options.user, options.password_file, options.bearer_token_file
    if token_file and (user or password_file):
        text = "the options bearerTokenFile and user exclude each other: give one of them"
        raise InvalidArgument(text, options=["bearerTokenFile", "user"])
    if token_file:
        return f"Bearer {_secret(token_file, 'bearerTokenFile')}"
    if not user and not password_file and (token := os.environ.get("QUIRE_TOKEN")):
        return f"Bearer {token}"
    user = user or os.environ.get("QUIRE_USER")
    password_file = password_file or os.environ.get("QUIRE_PASSWORD_FILE")
    if not user and not password_file:
        return ""
    if not user or not password_file:
        missing = "passwordFile" if user else "user"
        raise InvalidArgument(f"user and passwordFile belong together: give {missing} too", option=missing)
    pair = f"{user}:{_secret(password_file, 'passwordFile')}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


def _secret(file: str, option: str) -> str:
    """The first line of a file."""
    found = _content(file, option).partition("\n")[0].rstrip("\r")
    if not found:
        raise InvalidArgument(f"the file of {option} begins with an empty line: {file}", option=option, file=file)
    return found


def _content(file: str | None, option: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text("utf-8")
    except (OSError, UnicodeError) as error:
        text = f"the file of {option} cannot be read: {file}: {getattr(error, 'strerror', error)}"
        raise InvalidArgument(text, option=option, file=file) from error


@functools.cache
def _context(authorities: str, certificate: str) -> ssl.SSLContext:
    """TLS 1.2 or newer; the name of the broker must be in its certificate."""
    try:
        context = ssl.create_default_context(cadata=authorities or None)
        if certificate:
            # OpenSSL reads it from a file only.
            with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
                file.write(certificate)
                file.flush()
                context.load_cert_chain(file.name)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        text = f"tlsCa or tlsCertificate cannot be used: {error}"
        raise InvalidArgument(text, options=["tlsCa", "tlsCertificate"]) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
