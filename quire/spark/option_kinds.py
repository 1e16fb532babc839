"""What the data source's options may be, beyond numbers, sizes, durations and switches."""

import json
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument, InvalidDestination
from quire.settings.key import Kind
from quire.store.urls import store_for_url
from quire.units import parse_time

EARLIEST, LATEST = -2, -1
"""The numbers that stand for the beginning and the end of a partition among offsets, as Kafka's users know them."""

_LIKE_REGEX = re.compile(r"[\[\](){}|^+\\*]|\$$")
"""What regular expressions have, and few patterns that are none: names seldom have these characters."""

MAX_TOKEN = 150
"""How long a token may be, in characters: a broker remembers it by a key of its store."""


class Name(NamedTuple):
    """A destination as a user wrote it: with its kind or without."""

    kind: DestinationKind | None
    name: str

    @classmethod
    def parse(cls, text: str) -> "Name":
        """Read ``orders`` or ``queue://orders``."""
        kind, name = split_prefix(text.strip())
        return cls(kind, checked(kind or DestinationKind.STREAM, name).name)

    def is_of(self, destination: Destination) -> bool:
        return self.name == destination.name and self.kind in (None, destination.kind)

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}" if self.kind else self.name


class NamePattern(NamedTuple):
    """A pattern of the names of destinations, of one kind or of any."""

    kind: DestinationKind | None
    pattern: Pattern

    def is_of(self, destination: Destination) -> bool:
        return self.kind in (None, destination.kind) and self.pattern.matches(destination.name)

    @property
    def hint(self) -> str:
        """What to add when it matches nothing; empty if it cannot be meant as a regular expression, as Kafka's are."""
        if not _LIKE_REGEX.search(self.pattern.text):
            return ""
        return " (a pattern is no regular expression: `*` is one part of a name, and `>` at the end all further parts)"

    def __str__(self) -> str:
        return f"{self.kind}://{self.pattern.text}" if self.kind else self.pattern.text


class Headers(StrEnum):
    """What a read has in the column ``headers``."""

    NONE = "false"
    MAP = "true"
    ARRAY = "array"


Assignment = dict[Name, tuple[int, ...]]
"""The numbers of partitions, by destination."""


class ByPartition(NamedTuple):
    """A number for each partition; ``everywhere`` is for partitions that are not named."""

    everywhere: int | None
    named: dict[Name, dict[int, int]]

    def of(self, destination: Destination, partition: int) -> int | None:
        """The number of a partition; None if nothing is said of it."""
        for name, numbers in self.named.items():
            if name.is_of(destination) and partition in numbers:
                return numbers[partition]
        return self.everywhere


class Offsets(ByPartition):
    """Offsets, ``EARLIEST`` or ``LATEST``, by partition."""

    __slots__ = ()

    @property
    def has_latest(self) -> bool:
        return self.everywhere == LATEST or any(LATEST in offsets.values() for offsets in self.named.values())

    @property
    def has_earliest(self) -> bool:
        return self.everywhere == EARLIEST or any(EARLIEST in offsets.values() for offsets in self.named.values())


def _reading(parse: Callable[[str], Any]) -> Callable[[object], Any]:
    """A parser of texts for ``Kind``, whose errors are ValueErrors."""

    def parsed(value: object) -> Any:
        try:
            return parse(str(value))
        except (InvalidDestination, InvalidArgument) as error:
            raise ValueError(str(error)) from error

    return parsed


def _names(text: str) -> tuple[Name, ...]:
    return tuple(dict.fromkeys([Name.parse(part) for part in text.split(",")]))


def _pattern(text: str) -> NamePattern:
    kind, pattern = split_prefix(text.strip())
    return NamePattern(kind, Pattern(pattern))


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict) or not value:
        raise ValueError(text)
    return value


def _number(value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(value)
    return value


def _assignment(text: str) -> Assignment:
    found: Assignment = {}
    for name, numbers in _object(text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(text)
        found[Name.parse(name)] = tuple(sorted({_number(number, 0) for number in numbers}))
    return found


def _offsets(text: str) -> Offsets:
    if text.lower() in ("earliest", "latest"):
        return Offsets(EARLIEST if text.lower() == "earliest" else LATEST, {})
    return Offsets(None, _by_partition(text, lambda offset: _number(offset, EARLIEST)))


def _times(text: str) -> ByPartition:
    return ByPartition(None, _by_partition(text, lambda time: parse_time(str(time))))


def _by_partition(text: str, parse: Callable[[object], int]) -> dict[Name, dict[int, int]]:
    named: dict[Name, dict[int, int]] = {}
    for name, values in _object(text).items():
        if not isinstance(values, dict):
            raise ValueError(text)
        named[Name.parse(name)] = {_number(int(partition), 0): parse(value) for partition, value in values.items()}
    return named


def _ending_offsets(text: str) -> Offsets:
    offsets = _offsets(text)
    if offsets.has_earliest:
        raise ValueError(text)
    return offsets


def _headers(text: str) -> Headers:
    return Headers({"1": "true", "0": "false"}.get(text, text.lower()))


def _broker_url(text: str) -> str:
    parts = urlsplit(text)
    if (
        parts.scheme not in ("http", "https")
        or not parts.hostname
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ValueError(text)
    return text.rstrip("/")


def _store_url(text: str) -> str:
    if text == "memory:":
        raise ValueError(text)
    store_for_url(text)
    return text


def _token(text: str) -> str:
    if not 0 < len(text) <= MAX_TOKEN or not text.isprintable():
        raise ValueError(text)
    return text


NAME = Kind("a destination such as stream://events or queue://orders", _reading(Name.parse))
NAMES = Kind("names of destinations, separated by commas, such as events,queue://orders", _reading(_names))
NAMES_PATTERN = Kind(
    "a pattern such as orders.> or queue://orders.*, which is not a regular expression", _reading(_pattern)
)
ASSIGNMENT = Kind('JSON with lists of partitions, such as {"events": [0, 1]}', _reading(_assignment))
STARTING_OFFSETS = Kind(
    'earliest, latest, or JSON such as {"events": {"0": 12, "1": -2}}, where -2 is earliest and -1 latest',
    _reading(_offsets),
)
ENDING_OFFSETS = Kind(
    'latest, or JSON such as {"events": {"0": 120, "1": -1}}, where -1 is latest', _reading(_ending_offsets)
)
TIME = Kind("milliseconds since the epoch, or ISO 8601 as 2026-01-31T12:00:00Z", _reading(parse_time))
TIMES = Kind(
    'JSON with times by partition, such as {"events": {"0": 1700000000000, "1": "2026-01-31T12:00:00Z"}}',
    _reading(_times),
)
HEADERS = Kind("true, false or array", _reading(_headers))
BROKER_URL = Kind(
    "an address such as http://127.0.0.1:8161, without a user: see user and passwordFile", _reading(_broker_url)
)
TOKEN = Kind(f"a text of 1 to {MAX_TOKEN} characters", _reading(_token))
STORE_URL = Kind(
    "a store such as lmdb:///var/lib/quire, sqlite:///var/lib/quire.db or postgresql://user@host/name",
    _reading(_store_url),
)
