"""``quire queue``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

ORDERS = {
    "name": "orders", "depth": 3, "in_flight": 1, "bytes": 3072, "resident_bytes": 1024, "consumers": 2,
    "enqueued": 5, "dequeued": 2, "redelivered": 0, "expired": 0, "dead_lettered": 0,
    "oldest_message_age_seconds": 1.5, "paused": False, "producers_held": [], "blocked": None,
}  # fmt: skip


def message(sequence: int) -> dict[str, object]:
    return {
        "sequence": sequence, "id": f"ID:{sequence}", "size": 10, "timestamp": 0, "expiration": 0, "priority": 4,
        "redelivered": False, "deliveries": 0, "in_flight": False, "headers": {}, "body": "b", "body_encoding": "text",
    }  # fmt: skip


def test_ls_prints_a_line_per_queue(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues", {"queues": [ORDERS], "next": None})
    result = run("queue", "ls")
    assert result.exit_code == 0
    heading, line = result.output.splitlines()
    assert heading.split()[:2] == ["Queue", "Messages"]
    assert line.split()[:5] == ["orders", "3", "1", "3.0", "KiB"]


def test_ls_for_programs_has_every_value(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues", {"queues": [ORDERS], "next": None})
    assert json.loads(run("queue", "ls", "--output", "json").output) == [ORDERS]


def test_show_prints_all_there_is(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues/orders", ORDERS)
    assert "resident_bytes              1.0 KiB" in run("queue", "show", "orders").output


def test_show_has_consumers_and_held_producers_as_tables(broker: FakeBroker, run: Run) -> None:
    subscriptions = [{"connection": "c:1", "id": "0", "ack": "client", "selector": None, "slow_seconds": 2.5}]
    held = [{"connection": "c:2", "destination": "orders", "cause": "store-limit", "age_seconds": 1.0}]
    queue = {**ORDERS, "subscriptions": subscriptions, "producers_held": held}
    broker.answer("GET", "/queues/orders", queue)
    lines = run("queue", "show", "orders").output.splitlines()
    consumers, producers = lines.index("Consumers"), lines.index("Producers held")
    assert lines[consumers + 1].split()[:3] == ["Connection", "Consumer", "Acknowledges"]
    assert lines[consumers + 2].split() == ["c:1", "0", "client", "-", "-", "-", "-", "-", "-", "2.5", "s"]
    assert lines[producers + 2].split() == ["c:2", "orders", "store-limit", "1.0", "s", "-"]
    assert not any(line.startswith("subscriptions") for line in lines)
    assert json.loads(run("queue", "show", "orders", "--output", "json").output) == queue


def test_groups_are_listed_page_by_page(broker: FakeBroker, run: Run) -> None:
    group = {"connection": "c:1", "subscription": "0", "in_flight": 1, "parked": 0, "moving": False}
    broker.answer_in_turn(
        "GET",
        "/queues/q/groups",
        {"groups": [{"name": "a", **group}], "next": "a"},
        {"groups": [{"name": "b", **group}], "next": None},
    )
    lines = run("queue", "groups", "q").output.splitlines()
    assert [line.split()[0] for line in lines] == ["Group", "a", "b"]
    assert [query for _, _, query, _ in broker.calls] == [{"limit": "1000"}, {"limit": "1000", "after": "a"}]


def test_show_of_a_queue_that_is_not_there_exits_with_3(broker: FakeBroker, run: Run) -> None:
    error = {"code": "unknown-destination", "text": "the queue orders does not exist", "advice": "", "data": {}}
    broker.answer("GET", "/queues/orders", {"error": error}, status=404)
    result = run("queue", "show", "orders")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: the queue orders does not exist\nwhat to do: Create it")


def test_browse_goes_on_from_page_to_page_until_the_end(broker: FakeBroker, run: Run) -> None:
    broker.answer_in_turn(
        "GET",
        "/queues/q/messages",
        {"messages": [message(1), message(2)], "next": "t2"},
        {"messages": [], "next": "t3"},
        {"messages": [message(5)], "next": None},
    )
    result = run("queue", "browse", "q", "--limit", "0", "--output", "ndjson")
    assert [json.loads(line)["sequence"] for line in result.stdout.splitlines()] == [1, 2, 5]
    assert [query for _, _, query, _ in broker.calls] == [
        {"limit": "500"},
        {"limit": "500", "after": "t2"},
        {"limit": "500", "after": "t3"},
    ]


def test_browse_stops_at_the_limit_and_says_that_there_is_more(broker: FakeBroker, run: Run) -> None:
    broker.answer_in_turn(
        "GET",
        "/queues/q/messages",
        {"messages": [message(1), message(2)], "next": "t"},
        {"messages": [message(3)], "next": "u"},
    )
    result = run("queue", "browse", "q", "--limit", "3")
    assert len(result.stdout.splitlines()) == 4
    assert result.stderr == "q has more messages: --limit 0 shows them all\n"
    assert [query["limit"] for _, _, query, _ in broker.calls] == ["3", "1"]


def test_browse_passes_the_selector_on(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues/q/messages", {"messages": [], "next": None})
    run("queue", "browse", "q", "--selector", "a = 1")
    assert broker.calls[0][2] == {"limit": "100", "selector": "a = 1"}


@pytest.mark.parametrize(("rate", "per_second"), [("50/s", 50.0), ("6/m", 0.1), ("36/h", 0.01), ("2.5", 2.5)])
def test_redrive_at_a_rate_takes_its_time(broker: FakeBroker, run: Run, rate: str, per_second: float) -> None:
    broker.answer("POST", "/queues/q/redrive", {"moved": 12, "next": None})
    result = run("queue", "redrive", "q", "--rate", rate, "--selector", "a = 1")
    assert result.output == "sent 12 messages of q back\n"
    assert broker.calls == [("POST", "/queues/q/redrive", {}, {"selector": "a = 1", "rate": per_second})]
    assert broker.patience is None
