"""What the pipeline says of dead letters."""

import itertools
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from quire.broker import dead_letter
from quire.spark import reading
from quire.spark.pipelines.command import Place
from quire.spark.pipelines.dead_letters import (
    LettersReport,
    letter_destinations,
    letters,
    letters_page,
    named_by,
    report,
)
from tests.spark.message_rows import FIRST, frame, message
from tests.spark.running_broker import running_broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NOW = round((FIRST + timedelta(days=2)).timestamp() * 1000)


def dead(offset: int, cause: str, origin: str = "/queue/orders", **changes: Any) -> tuple[Any, ...]:
    headers = {dead_letter.CAUSE: cause, dead_letter.ORIGIN: origin}
    return message(offset, "queue://DLQ", headers=headers, **changes)


def some(spark: SparkSession) -> DataFrame:
    return frame(
        spark,
        [
            dead(1, "delivery failed 7 times, the maximum is 6"),
            dead(2, "delivery failed 3 times, the maximum is 2", timestamp=FIRST + timedelta(days=2, seconds=-30)),
            dead(3, "<script>alert(1)</script>", "/topic/prices", value=b"\xff\xfe"),
            message(4, "queue://DLQ", headers=None, timestamp=FIRST - timedelta(days=40)),
        ],
    )


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> LettersReport:
    return report(letters(some(spark), NOW), 1)


def test_like_causes_are_one(found: LettersReport) -> None:
    assert [(row["cause"], row["count"]) for row in found.causes] == [
        ("delivery failed # times, the maximum is #", 2),
        ("<script>alert(#)</script>", 1),
        ("unknown", 1),
    ]
    assert found.count == 4


def test_origins_are_written_as_everywhere(found: LettersReport) -> None:
    assert [(row["origin"], row["count"], row["bytes"]) for row in found.origins] == [
        ("queue://orders", 2, 12),
        ("topic://prices", 1, 2),
        ("unknown", 1, 6),
    ]
    assert [row["destination"] for row in found.queues] == ["queue://DLQ"]


def test_ages_count_from_when_the_message_was_sent(found: LettersReport) -> None:
    assert [(row["age"], row["count"]) for row in found.ages] == [
        ("less than a minute", 1),
        ("less than 3 days", 2),
        ("less than 90 days", 1),
    ]


def test_samples_are_the_latest_of_each_cause_with_text_if_they_have_any(found: LettersReport) -> None:
    shown = {row["cause"]: (row["offset"], row["sample"]) for row in found.samples}
    assert shown == {
        "delivery failed # times, the maximum is #": (2, "body 2"),
        "<script>alert(#)</script>": (3, None),
        "unknown": (4, "body 4"),
    }


def test_samples_have_the_headers_that_the_sender_gave(spark: SparkSession) -> None:
    headers = {dead_letter.CAUSE: "no such article", "type": "order", "region": "north"}
    nothing_else = frame(spark, [message(1, "queue://DLQ", headers=headers)])
    (sample,) = report(letters(nothing_else, NOW), 1).samples
    assert sample["headers"] == {"type": "order", "region": "north"}


def test_dead_letter_queues_are_those_of_the_policies_and_of_groups() -> None:
    policies = [
        {"dead_letter_queue": "dead", "queue_prefix": "DLQ.", "queue_suffix": ".old"},
        {"topic_prefix": "", "topic_suffix": ".dead"},
    ]
    of_policies, of_defaults = named_by(policies), named_by([{}])
    names = [
        "queue://dead", "queue://DLQ.orders.old", "topic://prices.dead", "queue://%DLQ%billing", "queue://ActiveMQ.DLQ",
        "queue://ActiveMQ.DLQ.Queue.orders", "queue://orders", "stream://dead",
    ]  # fmt: skip
    # Of the second policy all but its affixes of topics is the default.
    assert [of_policies(name) for name in names] == [True] * 6 + [False, False]
    assert [of_defaults(name) for name in names] == [False] * 3 + [True] * 3 + [False, False]


def test_a_broker_says_where_its_dead_letters_are(tmp_path: Path) -> None:
    with running_broker(tmp_path, POLICY__DEAD_LETTER_QUEUE="dead", POLICY__QUEUE_PREFIX="DLQ.") as broker:
        for name in ("dead", "DLQ.orders", "%25DLQ%25billing", "orders", "ActiveMQ.DLQ"):
            broker.api.call("PUT", f"/queues/{name}")
        found = letter_destinations(Place(url=broker.url))
    assert sorted(found) == ["queue://%DLQ%billing", "queue://DLQ.orders", "queue://dead"]


def test_a_chart_over_time_has_few_points_and_all_letters(found: LettersReport) -> None:
    assert sum(row["count"] for row in found.times) == 4
    assert len([row for row in found.times if row["count"]]) == 3
    starts = [row["start"] for row in found.times]
    assert len({after - before for before, after in itertools.pairwise(starts)}) == 1
    assert len(starts) <= 201


def test_the_page_has_what_was_found_and_none_of_it_as_html(found: LettersReport) -> None:
    page = letters_page(found, "a test")
    assert "delivery failed 3 times" in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert page.count("<picture>") == 1
    assert page.count('<div class="bars">') == 4


def test_no_dead_letters_make_a_page_too(spark: SparkSession) -> None:
    nothing = report(letters(frame(spark, []), NOW), 1)
    assert nothing.count == 0
    assert "no dead letters" in letters_page(nothing, "a test")


def test_the_headers_are_those_of_the_broker() -> None:
    assert (reading.CAUSE, reading.ORIGIN) == (dead_letter.CAUSE, dead_letter.ORIGIN)
