"""The options of the data source. Names have no case, as in Spark; unknown or unsuitable options are errors.

Spark shows only the texts of errors, so each says what to do (``explaining``).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, NamedTuple, Self
from urllib.parse import urlsplit

from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument, InvalidDestination, QuireError
from quire.options import (
    Count,
    Kind,
    Option,
    Positive,
    Seconds,
    SomeBytes,
    SomeSeconds,
    duration,
    nearest,
    option,
    options_of,
)
from quire.store.urls import store_for_url
from quire.units import TimeInSeconds, parse_time

EARLIEST, LATEST = -2, -1
"""The numbers that stand for the beginning and the end of a partition among offsets, as Kafka's users know them."""

_LIKE_REGEX = re.compile(r"[\[\](){}|^+\\*]|\$$")
"""What regular expressions have, and few patterns that are none: names seldom have these characters."""

MAX_TOKEN = 150  # how long a token may be, in characters: a broker remembers it by a key of its store


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
        """Whether it names the destination."""
        return self.name == destination.name and self.kind in (None, destination.kind)

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}" if self.kind else self.name


class NamePattern(NamedTuple):
    """A pattern of the names of destinations, of one kind or of any."""

    kind: DestinationKind | None
    pattern: Pattern

    def is_of(self, destination: Destination) -> bool:
        """Whether the destination's name matches."""
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


Assignment = dict[Name, tuple[int, ...]]  # the numbers of partitions, by destination


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

    def has(self, number: int) -> bool:
        """Whether a number, ``EARLIEST`` say, stands anywhere."""
        return self.everywhere == number or any(number in offsets.values() for offsets in self.named.values())


def _kind(allowed: str, parse: Callable[[str], Any]) -> Kind:
    """What is read from a text, with errors of ours as ValueErrors."""

    def parsed(value: object) -> Any:
        try:
            return parse(str(value))
        except (InvalidDestination, InvalidArgument) as error:
            raise ValueError(str(error)) from error

    return Kind(allowed, parsed)


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
    if offsets.has(EARLIEST):
        raise ValueError(text)
    return offsets


def _headers(text: str) -> Headers:
    return Headers({"1": "true", "0": "false"}.get(text, text.lower()))


def _broker_url(text: str) -> str:
    parts = urlsplit(text)
    is_plain = parts.hostname and not (parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not is_plain:
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


DestinationName = Annotated[Name, _kind("a destination such as stream://events or queue://orders", Name.parse)]
Names = Annotated[
    tuple[Name, ...], _kind("names of destinations, separated by commas, such as events,queue://orders", _names)
]
NamesPattern = Annotated[
    NamePattern, _kind("a pattern such as orders.> or queue://orders.*, which is not a regular expression", _pattern)
]
Partitions = Annotated[Assignment, _kind('JSON with lists of partitions, such as {"events": [0, 1]}', _assignment)]
StartingOffsets = Annotated[Offsets, _kind(
    'earliest, latest, or JSON such as {"events": {"0": 12, "1": -2}}, where -2 is earliest and -1 latest', _offsets,
)]  # fmt: skip
EndingOffsets = Annotated[
    Offsets, _kind('latest, or JSON such as {"events": {"0": 120, "1": -1}}, where -1 is latest', _ending_offsets)
]
Time = Annotated[int, _kind("milliseconds since the epoch, or ISO 8601 as 2026-01-31T12:00:00Z", parse_time)]
Times = Annotated[ByPartition, _kind(
    'JSON with times by partition, such as {"events": {"0": 1700000000000, "1": "2026-01-31T12:00:00Z"}}', _times,
)]  # fmt: skip
ShownHeaders = Annotated[Headers, _kind("true, false or array", _headers)]
BrokerUrl = Annotated[
    str, _kind("an address such as http://127.0.0.1:8161, without a user: see user and passwordFile", _broker_url)
]
Token = Annotated[str, _kind(f"a text of 1 to {MAX_TOKEN} characters", _token)]
StoreUrl = Annotated[str, _kind(
    "a store such as lmdb:///var/lib/quire, sqlite:///var/lib/quire.db or postgresql://user@host/name", _store_url,
)]  # fmt: skip


@contextmanager
def explaining() -> Iterator[None]:
    """Say with each error what to do, and its code, as the command line does."""
    try:
        yield
    except QuireError as error:
        raise type(error)(f"{error}. {error.entry.advice} [{error.code}]", **error.data) from error


class Use(StrEnum):
    """What the data source is asked for."""

    READ = "batch reads"
    STREAM = "streaming reads"
    WRITE = "batch writes"
    STREAM_WRITE = "streaming writes"


_READS = (Use.READ, Use.STREAM)
_WRITES = (Use.WRITE, Use.STREAM_WRITE)

_POSITIONS = ("Offsets", "Timestamp", "OffsetsByTimestamp")
"""The ends of the names of the options that say where a read begins, or ends; one of them may be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options as they stand. Sizes are in bytes, durations in seconds, times in milliseconds since the epoch."""

    broker_url: BrokerUrl | None = option(
        None, "The broker's HTTP address: to read from it, or to write to it.", uses=tuple(Use), name="broker.url"
    )
    store_url: StoreUrl | None = option(
        None, "The store to read, whether a broker runs on it or not. A streaming read has `broker.url` too, for pins "
        "and progress: with `store.url` the messages come from the store, and not through the broker's bulk server.",
        uses=_READS, name="store.url",
    )  # fmt: skip
    user: str | None = option(None, "The user to log in as, with `passwordFile`.", uses=tuple(Use))
    password_file: str | None = option(
        None, "A file with the user's password. The driver reads it; executors do not need it. Default: `QUIRE_USER` "
        "and `QUIRE_PASSWORD_FILE` in the driver's environment.", uses=tuple(Use),
    )  # fmt: skip
    bearer_token_file: str | None = option(
        None, "A file with a token to log in with, instead of a user. Default: the token in `QUIRE_TOKEN`.",
        uses=tuple(Use),
    )  # fmt: skip
    tls_ca: str | None = option(
        None, "A file with the authorities to trust with https, PEM. Default: `QUIRE_TLS_CA`, or the system's.",
        uses=tuple(Use),
    )  # fmt: skip
    tls_certificate: str | None = option(
        None, "A file with a client's own certificate and its key, PEM, to log in with. Default: "
        "`QUIRE_TLS_CERTIFICATE`.", uses=tuple(Use),
    )  # fmt: skip
    subscribe: Names | None = option(
        None, "The destinations to read. A name without a kind must be that of exactly one destination; for streaming "
        "reads it is the name of a stream.", uses=_READS,
    )  # fmt: skip
    subscribe_pattern: NamesPattern | None = option(
        None, "A pattern of the destinations to read, of one kind or of any. A running query finds new destinations.",
        uses=_READS,
    )  # fmt: skip
    fail_on_no_match: bool = option(
        True, "Whether it is an error if no destination matches `subscribePattern`. Otherwise the read returns no "
        "rows. A streaming read logs a warning and waits.", uses=(Use.READ,),
    )  # fmt: skip
    assign: Partitions | None = option(None, "The partitions to read.", uses=_READS)
    starting_offsets: StartingOffsets | None = option(
        None, "Where a read begins. Default, also for partitions that are not named: a batch read at `earliest`, a "
        "new streaming query at `latest`.", uses=_READS,
    )  # fmt: skip
    ending_offsets: EndingOffsets | None = option(
        None, "The offsets before which a read ends; partitions that are not named end at `latest`.", uses=(Use.READ,)
    )
    starting_timestamp: Time | None = option(
        None, "Begin at the first message that was sent at this time or later, found by binary search.", uses=_READS
    )
    ending_timestamp: Time | None = option(
        None,
        "End before the first message that was sent at this time or later, found by binary search.",
        uses=(Use.READ,),
    )
    starting_offsets_by_timestamp: Times | None = option(
        None, "`startingTimestamp` for each partition; those that are not named begin as without the option.",
        uses=_READS,
    )  # fmt: skip
    ending_offsets_by_timestamp: Times | None = option(
        None, "`endingTimestamp` for each partition; those that are not named end at `latest`.", uses=(Use.READ,)
    )
    fail_on_data_loss: bool = option(
        True, "Whether it is an error if unread messages of a stream were removed. Otherwise the read skips them.",
        uses=_READS,
    )  # fmt: skip
    min_partitions: Positive = option(
        1, "The minimum number of tasks that read, if there are enough messages.", uses=_READS
    )
    max_records_per_partition: Positive | None = option(
        None, "The maximum number of messages that one task reads; approximate where offsets have gaps, as in queues.",
        uses=_READS,
    )  # fmt: skip
    include_headers: ShownHeaders = option(
        Headers.NONE, "Whether there is a column `headers` with all headers: a map, or with `array` an array of "
        "structs, the shape of Kafka's source.", uses=_READS,
    )  # fmt: skip
    max_offsets_per_trigger: Positive | None = option(
        None, "The maximum number of offsets in a micro-batch.", uses=(Use.STREAM,)
    )
    min_offsets_per_trigger: Positive | None = option(
        None, "The minimum number of new offsets before a micro-batch begins.", uses=(Use.STREAM,)
    )
    max_trigger_delay: SomeSeconds = option(
        900.0, "How long a micro-batch waits for `minOffsetsPerTrigger`.", uses=(Use.STREAM,)
    )
    max_bytes_per_trigger: SomeBytes | None = option(
        None, "The approximate maximum number of bytes of messages in a micro-batch.", uses=(Use.STREAM,)
    )
    group_id: str | None = option(
        None, "The consumer group that shows the progress of a query. Default: a new one, whose name the checkpoint "
        "keeps.", uses=(Use.STREAM,),
    )  # fmt: skip
    pin_ttl: Annotated[float, duration(1)] = option(
        3600.0, "How long the pin of a stopped query protects its unread messages from retention.", uses=(Use.STREAM,)
    )
    read_timeout: Seconds = option(
        60.0, "How long the driver or a task retries a read while the broker does not answer, before it fails.",
        uses=_READS,
    )  # fmt: skip
    fetch_timeout: SomeSeconds = option(30.0, "How long the broker may take for each part of an answer.", uses=_READS)
    destination: DestinationName | None = option(
        None, "The destination of rows without a value in the column `destination`. A name without a kind is a "
        "queue's.", uses=_WRITES,
    )  # fmt: skip
    invalid_rows_to: DestinationName | None = option(
        None, "The destination of rows that the broker refuses, with the cause, and without the headers that cannot "
        "be sent. A name without a kind is a queue's. Default: such a row stops the write.", uses=_WRITES,
    )  # fmt: skip
    write_timeout: SomeSeconds = option(
        60.0, "How long a task retries a write while the broker does not answer or holds it, before it fails.",
        uses=_WRITES,
    )  # fmt: skip
    token: Token | None = option(
        None, "Identifies this write: if it is run again, the broker writes its rows only once. Without it, a failed "
        "write may have written a part of its rows.", uses=(Use.WRITE,),
    )  # fmt: skip
    token_number: Count = option(
        0, "The ascending number of this write under its token: the batch id in `foreachBatch`. A number that is not "
        "above the last one writes nothing.", uses=(Use.WRITE,),
    )  # fmt: skip
    exactly_once: bool = option(
        True, "Whether each micro-batch is written exactly once and as a whole, even if Spark runs it again. "
        "Otherwise it is written at least once, which costs less.", uses=(Use.STREAM_WRITE,),
    )  # fmt: skip
    query_name: str | None = option(
        None, "The name of the query in Spark. The data source does not use it.", uses=(Use.STREAM_WRITE,)
    )
    checkpoint_location: str | None = option(
        None, "Where Spark keeps the progress of the query. The data source does not use it.", uses=(Use.STREAM_WRITE,)
    )

    @classmethod
    def of(cls, given: Mapping[str, str], use: Use) -> Self:
        """Read options.

        Args:
            given: names, in any case, and values.
            use: what they are for.

        Raises:
            InvalidArgument: one is unknown, not for this use, or has a value that is not allowed, or some of them
                exclude each other; the text names them and says what is allowed.
        """
        values = {}
        for name, text in given.items():
            option = _find(name, use)
            try:
                values[option.attribute] = option.kind.parse(text)
            except (ValueError, OverflowError) as error:
                why = str(error) if isinstance(error, TimeInSeconds) else f"it must be {option.kind.allowed}"
                shown = f"the option {option.name} is {_shown(option, text)}"
                raise InvalidArgument(f"{shown}: {why}", option=option.name) from error
        options = cls(**values)
        if use in _READS:
            options._check_source(use)
            options._check_positions(use)
        return options

    def includes(self, destination: Destination, partition: int) -> bool:
        """Whether a read is of a partition, if it exists."""
        if self.assign is not None:
            return any([name.is_of(destination) and partition in part for name, part in self.assign.items()])
        named = self.subscribe if self.subscribe_pattern is None else (self.subscribe_pattern,)
        return any([name.is_of(destination) for name in named or ()])

    def starting_time(self, destination: Destination, partition: int) -> int | None:
        """The time at which a read of a partition begins; None if no option gives one."""
        return _time_of(self.starting_timestamp, self.starting_offsets_by_timestamp, destination, partition)

    def ending_time(self, destination: Destination, partition: int) -> int | None:
        """The time before which a read of a partition ends; None if no option gives one."""
        return _time_of(self.ending_timestamp, self.ending_offsets_by_timestamp, destination, partition)

    def _check_source(self, use: Use) -> None:
        if use is Use.READ:
            _exactly_one({"broker.url": self.broker_url, "store.url": self.store_url})
        elif self.broker_url is None:
            text = "a streaming read needs broker.url, which protects unread messages from retention"
            raise InvalidArgument(text, option="broker.url")
        _exactly_one({"subscribe": self.subscribe, "subscribePattern": self.subscribe_pattern, "assign": self.assign})

    def _check_positions(self, use: Use) -> None:
        starts = (self.starting_offsets, self.starting_timestamp, self.starting_offsets_by_timestamp)
        ends = (self.ending_offsets, self.ending_timestamp, self.ending_offsets_by_timestamp)
        for side, given in (("starting", starts), ("ending", ends)):
            _at_most_one(dict(zip([f"{side}{name}" for name in _POSITIONS], given, strict=True)))
        if use is Use.READ and self.starting_offsets is not None and self.starting_offsets.has(LATEST):
            text = "startingOffsets cannot be latest (-1) in a batch read, which would have nothing to read"
            raise InvalidArgument(f"{text}: give offsets, or leave the option out", option="startingOffsets")


OPTIONS: dict[str, Option] = {option.name: option for option in options_of(Options)}
"""All options by name, in their order."""

_NAMES = {name.lower(): name for name in OPTIONS}


def wanted_headers(given: Mapping[str, str]) -> Headers:
    """What a read has in the column ``headers``, before it is known whether it is a batch read or a streaming one."""
    errors = []
    for use in _READS:
        try:
            return Options.of(given, use).include_headers
        except InvalidArgument as error:
            errors.append(error)
    raise errors[0]


def _time_of(time: int | None, times: ByPartition | None, destination: Destination, partition: int) -> int | None:
    return times.of(destination, partition) if times is not None else time


def _find(name: str, use: Use) -> Option:
    known = _NAMES.get(name.lower())
    if known is None:
        near = nearest(name.lower(), _NAMES)
        allowed = ", ".join(option.name for option in OPTIONS.values() if use in option.uses)
        hint = f"did you mean {_NAMES[near]}? " if near else ""
        raise InvalidArgument(f"there is no option {name!r}: {hint}{use} have {allowed}", option=name)
    option = OPTIONS[known]
    if use not in option.uses:
        raise InvalidArgument(f"the option {known} is for {' and '.join(option.uses)}, not for {use}", option=known)
    return option


def _shown(option: Option, text: str) -> str:
    """An option's value as an error may show it: URLs may have passwords."""
    return "not valid" if option.name.endswith(".url") else repr(text[:100])


def _exactly_one(options: Mapping[str, object]) -> None:
    if all(value is None for value in options.values()):
        raise InvalidArgument(f"an option is missing: give one of {', '.join(options)}", options=list(options))
    _at_most_one(options)


def _at_most_one(options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgument(f"the options {' and '.join(given)} exclude each other: give one of them", options=given)
