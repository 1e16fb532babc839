"""Export: everything a store has, as lines that any other store can import."""

import base64
from collections.abc import Iterator

from quire.store.base import Store, StoreReader
from quire.store.maintenance import lines
from quire.store.marks import walk_marks, walk_producers

_PAGE_BYTES = 4 * 1024 * 1024
_PAGE_RECORDS = 1000


def export(store: Store) -> Iterator[str]:
    """The lines of a store: destinations with messages and lanes, producers, marks; a damaged record ends it."""
    yield lines.dump({"type": lines.FORMAT, "version": lines.VERSION})
    for destination in store.destinations():
        yield lines.dump({"type": "destination", **destination._asdict()})
        for lane in destination.lanes:
            with store.snapshot() as reader:
                yield from _lane(reader, lane)
    with store.snapshot() as reader:
        for producer, sequence in walk_producers(reader):
            yield lines.dump({"type": "producer", "producer": producer, "sequence": sequence})
    with store.snapshot() as reader:
        for key, value in walk_marks(reader):
            yield lines.dump({"type": "mark", "key": key, "value": base64.b64encode(value).decode()})


def _lane(reader: StoreReader, lane: int) -> Iterator[str]:
    start, end = 0, False
    while not end:
        messages, end = reader.page(lane, start, _PAGE_BYTES, _PAGE_RECORDS)
        deliveries = dict(reader.deliveries(lane, start, len(messages))) if messages else {}
        for message in messages:
            yield lines.dump(lines.message_line(lane, message, deliveries.get(message.sequence)))
            start = message.sequence + 1
    state = reader.lane_state(lane)
    marks = {"next_sequence": state.next_sequence, "dispatch_mark": state.dispatch_mark}
    yield lines.dump({"type": "lane", "lane": lane, **marks})
