"""The broker's blocks, unpacked, are a ledger that an audit can judge."""

import pytest
from pyspark.sql import SparkSession

from quire.ledger_block import Ids, LedgerEvent, Run, encode_block
from quire.spark.pipelines.audit_findings import report
from quire.spark.pipelines.audit_report import Verdict
from quire.spark.pipelines.histories import histories
from quire.spark.pipelines.ledger import events
from quire.spark.pipelines.unpacking import unpack
from tests.spark.message_rows import frame, message

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run_of(event: LedgerEvent, ranges: list[int], lane: int = 0, subscriber: str = "") -> Run:
    who = "" if event is LedgerEvent.COMMIT else "c1"
    count = sum(ranges[1::2])
    ids, sent = (Ids("ID:b-", [1, count]), [1000, count]) if event is LedgerEvent.COMMIT else (Ids(), [])
    destination = "stream://events" if subscriber or lane else "queue://orders"
    return Run(destination, event, 1010 * event, who, subscriber, lane, ranges, [], ids, sent)


def test_a_block_of_a_queue(spark: SparkSession) -> None:
    runs = [
        run_of(LedgerEvent.COMMIT, [1, 4]),
        run_of(LedgerEvent.DISPATCH, [1, 3]),
        run_of(LedgerEvent.ACKNOWLEDGE, [1, 1, 3, 1]),
    ]
    blocks = frame(spark, [message(1, "stream://$quire.ledger", value=encode_block(runs))])
    found = report(histories(events(unpack(blocks))))
    assert found.verdict is Verdict.NO_FAULT
    counts = {name: found.total[name] for name in ("sent", "committed", "delivered", "acknowledged", "open")}
    assert counts == {"sent": 4, "committed": 4, "delivered": 3, "acknowledged": 2, "open": 2}
    assert found.total["handled"] == [1010] * 4


def test_blocks_of_a_stream_whose_partitions_have_the_same_sequences(spark: SparkSession) -> None:
    kinds = (LedgerEvent.COMMIT, LedgerEvent.DISPATCH, LedgerEvent.ACKNOWLEDGE)
    blocks = [
        message(offset, value=encode_block([run_of(event, [1, 2], lane, "" if event is kinds[0] else "billing")]))
        for offset, (event, lane) in enumerate([(event, lane) for event in kinds for lane in (1, 2)], 1)
    ]
    found = report(histories(events(unpack(frame(spark, blocks)), "billing")))
    assert found.verdict is Verdict.OK
    assert (found.total["committed"], found.total["acknowledged"]) == (4, 4)
