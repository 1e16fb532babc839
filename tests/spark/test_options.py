"""The options of the data source: what is read from them, and what is refused."""

from typing import Any

import pytest

from quire.destination import DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument
from quire.spark.options import (
    EARLIEST,
    LATEST,
    OPTIONS,
    ByPartition,
    Headers,
    Name,
    NamePattern,
    Offsets,
    Options,
    Use,
)

STORE = {"store.url": "lmdb:///data"}
BROKER = {"broker.url": "http://127.0.0.1:8161"}
EVENTS = Name(None, "events")


def read(**given: str) -> Options:
    return Options.of({**STORE, "subscribe": "events", **given}, Use.READ)


def stream(**given: str) -> Options:
    return Options.of({**BROKER, "subscribe": "events", **given}, Use.STREAM)


def test_without_more_a_read_is_of_everything_and_whole() -> None:
    options = read()
    assert (options.store_url, options.subscribe) == ("lmdb:///data", (EVENTS,))
    assert (options.starting_offsets, options.ending_offsets) == (None, None)
    assert (options.fail_on_data_loss, options.min_partitions, options.include_headers) == (True, 1, Headers.NONE)


def test_names_are_read_in_any_case() -> None:
    assert (
        Options.of({"STORE.URL": "lmdb:///data", "Subscribe": "a", "minpartitions": "4"}, Use.READ).min_partitions == 4
    )


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("includeHeaders", "TRUE", "include_headers", Headers.MAP),
        ("includeHeaders", "0", "include_headers", Headers.NONE),
        ("includeHeaders", "Array", "include_headers", Headers.ARRAY),
        ("maxRecordsPerPartition", "1000", "max_records_per_partition", 1000),
        ("startingOffsetsByTimestamp", '{"events": {"0": 1700000000000, "1": "2023-11-14T22:13:20Z"}}',
         "starting_offsets_by_timestamp", ByPartition(None, {EVENTS: {0: 1_700_000_000_000, 1: 1_700_000_000_000}})),
        ("startingTimestamp", "1700000000000", "starting_timestamp", 1_700_000_000_000),
        ("endingTimestamp", "2023-11-14T22:13:20Z", "ending_timestamp", 1_700_000_000_000),
        ("startingOffsets", "earliest", "starting_offsets", Offsets(EARLIEST, {})),
        ("endingOffsets", "latest", "ending_offsets", Offsets(LATEST, {})),
        ("startingOffsets", '{"events": {"0": 12, "1": -2}}', "starting_offsets",
         Offsets(None, {EVENTS: {0: 12, 1: EARLIEST}})),
        ("fetchTimeout", "500ms", "fetch_timeout", 0.5),
    ],
)  # fmt: skip
def test_a_value_is_read(name: str, text: str, attribute: str, value: Any) -> None:
    assert getattr(read(**{name: text}), attribute) == value


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("maxOffsetsPerTrigger", "5000", "max_offsets_per_trigger", 5000),
        ("maxBytesPerTrigger", "64MB", "max_bytes_per_trigger", 64_000_000),
        ("maxTriggerDelay", "15m", "max_trigger_delay", 900.0),
        ("pinTtl", "1h", "pin_ttl", 3600.0),
        ("startingOffsets", "latest", "starting_offsets", Offsets(LATEST, {})),
    ],
)
def test_a_value_for_streaming_is_read(name: str, text: str, attribute: str, value: Any) -> None:
    assert getattr(stream(**{name: text}), attribute) == value


def test_a_streaming_read_may_take_messages_from_the_store_but_needs_the_broker() -> None:
    assert stream(**STORE).store_url == "lmdb:///data"
    with pytest.raises(InvalidArgument, match=r"needs broker\.url"):
        Options.of({**STORE, "subscribe": "events"}, Use.STREAM)


def test_destinations_may_say_what_they_are() -> None:
    options = Options.of({**STORE, "subscribe": "queue://a, b,topic://c.d,b"}, Use.READ)
    assert options.subscribe == (
        Name(DestinationKind.QUEUE, "a"), Name(None, "b"), Name(DestinationKind.TOPIC, "c.d"),
    )  # fmt: skip


def test_a_pattern_is_of_one_kind_or_of_any() -> None:
    assert Options.of({**STORE, "subscribePattern": "orders.>"}, Use.READ).subscribe_pattern == NamePattern(
        None, Pattern("orders.>")
    )
    assert Options.of({**STORE, "subscribePattern": "queue://*"}, Use.READ).subscribe_pattern == NamePattern(
        DestinationKind.QUEUE, Pattern("*")
    )


@pytest.mark.parametrize("text", ["orders.*", "orders-[0-9]+", "(a|b)", "^orders", "orders$", r"orders\.eu", "orders*"])
def test_a_pattern_that_may_be_meant_as_a_regular_expression_gets_a_hint(text: str) -> None:
    assert "no regular expression" in NamePattern(None, Pattern(text)).hint


@pytest.mark.parametrize("text", ["orders.>", ">", "orders", "$quire.ledger", "orders-2026_01"])
def test_a_plain_pattern_gets_none(text: str) -> None:
    assert not NamePattern(None, Pattern(text)).hint


def test_partitions_are_assigned_by_number() -> None:
    assert Options.of({**STORE, "assign": '{"events": [3, 0, 3]}'}, Use.READ).assign == {EVENTS: (0, 3)}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"subscribe": "a"}, "an option is missing: give one of broker.url, store.url"),
        ({**STORE}, "an option is missing: give one of subscribe, subscribePattern, assign"),
        ({**STORE, **BROKER, "subscribe": "a"}, "broker.url and store.url exclude each other"),
        ({**STORE, "subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign exclude each other"),
        ({**STORE, "subscribe": "a", "startingOffsets": "earliest", "startingTimestamp": "1"},
         "startingOffsets and startingTimestamp exclude each other"),
        ({**STORE, "subscribe": "a", "endingOffsetsByTimestamp": '{"a": {"0": 1}}', "endingTimestamp": "1"},
         "endingTimestamp and endingOffsetsByTimestamp exclude each other"),
        ({**STORE, "subscribe": "a", "startingOffset": "1"}, "'startingOffset': did you mean startingOffsets"),
        ({**STORE, "subscribe": "a", "colour": "red"}, "no option 'colour': batch reads have broker.url, store.url"),
        ({**STORE, "subscribe": "a", "maxOffsetsPerTrigger": "1"}, "is for streaming reads, not for batch reads"),
        ({**STORE, "subscribe": "a", "startingOffsets": "latest"}, "cannot be latest"),
        ({**STORE, "subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, "cannot be latest"),
    ],
)  # fmt: skip
def test_what_is_missing_unknown_or_too_much_is_named(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Options.of(given, Use.READ)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("subscribe", "a,,b"),
        ("subscribe", "mailbox://a"),
        ("subscribe", "a.*"),
        ("subscribePattern", "a.>.b"),
        ("subscribePattern", "orders?"),
        ("assign", "[0]"),
        ("assign", '{"a": [-1]}'),
        ("assign", '{"a": []}'),
        ("assign", '{"a": [true]}'),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"a": {"0": -3}}'),
        ("startingOffsets", '{"a": {"x": 1}}'),
        ("startingOffsets", '{"a": 1}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"a": {"0": -2}}'),
        ("startingTimestamp", "yesterday"),
        ("startingOffsetsByTimestamp", '{"a": {"0": "yesterday"}}'),
        ("startingOffsetsByTimestamp", '{"a": {"0": -1}}'),
        ("startingOffsetsByTimestamp", "1700000000000"),
        ("includeHeaders", "map"),
        ("failOnDataLoss", "perhaps"),
        ("minPartitions", "0"),
        ("fetchTimeout", "soon"),
        ("broker.url", "127.0.0.1:8161"),
        ("store.url", "memory:"),
        ("store.url", "lmdb:data"),
        ("store.url", "mysql://user:secret@host/name"),
    ],
)
def test_a_value_that_is_none_is_refused_with_what_is_allowed(name: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Options.of({name: text}, Use.READ)
    assert str(caught.value).startswith(f"the option {name} is ")
    assert OPTIONS[name].kind.allowed in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [("startingTimestamp", "1795689535"), ("startingOffsetsByTimestamp", '{"a": {"0": 1795689535}}')],
)
def test_a_time_in_seconds_is_refused_with_a_hint(name: str, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Options.of({name: text}, Use.READ)
    assert str(caught.value).startswith(f"the option {name} is ")
    assert "1795689535 is a time in seconds: write it in milliseconds, as 1795689535000" in str(caught.value)


def test_every_option_says_what_it_is_for() -> None:
    for option in OPTIONS.values():
        assert option.uses
        assert option.text.endswith(".")
        assert option.kind.allowed


def test_writes_have_options_of_their_own() -> None:
    options = Options.of({**BROKER, "destination": "queue://a", "exactlyOnce": "false"}, Use.STREAM_WRITE)
    assert (options.destination, options.exactly_once) == (Name(DestinationKind.QUEUE, "a"), False)
    with pytest.raises(InvalidArgument, match=r"is for batch reads and streaming reads, not for batch writes"):
        Options.of(STORE, Use.WRITE)
