"""Destinations, their names, and how clients write them."""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote_plus

from quire.errors import InvalidDestination

MAX_NAME = 500
"""The longest name of a destination, in UTF-8 bytes: it must fit a key of every store."""

ADVISORIES = "ActiveMQ.Advisory."
"""How the names of advisory topics begin."""


class DestinationKind(StrEnum):
    QUEUE = "queue"
    TOPIC = "topic"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class Destination:
    kind: DestinationKind  # queue, topic or stream
    name: str  # parts joined by dots, without any prefix; case counts

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}"


def queue(name: str) -> Destination:
    return checked(DestinationKind.QUEUE, name)


def topic(name: str) -> Destination:
    return checked(DestinationKind.TOPIC, name)


def stream(name: str) -> Destination:
    return checked(DestinationKind.STREAM, name)


def checked(kind: DestinationKind, name: str) -> Destination:
    """The destination of a kind and a name without ``,`` (composites), ``?`` (options) and the wildcards."""
    if not is_plain(name) or not {"*", ">"}.isdisjoint(name.split(".")):
        raise InvalidDestination(
            f"{name[:60]!r} is not a name for a {kind}: 1 to {MAX_NAME} bytes without control characters, `,` and `?`; "
            "no part of it is `*` or `>`",
            name=name[:60],
        )
    return Destination(kind, name)


def is_plain(text: str) -> bool:
    """Whether a text has only characters that names and patterns may have, and not too many of them."""
    return text.isprintable() and 0 < len(text.encode()) <= MAX_NAME and "," not in text and "?" not in text


def split_prefix(text: str) -> tuple[DestinationKind | None, str]:
    """The kind that the prefix of a written destination says, or None, and the rest; an unknown prefix is an error."""
    prefix, mark, name = text.partition("://")
    if not mark:
        return None, text
    if prefix not in list(DestinationKind):
        raise InvalidDestination(
            f"{text[:60]!r} is not a destination: write queue://NAME, topic://NAME or stream://NAME", name=text[:60]
        )
    return DestinationKind(prefix), name


def written(text: str, kind: DestinationKind = DestinationKind.QUEUE) -> Destination:
    """The destination that a user wrote."""
    found, name = split_written(text)
    return checked(found or kind, name)


def split_written(text: str) -> tuple[DestinationKind | None, str]:
    """The kind and the name in what a user wrote: ``NAME``, ``topic://NAME`` or ``/topic/NAME``."""
    for known in DestinationKind:
        if text.startswith(f"/{known}/"):
            return known, text.removeprefix(f"/{known}/")
    if text.startswith("/"):
        raise InvalidDestination(f"{text[:60]!r} is not a destination here: write NAME or topic://NAME", name=text[:60])
    return split_prefix(text)


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """The part before the question mark, and ActiveMQ's destination options by name, decoded."""
    name, mark, query = text.partition("?")
    options: dict[str, str] = {}
    for pair in query.split("&") if mark else ():
        key, equals, value = pair.partition("=")
        try:
            key, value = unquote_plus(key, errors="strict"), unquote_plus(value, errors="strict")
        except UnicodeDecodeError as error:
            raise InvalidDestination(f"the option {pair[:60]!r} is not UTF-8 when decoded", name=text[:60]) from error
        if not name or not key or not equals or key in options:
            raise InvalidDestination(
                f"{text[:100]!r} is not a destination with options: write NAME?option=value&other=value, each one once",
                name=text[:60],
            )
        options[key] = value
    return name, options
