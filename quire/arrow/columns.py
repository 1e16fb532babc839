"""The columns of messages in bulk reads."""

from collections.abc import Iterable

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")

COLUMNS: dict[str, pa.DataType] = {
    "destination": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "message_id": pa.string(),
    "timestamp": TIME,
    "priority": pa.int32(),
    "persistent": pa.bool_(),
    "expiration": TIME,
    "deliveries": pa.int32(),
    "key": pa.string(),
    "value": pa.binary(),
    "headers": pa.map_(pa.string(), pa.string()),
}
"""The columns by name, in their order.

``partition`` is the index of the lane among those of its destination: always 0 but for streams, and for queues
and topics that are prioritized. ``offset`` is the sequence. ``expiration`` is null for never. ``key`` is the header
``key``, or else ``partition-key``.
``headers`` has all header lines, the first two included.
"""


def schema_of(names: Iterable[str]) -> pa.Schema:
    """The schema of some columns, in the order given."""
    return pa.schema([(name, COLUMNS[name]) for name in names])
