"""The audit finds in random ledgers what a plain count finds, in one go and bit by bit."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quire.errors import InvalidArgument
from quire.spark.pipelines import audit as audit_module
from quire.spark.pipelines.audit import PROBLEMS, Expectations, Seen, Verdict, report, start_audit, taken_in
from quire.spark.pipelines.histories import COUNTS, Remaining, histories
from quire.spark.pipelines.ledger import SCHEMA, events
from tests.spark.ledger_model import DESTINATIONS, START, Ledger, counts, random_ledger

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LATER = START + 10**9


def rows_of(spark: SparkSession, ledger: Ledger, *, position: bool = True) -> DataFrame:
    schema = SCHEMA + (", position bigint" if position else "")
    names = [part.split()[0] for part in schema.split(", ")]
    return spark.createDataFrame([tuple(event.row()[name] for name in names) for event in ledger.events], schema)


def remaining_of(spark: SparkSession, ledger: Ledger) -> Remaining:
    messages = spark.createDataFrame(sorted(ledger.there), "destination string, offset bigint")
    return Remaining(messages, DESTINATIONS, LATER)


def counts_of(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    return {row["destination"]: {name: row[name] for name in COUNTS} for row in rows}


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_a_plain_count(spark: SparkSession, seed: int) -> None:
    ledger = random_ledger(seed, 600)
    found = report(histories(events(rows_of(spark, ledger))), remaining=remaining_of(spark, ledger))
    expected = counts(ledger, looked=True)
    assert counts_of(found.destinations) == expected
    assert all(sum(row[name] for row in expected.values()) > 0 for name in COUNTS), "a fault that was not planted"
    assert {name: found.total[name] for name in COUNTS} == {
        name: sum(row[name] for row in expected.values()) for name in COUNTS
    }
    for name in COUNTS:
        assert sum(row[name] for row in found.windows) == found.total[name]
    assert found.verdict is Verdict.NOT_OK


def test_without_a_look_nothing_is_lost_but_open(spark: SparkSession) -> None:
    ledger = random_ledger(7, 200)
    found = report(histories(events(rows_of(spark, ledger))), wanted=Expectations(ledger.depths()))
    expected, known = counts(ledger, looked=False), counts(ledger, looked=True)
    for row in found.destinations:
        depth = ledger.depths()[row["destination"]]
        missing = max(expected[row["destination"]]["open"] - depth, 0)
        # A depth counts messages that are older than the ledger too, so it can hide lost ones, and never invents any.
        assert row["lost"] == missing <= known[row["destination"]]["lost"]
        assert row["open"] + row["lost"] == expected[row["destination"]]["open"]


def one_of_each(ledger: Ledger) -> None:
    for sequence, consumer in ((1, "c1"), (2, "c1")):
        for event in ("send", "commit"):
            ledger.add("queue://orders", event, sequence)
        ledger.now += 40 * sequence
        ledger.add("queue://orders", "dispatch", sequence, consumer)
        ledger.now += 3
        ledger.add("queue://orders", "acknowledge", sequence, consumer)


def test_a_good_ledger_is_ok_and_its_times_are_those_between_events(spark: SparkSession) -> None:
    ledger = Ledger()
    one_of_each(ledger)
    found = report(histories(events(rows_of(spark, ledger))), wanted=Expectations(drained=True), window=0.05)
    assert found.verdict is Verdict.OK
    assert found.notes == []
    assert found.total["waited"] == [40, 80, 80, 80]
    assert found.total["handled"] == [3, 3, 3, 3]
    assert found.total["total"] == [43, 83, 83, 83]
    assert [(row["start"], row["committed"]) for row in found.windows] == [(START, 2)]
    assert found.consumers == [
        {"destination": "queue://orders", "consumer": "c1", "acknowledged": 2, "handled": [3, 3, 3, 3]}
    ]


def test_what_comes_again_after_the_death_of_a_broker_is_redelivered(spark: SparkSession) -> None:
    """A broker that dies writes nothing of what comes back: only the flag of the next dispatch says it."""
    ledger = Ledger()
    for event, flagged in (("commit", False), ("dispatch", False), ("dispatch", True), ("acknowledge", False)):
        ledger.now += 10
        for sequence in range(1, 201):
            consumer = None if event == "commit" else "c1"
            ledger.add("queue://orders", event, sequence, consumer, flagged=flagged)
    found = report(histories(events(rows_of(spark, ledger))), wanted=Expectations(drained=True))
    assert (found.total["redelivered"], found.total["acknowledged"]) == (200, 200)
    assert found.sentence == "NO FAULT, but not all were delivered once: 200 redelivered"


def test_without_positions_what_can_be_in_order_is(spark: SparkSession) -> None:
    ledger = Ledger()
    for event in ("commit", "acknowledge", "dispatch"):  # all of one millisecond
        for sequence in (2, 1):
            ledger.add("queue://orders", event, sequence, None if event == "commit" else "c1")
    assert report(histories(events(rows_of(spark, ledger, position=False)))).verdict is Verdict.OK
    found = report(histories(events(rows_of(spark, ledger))))
    assert (found.total["out_of_order"], found.total["duplicated_unflagged"]) == (1, 2)


def test_a_topic_is_judged_for_one_subscriber(spark: SparkSession) -> None:
    ledger = Ledger()
    ledger.add("topic://prices", "commit", 1)
    for member in ("a/1", "b/1", "b/2"):
        ledger.add("topic://prices", "dispatch", 1, member)
        ledger.add("topic://prices", "acknowledge", 1, member)
    rows = rows_of(spark, ledger)
    assert report(histories(events(rows, "a"))).verdict is Verdict.OK
    assert report(histories(events(rows, "b"))).total["duplicated_unflagged"] == 1
    assert report(histories(events(rows))).reasons == ["the ledger has no committed messages: nothing is proved"]


def streams_of_one_group() -> Ledger:
    """A group received all of one stream from its third message on, and nothing of another one."""
    ledger = Ledger()
    for sequence in range(1, 8):
        for stream in ("stream://prices", "stream://others"):
            ledger.add(stream, "commit", sequence)
        if sequence >= 3:
            ledger.add("stream://prices", "dispatch", sequence, "g/1")
            ledger.add("stream://prices", "acknowledge", sequence, "g")
    return ledger


def test_a_subscriber_is_judged_by_what_it_received(spark: SparkSession) -> None:
    rows = rows_of(spark, streams_of_one_group())
    found = report(histories(events(rows, "g")), wanted=Expectations(drained=True, subscriber="g"))
    assert {row["destination"]: (row["open"], row["lost"]) for row in found.destinations} == {"stream://prices": (2, 0)}
    assert (found.total["committed"], found.reasons) == (7, [])
    assert found.sentence == "NO FAULT, but not all were delivered once: 2 open"
    assert found.notes == [
        "stream://prices: 2 open, sent before all that the subscriber received: lost, or older than its subscription",
        "g received nothing of stream://others: not audited; --destination NAME audits what it should read",
    ]


def test_what_a_subscriber_should_read_is_judged_if_it_is_named(spark: SparkSession) -> None:
    rows, named = rows_of(spark, streams_of_one_group()), ("stream://others",)
    wanted = Expectations(drained=True, subscriber="g", destinations=named)
    found = report(histories(events(rows, "g", named)), wanted=wanted)
    assert [row["destination"] for row in found.destinations] == ["stream://others"]
    assert found.reasons == [
        "stream://others: 7 lost: committed, without an end, and more than the 0 that are left according to --drained"
    ]


def test_what_is_no_ledger_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidArgument, match="no column destination, event"):
        events(spark.range(1))


def write_parts(spark: SparkSession, ledger: Ledger, directory: Path, parts: int) -> int:
    """Write a ledger as files, some of its events into the next one. Returns how many come too late for a second."""
    share = len(ledger.events) // parts + 1
    files: list[list[Any]] = [[] for _ in range(parts)]
    for number, event in enumerate(ledger.events):
        files[min(number // share + (number % 17 == 0), parts - 1)].append(event)
    late, latest = 0, 0
    for number, part in enumerate(files):
        late += sum(event.time < latest - 1000 for event in part)
        latest = max([latest, *(event.time for event in part)])
        rows_of(spark, Ledger(part)).coalesce(1).write.parquet(f"{directory}/part={number}")
    return late


def test_bit_by_bit_is_the_same_and_a_batch_that_died_does_not_count_twice(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = random_ledger(11, 300)
    late = write_parts(spark, ledger, tmp_path / "ledger", 3)
    work = str(tmp_path / "work")

    def take_in() -> None:
        schema = spark.read.parquet(str(tmp_path / "ledger")).schema
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "ledger"))
        start_audit(events(stream), work, delay=1.0).awaitTermination()

    def die(*_: object) -> DataFrame:
        raise RuntimeError("died between its two writes")

    with monkeypatch.context() as patched:
        patched.setattr(audit_module, "_seen", die)
        with pytest.raises(StreamingQueryException, match="died between"):
            take_in()
    assert (tmp_path / "work/histories/batch=0/_SUCCESS").exists()
    take_in()
    take_in()
    found, seen = taken_in(spark, work)
    latest = max(event.time for event in ledger.events)
    assert seen == Seen(len(ledger.events), late, latest)
    assert late > 0
    audited = report(found, remaining=remaining_of(spark, ledger), seen=seen, delay=1.0)
    assert counts_of(audited.destinations) == counts(ledger, looked=True)
    assert audited.late == late
    finals = [row["final"] for row in audited.windows]
    assert finals == [row["start"] + 60_000 <= latest - 1000 for row in audited.windows]
    assert set(finals) == {True, False}


def test_an_audit_that_has_seen_nothing_proves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    found, seen = taken_in(spark, str(tmp_path))
    assert seen == Seen(0, 0, None)
    assert report(found, seen=seen).verdict is Verdict.NOT_OK


def test_windows_say_where_it_went_wrong(spark: SparkSession) -> None:
    ledger = Ledger()
    one_of_each(ledger)
    ledger.now = START + 3_600_000
    ledger.add("queue://orders", "commit", 3)
    found = report(histories(events(rows_of(spark, ledger))), remaining=remaining_of(spark, ledger))
    assert [(row["start"], sum(row[name] for name in PROBLEMS)) for row in found.windows] == [
        (START // 60_000 * 60_000, 0),
        (ledger.now // 60_000 * 60_000, 1),
    ]
    assert found.reasons == ["queue://orders: 1 lost: committed, without an end, and not in the destination"]
