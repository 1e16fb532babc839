"""The pipeline ``replay``: messages from an archive, a store or a dead letter queue back to destinations."""

import os
import uuid

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from quire.destination import written
from quire.spark.pipelines import command
from quire.spark.pipelines.replay_plan import Plan, batches, outgoing, settle, settled

_LOOK = 1  # how often to look whether the last chunk is sent, in seconds


@click.command(cls=command.PipelineCommand)
@click.argument("work", metavar="DIR")
@command.place_options
@click.option(
    "--destination",
    "names",
    metavar="NAME",
    multiple=True,
    help="A destination to read. Not with --parquet. May be repeated.",
)
@click.option(
    "--where",
    metavar="SQL",
    help="Only messages for which this condition holds: \"day = '2026-01-31' and priority > 4\".",
)
@click.option("--to", metavar="NAME", help="The destination of the messages. Default: their own.")
@click.option(
    "--rate", type=click.IntRange(1), default=1000, show_default=True, help="The maximum number of messages per second."
)
@click.option(
    "--broker", metavar="URL", help=f"The broker to send to.  [env: QUIRE_URL; default: {command.DEFAULT_URL}]"
)
@command.spark_options
@command.output_option
def replay(
    work: str, place: command.Place, names: tuple[str, ...], where: str | None, to: str | None, rate: int,
    broker: str | None, cores: int, memory: str, output: str,
) -> None:  # fmt: skip
    """Replay messages, each exactly once.

    The replay first copies the messages to DIR. If it was stopped or killed, run it again with the same DIR: it
    continues and sends no message twice. For another replay, choose another DIR.

    Dead letters go back to the destinations they came from. They also stay in the dead letter queue: purge them
    afterwards.
    """
    if bool(names) == bool(place.parquet):
        raise click.UsageError("give --destination with --url or --store, or give --parquet")
    spark = command.start_session("replay", cores, memory)
    target = None if to is None else str(written(to))
    subscribe = ",".join([str(written(name)) for name in names])
    # Workers read there too, and they run elsewhere.
    work = work if "://" in work else os.path.abspath(work)
    plan = _plan(spark, place, subscribe, where, target, rate, work)
    address = broker or os.environ.get("QUIRE_URL") or command.DEFAULT_URL
    send(spark, plan, work, {"broker.url": address, **place.login})
    if output == "json":
        command.print_json(plan._asdict())
    else:
        click.echo(f"sent {plan.messages} messages to {address}")


def send(spark: SparkSession, plan: Plan, work: str, broker: dict[str, str]) -> None:
    with command.live(spark, f"sending {plan.messages} messages"):
        wait_for_last(start(batches(spark, work), plan, work, "quire", broker), plan)


def start(
    rows: DataFrame, plan: Plan, work: str, sink: str, options: dict[str, str], interval: float = 1.0
) -> StreamingQuery:
    """Begin to send, or go on where the last query ended: a chunk each interval, in seconds."""
    writer = rows.writeStream.format(sink).options(**options).queryName(f"replay-{plan.id}")
    writer = writer.option("checkpointLocation", f"{work}/checkpoint")
    return writer.trigger(processingTime=f"{round(interval * 1000)} milliseconds").start()


def wait_for_last(query: StreamingQuery, plan: Plan) -> None:
    while not query.awaitTermination(timeout=_LOOK):
        done = query.lastProgress
        if done is not None and done.batchId >= plan.chunks - 1:
            query.stop()


def _plan(
    spark: SparkSession, place: command.Place, names: str, where: str | None, to: str | None, rate: int, work: str
) -> Plan:
    if found := settled(spark, work):
        click.echo(f"continuing the replay in {work}; its messages were copied when it began", err=True)
        return found
    messages = place.read(spark, names, includeHeaders="true")
    if where is not None:
        messages = messages.where(where)
    with command.live(spark, "copying the messages"):
        return settle(spark, outgoing(messages, to), work, uuid.uuid4().hex, rate)


if __name__ == "__main__":
    command.run_alone(replay)
