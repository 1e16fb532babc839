"""``quire schedule`` and ``quire xa``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from quire.cli import output
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

XID = "00000001-0a-0b"
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


def test_one_scheduled_message_is_cancelled(broker: FakeBroker, run: Run) -> None:
    broker.answer("DELETE", "/schedule/5", {"cancelled": "5"})
    assert run("schedule", "cancel", "5").output == "cancelled 5\n"


def test_all_scheduled_messages_are_cancelled_after_a_question(
    broker: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda stream: True)
    broker.answer("DELETE", "/schedule", {"removed": 7})
    assert run("schedule", "cancel", "--all", stdin=b"n\n").exit_code == 1
    assert broker.calls == []
    assert run("schedule", "cancel", "--all", "--yes").output == "cancelled 7 messages\n"


@pytest.mark.parametrize("arguments", [[], ["5", "--all"]])
def test_cancel_needs_to_know_what(broker: FakeBroker, run: Run, arguments: list[str]) -> None:
    assert run("schedule", "cancel", *arguments).exit_code == 2
    assert broker.calls == []


def test_prepared_transactions_are_listed(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/xa", {"transactions": [PREPARED], "next": None, "total": 1})
    assert run("xa", "ls").output.splitlines()[1].split()[:2] == [XID, "prepared"]
    assert json.loads(run("xa", "ls", "--output", "json").output) == [PREPARED]


@pytest.mark.parametrize(
    ("verb", "method", "path", "sentence"),
    [
        ("commit", "POST", f"/xa/{XID}/commit", f"committed {XID}"),
        ("rollback", "POST", f"/xa/{XID}/rollback", f"rolled back {XID}"),
        ("forget", "DELETE", f"/xa/{XID}", f"forgot {XID}"),
    ],
)
def test_operator_decides(broker: FakeBroker, run: Run, verb: str, method: str, path: str, sentence: str) -> None:
    broker.answer(method, path, {"xid": XID, "outcome": verb})
    assert run("xa", verb, XID).output == f"{sentence}\n"
    assert broker.calls == [(method, path, {}, None)]


@pytest.mark.parametrize("verb", ["commit", "rollback"])
def test_decision_is_asked_about_on_a_terminal(
    broker: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda stream: True)
    assert run("xa", verb, XID, stdin=b"n\n").exit_code == 1
    assert broker.calls == []
