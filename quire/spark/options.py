"""The options of the data source. Names have no case, as in Spark; unknown or unsuitable options are errors."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple, Self

from quire.destination import Destination
from quire.errors import InvalidArgument
from quire.settings.key import SWITCH, TEXT, Kind, count, duration, size
from quire.spark.option_kinds import (
    ASSIGNMENT,
    BROKER_URL,
    ENDING_OFFSETS,
    HEADERS,
    NAME,
    NAMES,
    NAMES_PATTERN,
    STARTING_OFFSETS,
    STORE_URL,
    TIME,
    TIMES,
    TOKEN,
    Assignment,
    ByPartition,
    Headers,
    Name,
    NamePattern,
    Offsets,
)
from quire.units import TimeInSeconds


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
