"""``quire group``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

GROUP = {
    "stream": "s", "name": "g", "order": "concurrent", "members": 2, "lag": 7, "in_flight": 3, "retries": None,
    "oldest_message_age_seconds": 90.0, "epoch": 4, "blocked": {"cause": "consumer-busy", "age_seconds": 2.0},
}  # fmt: skip
READER = {**GROUP, "name": "reader-3", "blocked": None}
PARTITION = {
    "partition": 0, "base": 5, "end": 11, "lag": 4, "in_flight": 3, "owners": ["a", "b"], "holes": 1,
    "ack_set_bytes": 2048, "waiting_retries": 0, "lost": 0, "oldest_message_age_seconds": None, "blocked": None,
}  # fmt: skip
MEMBER = {
    "id": "a", "static": True, "room": "", "connection": None, "since": 1_700_000_000_000, "partitions": [0, 2],
    "revoking": [], "in_flight": 3, "prefetch": 1000, "lease_ends_seconds": 12.5,
}  # fmt: skip
CHANGE = {
    "partition": 0, "from_offset": 4, "to_offset": 2, "again": 4, "skipped": 0, "in_flight": 5, "retries_dropped": 1,
}  # fmt: skip
CHANGED = {
    "done": True, "again": 4, "skipped": 0, "in_flight": 5, "retries_dropped": 1, "partitions": [CHANGE],
}  # fmt: skip
FORETOLD = {**CHANGED, "done": False}
DRY = {"dry_run": "true"}


def test_groups_and_readers_are_listed(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/groups", {"groups": [GROUP], "readers": [READER], "next": None, "total": 1})
    heading, line = run("group", "ls").output.splitlines()
    assert heading.split()[:5] == ["Stream", "Group", "Order", "Members", "Lag"]
    assert line.split() == ["s", "g", "concurrent", "2", "7", "3", "-", "0:01:30", "4", "consumer-busy,", "2.0", "s"]
    assert json.loads(run("group", "ls", "--output", "json").output) == [GROUP]
    assert json.loads(run("group", "ls", "--readers", "--output", "json").output) == [READER]


@pytest.mark.parametrize("stream", ["s", "stream://s", "/stream/s"])
def test_a_group_is_shown_with_its_partitions_and_members(broker: FakeBroker, run: Run, stream: str) -> None:
    details = {**GROUP, "partition_states": [PARTITION], "retry_lane": None, "group_members": [MEMBER]}
    broker.answer("GET", "/groups/s/g", details)
    lines = run("group", "show", stream, "g").output.splitlines()
    assert lines[lines.index("Partitions") + 2].split() == [
        "0", "5", "11", "4", "3", "a;", "b", "1", "2.0", "KiB", "0", "0", "-", "-",
    ]  # fmt: skip
    assert lines[lines.index("Members") + 2].split()[:5] == ["a", "yes", "-", "2023-11-14", "22:13:20+00:00"]
    assert json.loads(run("group", "show", stream, "g", "--output", "json").output) == details


def test_members_and_lag_are_shown(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/groups/s/a%2Fb/members", {"members": [MEMBER]})
    assert json.loads(run("group", "members", "s", "a/b", "--output", "json").output) == [MEMBER]
    broker.answer("GET", "/groups/s/g/lag", {"lag": 4, "in_flight": 3, "retries": 0, "partitions": [PARTITION]})
    lines = run("group", "lag", "s", "g").output.splitlines()
    assert lines[0].split() == ["lag", "4"]
    assert lines[-1].split() == ["0", "5", "11", "4", "3", "a;", "b"]


MOVES = [
    (["reset", "s", "g", "ago=1h"], "reset", {"to": "ago=1h", "partition": None}),
    (["reset", "s", "g", "earliest", "--partition", "2"], "reset", {"to": "earliest", "partition": 2}),
    (["shift", "s", "g", "5"], "shift", {"by": 5, "partition": None}),
    (["shift", "s", "g", "--partition", "0", "--", "-5"], "shift", {"by": -5, "partition": 0}),
    (["skip", "s", "g"], "skip", {"partition": None}),
]


@pytest.mark.parametrize(("arguments", "verb", "body"), MOVES)
def test_a_move_is_foretold_and_then_made(
    broker: FakeBroker, run: Run, arguments: list[str], verb: str, body: dict[str, object]
) -> None:
    broker.answer("POST", f"/groups/s/g/{verb}", CHANGED)
    result = run("group", *arguments)
    assert broker.calls == [("POST", f"/groups/s/g/{verb}", DRY, body), ("POST", f"/groups/s/g/{verb}", {}, body)]
    lines = result.output.splitlines()
    assert lines[lines.index("Partitions") + 2].split() == ["0", "4", "2", "4", "0", "5", "1"]
    assert lines[-1] == f"{verb} of g: 4 redelivered, 0 skipped, 1 retries dropped"


def test_a_move_that_was_agreed_to_is_just_made(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/groups/s/g/skip", CHANGED)
    result = run("group", "skip", "s", "g", "--yes", "--output", "json")
    assert [call[2] for call in broker.calls] == [{}]
    assert json.loads(result.output) == CHANGED


def test_programs_get_one_answer(broker: FakeBroker, run: Run) -> None:
    broker.answer_in_turn("POST", "/groups/s/g/skip", FORETOLD, CHANGED)
    assert json.loads(run("group", "skip", "s", "g", "--output", "json").output) == CHANGED


def test_a_dry_run_changes_nothing(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/groups/s/g/skip", FORETOLD)
    assert json.loads(run("group", "skip", "s", "g", "--dry-run", "--yes", "--output", "json").output) == FORETOLD
    assert [call[2] for call in broker.calls] == [DRY]


def test_a_group_is_cloned(broker: FakeBroker, run: Run) -> None:
    clone = {"partition": 0, "offset": 6, "lag": 4, "holes": 1, "retries_left": 2}
    broker.answer("POST", "/groups/s/g/clone", {"done": True, "lag": 4, "retries_left": 2, "partitions": [clone]})
    lines = run("group", "clone", "s", "g", "h").output.splitlines()
    assert lines[lines.index("Partitions") + 2].split() == ["0", "6", "4", "1", "2"]
    assert lines[-1] == "created h with a lag of 4 messages"
    assert broker.calls[-1] == ("POST", "/groups/s/g/clone", {}, {"to": "h"})


def test_a_strategy_is_tried_out(broker: FakeBroker, run: Run) -> None:
    partitions = [{"partition": 0, "members": ["b"], "owners": ["a"]}]
    broker.answer("POST", "/groups/s/g/assign", {"strategy": "sticky", "moved": 1, "partitions": partitions})
    options = ("--strategy", "sticky", "--room", "a=north", "--wants", "b=0,3")
    lines = run("group", "assign", "s", "g", "a", "b", *options).output.splitlines()
    assert lines[-1].split() == ["0", "b", "a"]
    drafts = [{"id": "a", "room": "north", "partitions": []}, {"id": "b", "room": "", "partitions": [0, 3]}]
    assert broker.calls == [("POST", "/groups/s/g/assign", {}, {"members": drafts, "strategy": "sticky"})]
