"""The options of the data source: one table of names, values and meanings, and what may stand together.

Spark keeps options as texts under names in lower case, so names are looked up without regard to case. What is unknown,
cannot be read or is not for this use is an error: an option that is passed over would read other data than was asked
for.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple, Self

from quire.errors import InvalidArgument
from quire.settings.kinds import SWITCH, TEXT, Kind, count, duration, size
from quire.spark.option_kinds import (
    ASSIGNMENT,
    BROKER_URL,
    ENDING_OFFSETS,
    NAME,
    NAMES,
    NAMES_PATTERN,
    STARTING_OFFSETS,
    STORE_URL,
    TIME,
    TOKEN,
    Assignment,
    Name,
    NamePattern,
    Offsets,
)


class Use(StrEnum):
    """What the data source is asked for."""

    READ = "batch reads"
    STREAM = "streaming reads"
    WRITE = "batch writes"
    STREAM_WRITE = "streaming writes"


_READS = (Use.READ, Use.STREAM)
_WRITES = (Use.WRITE, Use.STREAM_WRITE)


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
        "store.url", STORE_URL, (Use.READ,), "The store to read, whether a broker runs on it or not."
    )
    subscribe: tuple[Name, ...] | None = _option(
        "subscribe", NAMES, _READS,
        "Which destinations are read. A name without a kind is that of the one destination that has it; for streaming "
        "reads it is a stream's.",
    )  # fmt: skip
    subscribe_pattern: NamePattern | None = _option(
        "subscribePattern", NAMES_PATTERN, _READS,
        "Which destinations are read: all that match, of one kind or of any. New ones are found while a query runs.",
    )  # fmt: skip
    fail_on_no_match: bool = _option(
        "failOnNoMatch", SWITCH, (Use.READ,),
        "Whether it is an error that nothing matches `subscribePattern`. Else nothing is read. A streaming read warns, "
        "and waits.", True,
    )  # fmt: skip
    assign: Assignment | None = _option("assign", ASSIGNMENT, _READS, "Which partitions are read.")
    starting_offsets: Offsets | None = _option(
        "startingOffsets", STARTING_OFFSETS, _READS,
        "Where a read begins, and partitions that are not named: a batch read at `earliest`, a new streaming query at "
        "`latest`.",
    )  # fmt: skip
    ending_offsets: Offsets | None = _option(
        "endingOffsets", ENDING_OFFSETS, (Use.READ,),
        "Before which offsets a read ends; partitions that are not named end at `latest`.",
    )  # fmt: skip
    starting_timestamp: int | None = _option(
        "startingTimestamp", TIME, _READS,
        "Begin at the first message that the broker took at this time or later, found by binary search.",
    )  # fmt: skip
    ending_timestamp: int | None = _option(
        "endingTimestamp", TIME, (Use.READ,),
        "End before the first message that the broker took at this time or later, found by binary search.",
    )  # fmt: skip
    fail_on_data_loss: bool = _option(
        "failOnDataLoss", SWITCH, _READS,
        "Whether it is an error that offsets of a stream are gone that are to be read. Else they are passed over.",
        True,
    )  # fmt: skip
    min_partitions: int = _option(
        "minPartitions", count(1), _READS, "At least so many tasks read, if there are enough messages.", 1
    )
    include_headers: bool = _option(
        "includeHeaders", SWITCH, _READS, "Whether there is a column `headers`, a map with all headers.", False
    )
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger", count(1), (Use.STREAM,), "How many offsets one micro-batch has at the most."
    )
    min_offsets_per_trigger: int | None = _option(
        "minOffsetsPerTrigger", count(1), (Use.STREAM,), "How many offsets there are to be before a micro-batch begins."
    )
    max_trigger_delay: float = _option(
        "maxTriggerDelay", duration(0.001), (Use.STREAM,), "How long it waits for `minOffsetsPerTrigger`.", 900.0
    )
    max_bytes_per_trigger: int | None = _option(
        "maxBytesPerTrigger", size(1), (Use.STREAM,), "How many bytes of messages one micro-batch has, about."
    )
    group_id: str | None = _option(
        "groupId", TEXT, (Use.STREAM,),
        "The consumer group that shows how far a query is; unless told, a new one that the checkpoint keeps.",
    )  # fmt: skip
    pin_ttl: float = _option(
        "pinTtl", duration(1), (Use.STREAM,),
        "How long a query that has stopped keeps retention from taking what it has not read yet.", 3600.0,
    )  # fmt: skip
    read_timeout: float = _option(
        "readTimeout", duration(0), _READS,
        "How long the driver or a task goes on trying to read while the broker is away; then it fails.", 60.0,
    )  # fmt: skip
    fetch_timeout: float = _option(
        "fetchTimeout", duration(0.001), _READS, "How long each part of an answer of the broker may take.", 30.0
    )
    destination: Name | None = _option(
        "destination", NAME, _WRITES,
        "Where messages go that have no column `destination`, or null there. A name without a kind is a queue's.",
    )  # fmt: skip
    write_timeout: float = _option(
        "writeTimeout", duration(0.001), _WRITES,
        "How long a task goes on trying while the broker is away, or has no room; then it fails.", 60.0,
    )  # fmt: skip
    token: str | None = _option(
        "token", TOKEN, (Use.WRITE,),
        "Names this write, so that it happens once however often it is run. Without it, a write that fails may have "
        "written a part of its rows.",
    )  # fmt: skip
    token_number: int = _option(
        "tokenNumber", count(0), (Use.WRITE,),
        "The number of this write among those under its token, ascending: the batch id in `foreachBatch`. One that is "
        "not above the last one adds nothing.", 0,
    )  # fmt: skip
    exactly_once: bool = _option(
        "exactlyOnce", SWITCH, (Use.STREAM_WRITE,),
        "Whether each micro-batch is written once, and as a whole, however often Spark runs it. Else at least once, "
        "which costs less.", True,
    )  # fmt: skip
    query_name: str | None = _option(
        "queryName", TEXT, (Use.STREAM_WRITE,), "What Spark calls the query. It decides nothing here."
    )
    checkpoint_location: str | None = _option(
        "checkpointLocation", TEXT, (Use.STREAM_WRITE,), "Where Spark keeps the query's progress."
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
                raise InvalidArgument(
                    f"the option {option.name} is {_shown(option, text)}: it is {option.kind.allowed}",
                    option=option.name,
                ) from error
        options = cls(**values)
        if use in _READS:
            options._check_source()
            options._check_positions(use)
        return options

    def _check_source(self) -> None:
        _exactly_one({"broker.url": self.broker_url, "store.url": self.store_url})
        _exactly_one({"subscribe": self.subscribe, "subscribePattern": self.subscribe_pattern, "assign": self.assign})

    def _check_positions(self, use: Use) -> None:
        _at_most_one({"startingOffsets": self.starting_offsets, "startingTimestamp": self.starting_timestamp})
        _at_most_one({"endingOffsets": self.ending_offsets, "endingTimestamp": self.ending_timestamp})
        if use is Use.READ and self.starting_offsets is not None and self.starting_offsets.has_latest:
            text = "startingOffsets cannot be latest (-1) in a batch read, which would have nothing to read"
            raise InvalidArgument(f"{text}: name offsets, or leave the option out", option="startingOffsets")


OPTIONS: dict[str, Option] = {part.metadata["option"].name: part.metadata["option"] for part in fields(Options)}
"""All options by name, in their order."""

_ATTRIBUTES = {part.metadata["option"].name.lower(): part.name for part in fields(Options)}
_NAMES = {name.lower(): name for name in OPTIONS}


def wants_headers(given: Mapping[str, str]) -> bool:
    """Whether a read has the column ``headers``, before it is known whether it is a batch read or a streaming one."""
    errors = []
    for use in _READS:
        try:
            return Options.of(given, use).include_headers
        except InvalidArgument as error:
            errors.append(error)
    raise errors[0]


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
    return "not as it should be" if option.name.endswith(".url") else repr(text[:100])


def _exactly_one(options: Mapping[str, object]) -> None:
    if all(value is None for value in options.values()):
        raise InvalidArgument(f"an option is missing: give one of {', '.join(options)}", options=list(options))
    _at_most_one(options)


def _at_most_one(options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise InvalidArgument(f"the options {' and '.join(given)} exclude each other: give one of them", options=given)
