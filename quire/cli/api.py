"""The running broker, over its HTTP API."""

import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec
from urllib.parse import quote, urlencode, urlsplit

import click

from quire.cli.login import Login, find_login
from quire.cli.output import Output, output_option, printable
from quire.client.remote_error import remote_error
from quire.client.spoken_protocol import QUESTION, protocol_of
from quire.destination import DestinationKind, written
from quire.errors import (
    BrokerUnreachable,
    CertificateNotTrusted,
    InvalidArgument,
    InvalidDestination,
    NotAuthenticated,
    WrongProtocol,
)
from quire.settings import broker_file

DEFAULT_URL = "http://127.0.0.1:8161"
CONNECT_LIMIT = 10.0
"""How long a connection may take, in seconds."""
ANSWER_LIMIT = 600.0
"""How long an answer may take, in seconds: a purge of millions takes its time."""

PROBE_LIMIT = 2.0
"""How long a port that does not speak HTTP may take to show what it speaks instead, in seconds."""

PAGE = 1000
"""How many entries one call asks for, of a list that comes in pages."""

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
        content = None if body is None else json.dumps(body).encode()
        status, content = exchange(method, url, content, self.patience or patience, self.login.header)
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
        """Ask one of the broker's probes, ``/ready`` say: the status of the answer, and the broker's state."""
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
    """The path of some parts, each percent-encoded."""
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
            connection: HTTPConnection = HTTPSConnection(parts.netloc, timeout=CONNECT_LIMIT, context=_trust())
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


def _trust() -> Any:
    from quire.client.tls_trust import client_context

    return client_context()


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
        url: Any = kwargs.pop("url")
        data: Any = kwargs.pop("data")
        user: Any = kwargs.pop("login_user")
        password_file: Any = kwargs.pop("password_file")
        token_file: Any = kwargs.pop("token_file")
        tls_ca: Any = kwargs.pop("tls_ca")
        if tls_ca:
            os.environ["QUIRE_TLS_CA"] = tls_ca  # the client library reads it, and so do processes that this one starts
        found = find_url(url, data)
        verb(
            Api(found, find_login(found, data, user, password_file, token_file)),
            click.get_current_context().obj,
            *args,
            **kwargs,
        )

    return with_broker
