"""The metrics of streams. None has a member, a key or a pin as a label: there may be any number of those."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from quire.broker.management.stream_info import StreamStatus


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


def stream_metrics(streams: Sequence[StreamStatus]) -> Iterator[Metric]:
    """All metrics of streams.

    Args:
        streams: all streams.
    """
    for row in _GAUGES:
        gauge = GaugeMetricFamily(row.name, row.text, labels=["stream"])
        for stream in streams:
            gauge.add_metric([stream.name], row.value(stream))
        yield gauge
    name, text = "quire_stream_appended_messages", "Messages that were sent to it."
    appended = CounterMetricFamily(name, text, labels=["stream"])
    for stream in streams:
        appended.add_metric([stream.name], stream.appended)
    yield appended
