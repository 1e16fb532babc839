"""The pipeline ``audit``: checks by the delivery ledger that every message was delivered, in order, once.

Histories become counts by destination and by window, and the slowest consumers; ``compared`` says what that proves. In
an audit that goes on, each batch of the ledger becomes histories of its own, which the report adds up; one alert for
each fault is sent with the batch that shows it.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import click
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.text import Text

from quire.clock import SystemClock
from quire.destination import written
from quire.errors import InvalidArgument
from quire.spark.pipelines import command, ledger
from quire.spark.pipelines.files import Table, plain_rows, print_table, read_or_none, start_batches, time_text
from quire.spark.pipelines.histories import (
    COUNTS,
    LATENCIES,
    PERCENTILES,
    SCHEMA,
    Remaining,
    consumers,
    deliveries,
    disordered,
    earlier_of_its_consumer,
    histories,
    is_again_flagged,
    is_again_unflagged,
    is_to_be_ordered,
    judged,
    merged,
    received,
    subscribed,
    sums,
)
from quire.spark.pipelines.ledger import MESSAGE, events

Row = dict[str, Any]

PROBLEMS = ("lost", "duplicated_flagged", "duplicated_unflagged", "out_of_order")
"""The counts of what is not as it should be."""


_NAMED = 10  # how many of the destinations that were left out a note names


class Verdict(StrEnum):
    """What an audit says in the end."""

    OK = "ok"  # every committed message was acknowledged, in order, and delivered once
    NO_FAULT = "no fault"
    """The broker did nothing wrong, as far as the ledger goes; but not every message was delivered, or some twice."""
    NOT_OK = "not ok"
    """Something is lost, came twice without the flag or after its end, or out of order; or nothing is proved."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """What an audit expects: the depths of destinations (``drained``: 0 for all others), and whether order counts.

    ``subscriber`` is whose deliveries of topics and streams are judged; with ``destinations`` only these are.
    """

    depths: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    any_order: bool = False
    subscriber: str | None = None
    destinations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found: counts and latencies, as lists of percentiles in milliseconds or None.

    ``windows`` has them for each ``destination`` and ``start``; ``final`` says whether one is over. ``consumers``
    begins with the slowest; ``window`` is the length of a window in seconds. ``late`` events came later than the delay
    allows; they are judged all the same.
    """

    total: Row
    destinations: list[Row]
    windows: list[Row]
    consumers: list[Row]
    late: int = 0
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    any_order: bool = False
    window: float = 60.0

    @property
    def verdict(self) -> Verdict:
        if self.reasons:
            return Verdict.NOT_OK
        return Verdict.NO_FAULT if self._exceptions() else Verdict.OK

    @property
    def sentence(self) -> str:
        match self.verdict:
            case Verdict.NOT_OK:
                found = [*self._faults(), *self._exceptions()]
                return f"NOT OK: {', '.join(found) if self._faults() else 'nothing is proved'}"
            case Verdict.NO_FAULT:
                return f"NO FAULT, but not all were delivered once: {', '.join(self._exceptions())}"
            case Verdict.OK:
                return f"OK: {self.total['committed']} delivered,{'' if self.any_order else ' in order,'} once"

    @property
    def faults(self) -> list[str]:
        return [name for name in PROBLEMS if not (name == "out_of_order" and self.any_order)]

    @property
    def bad_windows(self) -> list[Row]:
        return [row for row in self.windows if any([row[name] for name in self.faults])]

    def _faults(self) -> list[str]:
        return [f"{self.total[name]} {_FAULTS[name]}" for name in self.faults if self.total[name]]

    def _exceptions(self) -> list[str]:
        return [f"{self.total[name]} {text}" for name, text in _EXCEPTIONS.items() if self.total[name]]


_FAULTS = {
    "lost": "lost",
    "duplicated_unflagged": "delivered again without the flag",
    "duplicated_flagged": "delivered again after the acknowledgement",
    "out_of_order": "out of order",
}
"""What is a fault, in words."""

_EXCEPTIONS = {
    "redelivered": "redelivered",
    "dead_lettered": "dead-lettered",
    "expired": "expired",
    "removed": "removed",
    "open": "open",
}
"""What is no fault, and yet not a message that was delivered once."""


def compared(
    total: Row, destinations: Sequence[Row], windows: list[Row], consumers: list[Row], late: int, wanted: Expectations,
    left_out: Sequence[str] = (),
) -> AuditReport:  # fmt: skip
    """The report: what was counted, compared with what is expected; ``left_out`` names what was not counted."""
    rows, notes, reasons = list[Row](), list[str](), list[str]()
    for row in destinations:
        depth = wanted.depths.get(row["destination"], 0 if wanted.drained else None)
        compared = row if depth is None else _with_depth(row, depth, notes)
        rows.append(compared)
        reasons += _reasons(compared, compared["lost"] - row["lost"], wanted)
    sums = {name: sum(row[name] for row in rows) for name in ("open", "lost")}
    unknown = {*wanted.depths, *wanted.destinations} - {*left_out, *[row["destination"] for row in rows]}
    notes += [f"the ledger has no events of {name}" for name in sorted(unknown)]
    if not any(row["committed"] for row in rows):
        reasons.append("the ledger has no committed messages: nothing is proved")
    for row in rows:
        notes += _notes(row)
    if left_out:
        names = ", ".join([*left_out[:_NAMED], *(["..."] if len(left_out) > _NAMED else [])])
        who = wanted.subscriber or "the subscriber"
        notes.append(f"{who} received nothing of {names}: not audited; --destination NAME audits what it should read")
    if late:
        notes.append(f"{late} events arrived later than the delay allows; the audit includes them")
    return AuditReport(total | sums, rows, windows, consumers, late, reasons, notes, wanted.any_order)


def _with_depth(row: Row, depth: int, notes: list[str]) -> Row:
    """A destination's counts when it is known how many messages it still has: how many are lost, but not which.

    What precedes all that a subscriber received stays open: it may have subscribed later.
    """
    waiting = row["open"] - row["before"]
    if depth > waiting:
        notes.append(
            f"{row['destination']} has {depth - waiting} more messages than are open in the ledger, which may have "
            "begun later"
        )
    missing = max(waiting - depth, 0)
    return row | {"open": row["open"] - missing, "lost": row["lost"] + missing, "depth": depth}


def _reasons(row: Row, missing: int, wanted: Expectations) -> list[str]:
    """What is wrong with a destination; ``missing`` of its lost messages are in excess of its depth."""
    depth = row.get("depth")
    option = f"--depth {depth}" if row["destination"] in wanted.depths else "--drained"
    found = [
        (row["lost"] - missing, "lost: committed, without an end, and not in the destination"),
        (missing, f"lost: committed, without an end, and more than the {depth} that are left according to {option}"),
        (row["duplicated_unflagged"], "delivered again without the redelivered flag"),
        (row["duplicated_flagged"], "delivered again after their acknowledgement, with the redelivered flag"),
        (0 if wanted.any_order else row["out_of_order"], "delivered out of order"),
    ]
    return [f"{row['destination']}: {count} {text}" for count, text in found if count]


def _notes(row: Row) -> list[str]:
    found = [
        (max(row["sent"] - row["committed"], 0), "sent but not committed: the broker confirmed none of them"),
        (row["earlier"], "older than the ledger: the audit does not check their ends"),
        (
            0 if "depth" in row else row["open"] - row["before"],
            "open; with --depth, --drained or --browse the audit tells whether they are lost",
        ),
        (row["before"], "open, sent before all that the subscriber received: lost, or older than its subscription"),
        (row["redelivered"], "deliveries with the redelivered flag: a consumer may have received the message before"),
        (row["dead_lettered"], "dead-lettered"),
        (row["expired"], "expired"),
        (row["removed"], "removed by an operator or by retention"),
    ]
    return [f"{row['destination']}: {count} {text}" for count, text in found if count]


_PRINTED = 20
_STYLES = {Verdict.OK: "bold green", Verdict.NO_FAULT: "bold yellow", Verdict.NOT_OK: "bold red"}
_HEADINGS = [name.replace("_", " ") for name in COUNTS]
_PERCENTILES = [f"p{round(share * 100)}" if share < 1 else "max" for share in PERCENTILES]


def print_report(report: AuditReport, console: Console) -> None:
    print_table(console, "Messages", _side_by_side(report))
    print_table(console, "Latency (ms)", latency_table(report))
    print_table(console, "Slowest consumers (ms)", consumer_table(report))
    if bad := report.bad_windows:
        title = f"Windows with problems: {len(bad)} of {len(report.windows)}"
        print_table(console, title, window_table(bad[:_PRINTED], COUNTS[-4:]))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    for reason in report.reasons:
        console.print(Text(f"- {reason}", style="red"))
    console.print(Text(report.sentence, style=_STYLES[report.verdict]))


def message_table(report: AuditReport) -> Table:
    rows = [*report.destinations, report.total | {"destination": "all"}]
    return Table(["destination", *_HEADINGS], [[row["destination"], *_counts(row)] for row in rows])


def latency_table(report: AuditReport) -> Table:
    rows = [
        [row["destination"], text, *row[name]]
        for row in report.destinations
        for name, text in LATENCIES.items()
        if row[name] is not None
    ]
    return Table(["destination", "latency", *_PERCENTILES], rows)


def consumer_table(report: AuditReport) -> Table:
    rows = [[row["destination"], row["consumer"], row["acknowledged"], *row["handled"]] for row in report.consumers]
    return Table(["destination", "consumer", "acknowledged", *_PERCENTILES], rows)


def window_table(rows: Sequence[Row], names: Sequence[str] = COUNTS) -> Table:
    headings = ["window", "destination", *[name.replace("_", " ") for name in names]]
    return Table(headings, [[_when(row), row["destination"], *[row[name] for name in names]] for row in rows])


def _side_by_side(report: AuditReport) -> Table:
    """One column per destination: there are more counts than fit beside each other."""
    columns = message_table(report).rows[:-1][:_PRINTED]
    if len(report.destinations) > 1:
        columns = [*columns, message_table(report).rows[-1]]
    headings, *rows = [list(row) for row in zip(["", *_HEADINGS], *columns, strict=True)]
    return Table([str(heading) for heading in headings], rows)


def _counts(row: Row) -> list[int]:
    return [row[name] for name in COUNTS]


def _when(row: Row) -> str:
    return time_text(row["start"]) + ("" if row["final"] else " (not complete)")


CONSUMERS = 100_000
"""Of how many consumers the highest sequence is known; those whose last delivery is the oldest are forgotten."""

_LANE = ("destination", "partition")
_CONSUMER = (*_LANE, "consumer")


class Span(NamedTuple):
    destination: str
    partition: int
    low: int
    high: int

    def overlaps(self, other: "Span") -> bool:
        is_same = (self.destination, self.partition) == (other.destination, other.partition)
        return is_same and self.low <= other.high and other.low <= self.high


class Alerts:
    """Finds the faults that each batch of the ledger adds, and sends them to ``target``, by the options of the sink.

    What it knows of earlier batches is little, and is read from their histories once: which messages each has, and what
    each consumer had last. So the work on a batch follows its size, and not that of the ledger.
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
        first = F.min(F.get("dispatches", F.lit(0))["position"]).alias("first")
        new = deliveries(whole, _MARKS).join(F.broadcast(batch.agg(first)))
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
        found: dict[int, list[Span]] = {}
        if number:
            before = spark.read.schema(f"{SCHEMA}, batch int").parquet(f"{self._work}/histories")
            before = before.where(F.col("batch") < number)
            for row in before.groupBy("batch", *_LANE).agg(*_extent()).collect():
                found.setdefault(row.batch, []).append(_span(row))
            self._note(deliveries(before, {}))
        return found

    def _earlier(self, spark: SparkSession, batch: DataFrame, number: int) -> DataFrame:
        assert self._spans is not None
        is_begun = F.col("committed_at").isNull()
        rows = batch.groupBy(*_LANE, is_begun.alias("begun")).agg(*_extent()).collect()
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
        kinds = "destination string, partition int, consumer string, known bigint"
        known = spark.createDataFrame([(*key, highest) for key, highest in self._highest.items()], kinds)
        judged = new.join(F.broadcast(known), list(_CONSUMER), "left")
        highest = F.greatest(F.max("sequence").over(earlier_of_its_consumer()), F.col("known"))
        is_late = F.coalesce(F.col("sequence") < highest, F.lit(False))
        return judged.withColumn("out_of_order", F.col("ordered") & is_late & F.lit(not self._any_order))

    def _write(self, spark: SparkSession, new: DataFrame, number: int) -> None:
        faults = F.array_compact(F.array(*[F.when(F.col(name), name.replace("_", "-")) for name in _ALERTED]))
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
        last = new.groupBy(*_CONSUMER).agg(F.max("sequence").alias("highest"), F.max("time").alias("time"))
        for row in last.orderBy(F.col("time").desc()).limit(CONSUMERS).collect()[::-1]:
            key = (row.destination, row.partition, row.consumer)
            self._highest[key] = max(row.highest, self._highest.pop(key, 0))
        while len(self._highest) > CONSUMERS:
            self._highest.popitem(last=False)


_MARKS: dict[str, Any] = {
    "ordered": is_to_be_ordered, "duplicated_flagged": is_again_flagged, "duplicated_unflagged": is_again_unflagged,
}  # fmt: skip
_ALERTED = ("duplicated_flagged", "duplicated_unflagged", "out_of_order")


def _extent() -> list[Column]:
    return [F.min("sequence").alias("low"), F.max("sequence").alias("high")]


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


SLOWEST = 20  # how many consumers a report names
WINDOWS = 5000  # how many windows a report has at the most, the latest ones


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
        total, destinations, windows = _counted(measures.withColumn("start", F.unix_millis(start)))
        watermark = seen.watermark(delay) if seen else None
        late = seen.late if seen else 0
        found = [
            row | {"final": watermark is None or row["start"] + window * 1000 <= watermark} for row in reversed(windows)
        ]
        slowest = plain_rows(consumers(messages).limit(SLOWEST))
        return replace(compared(total, destinations, found, slowest, late, wanted, left_out), window=window)
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


def _counted(measures: DataFrame) -> tuple[Row, list[Row], list[Row]]:
    """The counts of all messages, of each destination, and of each of its windows, the latest first.

    All in one pass: planning costs more than counting where messages are few.
    """
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
    return total, destinations, windows


_NOTHING: Row = dict.fromkeys((*COUNTS, "before"), 0) | dict.fromkeys(LATENCIES)
"""The counts of a ledger without events."""


LISTED_WINDOWS = 100
_COLOURS = {Verdict.OK: "good", Verdict.NO_FAULT: "mixed", Verdict.NOT_OK: "bad"}
_DONE = ("committed", "acknowledged", "redelivered", "dead_lettered", "expired", "removed", "open")


def audit_page(report: AuditReport, subtitle: str) -> str:
    from quire.spark.pipelines.pages import rendered

    return rendered(
        "audit.html",
        subtitle=subtitle,
        report=report,
        colour=_COLOURS[report.verdict],
        done=_sums_over_time(report, _DONE),
        wrong=_sums_over_time(report, report.faults),
        messages=message_table(report),
        latencies=latency_table(report),
        consumers=consumer_table(report),
        windows=window_table(report.bad_windows[:LISTED_WINDOWS]),
    )


def _sums_over_time(report: AuditReport, names: Sequence[str]) -> object:
    from quire.spark.pipelines.pages import over_time

    starts = sorted({row["start"] for row in report.windows})
    sums = {name: dict.fromkeys(starts, 0) for name in names}
    for row in report.windows:
        for name in names:
            sums[name][row["start"]] += row[name]
    return over_time({name.replace("_", " "): points for name, points in sums.items()}, report.window)


EXIT_CODES = {Verdict.OK: 0, Verdict.NOT_OK: 1, Verdict.NO_FAULT: 6}
"""The exit codes; the others of ``quire`` mean what they mean everywhere."""


@click.command(cls=command.PipelineCommand)
@command.place_options
@click.option(
    "--destination",
    "names",
    metavar="NAME",
    multiple=True,
    help="Audit this destination only. May be repeated. By default all of the ledger.",
)
@click.option("--window", callback=command.duration, default="1m", show_default=True, help="The length of a window.")
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
    "--follow",
    metavar="TIME",
    callback=command.duration,
    help="With --work: read new events at this interval, until Ctrl-C.",
)
@click.option(
    "--delay",
    callback=command.duration,
    default="10s",
    show_default=True,
    help="With --work: how late events may arrive.",
)
@click.option(
    "--alert-to", metavar="NAME", help="With --work and --url: send a message for each new fault to this destination."
)
@command.report_option
@command.spark_options
@command.output_option
@click.pass_context
def audit(
    context: click.Context, place: command.Place, names: tuple[str, ...], window: float, depths: tuple[str, ...],
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
    found = run(
        command.start_session("audit", cores, memory), place, wanted, window=window, work=work, follow=follow,
        delay=delay, browse=tuple(str(written(name)) for name in browse),
        alert_to=alert_to and str(written(alert_to)),
    )  # fmt: skip
    command.show(found, output, print_report, place, page, audit_page, verdict=found.verdict)
    context.exit(EXIT_CODES[found.verdict])


def run(
    spark: SparkSession, place: command.Place, wanted: Expectations, *, window: float = 60.0,
    browse: tuple[str, ...] = (), work: str | None = None, follow: float | None = None, delay: float = 10.0,
    alert_to: str | None = None,
) -> AuditReport:  # fmt: skip
    """Audit a ledger; durations are in seconds.

    With ``browse`` the messages of these destinations are looked for. With ``work``, a directory, the audit goes on
    where it was there, else it reads the ledger as it is now; with ``follow`` it looks for more so often. With
    ``alert_to`` each new fault is sent to this destination of the place's broker.
    """
    # The messages that are there are read before the ledger: what ends in between has its end in the ledger then.
    remaining = _remaining(spark, place, browse)
    seen, judged_for = None, (wanted.subscriber, wanted.destinations)
    if work:
        target = {} if alert_to is None else place.target() | {"destination": alert_to}
        alerts = Alerts(work, target, any_order=wanted.any_order) if target else None
        read = events(place.read_stream(spark, command.LEDGER), *judged_for)
        with command.live(spark, "reading the ledger"):
            command.wait_for(start_audit(read, work, delay=delay, every=follow, alerts=alerts))
        messages, seen = taken_in(spark, work)
    else:
        rows = place.read(spark, command.LEDGER, minPartitions=str(spark.sparkContext.defaultParallelism))
        messages = histories(events(rows, *judged_for))
    with command.live(spark, "auditing"):
        return report(messages, window=window, remaining=remaining, wanted=wanted, seen=seen, delay=delay)


def _remaining(spark: SparkSession, place: command.Place, names: tuple[str, ...]) -> Remaining | None:
    if not names:
        return None
    taken = SystemClock().now_ms()
    messages = place.read(spark, ",".join(names)).select("destination", "offset")
    return Remaining(messages.localCheckpoint(eager=True), names, taken)


def _depths(texts: tuple[str, ...]) -> dict[str, int]:
    depths = {}
    for name, number in command.pairs(texts, "--depth").items():
        if not number.isdecimal():
            raise InvalidArgument(f"--depth {name}={number} is not a number of messages", option="--depth")
        depths[str(written(name))] = int(number)
    return depths


if __name__ == "__main__":
    command.run_alone(audit)
