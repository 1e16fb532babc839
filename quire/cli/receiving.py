"""What ``quire receive`` does with the client library. The library takes a while to import: only this command pays."""

import base64
import dataclasses
import json
from collections.abc import Generator, Mapping
from typing import Any

from quire.cli.api import Login
from quire.cli.output import Output, encode_body
from quire.client import AckMode, Blob, ClientDestination, JavaObject, Queue, Stream, Topic
from quire.client.sync import ReceivedMessage, connect
from quire.destination import DestinationKind, split_written
from quire.protocols.openwire.commands import OFFSET, PARTITION

OPTIONS = "jms.consumerExpiryCheckEnabled=false&jms.checkForDuplicates=false"
"""The broker alone decides what has expired or comes again: the client acknowledges only what it was told to."""

_KINDS: dict[DestinationKind, type[ClientDestination]] = {
    DestinationKind.QUEUE: Queue, DestinationKind.TOPIC: Topic, DestinationKind.STREAM: Stream,
}  # fmt: skip


def destination_of(text: str) -> ClientDestination:
    found, name = split_written(text)
    return _KINDS[found or DestinationKind.QUEUE](name)


def receiving(
    url: str, login: Login, output: Output, destination: ClientDestination, *, count: int, ack: bool, timeout: float,
    client_id: str, **wanted: Any,
) -> Generator[dict[str, Any], None, None]:  # fmt: skip
    """The rows of messages as they come. At the end what was acknowledged is on disk.

    Raises:
        QuireError: the broker cannot be reached, or has refused something, an acknowledgement say.
    """
    errors: list[Exception] = []
    with connect(
        f"{url}?{OPTIONS}", user=login.user, password=login.passcode, client_id=client_id, on_error=errors.append
    ) as connection:
        consumer = connection.session(AckMode.INDIVIDUAL).consumer(destination, prefetch=count, **wanted)
        for _ in range(count):
            message = consumer.receive(timeout)
            if message is None:
                if not errors:
                    output.note(f"no message arrived within {timeout:g} s")
                break
            yield row(message)
            # The row is printed when the caller asks for the next one.
            if ack:
                message.acknowledge()
    if errors:
        raise errors[0]


def row(message: ReceivedMessage) -> dict[str, Any]:
    body, encoding = _body(message.body)
    return {"id": message.id, "headers": _headers(message), "body": body, "body_encoding": encoding}


def _body(body: Any) -> tuple[str, str]:
    """A body as text, and how: ``text``, ``base64`` when it is not UTF-8, ``json`` when it is a map or a list."""
    if body is None or isinstance(body, str):
        return body or "", "text"
    if isinstance(body, bytes):
        return encode_body(body)
    if isinstance(body, JavaObject):
        return _base64(body.data), "base64"
    return _json(dataclasses.asdict(body) if isinstance(body, Blob) else body), "json"


def _headers(message: ReceivedMessage) -> dict[str, str]:
    """The headers under the names that they have in STOMP and in the HTTP API, and the properties behind them."""
    headers: Mapping[str, object] = {
        "message-id": message.id,
        "destination": message.destination,
        "timestamp": message.timestamp,
        "expires": message.expiration,
        "priority": message.priority,
        "persistent": message.persistent,
        "correlation-id": message.correlation_id,
        "type": message.type,
        "reply-to": message.reply_to,
        "JMSXGroupID": message.group_id,
        "JMSXGroupSeq": message.group_sequence if message.group_id else None,
        "redelivered": message.redelivered or None,
        "JMSXDeliveryCount": message.delivery_count if message.redelivered else None,
        "partition": message.partition,
        "offset": message.offset,
    }
    shown = {name: _text(value) for name, value in headers.items() if value is not None}
    # A property may have the name of a header, ``type`` say: the header stays.
    passed_over = {PARTITION, OFFSET, *shown}
    return shown | {name: _text(value) for name, value in message.properties.items() if name not in passed_over}


def _text(value: object) -> str:
    if isinstance(value, str | ClientDestination):
        return str(value)
    return _json(value)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_base64)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
