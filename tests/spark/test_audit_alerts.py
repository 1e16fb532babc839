"""An audit that goes on sends one message for each fault, over batches that run again."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from quire.spark.pipelines.audit import Alerts, Span, audit, start_audit
from quire.spark.pipelines.ledger import SCHEMA, events
from tests.spark.ledger_model import Ledger, counts, random_ledger
from tests.spark.target_broker import TargetBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FAULTS = ("duplicated_flagged", "duplicated_unflagged", "out_of_order")
PARTS = 3


def write_parts(spark: SparkSession, ledger: Ledger, directory: Path) -> None:
    """Write a ledger as files, a micro-batch each."""
    schema = SCHEMA + ", position bigint"
    names = [part.split()[0] for part in schema.split(", ")]
    share = len(ledger.events) // PARTS + 1
    for start in range(0, len(ledger.events), share):
        rows = [tuple(event.row()[name] for name in names) for event in ledger.events[start : start + share]]
        spark.createDataFrame(rows, schema).coalesce(1).write.parquet(f"{directory}/part={start:06}")


def test_each_fault_is_one_alert_over_batches_and_a_death(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = random_ledger(11, 300)
    write_parts(spark, ledger, tmp_path / "ledger")
    schema = spark.read.parquet(str(tmp_path / "ledger")).schema
    broker = TargetBroker(tmp_path)
    broker.start()
    work = str(tmp_path / "work")

    def take_in() -> None:
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "ledger"))
        alerts = Alerts(work, {"broker.url": broker.url, "destination": "queue://alerts"})
        start_audit(events(rows), work, alerts=alerts).awaitTermination()

    def die(*_: object) -> None:
        raise RuntimeError("died after the alerts")

    try:
        with monkeypatch.context() as patched:
            patched.setattr(Alerts, "_note", die)
            with pytest.raises(StreamingQueryException, match="died after"):
                take_in()
        assert (sent := len(broker.bodies("alerts"))) > 0
        take_in()
        found = [json.loads(body) for body in broker.bodies("alerts")]
        headers = [message["headers"] for message in broker.messages("alerts")]
    finally:
        broker.process.kill()
    assert sent < len(found)
    expected = {
        (name, fault): number
        for name, row in counts(ledger, looked=False).items()
        for fault in FAULTS
        if (number := row[fault])
    }
    assert Counter((alert["destination"], alert["fault"].replace("-", "_")) for alert in found) == expected
    assert {header["fault"] for header in headers} == {fault.replace("_", "-") for fault in FAULTS}
    first = found[0]
    assert first["message_id"] == f"ID:{first['destination']}-{first['sequence']}"
    assert set(first) == {
        "fault", "destination", "partition", "sequence", "message_id", "consumer", "time", "redelivered"
    }  # fmt: skip


def test_which_batches_have_earlier_events_of_the_same_messages() -> None:
    span = Span("queue://a", 0, 10, 20)
    assert [span.overlaps(Span(*other)) for other in (("queue://a", 0, 20, 30), ("queue://a", 0, 1, 9))] == [
        True,
        False,
    ]
    assert not any([span.overlaps(Span(*other)) for other in (("queue://b", 0, 10, 20), ("queue://a", 1, 10, 20))])


@pytest.mark.parametrize("given", [[], ["--work", "w", "--parquet", "p"]])
def test_alerts_need_a_directory_and_a_broker(given: list[str]) -> None:
    found = CliRunner().invoke(audit, ["--alert-to", "alerts", *given])
    assert found.exit_code == 2
    assert "--alert-to needs --work, and a broker: --url" in found.output
