"""``quire check``: the line and the exit code of every state."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

from quire.cli import api
from quire.errors import BrokerUnreachable
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]


def queue(name: str, depth: int, age: float | None = None) -> dict[str, Any]:
    return {"name": name, "depth": depth, "oldest_message_age_seconds": age}


def told(result: Result) -> tuple[int, str]:
    assert result.output.count("\n") == 1
    return result.exit_code, result.output.rstrip()


@pytest.mark.parametrize(("status", "state", "code"), [(200, "running", 0), (503, "store-failed", 2)])
def test_ready_is_what_the_probe_says(broker: FakeBroker, run: Run, status: int, state: str, code: int) -> None:
    broker.answer("GET", "/ready", {"state": state}, status)
    name = {0: "OK", 2: "CRITICAL"}[code]
    assert told(run("check", "ready")) == (code, f"QUIRE {name} - the state of the broker is {state}")


def test_live_is_well_while_the_store_is_not(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/health", {"state": "store-failed"})
    assert told(run("check", "live")) == (0, "QUIRE OK - the broker answers: store-failed")


@pytest.mark.parametrize("verb", ["live", "ready", "depth", "age", "lag"])
def test_a_broker_that_does_not_answer_is_critical(monkeypatch: pytest.MonkeyPatch, run: Run, verb: str) -> None:
    def refuse(*arguments: object) -> tuple[int, bytes]:
        raise BrokerUnreachable("no broker answers")

    monkeypatch.setattr(api, "exchange", refuse)
    assert told(run("check", verb)) == (2, "QUIRE CRITICAL - no broker answers")


def test_something_else_that_answers_is_critical(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/ready", b"<html>")
    assert run("check", "ready").exit_code == 2


@pytest.mark.parametrize(
    ("limits", "code", "line"),
    [
        ([], 0, "QUIRE OK - orders: depth 50 messages | 'depth'=50;;"),
        (["--warning", "50", "--critical", "90"], 0, "QUIRE OK - orders: depth 50 messages | 'depth'=50;50;90"),
        (["--warning", "49"], 1, "QUIRE WARNING - orders: depth 50 messages | 'depth'=50;49;"),
        (["--warning", "9", "--critical", "49"], 2, "QUIRE CRITICAL - orders: depth 50 messages | 'depth'=50;9;49"),
    ],
)
def test_depth_of_the_deepest_queue_against_thresholds(
    broker: FakeBroker, run: Run, limits: list[str], code: int, line: str
) -> None:
    queues = [queue("a", 1), queue("orders", 50), queue("z", 2)]
    broker.answer("GET", "/queues", {"queues": queues, "next": None})
    assert told(run("check", "depth", *limits)) == (code, line)


def test_one_queue_is_asked_for_alone(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues/orders", queue("orders", 3, 61.2))
    line = "QUIRE WARNING - orders: age 61 s | 'age'=61.2s;60;3600"
    assert told(run("check", "age", "orders", "--warning", "1m", "--critical", "1h")) == (1, line)


def test_a_queue_without_a_known_age_is_young(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues", {"queues": [queue("a", 0)], "next": None})
    assert run("check", "age", "--critical", "1s").exit_code == 0


def test_lag_of_one_group_of_a_stream_or_of_all(broker: FakeBroker, run: Run) -> None:
    groups = [{"stream": "s", "name": "a", "lag": 5}, {"stream": "t", "name": "b", "lag": 9}]
    broker.answer("GET", "/groups", {"groups": groups, "readers": []})
    broker.answer("GET", "/groups/s/a", groups[0])
    assert told(run("check", "lag"))[1] == "QUIRE OK - t/b: lag 9 messages | 'lag'=9;;"
    assert told(run("check", "lag", "s"))[1] == "QUIRE OK - s/a: lag 5 messages | 'lag'=5;;"
    assert told(run("check", "lag", "s", "a", "--critical", "4"))[0] == 2
    assert told(run("check", "lag", "none")) == (0, "QUIRE OK - nothing has a lag")


def test_an_unknown_queue_has_an_unknown_state(broker: FakeBroker, run: Run) -> None:
    error = {"code": "unknown-destination", "text": "there is no queue 'x'", "data": {}}
    broker.answer("GET", "/queues/x", {"error": error}, 404)
    assert told(run("check", "depth", "x")) == (3, "QUIRE UNKNOWN - there is no queue 'x' (unknown-destination)")


@pytest.mark.parametrize(
    "arguments",
    [["depth", "--warning", "x"], ["depth", "--nothing"], ["frobnicate"], ["age", "--warning", "soon"], ["depth", "?"]],
)
def test_a_wrong_call_has_an_unknown_state(broker: FakeBroker, run: Run, arguments: list[str]) -> None:
    code, line = told(run("check", *arguments))
    assert code == 3
    assert line.startswith("QUIRE UNKNOWN - ")


def test_the_patience_is_that_of_a_monitor(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues", {"queues": [], "next": None})
    run("check", "depth")
    assert broker.patience == 10
    run("check", "depth", "--timeout", "2.5")
    assert broker.patience == 2.5


def test_programs_get_json(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/queues", {"queues": [queue("a", 7)], "next": None})
    result = run("check", "depth", "--output", "json")
    assert json.loads(result.output) == {"state": "OK", "text": "a: depth 7 messages", "depth": "7;;"}
