"""The broker's blocks, unpacked, are a ledger that an audit can judge."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from quire.ledger_block import SEND, Ids, LedgerEvent, Row, Run, encode_block, ranges_of, rows
from quire.spark.pipelines.audit import Verdict, report
from quire.spark.pipelines.histories import histories
from quire.spark.pipelines.ledger import POSITIONS, events, unpack, unpacked_batches
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


@st.composite
def runs(draw: st.DrawFn) -> Run:
    event = draw(st.sampled_from(LedgerEvent))
    sequences = sorted(draw(st.sets(st.integers(1, 30), min_size=1, max_size=8)))
    flagged = [sequence for sequence in sequences if draw(st.booleans())] if event is LedgerEvent.DISPATCH else []
    ids, sent = Ids(), list[int]()
    if event is LedgerEvent.COMMIT:
        early = draw(st.integers(0, len(sequences)))
        sent = [number for part in ((3, early), (4, len(sequences) - early)) if part[1] for number in part]
        others = Ids(others=[f"id {sequence}" for sequence in sequences])
        ids = draw(st.sampled_from([Ids("ID:b-", [5, len(sequences)]), others]))
    names = st.sampled_from(["", "a", "b"])
    ranges, marked = ranges_of(sequences), ranges_of(flagged)
    return Run("queue://q", event, draw(st.integers(5, 9)), draw(names), draw(names), 0, ranges, marked, ids, sent)


@given(st.lists(st.lists(runs(), max_size=4), min_size=1, max_size=4))
def test_columns_have_the_rows_of_the_blocks(blocks: list[list[Run]]) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        offsets, values = range(1, len(blocks) + 1), [encode_block(block) for block in blocks]
        yield pa.record_batch([pa.array(offsets, pa.int64()), pa.array(values, pa.binary())], ["offset", "value"])

    found = [row for batch in unpacked_batches(batches()) for row in batch.to_pylist()]
    assert [row["position"] for row in found] == [
        offset * POSITIONS + place for offset, block in enumerate(blocks, 1) for place in range(len(list(rows(block))))
    ]
    names = ("destination", "event", "partition", "sequence", "message_id", "producer", "consumer", "time", "flagged")
    said = [tuple(row[name] for name in names) for row in found]
    wanted = [(*row[:7], datetime.fromtimestamp(row.time / 1000, UTC), row.flagged) for row in by_run(blocks)]
    assert said == wanted


def by_run(blocks: list[list[Run]]) -> Iterator[Row]:
    """The rows of blocks; of a commit, first what was sent."""
    for block in blocks:
        for run in block:
            yield from sorted(rows([run]), key=lambda row: row.event != SEND)
