"""``quire queue``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from quire.cli import output
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
    broker.answer("GET", "/queues", {"queues": [ORDERS]})
    result = run("queue", "ls")
    assert result.exit_code == 0
    heading, line = result.output.splitlines()
    assert heading.split()[:2] == ["Queue", "Depth"]
    assert line.split()[:5] == ["orders", "3", "1", "3.0", "KiB"]


def test_ls_for_programs_has_every_value(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues", {"queues": [ORDERS]})
    assert json.loads(run("queue", "ls", "--output", "json").output) == [ORDERS]


def test_show_prints_all_there_is(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues/orders", ORDERS)
    assert "resident_bytes              1.0 KiB" in run("queue", "show", "orders").output


def test_show_of_a_queue_that_is_not_there_exits_with_3(broker: FakeBroker, run: Run) -> None:
    error = {"code": "unknown-destination", "text": "there is no queue orders", "advice": "", "data": {}}
    broker.answer("GET", "/queues/orders", {"error": error}, status=404)
    result = run("queue", "show", "orders")
    assert result.exit_code == 3
    assert result.stderr.startswith("error: there is no queue orders\nwhat to do: Create it")


@pytest.mark.parametrize(
    ("arguments", "call", "answer", "sentence"),
    [
        (["create", "a/b"], ("PUT", "/queues/a%2Fb", {}, None), {}, "created a/b"),
        (["delete", "q"], ("DELETE", "/queues/q", {}, None), {}, "deleted q"),
        (["delete", "q", "--force"], ("DELETE", "/queues/q", {"force": "true"}, None), {}, "deleted q"),
        (["purge", "q"], ("POST", "/queues/q/purge", {}, None), {"removed": 7}, "removed 7 messages from q"),
        (["pause", "q"], ("POST", "/queues/q/pause", {}, None), {}, "paused q"),
        (["resume", "q"], ("POST", "/queues/q/resume", {}, None), {}, "resumed q"),
        (
            ["move", "q", "r"],
            ("POST", "/queues/q/move", {}, {"to": "r"}),
            {"moved": 2},
            "moved 2 messages from q to r",
        ),
        (
            ["move", "q", "r", "--id", "ID:1", "--id", "ID:2", "--limit", "5"],
            ("POST", "/queues/q/move", {}, {"to": "r", "ids": ["ID:1", "ID:2"], "limit": 5}),
            {"moved": 2},
            "moved 2 messages from q to r",
        ),
        (
            ["redrive", "q"],
            ("POST", "/queues/q/redrive", {}, {}),
            {"moved": 4},
            "sent 4 messages of q back",
        ),
        (
            ["redrive", "q", "--limit", "4"],
            ("POST", "/queues/q/redrive", {}, {"limit": 4}),
            {"moved": 4},
            "sent 4 messages of q back",
        ),
    ],
)
def test_verb_makes_one_call_and_says_what_it_did(
    broker: FakeBroker,
    run: Run,
    arguments: list[str],
    call: tuple[str, str, dict[str, str], object],
    answer: dict[str, object],
    sentence: str,
) -> None:
    broker.answer(call[0], call[1], answer)
    result = run("queue", *arguments)
    assert (result.exit_code, result.output) == (0, f"{sentence}\n")
    assert broker.calls == [call]
    assert json.loads(run("queue", *arguments, "--output", "json").output) == answer


@pytest.mark.parametrize("verb", ["delete", "purge"])
def test_destruction_is_asked_about_on_a_terminal(
    broker: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda stream: True)
    broker.answer("DELETE", "/queues/q", {})
    broker.answer("POST", "/queues/q/purge", {"removed": 0})
    refused = run("queue", verb, "q", stdin=b"n\n")
    assert refused.exit_code == 1
    assert broker.calls == []
    assert run("queue", verb, "q", stdin=b"y\n").exit_code == 0
    assert run("queue", verb, "q", "--yes").exit_code == 0
    assert len(broker.calls) == 2


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
