"""The running broker, over its HTTP API, and who the command line is to it.

A user and a password, a token, a certificate, or on the broker's machine a file.
"""

import base64
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec
from urllib.parse import quote, urlencode, urlsplit

import click

from quire.cli.output import Output, output_option, printable
from quire.client.remote import QUESTION, client_context, protocol_of, remote_error
from quire.destination import DestinationKind, written
from quire.errors import (
    BrokerUnreachable,
    CertificateNotTrusted,
    InvalidArgument,
    InvalidDestination,
    NotAuthenticated,
    WrongProtocol,
)
from quire.settings import broker_file, is_loopback, local_host, local_token_file

DEFAULT_DATA = "data"  # where a broker has its data that was started without a setting


class Login(NamedTuple):
    """What a broker is shown; nothing of it while there are no users."""

    user: str = ""  # the name; empty with a token
    passcode: str = ""  # the password, or the token

    def __repr__(self) -> str:
        return f"Login({self.user!r})"

    @property
    def header(self) -> str | None:
        if not self.passcode:
            return None
        if not self.user:
            return f"Bearer {self.passcode}"
        return "Basic " + base64.b64encode(f"{self.user}:{self.passcode}".encode()).decode()


def find_login(
    url: str, data: str | None, user: str | None, password_file: str | None, token_file: str | None
) -> Login:
    """As the options say, else the environment; else, on the machine of the broker, as its file says.

    A password comes from a file, or a person types it; ``-`` is standard input.
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
    host, _, port = address.rpartition(":")
    wanted_host, _, wanted_port = wanted.rpartition(":")
    return wanted_port == port and (wanted == address or (_is_local(wanted_host) and _is_local(host)))


def _is_local(host: str) -> bool:
    return is_loopback(local_host(host.strip("[]")))


DEFAULT_URL = "http://127.0.0.1:8161"
CONNECT_LIMIT = 10.0  # how long a connection may take, in seconds
ANSWER_LIMIT = 600.0  # how long an answer may take, in seconds: a purge of millions takes its time
PROBE_LIMIT = 2.0  # how long a port that does not speak HTTP may take to show what it speaks instead, in seconds
PAGE = 1000  # how many entries one call asks for, of a list that comes in pages

NO_LOGIN = Login()
NO_LOGIN_FOUND = (
    "no login was given or found. On the broker's machine --data DIR, its data directory, is enough; elsewhere give "
    "--user, or --token-file"
)

P = ParamSpec("P")


class Api:
    """Calls a broker's HTTP API, as the user of a login.

    Attributes:
        patience: how long each answer may take, in seconds, whatever a call says; None: as the call says.
    """

    def __init__(self, url: str, login: Login = NO_LOGIN) -> None:
        self.url = url.rstrip("/")
        self.login = login
        self.patience: float | None = None
        if urlsplit(self.url).scheme not in ("http", "https"):
            meant = DEFAULT_URL if "://" in url else f"http://{url}"
            raise InvalidArgument(f"{url!r} is not the URL of a broker's HTTP API: write {meant}", url=url)

    def call(
        self, method: str, path: str, body: object = None, patience: float | None = ANSWER_LIMIT, **query: object
    ) -> dict[str, Any]:
        """Make one call below ``/api/v1``, with so many seconds of patience; what is None of the query is left out."""
        given = {name: value for name, value in query.items() if value is not None}
        url = f"{self.url}/api/v1{path}" + (f"?{urlencode(given)}" if given else "")
        sent = None if body is None else json.dumps(body).encode()
        status, content = exchange(method, url, sent, self.patience or patience, self.login.header)
        try:
            answer: dict[str, Any] = json.loads(content) if content else {}
            if status < 400:
                return answer
            error = answer["error"]
            code, text, data = error["code"], error["text"], error.get("data") or {}
            if code == NotAuthenticated.code and self.login.header is None:
                text = f"{text}; {NO_LOGIN_FOUND}"
            raise remote_error(code, text, data)
        except (ValueError, KeyError, TypeError) as error:
            raise BrokerUnreachable(f"the server at {self.url} is not a Quire broker", url=self.url) from error

    def probe(self, path: str) -> tuple[int, str]:
        status, content = exchange("GET", self.url + path, None, self.patience or ANSWER_LIMIT, None)
        try:
            return status, json.loads(content)["state"]
        except (ValueError, KeyError, TypeError) as error:
            raise BrokerUnreachable(f"the server at {self.url} is not a Quire broker", url=self.url) from error


def speaks_tls(api: Api, written: str | None) -> bool:
    """Whether another port of the broker is reached with TLS: as its address is written, or as the API is reached."""
    return written.startswith("ssl://") if written else api.url.startswith("https:")


def login_at(api: Api, written: str | None) -> Login:
    """The login at another port; one that was found on this machine is for the broker that the API told of."""
    return api.login if written is None or api.login.user else NO_LOGIN


def path(*parts: str) -> str:
    return "".join(["/" + quote(part, safe="") for part in parts])


def destination_path(text: str, *rest: str) -> str:
    """The path of a destination, written ``orders``, ``queue://orders`` or ``/topic/prices``, or of a part of it."""
    destination = written(text)
    return path(f"{destination.kind}s", destination.name, *rest)


def _path_of(kind: DestinationKind, name: str, *rest: str) -> str:
    """The path of a destination of one kind, however its name is written, or of something below it."""
    destination = written(name, kind)
    if destination.kind is not kind:
        raise InvalidDestination(f"{name!r} is not a {kind}", name=name)
    return path(f"{kind}s", destination.name, *rest)


queue_path = functools.partial(_path_of, DestinationKind.QUEUE)
topic_path = functools.partial(_path_of, DestinationKind.TOPIC)
stream_path = functools.partial(_path_of, DestinationKind.STREAM)


def pages(api: Api, where: str, key: str) -> Iterator[dict[str, Any]]:
    """All entries of a list that comes in pages."""
    after: str | None = None
    while True:
        page = api.call("GET", where, limit=PAGE, after=after)
        yield from page[key]
        after = page["next"]
        if after is None:
            return


def numbered_pages(api: Api, where: str, key: str) -> Iterator[dict[str, Any]]:
    """All entries of a list that comes in pages and has no order by name: each page begins at a number."""
    seen, total = 0, 1
    while seen < total:
        page = api.call("GET", where, limit=PAGE, offset=seen)
        yield from page[key]
        seen, total = seen + len(page[key]), page["total"] if page[key] else 0


def exchange(
    method: str, url: str, body: bytes | None, patience: float | None = ANSWER_LIMIT, authorization: str | None = None
) -> tuple[int, bytes]:
    """Send one HTTP request, and wait so many seconds for its answer: a status and content."""
    # The client of the standard library takes 20 ms to import: `quire --help` does without.
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    try:
        if parts.scheme == "https":
            connection: HTTPConnection = HTTPSConnection(parts.netloc, timeout=CONNECT_LIMIT, context=client_context())
        else:
            connection = HTTPConnection(parts.netloc, timeout=CONNECT_LIMIT)
        try:
            connection.connect()
            connection.sock.settimeout(patience)
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            headers = {"content-type": "application/json"}
            if authorization is not None:
                headers["authorization"] = authorization
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        raise _no_answer(f"{parts.scheme}://{parts.netloc}", parts.hostname or "", parts.port, error) from error


def _no_answer(address: str, host: str, port: int | None, error: Exception) -> BrokerUnreachable:
    """Why an API could not be asked: its certificate, another protocol at its port, or no program there."""
    import ssl

    is_tls = address.startswith("https:")
    if isinstance(error, ssl.SSLCertVerificationError):
        text = f"the certificate of {address} is not trusted: {error.verify_message}"
        return CertificateNotTrusted(text, url=address)
    if not isinstance(error, OSError) or (is_tls and isinstance(error, (ssl.SSLError, TimeoutError))):
        found = spoken_protocol(host, port or (443 if is_tls else 80))
        if found and found != ("HTTPS" if is_tls else "HTTP"):
            text = f"the port {port} of {host} speaks {found}, not {'HTTPS' if is_tls else 'HTTP'}"
            return WrongProtocol(text, url=address, protocol=found)
    # What another program says can have any bytes in it, and any length.
    return BrokerUnreachable(f"no broker answers at {address}: {printable(str(error))[:200]}", url=address)


def spoken_protocol(host: str, port: int) -> str:
    """The protocol that a port speaks, by its answer to a request of HTTP; empty if it gives none that is known."""
    import socket

    try:
        with socket.create_connection((host, port), timeout=PROBE_LIMIT) as connection:
            connection.sendall(QUESTION)
            return protocol_of(connection.recv(512))
    except OSError:
        return ""


def find_url(url: str | None, data: str | None) -> str:
    """Where the broker's HTTP API is: as ``--url`` or ``--data`` say, else ``QUIRE_URL``, else the default."""
    if url:
        return url
    if data is None:
        return os.environ.get("QUIRE_URL") or DEFAULT_URL
    file = broker_file(data)
    try:
        facts = json.loads(file.read_text())
        return f"{facts.get('scheme', 'http')}://{facts['http']}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BrokerUnreachable(f"no broker runs on {data}: {file} cannot be read", file=str(file)) from error


def broker_verb(verb: Callable[Concatenate[Api, Output, P], None]) -> Callable[..., None]:
    """A verb that asks a running broker: it gets an ``Api`` and an ``Output``, and the options that say which."""

    @click.option("--url", metavar="URL", help=f"The broker's HTTP API.  [env: QUIRE_URL; default: {DEFAULT_URL}]")
    @click.option("--data", metavar="DIR", help="The data directory of a broker on this machine, instead of --url.")
    @click.option("--user", "login_user", metavar="USER", help="The user to log in as.  [env: QUIRE_USER]")
    @click.option(
        "--password-file", metavar="FILE",
        help="A file with the user's password; - for standard input.  [env: QUIRE_PASSWORD_FILE]",
    )  # fmt: skip
    @click.option(
        "--token-file", metavar="FILE",
        help="A file with a token to log in with, instead of a user.  [env: QUIRE_TOKEN, the token]",
    )  # fmt: skip
    @click.option(
        "--tls-ca", metavar="FILE",
        help="A file with the authorities to trust with TLS.  [env: QUIRE_TLS_CA; default: the system's]",
    )  # fmt: skip
    @output_option
    @functools.wraps(verb)
    def with_broker(*args: P.args, **kwargs: P.kwargs) -> None:
        names = ("url", "data", "login_user", "password_file", "token_file", "tls_ca")
        options: list[Any] = [kwargs.pop(name) for name in names]
        url, data, user, password_file, token_file, tls_ca = options
        if tls_ca:
            os.environ["QUIRE_TLS_CA"] = tls_ca  # the client library reads it, and so do processes that this one starts
        url = find_url(url, data)
        api = Api(url, find_login(url, data, user, password_file, token_file))
        verb(api, click.get_current_context().obj, *args, **kwargs)

    return with_broker
