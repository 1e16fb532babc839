"""How far a streaming query is, as Spark keeps it in the checkpoint: ``{"events": {"0": 12, "1": 7}}``.

The offsets are those of the next messages. Beside them stands, under a name that no stream can have, the consumer group
that shows the progress: so a query keeps its group over restarts.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

GROUP = "?group"
"""The name of the entry that says what the group is called."""


class Place(NamedTuple):
    """A partition of a stream."""

    stream: str
    partition: int


Offsets = dict[Place, int]
"""The offset of the next message of each partition."""


def decoded(kept: Mapping[str, Any]) -> Offsets:
    """The offsets, out of what Spark keeps."""
    return {
        Place(stream, int(partition)): offset
        for stream, partitions in kept.items()
        if stream != GROUP
        for partition, offset in partitions.items()
    }


def encoded(offsets: Offsets, group: str) -> dict[str, Any]:
    """What Spark keeps. The order is always the same: Spark compares texts to see whether there is something new."""
    kept: dict[str, Any] = {GROUP: group}
    for place in sorted(offsets):
        kept.setdefault(place.stream, {})[str(place.partition)] = offsets[place]
    return kept


def by_stream(offsets: Offsets) -> dict[str, dict[int, int]]:
    """The offsets by partition, by stream."""
    found: dict[str, dict[int, int]] = {}
    for place, offset in offsets.items():
        found.setdefault(place.stream, {})[place.partition] = offset
    return found
