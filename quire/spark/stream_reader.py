"""Streaming reads: Spark plans ranges of offsets, and keeps them; a range brings the same messages each time."""

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from quire.clock import Clock, SystemClock
from quire.destination import DestinationKind
from quire.errors import QuireError
from quire.logs import event
from quire.spark.admission import Backlog, Limits, default_limit
from quire.spark.batch_reader import Task, sampled
from quire.spark.explaining import explaining
from quire.spark.losses import Losses
from quire.spark.online.broker import Broker
from quire.spark.online.broker_store import BrokerStore
from quire.spark.options import Options
from quire.spark.planning.selection import named
from quire.spark.planning.tasks import tasks
from quire.spark.schema import shaped
from quire.spark.stream_lanes import StreamLanes, check_streams
from quire.spark.stream_offsets import Offsets, Position, by_stream

REST = 0.1
"""How long the broker is left alone when it had nothing new, in seconds; Spark would ask again after 10 ms."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams of a broker."""

    def __init__(self, options: Options, columns: list[str], clock: Clock | None = None) -> None:
        check_streams(options)
        self._options = options
        self._columns = columns
        self._clock = clock or SystemClock()
        self._broker = Broker.of(options)
        url = options.store_url
        self._source = self._broker if url is None else BrokerStore(url, options.read_timeout)
        self._initial: dict[str, Any] | None = None
        self._target: Position | None = None
        self._seen: Offsets = {}
        self._is_waiting_for_match = False
        self._losses = Losses(is_fatal=options.fail_on_data_loss)
        self._rest_until = self._clock.monotonic()
        self._waiting_since = self._clock.monotonic()
        self._shown: Position | None = None
        self._shown_at = 0.0

    # Where it begins and how far it goes.

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. Spark asks several times until its first micro-batch is done."""
        if self._initial is None:
            with explaining():
                group = self._options.group_id or f"spark-{uuid.uuid4()}"
                look = self._look()
                self._initial = Position(look.starts(), group, look.identities).encoded()
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """What the options say of how much a micro-batch reads."""
        return default_limit(self._options)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next micro-batch ends; ``start`` itself if there is to be none."""
        with explaining():
            time.sleep(max(0.0, self._rest_until - self._clock.monotonic()))
            look, position = self._look(), Position.of(start)
            begun = look.begun(position)
            self._show_progress(position._replace(offsets=begun))
            backlogs = look.backlogs(begun, self._target)
            limits = Limits.of(self._options, limit)
            if backlogs and not self._waits_for_more(backlogs, limits):
                self._waiting_since = self._clock.monotonic()
                return position.moved(begun | limits.ends(backlogs), look.identities).encoded()
            if not look.is_current(position, begun):
                return position.moved(begun, look.identities).encoded()
            self._rest_until = self._clock.monotonic() + REST
            return start

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on nothing is new."""
        with explaining():
            look = self._look()
            self._target = Position({place: extent.end for place, extent in look.extents.items()}, "", look.identities)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the partitions when they were looked at last."""
        return {stream: {str(n): end for n, end in ends.items()} for stream, ends in by_stream(self._seen).items()}

    def _look(self) -> StreamLanes:
        states = self._source.lanes(DestinationKind.STREAM)
        look = StreamLanes(self._source, states, self._options, self._losses)
        self._seen = {place: extent.end for place, extent in look.extents.items()}
        if not look.partitions and not self._is_waiting_for_match:
            pattern = self._options.subscribe_pattern
            assert pattern is not None
            text = f"no stream matches subscribePattern {pattern}{pattern.hint}; there are {named(look.lanes)}"
            event("spark.no_match", f"{text}; the query waits for a matching stream", logging.WARNING)
        self._is_waiting_for_match = not look.partitions
        return look

    def _waits_for_more(self, backlogs: dict[Any, Backlog], limits: Limits) -> bool:
        if limits.min_offsets is None or self._target is not None:
            return False
        is_enough = sum([backlog.offsets for backlog in backlogs.values()]) >= limits.min_offsets
        return not is_enough and self._clock.monotonic() - self._waiting_since < self._options.max_trigger_delay

    # Reading a range.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch: one for each partition that has something, or more."""
        with explaining():
            look, position, goal = self._look(), Position.of(start), Position.of(end)
            if position.start is None and goal.start is not None:
                # Another driver runs the first micro-batch again: it begins where it began, not where one begins now.
                position = goal.start
            begun = look.begun(position)
            self._show_progress(position._replace(offsets=begun))
            backlogs = look.backlogs(begun, goal)
            found = [(look.partitions[place], [range(part.first, part.end)]) for place, part in backlogs.items()]
            return [Task(parts) for parts in tasks(look.lanes, found, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        yield from sampled(self._read(partition))

    def _read(self, partition: Task) -> Iterator[pa.RecordBatch]:
        with explaining():
            for part in partition.parts:
                batches = self._source.read(part, self._columns, whole=self._options.fail_on_data_loss)
                yield from shaped(batches, self._options.include_headers)

    # Telling the broker.

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is done. Spark says so when the next one begins; ``latestOffset`` hears of the last one too."""
        self._show_progress(Position.of(end))

    def _show_progress(self, position: Position) -> None:
        """Pin what the query has not read, and show its progress as a group; once, and again before the pin ends."""
        now = self._clock.monotonic()
        if position == self._shown and now - self._shown_at < self._options.pin_ttl / 2:
            return
        self._shown, self._shown_at = position, now
        group = self._options.group_id or position.group
        for stream, next_offsets in by_stream(position.offsets).items():
            path = f"/streams/{quote(stream, safe='')}"
            pin = {"time_to_live": self._options.pin_ttl, "offsets": next_offsets}
            without = f"retention may remove messages of {stream} before the query reads them"
            self._tell(f"{path}/pins/{quote(group, safe='')}", pin, without)
            if position.start is not None:
                without = f"the group {group} of {stream} does not show the progress of the query"
                self._tell(f"{path}/groups/{quote(group, safe='')}/progress", {"offsets": next_offsets}, without)

    def _tell(self, path: str, body: dict[str, Any], otherwise: str) -> None:
        """Tell the broker something; the query goes on without it too: what it needs is in its checkpoint."""
        try:
            self._broker.put(path, body)
        except QuireError as error:
            event("spark.not_told", f"{otherwise}: {error}", logging.WARNING, code=error.code)
