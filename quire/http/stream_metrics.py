"""The metrics of streams. None has a member, a key or a pin as a label: there may be any number of those."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from quire.http.exposition import Family, written
from quire.management.stream_info import StreamStatus


class _Row(NamedTuple):
    """A metric of a stream."""

    name: str
    text: str
    value: Callable[[StreamStatus], float]


_GAUGES = [
    _Row("quire_stream_partitions", "Partitions.", lambda s: s.partitions),
    _Row("quire_stream_messages", "Messages that it keeps.", lambda s: s.records),
    _Row("quire_stream_bytes", "Their size.", lambda s: s.bytes),
    _Row("quire_stream_resident_bytes", "What its messages take in memory.", lambda s: s.resident_bytes),
    _Row("quire_stream_consumer_groups", "Consumer groups.", lambda s: s.groups),
    _Row("quire_stream_members", "Members of its groups, those that are awaited included.", lambda s: s.members),
    _Row("quire_stream_readers", "Readers, which are of no group.", lambda s: s.readers),
    _Row("quire_stream_pins", "Pins, which keep messages whatever the policy says.", lambda s: s.pins),
]


_COUNTERS = [_Row("quire_stream_appended_messages_total", "Messages that were sent to it.", lambda s: s.appended)]


def stream_metrics(streams: Sequence[StreamStatus]) -> Iterator[bytes]:
    """All metrics of streams, written in pieces.

    Args:
        streams: all streams.
    """
    yield from written([_family(row, "gauge") for row in _GAUGES], streams)
    yield from written([_family(row, "counter") for row in _COUNTERS], streams)


def _family(row: _Row, kind: Literal["counter", "gauge"]) -> Family[StreamStatus]:
    return Family(row.name, kind, row.text, ("stream",), lambda stream: [((stream.name,), row.value(stream))])
