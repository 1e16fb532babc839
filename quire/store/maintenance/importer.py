"""Import: the lines of an export into a store, through the SPI alone."""

import base64
from collections.abc import Callable, Iterable
from typing import NamedTuple

from quire.errors import DestinationExists, InvalidArgument
from quire.message import Message
from quire.store.base import Delivery, Store, StoredDestination, WriteBatch
from quire.store.maintenance import lines

_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_LINES = 1000


class ImportReport(NamedTuple):
    """What was imported: how many of each."""

    destinations: int
    messages: int
    bytes: int


def import_lines(store: Store, source: Iterable[str | bytes]) -> ImportReport:
    """Import an export into an open store that the caller has locked. A failure keeps what was imported before it.

    Order, sequences, delivery states and dispatch marks are those of the export. A store that has destinations gets
    further ones, with higher ids and lanes; it must not have one of the same kind and name. A mark that the store has
    with another value is never replaced.
    """
    importer = _Importer(store)
    for number, line in enumerate(source, 1):
        found = lines.load(line, number)
        try:
            importer.take(found)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"line {number} is not a valid {found['type']}: {error!r}", line=number) from error
    return importer.finish()


class _Importer:
    """Collects lines into batches."""

    def __init__(self, store: Store) -> None:
        known = store.destinations()
        self._store = store
        self._names = {(destination.kind, destination.name) for destination in known}
        self._first_id = max((destination.id for destination in known), default=0)
        self._first_lane = max((lane for destination in known for lane in destination.lanes), default=0)
        self._lanes: set[int] = set()
        self._batch = WriteBatch()
        self._lines = self._destinations = self._messages = self._bytes = self._batch_bytes = 0
        self._started = False
        self._take: dict[str, Callable[[lines.Object], None]] = {
            "destination": self._take_destination,
            "lane": self._take_lane,
            "message": self._take_message,
            "producer": self._take_producer,
            "mark": self._take_mark,
        }

    def take(self, line: lines.Object) -> None:
        """Import an object; it is stored with its batch."""
        if not self._started:
            if (line["type"], line.get("version")) != (lines.FORMAT, lines.VERSION):
                raise ValueError(f"an export begins with a line of the type {lines.FORMAT}, version {lines.VERSION}")
            self._started = True
            return
        self._take[line["type"]](line)
        self._lines += 1
        if self._lines >= _BATCH_LINES or self._batch_bytes >= _BATCH_BYTES:
            self._flush()

    def finish(self) -> ImportReport:
        if not self._started:
            raise InvalidArgument("the file is empty and not an export")
        self._flush()
        return ImportReport(self._destinations, self._messages, self._bytes)

    def _flush(self) -> None:
        self._store.apply(self._batch)
        self._batch = WriteBatch()
        self._lines = self._batch_bytes = 0

    def _take_destination(self, line: lines.Object) -> None:
        kind, name = line["kind"], line["name"]
        if (kind, name) in self._names:
            raise DestinationExists(f"the store already has {kind}://{name}", name=name)
        self._names.add((kind, name))
        number = self._first_id + line["id"]
        owned = tuple(self._first_lane + lane for lane in line["lanes"])
        self._lanes.update(owned)
        self._batch.destinations[number] = StoredDestination(number, kind, name, dict(line["settings"]), owned)
        self._destinations += 1

    def _take_lane(self, line: lines.Object) -> None:
        """Set what is known of a lane beyond its records; its line comes after its messages."""
        self._flush()
        lane = self._lane(line)
        part = self._batch.lane(lane)
        part.dispatch_mark = int(line["dispatch_mark"])
        last = int(line["next_sequence"]) - 1
        if last >= self._store.lane_state(lane).next_sequence:
            # The lane had later records. Adding and removing one makes the store remember that.
            part.appends.append(Message(last, b"\n\n"))
            part.removals.append(last)

    def _take_message(self, line: lines.Object) -> None:
        message = lines.read_message(line)
        part = self._batch.lane(self._lane(line))
        part.appends.append(message)
        if "delivery" in line:
            part.deliveries[message.sequence] = Delivery(**line["delivery"])
        self._messages += 1
        self._bytes += message.size
        self._batch_bytes += message.size

    def _take_producer(self, line: lines.Object) -> None:
        self._batch.producers[line["producer"]] = int(line["sequence"])

    def _take_mark(self, line: lines.Object) -> None:
        key, value = line["key"], base64.b64decode(line["value"], validate=True)
        if self._store.mark(key) not in (None, value):
            raise InvalidArgument(f"the store already has another mark {key}: import into a new store", key=key)
        self._batch.marks[key] = value
        self._batch_bytes += len(value)

    def _lane(self, line: lines.Object) -> int:
        lane = self._first_lane + int(line["lane"])
        if lane not in self._lanes:
            raise ValueError(f"no destination in an earlier line has lane {line['lane']}")
        return lane
