"""How the tests of selectors ask: about headers with types, or about a message."""

from collections.abc import Callable

from quire.message import Message, header_lines
from quire.protocols.openwire.primitives import Typed, write_map
from quire.selectors import Selector
from quire.selectors.message_selector import Compiler
from quire.selectors.parser import parse
from quire.selectors.values import Value
from quire.server.openwire.message_content import property_lines

Lookup = Callable[[str], Value]
"""Gives the value of a header by its name; None if there is no such header."""


def evaluate(text: str, lookup: Lookup) -> bool | None:
    """What a selector says of headers that have types: TRUE, FALSE, or None for UNKNOWN."""
    return Compiler[Lookup](lambda name: lambda lookup: lookup(name)).condition(parse(text))(lookup)


def ask(text: str, **headers: Value) -> bool | None:
    """What a selector says of headers that have types."""
    return evaluate(text, headers.get)


def message_of(
    headers: dict[str, str], body: bytes = b"body", *, priority: int = 4, persistent: bool = True
) -> Message:
    """A message with these headers behind those that every message has."""
    lines = header_lines({"message-id": "ID:a-1:7", "timestamp": "1700000000000"} | headers)
    return Message(1, lines + b"\n" + body, priority=priority, persistent=persistent)


def jms_message_of(properties: dict[str, Value | Typed], headers: dict[str, str] | None = None) -> Message:
    """A message with these properties as an OpenWire client sends it."""
    lines = header_lines({"message-id": "ID:host-1-2:1:1:1:7", "timestamp": "1700000000000"} | (headers or {}))
    return Message(1, lines + (property_lines(write_map(properties)) if properties else b"") + b"\nbody")


def ask_message(text: str, **headers: str) -> bool:
    """Whether a selector matches a message with these headers, all of them texts."""
    return Selector(text).matches(message_of(headers))
