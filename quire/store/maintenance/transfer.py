"""Export and import: everything a store has, as lines that any other store can import.

A line is one JSON object, exact to the byte; what is not UTF-8 is in base64.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from quire.errors import DestinationExists, InvalidArgument
from quire.message import Message
from quire.store.base import Delivery, Store, StoredDestination, StoreReader, WriteBatch, walk_marks, walk_producers

FORMAT = "quire-export"
VERSION = 1

Object = Mapping[str, Any]


def dump(line: Object) -> str:
    """An object as a line, without the line feed."""
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def load(line: str | bytes, number: int) -> dict[str, Any]:
    """Read a line; its number is for the error."""
    try:
        found = json.loads(line)
        if isinstance(found["type"], str):
            return dict(found)
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidArgument(f"line {number} is not an object of an export: {error!r}", line=number) from error
    raise InvalidArgument(f"line {number} has no type", line=number)


def message_line(lane: int, message: Message, delivery: Delivery | None) -> Object:
    end = message.content.index(b"\n\n") + 1
    line: dict[str, Any] = {"type": "message", "lane": lane, "sequence": message.sequence}
    line |= {"priority": message.priority, "expiration": message.expiration}
    if delivery is not None:
        line["delivery"] = delivery._asdict()
    return line | _head_part(message.content[:end]) | body_part(message.content[end + 1 :])


def read_message(line: Object) -> Message:
    """A message from an object; one that makes no sense is a ``KeyError``, ``TypeError`` or ``ValueError``."""
    head = base64.b64decode(line["head"], validate=True) if "head" in line else _head_lines(line["headers"])
    body = line["body"]
    content = base64.b64decode(body, validate=True) if line["encoding"] == "base64" else body.encode()
    return Message(int(line["sequence"]), head + b"\n" + content, int(line["expiration"]), int(line["priority"]))


def body_part(body: bytes) -> dict[str, str]:
    try:
        return {"encoding": "text", "body": body.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "body": base64.b64encode(body).decode()}


def _head_part(head: bytes) -> dict[str, Any]:
    try:
        parts = [line.partition(":") for line in head.decode()[:-1].split("\n")]
    except UnicodeDecodeError:
        parts = []
    if parts and all(colon for _, colon, _ in parts):
        return {"headers": [[name, value] for name, _, value in parts]}
    return {"head": base64.b64encode(head).decode()}


def _head_lines(headers: list[list[str]]) -> bytes:
    return "".join([f"{name}:{value}\n" for name, value in headers]).encode()


_PAGE_BYTES = 4 * 1024 * 1024
_PAGE_RECORDS = 1000


def export(store: Store) -> Iterator[str]:
    """The lines of a store: destinations with messages and lanes, producers, marks; a damaged record ends it."""
    yield dump({"type": FORMAT, "version": VERSION})
    for destination in store.destinations():
        yield dump({"type": "destination", **destination._asdict()})
        for lane in destination.lanes:
            with store.snapshot() as reader:
                yield from _lane(reader, lane)
    with store.snapshot() as reader:
        for producer, sequence in walk_producers(reader):
            # What is left of an id that is too long for a key may end within a character: JSON can escape that.
            yield json.dumps({"type": "producer", "producer": producer, "sequence": sequence}, separators=(",", ":"))
    with store.snapshot() as reader:
        for key, value in walk_marks(reader):
            yield dump({"type": "mark", "key": key, "value": base64.b64encode(value).decode()})


def _lane(reader: StoreReader, lane: int) -> Iterator[str]:
    start, end = 0, False
    while not end:
        messages, end = reader.page(lane, start, _PAGE_BYTES, _PAGE_RECORDS)
        deliveries = dict(reader.deliveries(lane, start, len(messages))) if messages else {}
        for message in messages:
            yield dump(message_line(lane, message, deliveries.get(message.sequence)))
            start = message.sequence + 1
    state = reader.lane_state(lane)
    marks = {"next_sequence": state.next_sequence, "dispatch_mark": state.dispatch_mark}
    yield dump({"type": "lane", "lane": lane, **marks})


_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_LINES = 1000


class ImportReport(NamedTuple):
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
        found = load(line, number)
        try:
            importer.take(found)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"line {number} is not a valid {found['type']}: {error!r}", line=number) from error
    return importer.finish()


class _Importer:
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
        self._take: dict[str, Callable[[Object], None]] = {
            "destination": self._take_destination,
            "lane": self._take_lane,
            "message": self._take_message,
            "producer": self._take_producer,
            "mark": self._take_mark,
        }

    def take(self, line: Object) -> None:
        """Import an object; it is stored with its batch."""
        if not self._started:
            if (line["type"], line.get("version")) != (FORMAT, VERSION):
                raise ValueError(f"an export begins with a line of the type {FORMAT}, version {VERSION}")
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

    def _take_destination(self, line: Object) -> None:
        kind, name = line["kind"], line["name"]
        if (kind, name) in self._names:
            raise DestinationExists(f"the store already has {kind}://{name}", name=name)
        self._names.add((kind, name))
        number = self._first_id + line["id"]
        owned = tuple(self._first_lane + lane for lane in line["lanes"])
        self._lanes.update(owned)
        self._batch.destinations[number] = StoredDestination(number, kind, name, dict(line["settings"]), owned)
        self._destinations += 1

    def _take_lane(self, line: Object) -> None:
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

    def _take_message(self, line: Object) -> None:
        message = read_message(line)
        part = self._batch.lane(self._lane(line))
        part.appends.append(message)
        if "delivery" in line:
            part.deliveries[message.sequence] = Delivery(**line["delivery"])
        self._messages += 1
        self._bytes += message.size
        self._batch_bytes += message.size

    def _take_producer(self, line: Object) -> None:
        self._batch.producers[line["producer"]] = int(line["sequence"])

    def _take_mark(self, line: Object) -> None:
        key, value = line["key"], base64.b64decode(line["value"], validate=True)
        if self._store.mark(key) not in (None, value):
            raise InvalidArgument(f"the store already has another mark {key}: import into a new store", key=key)
        self._batch.marks[key] = value
        self._batch_bytes += len(value)

    def _lane(self, line: Object) -> int:
        lane = self._first_lane + int(line["lane"])
        if lane not in self._lanes:
            raise ValueError(f"no destination in an earlier line has lane {line['lane']}")
        return lane
