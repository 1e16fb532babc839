"""The verdict over what was counted."""

from typing import Any

import pytest

from quire.spark.pipelines.audit_report import AuditReport, Expectations, compared
from quire.spark.pipelines.judgement import COUNTS


def row(destination: str = "queue://orders", **counts: int) -> dict[str, Any]:
    return {"destination": destination} | dict.fromkeys(COUNTS, 0) | counts


def verdict(*rows: dict[str, Any], wanted: Expectations | None = None, late: int = 0) -> AuditReport:
    total = {name: sum(row[name] for row in rows) for name in COUNTS}
    return compared(total, rows, [], [], late, wanted or Expectations())


def test_open_messages_are_not_lost_until_somebody_says_what_is_there() -> None:
    counted = row(committed=10, acknowledged=7, open=3)
    assert verdict(counted).ok
    assert verdict(counted).notes == [
        "queue://orders: 3 open; say what is there, and it is known whether they are lost"
    ]
    compared = verdict(counted, wanted=Expectations({"queue://orders": 1}))
    assert not compared.ok
    assert (compared.total["open"], compared.total["lost"]) == (1, 2)
    assert compared.reasons == ["queue://orders: 2 lost: committed, never ended, and not there"]


def test_a_depth_that_fits_proves_that_nothing_is_lost() -> None:
    report = verdict(row(committed=10, acknowledged=7, open=3), wanted=Expectations({"queue://orders": 3}))
    assert (report.ok, report.notes) == (True, [])


def test_more_than_the_ledger_knows_is_noted() -> None:
    report = verdict(row(open=1), wanted=Expectations({"queue://orders": 5, "queue://other": 0}))
    assert report.ok
    assert report.notes == [
        "queue://orders has 4 more messages than the ledger has open: did it begin later?",
        "the ledger has nothing of queue://other",
    ]


def test_drained_is_a_depth_of_zero_where_none_is_given() -> None:
    rows = (row(open=1), row("queue://other", open=2))
    assert verdict(*rows, wanted=Expectations({"queue://other": 2}, drained=True)).total["lost"] == 1


@pytest.mark.parametrize("fault", ["lost", "duplicated_flagged", "duplicated_unflagged", "out_of_order"])
def test_each_fault_is_a_reason(fault: str) -> None:
    report = verdict(row(committed=1, acknowledged=1), row("queue://bad") | {fault: 2})
    assert len(report.reasons) == 1
    assert report.reasons[0].startswith("queue://bad: 2 ")


def test_disorder_does_not_count_where_no_order_is_expected() -> None:
    assert verdict(row(out_of_order=2), wanted=Expectations(any_order=True)).ok


@pytest.mark.parametrize("fact", ["earlier", "dead_lettered", "expired", "sent"])
def test_what_is_no_fault_is_noted(fact: str) -> None:
    report = verdict(row() | {fact: 3})
    assert report.ok
    assert report.notes[0].startswith("queue://orders: 3 ")


def test_late_events_are_noted() -> None:
    assert verdict(row(), late=4).notes == ["4 events came later than the delay; they are judged all the same"]


def test_an_empty_ledger_proves_nothing() -> None:
    assert not verdict().ok
