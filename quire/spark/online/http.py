"""HTTP requests."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from quire.arrow.failure import Failure
from quire.client.remote import remote_error
from quire.errors import BrokerUnreachable, ProtocolViolation
from quire.spark.online.credentials import NO_CREDENTIALS, Credentials

T = TypeVar("T")


class ErrorAnswer(msgspec.Struct):
    """The API's answer to what it cannot do."""

    error: Failure


@contextmanager
def answer(
    method: str, url: str, body: bytes, timeout: float, credentials: Credentials = NO_CREDENTIALS
) -> Iterator[HTTPResponse]:
    """Send a request; yields its answer or raises its error. ``timeout`` is for each part of the answer."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(parts.netloc, timeout=timeout, context=credentials.context())
    else:
        connection = HTTPConnection(parts.netloc, timeout=timeout)
    response = None
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        headers = {"content-type": "application/json"}
        if credentials.authorization:
            headers["authorization"] = credentials.authorization
        connection.request(method, target, body or None, headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise _error(response)
        yield response
    except (OSError, HTTPException) as error:
        place = f"{parts.scheme}://{parts.netloc}"
        happened = (
            f"no broker answers at {place}"
            if response is None
            else f"the connection to {place} was lost during an answer"
        )
        raise BrokerUnreachable(f"{happened}: {str(error) or type(error).__name__}", url=place) from error
    finally:
        connection.close()


def content(response: HTTPResponse, kind: type[T]) -> T:
    """An answer's content, out of JSON; what is something else comes from a proxy whose broker is away, say."""
    try:
        return msgspec.json.decode(response.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise BrokerUnreachable(f"the answer is incomplete, or not from a Quire broker: {error}") from error


def _error(response: HTTPResponse) -> Exception:
    try:
        detail = msgspec.json.decode(response.read(), type=ErrorAnswer).error
    except msgspec.MsgspecError:
        return BrokerUnreachable(f"the server is not a Quire broker: it answered {response.status} {response.reason}")
    if response.status == 403 and detail.code == ProtocolViolation.code:  # another bulk server listens there now
        return BrokerUnreachable(detail.text)
    return remote_error(detail.code, detail.text, detail.data)
