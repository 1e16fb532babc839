"""The verdict over what was counted."""

from typing import Any

import pytest

from quire.spark.pipelines.audit import AuditReport, Expectations, Verdict, compared
from quire.spark.pipelines.histories import COUNTS


def row(destination: str = "queue://orders", /, **counts: int) -> dict[str, Any]:
    return {"destination": destination} | dict.fromkeys((*COUNTS, "before"), 0) | counts


def verdict(*rows: dict[str, Any], wanted: Expectations | None = None, late: int = 0) -> AuditReport:
    total = {name: sum(row[name] for row in rows) for name in COUNTS}
    return compared(total, rows, [], [], late, wanted or Expectations())


def test_what_was_delivered_in_order_and_once_is_ok() -> None:
    report = verdict(row(committed=10, acknowledged=10, delivered=10))
    assert (report.verdict, report.sentence) == (Verdict.OK, "OK: 10 delivered, in order, once")
    unordered = verdict(row(committed=10, acknowledged=10, out_of_order=3), wanted=Expectations(any_order=True))
    assert (unordered.verdict, unordered.sentence) == (Verdict.OK, "OK: 10 delivered, once")


def test_what_was_not_delivered_once_is_named_and_never_ok() -> None:
    counts = {"redelivered": 200, "dead_lettered": 364, "expired": 202, "removed": 5, "open": 136}
    report = verdict(row(committed=1000, acknowledged=293, **counts), row("queue://other", committed=1, expired=1))
    assert report.verdict is Verdict.NO_FAULT
    assert report.sentence == (
        "NO FAULT, but not all were delivered once: "
        "200 redelivered, 364 dead-lettered, 203 expired, 5 removed, 136 open"
    )
    assert report.notes == [
        "queue://orders: 136 open; with --depth, --drained or --browse the audit tells whether they are lost",
        "queue://orders: 200 deliveries with the redelivered flag: a consumer may have received the message before",
        "queue://orders: 364 dead-lettered",
        "queue://orders: 202 expired",
        "queue://orders: 5 removed by an operator or by retention",
        "queue://other: 1 expired",
    ]


def test_open_messages_are_not_lost_until_somebody_says_what_is_there() -> None:
    counted = row(committed=10, acknowledged=7, open=3)
    assert verdict(counted).verdict is Verdict.NO_FAULT
    compared = verdict(counted, wanted=Expectations({"queue://orders": 1}))
    assert (compared.verdict, compared.sentence) == (Verdict.NOT_OK, "NOT OK: 2 lost, 1 open")
    assert (compared.total["open"], compared.total["lost"]) == (1, 2)
    assert compared.reasons == [
        "queue://orders: 2 lost: committed, without an end, and more than the 1 that are left according to --depth 1"
    ]


def test_a_depth_that_fits_proves_that_nothing_is_lost() -> None:
    report = verdict(row(committed=10, acknowledged=7, open=3), wanted=Expectations({"queue://orders": 3}))
    assert (report.reasons, report.notes) == ([], [])
    assert report.sentence == "NO FAULT, but not all were delivered once: 3 open"


def test_more_than_the_ledger_knows_is_noted() -> None:
    wanted = Expectations({"queue://orders": 5, "queue://other": 0})
    report = verdict(row(committed=1, open=1), wanted=wanted)
    assert report.verdict is Verdict.NO_FAULT
    assert report.notes == [
        "queue://orders has 4 more messages than are open in the ledger, which may have begun later",
        "the ledger has no events of queue://other",
    ]


def test_drained_is_a_depth_of_zero_where_none_is_given() -> None:
    rows = (row(open=1), row("queue://other", open=2))
    assert verdict(*rows, wanted=Expectations({"queue://other": 2}, drained=True)).total["lost"] == 1


def test_what_was_looked_for_is_not_there_and_what_is_beyond_a_depth_is_said_to_be_so() -> None:
    report = verdict(row(committed=5, open=2, lost=3), wanted=Expectations(drained=True))
    assert report.reasons == [
        "queue://orders: 3 lost: committed, without an end, and not in the destination",
        "queue://orders: 2 lost: committed, without an end, and more than the 0 that are left according to --drained",
    ]


@pytest.mark.parametrize("fault", ["lost", "duplicated_flagged", "duplicated_unflagged", "out_of_order"])
def test_each_fault_is_a_reason(fault: str) -> None:
    report = verdict(row(committed=1, acknowledged=1), row("queue://bad") | {fault: 2})
    assert len(report.reasons) == 1
    assert report.reasons[0].startswith("queue://bad: 2 ")
    assert report.sentence.startswith("NOT OK: 2 ")


def test_what_is_no_fault_makes_no_window_bad() -> None:
    window = row(out_of_order=1)
    bad = [AuditReport(window, [window], [window], [], any_order=any_order).bad_windows for any_order in (False, True)]
    assert bad == [[window], []]


@pytest.mark.parametrize("fact", ["earlier", "sent"])
def test_what_the_ledger_says_nothing_of_is_noted(fact: str) -> None:
    report = verdict(row(committed=1, acknowledged=1) | {fact: 3})
    assert report.verdict is Verdict.OK
    assert report.notes[0].startswith("queue://orders: ")


def test_late_events_are_noted() -> None:
    report = verdict(row(committed=1, acknowledged=1), late=4)
    assert report.notes == ["4 events arrived later than the delay allows; the audit includes them"]


@pytest.mark.parametrize("rows", [[], [row()], [row(earlier=7, sent=2)]])
def test_a_ledger_without_committed_messages_proves_nothing(rows: list[dict[str, Any]]) -> None:
    report = verdict(*rows)
    assert (report.verdict, report.reasons[-1]) == (
        Verdict.NOT_OK, "the ledger has no committed messages: nothing is proved"
    )  # fmt: skip
    assert report.sentence == "NOT OK: nothing is proved"
