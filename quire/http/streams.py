"""The API's streams: list, look, create, delete, send, read, find, pin."""

import asyncio
from typing import Annotated

import msgspec

from quire.broker.routing.addresses import Address
from quire.broker.streams.partition import MAX_TIME_TO_LIVE, Start
from quire.broker.streams.stream import Stream
from quire.destination import DestinationKind
from quire.errors import BrokerStopping, InvalidArgument
from quire.http.endpoint import (
    MAKE_STREAM,
    MANAGE_STREAM,
    READ_OR_MANAGE_STREAM,
    READ_STREAM,
    SEE_STREAM,
    USER,
    WRITE_STREAM,
    Call,
    DeleteQuery,
    Endpoint,
    Fields,
    Limit,
    Number,
    PageLimit,
    Removed,
    listing,
    see_named,
    table_listing,
)
from quire.http.messages import NewMessage, Sent, send
from quire.http.operations import Counted
from quire.management.streams import FoundMessage, StreamRange, StreamSearch, Wanted
from quire.resources import PartitionOffsets, StreamDetails, StreamPin, StreamStatus
from quire.units import parse_number


class NewStream(Fields, frozen=True):
    """A new stream: its number of partitions; null for the policy's."""

    partitions: Number | None = None


class Partitions(Fields, frozen=True):
    """The new total number of partitions."""

    count: Number


class OffsetsQuery(Fields, frozen=True):
    """A start position to find in each partition: ``earliest``, ``latest``, ``timestamp=...``, ``ago=30m``."""

    start: str | None = None


class RangeQuery(Fields, frozen=True):
    """Which part of a partition to read.

    ``from`` is an offset or a start position, ``until`` the offset to end before. With ``strict`` it is an error if
    messages were removed.
    """

    start: str = msgspec.field(default="earliest", name="from")
    until: Number | None = None
    limit: PageLimit = 100
    max_bytes: Limit = 1 << 20
    strict: bool = False


class FindQuery(Fields, frozen=True):
    """What to find: an id, or a partition and an offset, or all of a key, of a time, or of both.

    Times are in milliseconds since the epoch. With ``dead_letters`` dead letter queues are searched as well.
    """

    id: str | None = None
    partition: Number | None = None
    offset: Number | None = None
    key: str | None = None
    since: Number = 0
    until: Number | None = None
    limit: PageLimit = 100
    dead_letters: bool = False


class FoundMessages(msgspec.Struct, frozen=True):
    """What was found; ``whole`` says whether that is all. ``damaged`` are places that could not be read."""

    messages: list[FoundMessage]
    whole: bool
    damaged: list[tuple[int, int]]


class NewPin(Fields, frozen=True):
    """What to keep: from ``offsets``, by partition, or from a ``start`` position on; without both, all that is there.

    ``time_to_live`` is in seconds.
    """

    time_to_live: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIME_TO_LIVE / 1000)]
    offsets: dict[Number, Number] | None = None
    start: str | None = None


class Released(msgspec.Struct, frozen=True):
    """The pin that was removed."""

    released: str


def _stream(call: Call) -> Stream:
    return call.broker.destinations.existing_stream(call.name)


async def _create(call: Call) -> StreamDetails:
    call.admin.streams.create(call.name, call.body.partitions)
    await call.changed("stream.created", "stream {stream} was created", None)
    return call.admin.streams.stream(call.name)


async def _add_partitions(call: Call) -> StreamDetails:
    count = call.body.count
    call.admin.streams.add_partitions(call.name, count)
    await call.changed("stream.partitions", "stream {stream} now has {partitions} partitions", None, partitions=count)
    return call.admin.streams.stream(call.name)


def _read(call: Call) -> StreamRange:
    query, partition = call.query, parse_number(call.path["partition"])
    if partition is None:
        raise InvalidArgument(f"partition is {call.path['partition'][:60]!r}: write its number", argument="partition")
    return call.admin.streams.read(
        call.name, partition, query.start, query.until, limit=query.limit, max_bytes=query.max_bytes,
        strict=query.strict,
    )  # fmt: skip


async def _find(call: Call) -> FoundMessages:
    query = call.query
    wanted = Wanted(
        query.id, query.partition, query.offset, query.key, query.since, query.until, query.limit, query.dead_letters
    )
    search = StreamSearch(_stream(call), wanted, call.broker.queues)
    for _ in search:
        await asyncio.sleep(0)
        if call.service.is_stopping:
            raise BrokerStopping("the broker is stopping and ended the search")
        if await call.is_gone():
            break
    return FoundMessages(search.found, search.whole, search.damaged)


async def _pin(call: Call) -> StreamPin:
    new: NewPin = call.body
    pin = call.admin.streams.pin(
        call.name, call.path["pin"], new.time_to_live, offsets=new.offsets, start=_start(new.start)
    )
    return await call.changed("stream.pinned", "pin {pin} keeps messages of stream {stream}", pin, until=pin.until)


async def _release(call: Call) -> Released:
    pin = call.path["pin"]
    call.admin.streams.release(call.name, pin)
    return await call.changed("stream.released", "pin {pin} of stream {stream} was removed", Released(pin))


def _start(text: str | None) -> Start | None:
    return None if text is None else Start.parse(text)


def _count(call: Call) -> Counted:
    stream = call.admin.streams.status(_stream(call))
    return Counted(stream.records, consumers=stream.members + stream.readers)


_ONE = "/streams/{name}"

ENDPOINTS = [
    table_listing(
        "StreamList", "/streams", USER, "List the streams with their counts.", "streams", StreamStatus,
        lambda call: call.admin.streams.table(), lambda call, stream: call.admin.streams.status(stream),
        see_named(DestinationKind.STREAM),
    ),
    Endpoint(
        "GET", _ONE, SEE_STREAM, "Get a stream: partitions, groups, pins, policy.",
        lambda call: call.admin.streams.stream(call.name), StreamDetails,
    ),
    Endpoint(
        "PUT", _ONE, MAKE_STREAM, "Create a stream.", _create, StreamDetails, body=NewStream, status=201,
        check=lambda call: call.guard.creates(Address(DestinationKind.STREAM, call.name)),
    ),
    Endpoint(
        "DELETE", _ONE, MANAGE_STREAM,
        "Delete a stream with its groups and messages. With force the broker disconnects members and readers.",
        lambda call: call.removed(
            "stream.deleted", "stream {stream} was deleted",
            call.admin.streams.delete(call.name, force=call.query.force),
        ),
        Removed, DeleteQuery, dry_run=_count,
    ),
    Endpoint(
        "POST", _ONE + "/messages", WRITE_STREAM, "Send a message. The answer comes when it is durable.",
        lambda call: send(call, DestinationKind.STREAM), Sent, body=NewMessage, status=201, takes_message=True,
    ),
    Endpoint(
        "POST", _ONE + "/partitions", MANAGE_STREAM, "Add partitions to a stream.", _add_partitions, StreamDetails,
        body=Partitions,
    ),
    listing(
        "Offsets", _ONE + "/offsets", SEE_STREAM,
        "List the first offset and the end of each partition, in one snapshot.", "partitions", PartitionOffsets,
        lambda call: call.admin.streams.offsets(_stream(call), _start(call.query.start)), OffsetsQuery,
    ),
    Endpoint(
        "GET", _ONE + "/partitions/{partition}/messages", READ_STREAM,
        "Read a range of messages. The read is repeatable.", _read, StreamRange, RangeQuery,
    ),
    Endpoint(
        "GET", _ONE + "/find", READ_STREAM, "Find messages, with their state in each group.", _find, FoundMessages,
        FindQuery,
    ),
    listing(
        "PinList", _ONE + "/pins", SEE_STREAM, "List the pins of a stream.", "pins", StreamPin,
        lambda call: call.admin.streams.pins(_stream(call)),
    ),
    Endpoint(
        "PUT", _ONE + "/pins/{pin}", READ_OR_MANAGE_STREAM, "Pin messages for a time.", _pin, StreamPin, body=NewPin,
    ),
    Endpoint("DELETE", _ONE + "/pins/{pin}", READ_OR_MANAGE_STREAM, "Remove a pin.", _release, Released),
]  # fmt: skip
