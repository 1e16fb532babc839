"""``quire stream``: what each verb asks of the broker, and what it prints."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from quire.cli import nouns
from quire.clock import ManualClock
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]

EVENTS = {
    "name": "events", "partitions": 2, "records": 5, "bytes": 2048, "appended": 7, "groups": 1, "members": 2,
    "readers": 0, "pins": 1,
}  # fmt: skip
PARTITION = {
    "partition": 0, "lane": 3, "earliest": 4, "end": 10, "records": 5, "bytes": 2048, "gaps": 1,
    "oldest_timestamp": 1_767_225_600_000, "newest_timestamp": None,
}  # fmt: skip
GROUP = {"name": "g", "order": "concurrent", "members": 2, "lag": 3, "in_flight": 1, "retries": None}
PIN = {"name": "job", "offsets": {"0": 4, "1": 9}, "until": 1_767_225_600_000}
DETAILS = {
    "name": "events", "records": 5, "policy": {"retention_time": 60.0}, "partitions": [PARTITION], "groups": [GROUP],
    "pins": [PIN],
}  # fmt: skip


def message(offset: int, partition: int = 0) -> dict[str, object]:
    return {
        "partition": partition, "offset": offset, "id": f"ID:{offset}", "size": 1, "timestamp": 0, "headers": {},
        "body": f"b{offset}", "body_encoding": "text",
    }  # fmt: skip


def page(first: int, following: int, until: int, cut: bool = False) -> dict[str, object]:
    messages = [message(offset) for offset in range(first, following)]
    return {"messages": messages, "next": following, "until": until, "earliest": 4, "cut": cut}


def test_streams_are_listed(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/streams", {"streams": [EVENTS], "next": None})
    heading, line = run("stream", "ls").output.splitlines()
    assert heading.split()[:3] == ["Stream", "Partitions", "Messages"]
    assert line.split() == ["events", "2", "5", "2.0", "KiB", "7", "1", "2", "0", "1"]
    assert json.loads(run("stream", "ls", "--output", "json").output) == [EVENTS]


@pytest.mark.parametrize("name", ["events", "stream://events", "/stream/events"])
def test_stream_is_shown_with_its_partitions_groups_and_pins(broker: FakeBroker, run: Run, name: str) -> None:
    broker.answer("GET", "/streams/events", DETAILS)
    lines = run("stream", "show", name).output.splitlines()
    assert lines[lines.index("Partitions") + 2].split()[:4] == ["0", "4", "10", "5"]
    assert "2026-01-01 00:00:00+00:00" in lines[lines.index("Partitions") + 2]
    assert lines[lines.index("Consumer groups") + 2].split() == ["g", "concurrent", "2", "3", "1", "-"]
    assert lines[lines.index("Pins") + 2].split()[0] == "job"
    assert json.loads(run("stream", "show", name, "--output", "json").output) == DETAILS


def test_partitions_and_offsets_are_listed(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/streams/s", DETAILS)
    assert run("stream", "partitions", "s").output.splitlines()[1].split()[:3] == ["0", "4", "10"]
    row = {"partition": 0, "earliest": 4, "end": 10, "records": 5, "bytes": 10, "offset": 7}
    broker.answer("GET", "/streams/s/offsets", {"partitions": [row]})
    lines = run("stream", "offsets", "s", "--start", "ago=1h").output.splitlines()
    assert lines[1].split() == ["0", "4", "10", "5", "10", "B", "7"]
    assert broker.calls[-1][2] == {"start": "ago=1h"}


def test_pins_are_listed_with_their_partitions(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/streams/s/pins", {"pins": [PIN]})
    assert run("stream", "pins", "ls", "s").output.splitlines() == [
        "job until 2026-01-01 00:00:00+00:00", "  partition 0 from offset 4", "  partition 1 from offset 9"
    ]  # fmt: skip
    assert json.loads(run("stream", "pins", "ls", "s", "--output", "ndjson").output) == PIN


# Read.


def test_range_is_read_page_by_page_to_the_end_it_had(broker: FakeBroker, run: Run) -> None:
    broker.answer_in_turn("GET", "/streams/s/partitions/0/messages", page(4, 6, 8), page(6, 8, 8))
    result = run("stream", "read", "s", "--partition", "0", "--from", "4", "--output", "ndjson", "--limit", "0")
    assert [json.loads(line)["offset"] for line in result.output.splitlines()] == [4, 5, 6, 7]
    assert [call[2] for call in broker.calls] == [
        {"from": "4", "limit": str(nouns.READ_PAGE)}, {"from": "6", "until": "8", "limit": str(nouns.READ_PAGE)}
    ]  # fmt: skip


def test_all_partitions_are_read_and_the_limit_is_for_them_together(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/streams/s/offsets", {"partitions": [{"partition": 0}, {"partition": 1}]})
    for partition in "01":
        broker.answer("GET", f"/streams/s/partitions/{partition}/messages", page(4, 7, 7))
    result = run("stream", "read", "s", "--limit", "5")
    assert [line.split()[1] for line in result.stdout.splitlines()[1:]] == ["4", "5", "6", "4", "5"]
    assert result.stderr == "s has more messages: --limit 0 shows them all\n"
    assert run("stream", "read", "s", "--limit", "6").stderr == ""


def test_read_says_what_is_gone_and_may_fail_for_it(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/streams/s/partitions/0/messages", page(4, 5, 5, cut=True))
    result = run("stream", "read", "s", "--partition", "0", "--from", "1")
    assert result.stderr == "messages of partition 0 before offset 4 were removed\n"
    error = {"code": "data-lost", "text": "gone", "data": {"earliest": 4}}
    broker.answer("GET", "/streams/s/partitions/0/messages", {"error": error}, 410)
    assert run("stream", "read", "s", "--partition", "0", "--from", "1", "--strict").exit_code == 4
    assert broker.calls[-1][2]["strict"] == "true"


# Find.


STATE = {
    "group": "g", "state": "leased", "member": "worker-1", "until": 1_767_225_600_000, "attempts": 2, "due": None,
    "cause": None, "may_be_delivered": False,
}  # fmt: skip


def test_messages_are_found_with_their_states(broker: FakeBroker, run: Run) -> None:
    done = {**STATE, "group": "h", "state": "done", "member": None, "until": None, "attempts": None}
    found = {"message": message(7), "groups": [STATE, done], "dead_letters": ["h"]}
    broker.answer("GET", "/streams/s/find", {"messages": [found], "whole": False, "damaged": [[1, 9]]})
    result = run("stream", "find", "s", "--key", "k", "--dead-letters")
    assert result.stdout.splitlines() == [
        "partition 0 offset 7  ID:7  -  1 B",
        "  g: leased, member worker-1, until 2026-01-01 00:00:00+00:00, attempts 2",
        "  h: done, dead letter",
    ]
    assert result.stderr.splitlines() == [
        "partition 1 offset 9 cannot be read", "there are more than 1: raise --limit, or narrow the search"
    ]  # fmt: skip
    assert broker.calls[-1][2] == {"key": "k", "limit": "100", "dead_letters": "true"}
    row = json.loads(run("stream", "find", "s", "--output", "ndjson").output)
    assert (row["offset"], row["groups"]) == (7, [STATE, done])


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1767225600000", "1767225600000"),
        ("2026-01-01", "1767225600000"),
        ("2026-01-01T01:00:00+01:00", "1767225600000"),
        ("30m", str(2_000_000_000_000 - 1_800_000)),
    ],
)
def test_times_may_be_written_in_several_ways(
    broker: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch, text: str, time: str
) -> None:
    monkeypatch.setattr(nouns, "SystemClock", lambda: ManualClock(2_000_000_000_000))
    broker.answer("GET", "/streams/s/find", {"messages": [], "whole": True, "damaged": []})
    result = run("stream", "find", "s", "--since", text, "--until", text)
    assert (result.exit_code, result.stderr) == (3, "no message of s is so\n")
    assert broker.calls[-1][2] == {"since": time, "until": time, "limit": "100"}
