"""The pipeline ``audit``: checks by the delivery ledger that every message was delivered, in order, once.

Histories become counts by destination and by window, and the slowest consumers. In an audit that goes on, each batch of
the ledger becomes histories of its own, which the report adds up; one alert for each fault is sent with the batch that
shows it.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import click
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from quire.clock import SystemClock
from quire.destination import written
from quire.errors import InvalidArgument
from quire.spark.pipelines import ledger
from quire.spark.pipelines.audit_report import AuditReport, Expectations, Row, Verdict, compared, print_report
from quire.spark.pipelines.command import (
    PipelineCommand,
    console,
    duration,
    live,
    output_option,
    pairs,
    place_options,
    print_json,
    report_option,
    run_alone,
    spark_options,
    start_session,
    wait_for,
)
from quire.spark.pipelines.files import plain_rows, read_or_none, start_batches, time_text
from quire.spark.pipelines.histories import SCHEMA, histories, merged
from quire.spark.pipelines.judgement import (
    COUNTS,
    LATENCIES,
    Remaining,
    consumers,
    deliveries,
    disordered,
    is_again_flagged,
    is_again_unflagged,
    is_to_be_ordered,
    judged,
    received,
    subscribed,
    sums,
)
from quire.spark.pipelines.ledger import MESSAGE, events
from quire.spark.pipelines.place import LEDGER, Place

CONSUMERS = 100_000
"""Of how many consumers the highest sequence is known; those whose last delivery is the oldest are forgotten."""

_LANE = ("destination", "partition")
_CONSUMER = (*_LANE, "consumer")


class Span(NamedTuple):
    """Which messages of a destination's partition are in a batch: the lowest and the highest sequence."""

    destination: str
    partition: int
    low: int
    high: int

    def overlaps(self, other: "Span") -> bool:
        is_same = (self.destination, self.partition) == (other.destination, other.partition)
        return is_same and self.low <= other.high and other.low <= self.high


class Alerts:
    """Finds the faults that each batch of the ledger adds, and sends them.

    What it knows of earlier batches is little, and is read from their histories once: which messages each has, and what
    each consumer had last. So the work on a batch follows its size, and not that of the ledger.

    Args:
        work: the audit's directory.
        target: the options of the sink: the broker, and the destination of alerts.
        any_order: whether messages may come out of order.
    """

    def __init__(self, work: str, target: dict[str, str], *, any_order: bool = False) -> None:
        self._work = work
        self._target = target
        self._any_order = any_order
        self._spans: dict[int, list[Span]] | None = None
        self._highest: OrderedDict[tuple[str, int, str], int] = OrderedDict()

    def send(self, spark: SparkSession, number: int) -> None:
        """Send what the histories of a batch show; exactly once, also if the batch runs again."""
        batch = self._read(spark, [number])
        if self._spans is None:
            self._spans = self._begin(spark, number)
        whole = merged(batch.unionByName(self._earlier(spark, batch, number)))
        new = deliveries(whole, _MARKS).join(F.broadcast(batch.agg(_first().alias("first"))))
        new = self._judged(spark, new.where(F.col("position") >= F.col("first"))).persist()
        try:
            self._write(spark, new, number)
            self._note(new)
        finally:
            new.unpersist()

    def _read(self, spark: SparkSession, numbers: list[int]) -> DataFrame:
        paths = [f"{self._work}/histories/batch={number}" for number in numbers]
        return spark.read.schema(SCHEMA).parquet(*paths)

    def _begin(self, spark: SparkSession, number: int) -> dict[int, list[Span]]:
        """What the batches before this one have."""
        found: dict[int, list[Span]] = {}
        if number:
            before = spark.read.schema(f"{SCHEMA}, batch int").parquet(f"{self._work}/histories")
            before = before.where(F.col("batch") < number)
            for row in before.groupBy("batch", *_LANE).agg(_low(), _high()).collect():
                found.setdefault(row.batch, []).append(_span(row))
            self._note(deliveries(before, {}))
        return found

    def _earlier(self, spark: SparkSession, batch: DataFrame, number: int) -> DataFrame:
        """What earlier batches have of a batch's messages."""
        assert self._spans is not None
        is_begun = F.col("committed_at").isNull()
        rows = batch.groupBy(*_LANE, is_begun.alias("begun")).agg(_low(), _high()).collect()
        self._spans[number] = [_span(row) for row in rows]
        wanted = [_span(row) for row in rows if row.begun]
        numbers = [
            earlier
            for earlier, spans in self._spans.items()
            if earlier < number and any([span.overlaps(one) for span in spans for one in wanted])
        ]
        if not numbers:
            return batch.limit(0)
        low, high = min([span.low for span in wanted]), max([span.high for span in wanted])
        earlier = self._read(spark, numbers).where(F.col("sequence").between(low, high))
        return earlier.join(batch.where(is_begun).select(*MESSAGE), list(MESSAGE), "leftsemi")

    def _judged(self, spark: SparkSession, new: DataFrame) -> DataFrame:
        """Deliveries, and whether each is out of order."""
        before = (
            Window.partitionBy(*_CONSUMER)
            .orderBy("time", "position", "sequence")
            .rowsBetween(Window.unboundedPreceding, -1)
        )
        kinds = "destination string, partition int, consumer string, known bigint"
        known = spark.createDataFrame([(*key, highest) for key, highest in self._highest.items()], kinds)
        judged = new.join(F.broadcast(known), list(_CONSUMER), "left")
        highest = F.greatest(F.max("sequence").over(before), F.col("known"))
        is_late = F.coalesce(F.col("sequence") < highest, F.lit(False))
        return judged.withColumn("out_of_order", F.col("ordered") & is_late & F.lit(not self._any_order))

    def _write(self, spark: SparkSession, new: DataFrame, number: int) -> None:
        faults = F.array_compact(F.array(*[F.when(F.col(name), name.replace("_", "-")) for name in _FAULTS]))
        rows = new.withColumn("fault", F.explode(faults)).orderBy("position", "sequence")
        if rows.isEmpty():
            return
        alerts = rows.select(_body().alias("value"), _headers().alias("headers")).coalesce(1)
        token = {"token": f"audit/{self._query(spark)}", "tokenNumber": str(number)}
        alerts.write.format("quire").mode("append").options(**self._target, **token).save()

    def _query(self, spark: SparkSession) -> str:
        """What names the audit: the id of its query, which is in its checkpoint."""
        row = spark.read.json(f"{self._work}/checkpoint/metadata").first()
        assert row is not None
        return str(row.id)

    def _note(self, new: DataFrame) -> None:
        """Remember what each consumer had last."""
        last = new.groupBy(*_CONSUMER).agg(F.max("sequence").alias("highest"), F.max("time").alias("time"))
        for row in last.orderBy(F.col("time").desc()).limit(CONSUMERS).collect()[::-1]:
            key = (row.destination, row.partition, row.consumer)
            self._highest[key] = max(row.highest, self._highest.pop(key, 0))
        while len(self._highest) > CONSUMERS:
            self._highest.popitem(last=False)


_MARKS: dict[str, Any] = {
    "ordered": is_to_be_ordered, "duplicated_flagged": is_again_flagged, "duplicated_unflagged": is_again_unflagged,
}  # fmt: skip
_FAULTS = ("duplicated_flagged", "duplicated_unflagged", "out_of_order")


def _first() -> Column:
    """The first delivery of a batch of histories: its position."""
    return F.min(F.get("dispatches", F.lit(0))["position"])


def _low() -> Column:
    return F.min("sequence").alias("low")


def _high() -> Column:
    return F.max("sequence").alias("high")


def _span(row: SparkRow) -> Span:
    return Span(row.destination, row.partition, row.low, row.high)


def _body() -> Column:
    time = F.date_format(F.timestamp_millis("time"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").alias("time")
    return F.to_json(F.struct("fault", *MESSAGE, "message_id", "consumer", time, F.col("flagged").alias("redelivered")))


def _headers() -> Column:
    named = (("content-type", F.lit("application/json")), ("fault", F.col("fault")))
    return F.create_map(*[part for name, value in named for part in (F.lit(name), value)])


class Seen(NamedTuple):
    """The events that an audit has read, how many were older than the watermark, and the time of the latest, in ms."""

    events: int
    late: int
    latest: int | None

    def watermark(self, delay: float) -> int | None:
        """Before which time no more events are to come, if they are behind others by the delay at most, in seconds."""
        return None if self.latest is None else self.latest - round(delay * 1000)


def start_audit(
    events: DataFrame, work: str, *, delay: float = 10.0, every: float | None = None, alerts: Alerts | None = None
) -> StreamingQuery:
    """Read the events of a ledger from where the last query ended; every so many seconds, or until all is read."""

    def take(batch: DataFrame, number: int) -> None:
        batch.persist(StorageLevel.DISK_ONLY)
        try:
            # Sorted, so that a reader of few messages skips the others.
            parts = histories(batch).sortWithinPartitions(*MESSAGE)
            parts.write.mode("overwrite").parquet(f"{work}/histories/batch={number}")
            seen = _seen(batch, _before(batch.sparkSession, work, number), delay)
            seen.write.mode("overwrite").parquet(f"{work}/seen/batch={number}")
            if alerts is not None:
                alerts.send(batch.sparkSession, number)
        finally:
            batch.unpersist()

    return start_batches(events, take, f"{work}/checkpoint", every)


def taken_in(spark: SparkSession, work: str) -> tuple[DataFrame, Seen]:
    """The histories of all messages in an audit's directory, one row per message, and what it has seen."""
    batches = read_or_none(spark, f"{work}/seen")
    if batches is None:
        return histories(ledger.events(spark.createDataFrame([], ledger.SCHEMA))), Seen(0, 0, None)
    last = batches.orderBy(F.col("batch").desc()).first()
    assert last is not None
    return merged(spark.read.schema(SCHEMA).parquet(f"{work}/histories")), Seen(last.events, last.late, last.latest)


def _before(spark: SparkSession, work: str, number: int) -> Seen:
    if number == 0:
        return Seen(0, 0, None)
    row = spark.read.parquet(f"{work}/seen/batch={number - 1}").first()
    assert row is not None
    return Seen(row.events, row.late, row.latest)


def _seen(batch: DataFrame, before: Seen, delay: float) -> DataFrame:
    watermark = before.watermark(delay)
    millis = F.unix_millis("time")
    late = F.lit(0) if watermark is None else F.count_if(millis < watermark)
    latest = F.greatest(F.max(millis), F.lit(before.latest).cast("bigint"))
    return batch.agg(
        (F.count("*") + F.lit(before.events)).alias("events"),
        (late + F.lit(before.late)).cast("bigint").alias("late"),
        latest.alias("latest"),
    )


SLOWEST = 20
"""How many consumers a report names."""

WINDOWS = 5000
"""How many windows a report has at the most, the latest ones."""


def report(
    histories: DataFrame,
    *,
    window: float = 60.0,
    remaining: Remaining | None = None,
    wanted: Expectations | None = None,
    seen: Seen | None = None,
    delay: float = 0.0,
) -> AuditReport:
    """Audit histories. Durations are in seconds; ``seen`` and ``delay`` are those of a ledger read as a stream."""
    # What was kept in memory would lie between the pages of sorts, for which a small heap then has no room.
    histories = histories.persist(StorageLevel.DISK_ONLY)
    wanted = wanted or Expectations()
    known, left_out = _subscribed(histories, wanted.destinations)
    messages = judged(known, remaining).persist(StorageLevel.DISK_ONLY)
    try:
        measures = messages.unionByName(disordered(known), allowMissingColumns=True)
        start = F.window("at", f"{round(window * 1000)} milliseconds")["start"]
        rows = _counted(measures.withColumn("start", F.unix_millis(start)))
        watermark = seen.watermark(delay) if seen else None
        late = seen.late if seen else 0
        found = [_window(row, window, watermark) for row in reversed(rows.windows)]
        slowest = plain_rows(consumers(messages).limit(SLOWEST))
        return replace(compared(rows.total, rows.destinations, found, slowest, late, wanted, left_out), window=window)
    finally:
        messages.unpersist()
        histories.unpersist()


def _subscribed(histories: DataFrame, named: Collection[str]) -> tuple[DataFrame, list[str]]:
    """The histories without those of topics and streams of which the subscriber received nothing, and their names.

    One that is named (``--destination``) is judged from its beginning then.
    """
    extents = received(histories)
    if not extents:
        return histories, []
    read = {extent.destination for extent in extents if extent.first is not None}
    judged = [extent for extent in extents if extent.destination in read]
    judged += [extent._replace(first=0) for extent in extents if extent.destination in {*named} - read]
    left_out = {extent.destination for extent in extents} - {extent.destination for extent in judged}
    return subscribed(histories, judged), sorted(left_out)


class _Counted(NamedTuple):
    """The counts of all messages, of each destination, and of each of its windows, the latest first."""

    total: Row
    destinations: list[Row]
    windows: list[Row]


def _counted(measures: DataFrame) -> _Counted:
    """Count all three in one pass: planning costs more than counting where messages are few."""
    levels = [[], ["destination"], ["destination", "start"]]
    counts = measures.groupingSets(levels, "destination", "start").agg(F.grouping_id().alias("level"), *sums())
    latest = F.row_number().over(Window.partitionBy("level").orderBy(F.col("start").desc(), "destination"))
    rows = counts.withColumn("number", latest).where((F.col("number") <= WINDOWS) | (F.col("level") > 0))
    found: dict[int, list[Row]] = {}
    for row in sorted(plain_rows(rows), key=itemgetter("number")):
        del row["number"]
        found.setdefault(row.pop("level"), []).append(row)
    windows, destinations, [total] = found.get(0, []), found.get(1, []), found.get(3, [dict(_NOTHING)])
    for row in [*destinations, total]:
        row.pop("start", None)
    total.pop("destination", None)
    return _Counted(total, destinations, windows)


_NOTHING: Row = dict.fromkeys((*COUNTS, "before"), 0) | dict.fromkeys(LATENCIES)
"""The counts of a ledger without events."""


def _window(row: Row, window: float, watermark: int | None) -> Row:
    final = watermark is None or row["start"] + window * 1000 <= watermark
    return row | {"final": final}


EXIT_CODES = {Verdict.OK: 0, Verdict.NOT_OK: 1, Verdict.NO_FAULT: 6}
"""The exit codes; the others of ``quire`` mean what they mean everywhere."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """How to audit; durations are in seconds.

    With ``browse`` the messages of these destinations are looked for. With ``work``, a directory, the audit goes on
    where it was there, else it reads the ledger as it is now; with ``follow`` it looks for more so often. With
    ``alert_to`` each new fault is sent to this destination of the place's broker.
    """

    wanted: Expectations
    window: float = 60.0
    browse: tuple[str, ...] = ()
    work: str | None = None
    follow: float | None = None
    delay: float = 10.0
    alert_to: str | None = None


@click.command(cls=PipelineCommand)
@place_options
@click.option(
    "--destination",
    "names",
    metavar="NAME",
    multiple=True,
    help="Audit this destination only. May be repeated. By default all of the ledger.",
)
@click.option("--window", callback=duration, default="1m", show_default=True, help="The length of a window.")
@click.option(
    "--depth", "depths", metavar="NAME=N", multiple=True, help="The number of messages in a destination at the end."
)
@click.option("--drained", is_flag=True, help="Destinations without --depth have nothing left at the end.")
@click.option("--browse", metavar="NAME", multiple=True, help="Search this queue for the open messages.")
@click.option(
    "--any-order",
    is_flag=True,
    help="Do not check the order, which priorities, message groups, selectors and delays change.",
)
@click.option("--subscriber", metavar="NAME", help="Also audit topics and streams, for this subscription or group.")
@click.option("--work", metavar="DIR", help="Keep the progress in DIR, so that the next run reads only new events.")
@click.option(
    "--follow", metavar="TIME", callback=duration, help="With --work: read new events at this interval, until Ctrl-C."
)
@click.option(
    "--delay", callback=duration, default="10s", show_default=True, help="With --work: how late events may arrive."
)
@click.option(
    "--alert-to", metavar="NAME", help="With --work and --url: send a message for each new fault to this destination."
)
@report_option
@spark_options
@output_option
@click.pass_context
def audit(
    context: click.Context, place: Place, names: tuple[str, ...], window: float, depths: tuple[str, ...],
    drained: bool, browse: tuple[str, ...], any_order: bool, subscriber: str | None, work: str | None,
    follow: float | None, delay: float, alert_to: str | None, page: Path | None, cores: int, memory: str, output: str,
) -> None:  # fmt: skip
    """Audit a delivery ledger: was every message delivered, in order, once?

    Counts messages that were sent, committed, delivered, lost, duplicated and out of order, by destination and window,
    and their latencies. The exit code is 0 if the verdict is OK, 1 if it is NOT OK, and 6 for NO FAULT: nothing went
    wrong, but messages were redelivered, dead-lettered, expired, removed, or are open.

    A message without an end is open: it may be lost or may still wait. With --depth, --drained or --browse the audit
    tells which.
    """
    if follow is not None and work is None:
        raise click.UsageError("--follow needs --work")
    if alert_to is not None and not (work and place.url):
        raise click.UsageError("--alert-to needs --work, and a broker: --url")
    if browse and place.parquet:
        raise click.UsageError(
            "--browse needs --url or --store: Parquet files do not say which messages a queue has now"
        )
    destinations = tuple(str(written(name)) for name in names)
    if subscriber is None and (many := [name for name in destinations if not name.startswith("queue://")]):
        raise click.UsageError(f"--destination {many[0]} needs --subscriber, whose deliveries are audited")
    wanted = Expectations(_depths(depths), drained, any_order, subscriber, destinations)
    there = tuple(str(written(name)) for name in browse)
    how = AuditOptions(wanted, window, there, work, follow, delay, alert_to and str(written(alert_to)))
    found = run(start_session("audit", cores, memory), place, how)
    if page:
        from quire.spark.pipelines.pages import audit_page

        page.write_text(audit_page(found, f"{place}, {time_text(SystemClock().now_ms())} UTC"), encoding="utf-8")
    if output == "json":
        print_json({"verdict": found.verdict, **asdict(found)})
    else:
        print_report(found, console())
    context.exit(EXIT_CODES[found.verdict])


def run(spark: SparkSession, place: Place, options: AuditOptions) -> AuditReport:
    # The messages that are there are read before the ledger: what ends in between has its end in the ledger then.
    remaining = _remaining(spark, place, options.browse)
    seen = None
    if options.work:
        messages, seen = _taken_in(spark, place, options, options.work)
    else:
        ledger = place.read(spark, LEDGER, minPartitions=str(spark.sparkContext.defaultParallelism))
        messages = histories(events(ledger, options.wanted.subscriber, options.wanted.destinations))
    with live(spark, "auditing"):
        return report(
            messages, window=options.window, remaining=remaining, wanted=options.wanted, seen=seen, delay=options.delay
        )


def _remaining(spark: SparkSession, place: Place, names: tuple[str, ...]) -> Remaining | None:
    if not names:
        return None
    taken = SystemClock().now_ms()
    messages = place.read(spark, ",".join(names)).select("destination", "offset")
    return Remaining(messages.localCheckpoint(eager=True), names, taken)


def _taken_in(spark: SparkSession, place: Place, options: AuditOptions, work: str) -> tuple[DataFrame, Seen]:
    """The histories of a ledger that is read as a stream, after the next part of it."""
    wanted, alerts = options.wanted, None
    if options.alert_to is not None:
        target = place.target() | {"destination": options.alert_to}
        alerts = Alerts(work, target, any_order=wanted.any_order)
    read = events(place.read_stream(spark, LEDGER), wanted.subscriber, wanted.destinations)
    with live(spark, "reading the ledger"):
        wait_for(start_audit(read, work, delay=options.delay, every=options.follow, alerts=alerts))
    return taken_in(spark, work)


def _depths(texts: tuple[str, ...]) -> dict[str, int]:
    depths = {}
    for name, number in pairs(texts, "--depth").items():
        if not number.isdecimal():
            raise InvalidArgument(f"--depth {name}={number} is not a number of messages", option="--depth")
        depths[str(written(name))] = int(number)
    return depths


if __name__ == "__main__":
    run_alone(audit)
