"""The options of the data source. Names have no case, as in Spark; unknown or unsuitable options are errors.

Spark shows only the texts of errors, so each says what to do (``explaining``).
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument, InvalidDestination, QuireError
from quire.settings.key import SWITCH, TEXT, Kind, count, duration, size
from quire.store.urls import store_for_url
from quire.units import TimeInSeconds, parse_time

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
        """Whether ``LATEST`` stands anywhere."""
        return self.everywhere == LATEST or any(LATEST in offsets.values() for offsets in self.named.values())

    @property
    def has_earliest(self) -> bool:
        """Whether ``EARLIEST`` stands anywhere."""
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


class Option(NamedTuple):
    """One option's declaration: its name as users write it, what it may be, its default, what it is for and means."""

    name: str
    kind: Kind
    default: Any
    uses: tuple[Use, ...]
    text: str


def _option(name: str, kind: Kind, uses: tuple[Use, ...], text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"option": Option(name, kind, default, uses, text)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options as they stand. Sizes are in bytes, durations in seconds, times in milliseconds since the epoch."""

    broker_url: str | None = _option(
        "broker.url", BROKER_URL, tuple(Use), "The broker's HTTP address: to read from it, or to write to it."
    )
    store_url: str | None = _option(
        "store.url", STORE_URL, _READS,
        "The store to read, whether a broker runs on it or not. A streaming read has `broker.url` too, for pins and "
        "progress: with `store.url` the messages come from the store, and not through the broker's bulk server.",
    )  # fmt: skip
    user: str | None = _option("user", TEXT, tuple(Use), "The user to log in as, with `passwordFile`.")
    password_file: str | None = _option(
        "passwordFile", TEXT, tuple(Use),
        "A file with the user's password. The driver reads it; executors do not need it. Default: `QUIRE_USER` and "
        "`QUIRE_PASSWORD_FILE` in the driver's environment.",
    )  # fmt: skip
    bearer_token_file: str | None = _option(
        "bearerTokenFile", TEXT, tuple(Use),
        "A file with a token to log in with, instead of a user. Default: the token in `QUIRE_TOKEN`.",
    )  # fmt: skip
    tls_ca: str | None = _option(
        "tlsCa", TEXT, tuple(Use),
        "A file with the authorities to trust with https, PEM. Default: `QUIRE_TLS_CA`, or the system's.",
    )  # fmt: skip
    tls_certificate: str | None = _option(
        "tlsCertificate", TEXT, tuple(Use),
        "A file with a client's own certificate and its key, PEM, to log in with. Default: `QUIRE_TLS_CERTIFICATE`.",
    )  # fmt: skip
    subscribe: tuple[Name, ...] | None = _option(
        "subscribe", NAMES, _READS,
        "The destinations to read. A name without a kind must be that of exactly one destination; for streaming "
        "reads it is the name of a stream.",
    )  # fmt: skip
    subscribe_pattern: NamePattern | None = _option(
        "subscribePattern", NAMES_PATTERN, _READS,
        "A pattern of the destinations to read, of one kind or of any. A running query finds new destinations.",
    )  # fmt: skip
    fail_on_no_match: bool = _option(
        "failOnNoMatch", SWITCH, (Use.READ,),
        "Whether it is an error if no destination matches `subscribePattern`. Otherwise the read returns no rows. A "
        "streaming read logs a warning and waits.", True,
    )  # fmt: skip
    assign: Assignment | None = _option("assign", ASSIGNMENT, _READS, "The partitions to read.")
    starting_offsets: Offsets | None = _option(
        "startingOffsets", STARTING_OFFSETS, _READS,
        "Where a read begins. Default, also for partitions that are not named: a batch read at `earliest`, a new "
        "streaming query at `latest`.",
    )  # fmt: skip
    ending_offsets: Offsets | None = _option(
        "endingOffsets", ENDING_OFFSETS, (Use.READ,),
        "The offsets before which a read ends; partitions that are not named end at `latest`.",
    )  # fmt: skip
    starting_timestamp: int | None = _option(
        "startingTimestamp", TIME, _READS,
        "Begin at the first message that was sent at this time or later, found by binary search.",
    )  # fmt: skip
    ending_timestamp: int | None = _option(
        "endingTimestamp", TIME, (Use.READ,),
        "End before the first message that was sent at this time or later, found by binary search.",
    )  # fmt: skip
    starting_offsets_by_timestamp: ByPartition | None = _option(
        "startingOffsetsByTimestamp", TIMES, _READS,
        "`startingTimestamp` for each partition; those that are not named begin as without the option.",
    )  # fmt: skip
    ending_offsets_by_timestamp: ByPartition | None = _option(
        "endingOffsetsByTimestamp", TIMES, (Use.READ,),
        "`endingTimestamp` for each partition; those that are not named end at `latest`.",
    )  # fmt: skip
    fail_on_data_loss: bool = _option(
        "failOnDataLoss", SWITCH, _READS,
        "Whether it is an error if unread messages of a stream were removed. Otherwise the read skips them.",
        True,
    )  # fmt: skip
    min_partitions: int = _option(
        "minPartitions", count(1), _READS, "The minimum number of tasks that read, if there are enough messages.", 1
    )
    max_records_per_partition: int | None = _option(
        "maxRecordsPerPartition", count(1), _READS,
        "The maximum number of messages that one task reads; approximate where offsets have gaps, as in queues.",
    )  # fmt: skip
    include_headers: Headers = _option(
        "includeHeaders", HEADERS, _READS,
        "Whether there is a column `headers` with all headers: a map, or with `array` an array of structs, the shape "
        "of Kafka's source.", Headers.NONE,
    )  # fmt: skip
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger", count(1), (Use.STREAM,), "The maximum number of offsets in a micro-batch."
    )
    min_offsets_per_trigger: int | None = _option(
        "minOffsetsPerTrigger",
        count(1),
        (Use.STREAM,),
        "The minimum number of new offsets before a micro-batch begins.",
    )
    max_trigger_delay: float = _option(
        "maxTriggerDelay",
        duration(0.001),
        (Use.STREAM,),
        "How long a micro-batch waits for `minOffsetsPerTrigger`.",
        900.0,
    )
    max_bytes_per_trigger: int | None = _option(
        "maxBytesPerTrigger",
        size(1),
        (Use.STREAM,),
        "The approximate maximum number of bytes of messages in a micro-batch.",
    )
    group_id: str | None = _option(
        "groupId", TEXT, (Use.STREAM,),
        "The consumer group that shows the progress of a query. Default: a new one, whose name the checkpoint keeps.",
    )  # fmt: skip
    pin_ttl: float = _option(
        "pinTtl", duration(1), (Use.STREAM,),
        "How long the pin of a stopped query protects its unread messages from retention.", 3600.0,
    )  # fmt: skip
    read_timeout: float = _option(
        "readTimeout", duration(0), _READS,
        "How long the driver or a task retries a read while the broker does not answer, before it fails.", 60.0,
    )  # fmt: skip
    fetch_timeout: float = _option(
        "fetchTimeout", duration(0.001), _READS, "How long the broker may take for each part of an answer.", 30.0
    )
    destination: Name | None = _option(
        "destination", NAME, _WRITES,
        "The destination of rows without a value in the column `destination`. A name without a kind is a queue's.",
    )  # fmt: skip
    invalid_rows_to: Name | None = _option(
        "invalidRowsTo", NAME, _WRITES,
        "The destination of rows that the broker refuses, with the cause, and without the headers that cannot be "
        "sent. A name without a kind is a queue's. Default: such a row stops the write.",
    )  # fmt: skip
    write_timeout: float = _option(
        "writeTimeout", duration(0.001), _WRITES,
        "How long a task retries a write while the broker does not answer or holds it, before it fails.", 60.0,
    )  # fmt: skip
    token: str | None = _option(
        "token", TOKEN, (Use.WRITE,),
        "Identifies this write: if it is run again, the broker writes its rows only once. Without it, a failed write "
        "may have written a part of its rows.",
    )  # fmt: skip
    token_number: int = _option(
        "tokenNumber", count(0), (Use.WRITE,),
        "The ascending number of this write under its token: the batch id in `foreachBatch`. A number that is not "
        "above the last one writes nothing.", 0,
    )  # fmt: skip
    exactly_once: bool = _option(
        "exactlyOnce", SWITCH, (Use.STREAM_WRITE,),
        "Whether each micro-batch is written exactly once and as a whole, even if Spark runs it again. Otherwise it is "
        "written at least once, which costs less.", True,
    )  # fmt: skip
    query_name: str | None = _option(
        "queryName", TEXT, (Use.STREAM_WRITE,), "The name of the query in Spark. The data source does not use it."
    )
    checkpoint_location: str | None = _option(
        "checkpointLocation",
        TEXT,
        (Use.STREAM_WRITE,),
        "Where Spark keeps the progress of the query. The data source does not use it.",
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
            attribute, option = _find(name, use)
            try:
                values[attribute] = option.kind.parse(text)
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
        if use is Use.READ and self.starting_offsets is not None and self.starting_offsets.has_latest:
            text = "startingOffsets cannot be latest (-1) in a batch read, which would have nothing to read"
            raise InvalidArgument(f"{text}: give offsets, or leave the option out", option="startingOffsets")


OPTIONS: dict[str, Option] = {part.metadata["option"].name: part.metadata["option"] for part in fields(Options)}
"""All options by name, in their order."""

_ATTRIBUTES = {part.metadata["option"].name.lower(): part.name for part in fields(Options)}
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


def _find(name: str, use: Use) -> tuple[str, Option]:
    """The attribute and the declaration of an option."""
    known = _NAMES.get(name.lower())
    if known is None:
        near = difflib.get_close_matches(name.lower(), _NAMES, n=1)
        allowed = ", ".join(option.name for option in OPTIONS.values() if use in option.uses)
        hint = f"did you mean {_NAMES[near[0]]}? " if near else ""
        raise InvalidArgument(f"there is no option {name!r}: {hint}{use} have {allowed}", option=name)
    option = OPTIONS[known]
    if use not in option.uses:
        raise InvalidArgument(f"the option {known} is for {' and '.join(option.uses)}, not for {use}", option=known)
    return _ATTRIBUTES[name.lower()], option


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
