"""``make pipeline-demo``: orders through a consumer that comes and goes, and the audit of what the ledger says of it.

A broker of its own is started, with the ledger on. The scenario ``reconnect`` sends orders of a shop that does not
exist, while a consumer leaves again and again without a word. Then the pipeline ``audit`` reads the ledger from the
broker. The last table has what the scenario counted for itself beside what the ledger says, and why a figure differs.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import click

from benchmarks.load import NUMBER_DIGITS
from benchmarks.rig import OwnBroker, temporary_directory, unwind_on_sigterm
from benchmarks.sample_data import KINDS, SampleData
from benchmarks.scenarios.queues import Reconnect
from benchmarks.scenarios.scenario import report
from quire.cli.output import Output
from quire.cli.perf.load import Load
from quire.cli.perf.measure import LiveFigures
from quire.clock import SystemClock
from quire.spark.pipelines.audit import Expectations, Verdict, print_report, run
from quire.spark.pipelines.command import Place, console, start_session
from quire.spark.pipelines.files import Table, print_table

MEMORY_LIMIT = 16_000_000
"""How much memory the broker has for messages, in bytes: a fraction of what is sent."""

_HEADINGS = ["figure", "consumer", "ledger", ""]
_DIFFERENT = "DIFFERENT"
_BOTH = [
    ("messages", "messages", "committed"),
    ("delivered", "received", "delivered"),
    ("never delivered, or lost", "missing", "lost"),
    ("delivered again without the flag", "unflagged_duplicates", "duplicated_unflagged"),
    ("out of order", "out_of_order", "out_of_order"),
    ("left in the queue, or open", "left_in_the_queue", "open"),
]
"""What both count: in words, by the name of the scenario's figure, and by that of the audit's count."""

ENVIRONMENT = {**Reconnect.ENVIRONMENT, "QUIRE_POLICY__LEDGER": "true"}


@cache
def _shop() -> SampleData:
    return SampleData()


@dataclass(frozen=True, slots=True)
class Orders(Load):
    """A load of orders; each begins with its number, for the scenario to count by."""

    def frames(self, first: int, count: int, last: int, now: float) -> Iterator[bytes]:
        data = _shop()
        head = f"SEND\ndestination:/queue/{self.queue}\npersistent:true\n".encode()
        for number in range(first, first + count):
            body = b"%0*d " % (NUMBER_DIGITS, number) + data.message(number * len(KINDS)).body
            receipt = b"receipt:%d\n" % number if self.receipts or number == last else b""
            yield b"%bcontent-length:%d\n%b\n%b\0" % (head, len(body), receipt, body)


@click.command()
@click.option("--messages", type=click.IntRange(1000), default=200_000, show_default=True, help="How many orders.")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides when the consumer leaves.")
@click.pass_context
def demo(context: click.Context, messages: int, seed: int) -> None:
    """Send orders to a consumer that comes and goes, and audit the ledger."""
    unwind_on_sigterm()
    output = Output("table")
    flags = {"memory-limit": str(MEMORY_LIMIT)}
    with temporary_directory() as directory, OwnBroker(directory, flags, ENVIRONMENT) as broker:
        with LiveFigures(output, SystemClock()) as live:
            scenario = Reconnect(broker, live, MEMORY_LIMIT, messages, 1024, seed)
            scenario.load = Orders(messages, queue="orders")
            findings = scenario.run()
        counted = report(output, findings)
        spark = start_session("pipeline demo", 2, "1g")
        audited = run(spark, Place(url=broker.api.url), Expectations(drained=True))
        print_report(audited, console())
        spark.stop()
        comparison = compared({finding.figure: round(finding.value) for finding in findings}, audited.total)
        print_table(console(), "The consumer's counts and the ledger's", Table(_HEADINGS, comparison))
    differ = any([row[-1] == _DIFFERENT for row in comparison])
    context.exit(counted or int(differ or audited.verdict is Verdict.NOT_OK))


def compared(consumer: Mapping[str, int], ledger: Mapping[str, Any]) -> list[list[object]]:
    """A row for each figure: as the consumer counted it, as the ledger has it, and whether they agree or why not."""
    rows: list[list[object]] = []
    for text, figure, count in _BOTH:
        agree = "equal" if consumer[figure] == ledger[count] else _DIFFERENT
        rows.append([text, consumer[figure], ledger[count], agree])
    unread = ledger["redelivered"] - consumer["redelivered"]
    why = "equal" if not unread else f"{unread} were on their way when the consumer left" if unread > 0 else _DIFFERENT
    rows.append(["deliveries with the flag", consumer["redelivered"], ledger["redelivered"], why])
    return rows


if __name__ == "__main__":
    sys.exit(demo())
