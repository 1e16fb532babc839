"""The pipeline ``audit``: checks by the delivery ledger that every message was delivered, in order, once."""

from dataclasses import asdict, dataclass
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession

from quire.clock import SystemClock
from quire.destination import written
from quire.errors import InvalidArgument
from quire.spark.pipelines.audit_alerts import Alerts
from quire.spark.pipelines.audit_findings import report
from quire.spark.pipelines.audit_printing import print_report
from quire.spark.pipelines.audit_report import AuditReport, Expectations, Verdict
from quire.spark.pipelines.audit_stream import Seen, start_audit, taken_in
from quire.spark.pipelines.command import (
    PipelineCommand,
    console,
    duration,
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
from quire.spark.pipelines.histories import histories
from quire.spark.pipelines.judgement import Remaining
from quire.spark.pipelines.ledger import events
from quire.spark.pipelines.live import live
from quire.spark.pipelines.place import LEDGER, Place
from quire.spark.pipelines.printing import time_text

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
    """Audit the ledger of a place."""
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
