"""What a bulk writer hands in: many messages by columns, read row by row.

A row means what a STOMP client's SEND with the same headers would mean: where it goes, its priority, its expiration,
its delay, its group. The columns ``key``, ``partition``, ``priority`` and ``persistent`` stand for headers.
"""

from collections.abc import Iterator
from itertools import islice, repeat
from typing import Annotated, Any

import msgspec

from quire.broker.admission import SizeLimit
from quire.broker.bulk.rows import Row, target_of
from quire.broker.destinations import Destinations
from quire.broker.routing.route import NOT_STORED, read_priority, whole_number
from quire.broker.routing.routing import Routing
from quire.broker.schedule import SENDER, ScheduledSend
from quire.broker.streams.stream import PARTITION
from quire.destination import Destination, DestinationKind, written
from quire.errors import InvalidArgument, InvalidHeader, LimitExceeded, QuireError
from quire.message import header_lines, long_header
from quire.settings.keys import StompSettings
from quire.units import LARGEST

MAX_ROWS = 10_000
"""How many rows may be handed in at once: giving them all to their destinations takes some hundredths of a second."""

MAX_BYTES = 16 << 20
"""How large what is handed in at once may be, in bytes."""

KEY = "key"
"""The header that has a message's key, except in streams: there the policy names one (``partition_key_header``)."""

_DROPPED = NOT_STORED | {"content-length"}
"""Headers that only the broker writes, or that its frames have of their own: a message that was read may have them."""

Priority = Annotated[int, msgspec.Meta(ge=0, le=9)]
Partition = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows by columns, each as long as ``value``; a column that is null says nothing of any row.

    Attributes:
        destination: where all rows go, or where each one goes: ``orders``, ``topic://prices``, ``stream://events``.
        value: the bodies.
        key: decides on the partition in a stream.
        partition: which partition of a stream, from 0; null as the key says, or in turn.
        headers: further headers, unescaped.
        priority: 0 to 9; null for 4.
        persistent: whether the message must survive the broker; null for yes.
    """

    destination: str | list[str]
    value: list[bytes]
    key: list[str | None] | None = None
    partition: list[Partition | None] | None = None
    headers: list[dict[str, str] | None] | None = None
    priority: list[Priority | None] | None = None
    persistent: list[bool | None] | None = None


class RowReader:
    """Understands rows. Their destinations are created if they are not there."""

    def __init__(
        self, limits: StompSettings, streams: Destinations, routing: Routing, columns: Columns, sender: str = ""
    ) -> None:
        self._sender = sender
        self._limits = limits
        self._streams = streams
        self._routing = routing
        self._count = len(columns.value)
        self._destinations: dict[str, tuple[Destination, SizeLimit | None]] = {}
        if self._count > MAX_ROWS:
            raise LimitExceeded(f"a request with {self._count} rows, the limit is {MAX_ROWS}", limit=MAX_ROWS)
        destination = columns.destination
        self._is_plain = isinstance(destination, str)
        given: list[Any] = [repeat(destination) if isinstance(destination, str) else self._of_all(destination)]
        given.append(columns.value)
        for column in (columns.key, columns.partition, columns.headers, columns.priority, columns.persistent):
            given.append(repeat(None) if column is None else self._of_all(column))
            self._is_plain = self._is_plain and column is None
        self._rows = zip(*given, strict=False)

    def _of_all(self, column: list[Any]) -> list[Any]:
        if len(column) != self._count:
            raise InvalidArgument(f"a column has {len(column)} rows and value has {self._count}: give each row one")
        return column

    def steps(self, size: int) -> Iterator[list[Row]]:
        """All rows, ``size`` at a time. An error's data have the number of its ``row``, from 0."""
        read = 0
        if self._is_plain and self._count:
            [first] = self._step([next(self._rows)], 0)
            yield [first]
            read = 1
            if all([limit is None for _, limit in self._destinations.values()]):
                while bodies := [body for _, body, *_ in islice(self._rows, size)]:
                    yield [first._replace(body=body) for body in bodies]
        while found := list(islice(self._rows, size)):
            yield self._step(found, read)
            read += len(found)

    def _step(self, found: list[tuple[Any, ...]], read: int) -> list[Row]:
        rows: list[Row] = []
        try:
            rows.extend(self._row(*fields) for fields in found)
        except QuireError as error:
            number = read + len(rows)
            raise type(error)(f"row {number}: {error}", **error.data | {"row": number}) from error
        return rows

    def _row(
        self, to: str, body: bytes, key: str | None, partition: int | None, headers: dict[str, str] | None,
        priority: int | None, persistent: bool | None,
    ) -> Row:  # fmt: skip
        if (known := self._destinations.get(to)) is None:
            destination = written(to)
            known = self._destinations[to] = destination, self._routing.size_limit([destination])
        destination, limit = known
        if limit is not None:
            limit.check(len(body))
        fields = {name: value for name, value in headers.items() if name not in _DROPPED} if headers else {}
        if key is not None:
            fields[self._key_header(destination)] = key
        if partition is not None:
            fields[PARTITION] = self._partition(destination, partition)
        if persistent is not None and (not persistent or "persistent" in fields):
            fields["persistent"] = str(persistent).lower()
        lines, given = self._lines(fields), headers or {}
        row = Row(
            f"/{destination.kind}/{destination.name}", lines, body, whole_number(given, "expires", 0, 0, 1 << 62),
            read_priority(given) if priority is None else priority,
            fields.get("persistent", "true").strip().lower() != "false",
        )  # fmt: skip
        target = target_of(self._routing, row)
        if isinstance(target, ScheduledSend) and self._sender:
            target.check_room(self._sender)
            row = row._replace(lines=header_lines({SENDER: self._sender}) + row.lines)
        return row

    def _key_header(self, destination: Destination) -> str:
        if destination.kind is DestinationKind.STREAM:
            return self._streams.stream(destination.name).policy.partition_key_header or KEY
        return KEY

    def _partition(self, destination: Destination, number: int) -> str:
        if destination.kind is not DestinationKind.STREAM:
            text = f"a row for {destination} has partition {number}, but only streams have partitions"
            raise InvalidArgument(text, argument=PARTITION)
        self._streams.stream(destination.name).route({PARTITION: str(number)})
        return str(number)

    def _lines(self, fields: dict[str, str]) -> bytes:
        lines, limits = header_lines(fields), self._limits
        if "" in fields or b"\0" in lines:
            bad = next(name for name, value in fields.items() if not name or "\0" in name + value)
            raise InvalidHeader(f"the header {bad[:60]!r} has no name, or a NUL character", header=bad[:60])
        if len(fields) > limits.max_headers:
            raise LimitExceeded(f"{len(fields)} headers, the limit is {limits.max_headers}", limit=limits.max_headers)
        if (name := long_header(lines, limits.max_line)) is not None:
            text = f"the header {name!r} is longer than {limits.max_line} bytes"
            raise LimitExceeded(text, limit=limits.max_line, header=name)
        return lines + b"\n"
