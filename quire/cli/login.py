"""Who the command line is to a broker: a user and a password, a token, a certificate, or on its machine a file."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click

from quire.errors import InvalidArgument
from quire.settings import broker_file, is_loopback, local_host, local_token_file

DEFAULT_DATA = "data"
"""Where a broker has its data that was started without a setting."""


class Login(NamedTuple):
    """What a broker is shown; nothing of it while there are no users.

    Attributes:
        user: the name; empty with a token.
        passcode: the password, or the token.
    """

    user: str = ""
    passcode: str = ""

    def __repr__(self) -> str:
        return f"Login({self.user!r})"

    @property
    def header(self) -> str | None:
        """The value of the header ``Authorization``."""
        if not self.passcode:
            return None
        if not self.user:
            return f"Bearer {self.passcode}"
        return "Basic " + base64.b64encode(f"{self.user}:{self.passcode}".encode()).decode()


def find_login(
    url: str, data: str | None, user: str | None, password_file: str | None, token_file: str | None
) -> Login:
    """As the options say, else the environment; else, on the machine of the broker, as its file says.

    Args:
        url: the broker's HTTP API.
        data: the data directory that the user named.
        user: the name; its password comes from the file, or a person types it.
        password_file: a file with the password, ``-`` for standard input.
        token_file: a file with a token, ``-`` for standard input.
    """
    if token_file:
        return Login(passcode=read_secret(token_file))
    if user is None and (token := os.environ.get("QUIRE_TOKEN")):
        return Login(passcode=token)
    user = user or os.environ.get("QUIRE_USER")
    password_file = password_file or os.environ.get("QUIRE_PASSWORD_FILE")
    if user and password_file:
        return Login(user, read_secret(password_file))
    if user:
        return Login(user, _typed(f"Password of {user}"))
    if data is None and urlsplit(url).scheme == "https" and os.environ.get("QUIRE_TLS_CERTIFICATE"):
        return Login()  # TLS shows who one is
    return _local(url, data)


def read_secret(file: str) -> str:
    """The first line of a file, or of standard input."""
    try:
        with sys.stdin if file == "-" else Path(file).open(encoding="utf-8") as source:
            return source.readline().rstrip("\r\n")
    except (OSError, UnicodeError) as error:
        raise InvalidArgument(f"{file} cannot be read: {getattr(error, 'strerror', error)}", file=file) from error


def new_password(file: str | None) -> str:
    """A password that is to be set: from a file, typed twice, or the first line of standard input."""
    if file is None and sys.stdin.isatty():
        return _typed("New password", twice=True)
    return read_secret(file or "-")


def _typed(prompt: str, *, twice: bool = False) -> str:
    if not sys.stdin.isatty():
        raise InvalidArgument("no terminal to type a password: give --password-file", argument="password-file")
    password: str = click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True)
    return password


def _local(url: str, data: str | None) -> Login:
    """The token that the broker has written for this machine, if it is the broker at the URL."""
    directory = data or os.environ.get("QUIRE_STORE__DATA") or DEFAULT_DATA
    try:
        facts = json.loads(broker_file(directory).read_text())
        if not _is_same(urlsplit(url).netloc, facts["http"]):
            return Login()
        return Login(passcode=local_token_file(directory).read_text().strip())
    except (OSError, ValueError, KeyError, TypeError):  # no broker here, or not this user's
        return Login()


def _is_same(wanted: str, address: str) -> bool:
    """Whether an address that was asked for is that where a broker on this machine listens."""
    host, _, port = address.rpartition(":")
    wanted_host, _, wanted_port = wanted.rpartition(":")
    return wanted_port == port and (wanted == address or (_is_local(wanted_host) and _is_local(host)))


def _is_local(host: str) -> bool:
    return is_loopback(local_host(host.strip("[]")))
