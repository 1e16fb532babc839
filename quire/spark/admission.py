"""How much a micro-batch reads."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from quire.spark.options import Options
from quire.spark.stream_offsets import Offsets, Place


class Backlog(NamedTuple):
    """What there is to read of a partition: from an offset to before another one; the mean size is in bytes."""

    first: int
    end: int
    mean_size: float

    @property
    def offsets(self) -> int:
        return self.end - self.first


class Limits(NamedTuple):
    """The limits of a micro-batch, None for none; but each partition that has something gives one offset at least."""

    max_offsets: int | None = None
    max_bytes: int | None = None
    min_offsets: int | None = None

    @classmethod
    def of(cls, options: Options, limit: ReadLimit) -> "Limits":
        """The limits that hold now: Spark hands back one of them, unless the trigger wants everything."""
        if isinstance(limit, ReadAllAvailable):
            return cls()
        limits = cls(options.max_offsets_per_trigger, options.max_bytes_per_trigger, options.min_offsets_per_trigger)
        if isinstance(limit, ReadMaxRows):
            return limits._replace(max_offsets=limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return limits._replace(max_bytes=limit.max_bytes)
        if isinstance(limit, ReadMinRows):
            return limits._replace(min_offsets=limit.min_rows)
        return limits

    def ends(self, backlogs: Mapping[Place, Backlog]) -> Offsets:
        """Where a micro-batch ends in each partition: each gives up the same share of what it has."""
        offsets = sum([backlog.offsets for backlog in backlogs.values()])
        size = sum([backlog.offsets * backlog.mean_size for backlog in backlogs.values()])
        share = 1.0
        if self.max_offsets is not None and offsets > self.max_offsets:
            share = self.max_offsets / offsets
        if self.max_bytes is not None and size > self.max_bytes:
            share = min(share, self.max_bytes / size)
        if share == 1.0:
            return {place: backlog.end for place, backlog in backlogs.items()}
        return {
            place: backlog.first + min(max(1, int(backlog.offsets * share)), backlog.offsets)
            for place, backlog in backlogs.items()
        }


def default_limit(options: Options) -> ReadLimit:
    """The limit that Spark hands back with each micro-batch, unless the trigger wants everything there is."""
    if options.max_offsets_per_trigger is not None:
        return ReadMaxRows(options.max_offsets_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    if options.min_offsets_per_trigger is not None:
        return ReadMinRows(options.min_offsets_per_trigger)
    return ReadAllAvailable()
