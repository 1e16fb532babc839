"""``quire schedule``, ``quire xa`` and ``quire producer``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

from click.testing import Result

from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

XID = "00000001-0a-0b"
PRODUCER = {"id": "p", "sequence": 7, "last_sent": 1_700_000_000_000}
SCHEDULED = {
    "id": "5", "message_id": "ID:5", "destination": "/queue/q", "due": 1_700_000_000_000, "delay": 0, "period": 1000,
    "repeat": 3, "left": 2, "cron": "", "priority": 4, "persistent": True, "time_to_live": None, "size": 100,
}  # fmt: skip
PREPARED = {
    "xid": XID, "state": "prepared", "outcome": "", "age_seconds": 3.0, "messages": 1, "acknowledgements": 2,
    "bytes": 10,
}  # fmt: skip


def test_scheduled_messages_are_listed_page_by_page(broker: FakeBroker, run: Run) -> None:
    pages = [{"messages": [SCHEDULED], "next": "5"}, {"messages": [{**SCHEDULED, "id": "6"}], "next": None}]
    broker.answer_in_turn("GET", "/schedule", *pages)
    lines = run("schedule", "ls").output.splitlines()
    assert [line.split()[0] for line in lines] == ["Id", "5", "6"]
    assert "2023-11-14 22:13:20+00:00" in lines[1]
    assert broker.calls[1][2] == {"limit": "1000", "after": "5"}


def test_prepared_transactions_are_listed(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/xa", {"transactions": [PREPARED], "next": None, "total": 1})
    assert run("xa", "ls").output.splitlines()[1].split()[:2] == [XID, "prepared"]
    assert json.loads(run("xa", "ls", "--output", "json").output) == [PREPARED]


def test_producers_are_listed_page_by_page(broker: FakeBroker, run: Run) -> None:
    pages = [{"producers": [PRODUCER], "next": "p"}, {"producers": [{**PRODUCER, "id": "q"}], "next": None}]
    broker.answer_in_turn("GET", "/producers", *pages)
    lines = run("producer", "ls").output.splitlines()
    assert [line.split()[:2] for line in lines] == [["Id", "Sequence"], ["p", "7"], ["q", "7"]]
    assert "2023-11-14 22:13:20+00:00" in lines[1]
    assert broker.calls[1][2] == {"limit": "1000", "after": "p"}
