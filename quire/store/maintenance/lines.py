"""The lines of an export: one JSON object each, exact to the byte; what is not UTF-8 is in base64."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from quire.errors import InvalidArgument
from quire.message import Message
from quire.store.base import Delivery

FORMAT = "quire-export"
VERSION = 1

Object = Mapping[str, Any]


def dump(line: Object) -> str:
    """An object as a line, without the line feed."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def load(line: str | bytes, number: int) -> dict[str, Any]:
    """Read a line; its number is for the error."""
    try:
        found = json.loads(line)
        if isinstance(found["type"], str):
            return dict(found)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"line {number} is not an object of an export: {error!r}", line=number) from error
    raise InvalidArgument(f"line {number} has no type", line=number)


def message_line(lane: int, message: Message, delivery: Delivery | None) -> Object:
    end = message.content.index(b"\n\n") + 1
    line: dict[str, Any] = {"type": "message", "lane": lane, "sequence": message.sequence}
    line |= {"priority": message.priority, "expiration": message.expiration}
    if delivery is not None:
        line["delivery"] = delivery._asdict()
    return line | _head_part(message.content[:end]) | body_part(message.content[end + 1 :])


def read_message(line: Object) -> Message:
    """A message from an object; one that makes no sense is a ``KeyError``, ``TypeError`` or ``ValueError``."""
    head = base64.b64decode(line["head"], validate=True) if "head" in line else _head_lines(line["headers"])
    body = line["body"]
    content = base64.b64decode(body, validate=True) if line["encoding"] == "base64" else body.encode()
    return Message(int(line["sequence"]), head + b"\n" + content, int(line["expiration"]), int(line["priority"]))


def body_part(body: bytes) -> dict[str, str]:
    """A body as text if it is, else in base64."""
    try:
        return {"encoding": "text", "body": body.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "body": base64.b64encode(body).decode()}


def _head_part(head: bytes) -> dict[str, Any]:
    try:
        parts = [line.partition(":") for line in head.decode()[:-1].split("\n")]
    except UnicodeDecodeError:
        parts = []
    if parts and all(colon for _, colon, _ in parts):
        return {"headers": [[name, value] for name, _, value in parts]}
    return {"head": base64.b64encode(head).decode()}


def _head_lines(headers: list[list[str]]) -> bytes:
    return "".join([f"{name}:{value}\n" for name, value in headers]).encode()
