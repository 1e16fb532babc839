"""The running broker, over its HTTP API."""

import functools
import json
import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec
from urllib.parse import quote, urlencode, urlsplit

import click

from quire.cli.output import Output, output_option
from quire.client.remote_error import remote_error
from quire.destination import queue
from quire.errors import BrokerUnreachable, InvalidArgument
from quire.settings import broker_file

DEFAULT_URL = "http://127.0.0.1:8161"
CONNECT_LIMIT = 10.0
"""How long a connection may take, in seconds."""
ANSWER_LIMIT = 600.0
"""How long an answer may take, in seconds: a purge of millions takes its time."""

P = ParamSpec("P")


class Api:
    """Calls a broker's HTTP API.

    Args:
        url: where it is, ``http://127.0.0.1:8161``.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise InvalidArgument(f"{url!r} is no URL of a broker: write {DEFAULT_URL}", url=url)

    def call(self, method: str, path: str, body: object = None, **query: object) -> dict[str, Any]:
        """Make one call.

        Args:
            method: GET, POST, PUT or DELETE.
            path: below ``/api/v1``.
            body: sent as JSON, unless it is None.
            **query: what stands after the question mark; None is left out.

        Returns:
            The answer.

        Raises:
            BrokerUnreachable: nobody answers, or somebody who is no broker.
            QuireError: what the broker answered.
        """
        given = {name: value for name, value in query.items() if value is not None}
        url = f"{self.url}/api/v1{path}" + (f"?{urlencode(given)}" if given else "")
        status, content = exchange(method, url, None if body is None else json.dumps(body).encode())
        try:
            answer: dict[str, Any] = json.loads(content) if content else {}
            if status < 400:
                return answer
            error = answer["error"]
            raise remote_error(error["code"], error["text"], error.get("data") or {})
        except (ValueError, KeyError, TypeError) as error:
            raise BrokerUnreachable(f"what answers at {self.url} is no Quire broker", url=self.url) from error


def queue_name(text: str) -> str:
    """A queue's name as people write it: ``orders``, or as STOMP and `quire store` do, ``/queue/orders``, ``queue://orders``.

    Raises:
        InvalidDestination: it cannot be a name.
    """
    prefix = next((prefix for prefix in ("/queue/", "queue://") if text.startswith(prefix)), "")
    return queue(text.removeprefix(prefix)).name


def queue_path(name: str, *rest: str) -> str:
    """The path of a queue, or of something below it.

    Raises:
        InvalidDestination: it cannot be a name.
    """
    return "/".join(("/queues", quote(queue_name(name), safe=""), *rest))


def exchange(method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
    """Send one HTTP request.

    Returns:
        The status and the content of the answer.

    Raises:
        BrokerUnreachable: no connection, or it broke.
    """
    # The client of the standard library takes 20 ms to import: `quire --help` does without.
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    try:
        connection_class = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = connection_class(parts.netloc, timeout=CONNECT_LIMIT)
        try:
            connection.connect()
            connection.sock.settimeout(ANSWER_LIMIT)
            target = parts.path + (f"?{parts.query}" if parts.query else "")
            connection.request(method, target, body, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
    except (OSError, HTTPException) as error:
        address = f"{parts.scheme}://{parts.netloc}"
        raise BrokerUnreachable(f"no broker answers at {address}: {error}", url=address) from error


def find_url(url: str | None, data: str | None) -> str:
    """Where the broker's HTTP API is.

    Args:
        url: what ``--url`` says; stands over the rest.
        data: what ``--data`` says: the directory of a broker on this machine.
            After it come ``QUIRE_URL`` and the default.

    Raises:
        BrokerUnreachable: no broker runs on that directory.
    """
    if url:
        return url
    if data is None:
        return os.environ.get("QUIRE_URL") or DEFAULT_URL
    file = broker_file(data)
    try:
        return f"http://{json.loads(file.read_text())['http']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokerUnreachable(f"no broker runs on {data}: {file} cannot be read", file=str(file)) from error


def broker_verb(verb: Callable[Concatenate[Api, Output, P], None]) -> Callable[..., None]:
    """A verb that asks a running broker: it gets an ``Api`` and an ``Output``, and the options that say which."""

    @click.option("--url", metavar="URL", help=f"The broker's HTTP API.  [env: QUIRE_URL; default: {DEFAULT_URL}]")
    @click.option("--data", metavar="DIR", help="The data directory of a broker on this machine, instead of --url.")
    @output_option
    @functools.wraps(verb)
    def with_broker(*args: P.args, **kwargs: P.kwargs) -> None:
        url: Any = kwargs.pop("url")
        data: Any = kwargs.pop("data")
        verb(Api(find_url(url, data)), click.get_current_context().obj, *args, **kwargs)

    return with_broker
