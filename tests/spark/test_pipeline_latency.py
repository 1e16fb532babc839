"""The latencies are those of the events, by destination, by consumer and over time."""

import pytest
from pyspark.sql import SparkSession

from quire.spark.pipelines.histories import histories
from quire.spark.pipelines.latency import LatencyReport, destinations, latency_page, report
from quire.spark.pipelines.ledger import events
from tests.spark.ledger_model import START, Ledger
from tests.spark.test_pipeline_audit import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WINDOW = 60_000
FIRST = START // WINDOW * WINDOW


def live(ledger: Ledger, sequence: int, consumer: str, wait: int, work: int) -> None:
    """A message is sent, waits, is worked on, and is acknowledged."""
    ledger.add("queue://orders", "send", sequence)
    ledger.add("queue://orders", "commit", sequence)
    ledger.now += wait
    ledger.add("queue://orders", "dispatch", sequence, consumer)
    ledger.now += work
    ledger.add("queue://orders", "acknowledge", sequence, consumer)


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> LatencyReport:
    ledger = Ledger(now=FIRST)
    for sequence in range(1, 101):
        live(ledger, sequence, "fast", sequence, 1)
    ledger.now = FIRST + 5 * WINDOW
    live(ledger, 101, "slow", 0, 900)
    # It comes again to another consumer: the first delivery ends the wait, the last one begins the work.
    ledger.add("queue://orders", "send", 102)
    ledger.now += 10
    ledger.add("queue://orders", "dispatch", 102, "slow")
    ledger.now += 1000
    ledger.add("queue://orders", "redeliver", 102, "slow")
    ledger.add("queue://orders", "dispatch", 102, "fast", flagged=True)
    ledger.now += 7
    ledger.add("queue://orders", "acknowledge", 102, "fast")
    ledger.now += 50
    ledger.add("queue://orders", "dispatch", 102, "slow", flagged=True)
    # Neither of these says how long anything took.
    ledger.add("queue://orders", "send", 103)
    ledger.add("queue://other", "acknowledge", 1, "fast")
    return report(histories(events(rows_of(spark, ledger))))


def test_percentiles_are_those_of_a_plain_count(found: LatencyReport) -> None:
    (row,) = found.destinations
    assert row["destination"] == "queue://orders"
    waits = sorted([*range(1, 101), 0, 10])
    assert row["delivery"] == {"count": 102, "p50": waits[50], "p95": waits[96], "p99": waits[100], "max": 100}
    assert row["handling"] == {"count": 102, "p50": 1, "p95": 1, "p99": 7, "max": 900}
    assert row["total"]["max"] == 1017


def test_the_slowest_consumer_is_first_and_each_has_its_own(found: LatencyReport) -> None:
    rows = {row["consumer"]: (row["delivery"]["count"], row["handling"]["count"]) for row in found.consumers}
    assert list(rows.items()) == [("slow", (2, 1)), ("fast", (100, 101))]


def test_windows_are_those_of_the_sending(found: LatencyReport) -> None:
    assert [(row["start"], row["delivery"]["count"]) for row in found.windows] == [
        (FIRST, 100), (FIRST + 5 * WINDOW, 2),
    ]  # fmt: skip
    windows = [(row["consumer"], row["start"], row["handling"]["max"]) for row in found.consumer_windows]
    assert windows == [("fast", FIRST, 1), ("fast", FIRST + 5 * WINDOW, 7), ("slow", FIRST + 5 * WINDOW, 900)]


def test_the_page_has_charts_and_the_table_what_was_measured(found: LatencyReport) -> None:
    assert [row[1] for row in destinations(found).rows] == [
        "send to delivery", "delivery to acknowledgement", "send to acknowledgement",
    ]  # fmt: skip
    page = latency_page(found, "a test")
    assert page.count("<picture>") == 4
    assert "the ledger has no delivered messages" in latency_page(LatencyReport([], [], [], []), "a test")
