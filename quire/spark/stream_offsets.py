"""How far a streaming query is, as Spark keeps it in the checkpoint.

``{"?group": "job", "?identity": {"events": "5f0c"}, "?start": {...}, "events": {"0": 12, "1": 7}}``: the offsets are
those of the next messages. What else there is stands under names that no stream can have.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

GROUP = "?group"
"""The entry with the name of the consumer group that shows the progress: so a query keeps its group over restarts."""

IDENTITY = "?identity"
"""The entry with the identity of each stream: one that is deleted and made again has another."""

START = "?start"
"""The entry with the position where the query began; that position itself has none."""


class Place(NamedTuple):
    """A partition of a stream."""

    stream: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of the stream {self.stream}"


Offsets = dict[Place, int]
"""The offset of the next message of each partition."""


class Position(NamedTuple):
    """How far a query is, its group, the identities of its streams, and where it began: None before its first read."""

    offsets: Offsets
    group: str
    identities: dict[str, str]
    start: "Position | None" = None

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> Self:
        offsets = {
            Place(stream, int(partition)): offset
            for stream, partitions in kept.items()
            if not stream.startswith("?")
            for partition, offset in partitions.items()
        }
        start = cls.of(kept[START]) if START in kept else None
        return cls(offsets, str(kept[GROUP]), dict(kept.get(IDENTITY, {})), start)

    def encoded(self) -> dict[str, Any]:
        """What Spark keeps. The order is always the same: Spark compares texts to see whether something is new."""
        kept: dict[str, Any] = {GROUP: self.group, IDENTITY: dict(sorted(self.identities.items()))}
        if self.start is not None:
            kept[START] = self.start.encoded()
        for place in sorted(self.offsets):
            kept.setdefault(place.stream, {})[str(place.partition)] = self.offsets[place]
        return kept

    def moved(self, offsets: Offsets, identities: dict[str, str]) -> "Position":
        """The position of the same query after a micro-batch: the next offsets, and the identities now."""
        return Position(offsets, self.group, identities, self.start or self)


def by_stream(offsets: Offsets) -> dict[str, dict[int, int]]:
    """The offsets by partition, by stream."""
    found: dict[str, dict[int, int]] = {}
    for place, offset in offsets.items():
        found.setdefault(place.stream, {})[place.partition] = offset
    return found
