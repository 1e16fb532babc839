"""``quire top``."""

import json
from typing import Any

import pytest
from rich.console import Console

from quire.cli import top as top_module
from quire.cli.top import screen
from quire.errors import BrokerUnreachable
from tests.unit.cli.conftest import FakeBroker
from tests.unit.cli.test_queue import Run

QUEUE = {
    "name": "orders\x1b[2J", "in_rate": 12.5, "out_rate": 3.0, "depth": 1234, "in_flight": 5, "consumers": 2,
    "oldest_message_age_seconds": 90.0, "blocked": {"cause": "consumer-busy", "age_seconds": 3.0},
}  # fmt: skip
OVERVIEW: dict[str, Any] = {
    "name": "quire", "version": "1", "state": "running", "uptime_seconds": 30.0, "in_rate": 12.5, "out_rate": 3.0,
    "depth": 1234, "in_flight": 5, "connections": 3, "consumers": 2,
    "counts": {"queues": 1, "topics": 0, "streams": 0, "durables": 0, "groups": 0, "scheduled": 0},
    "oldest": {"kind": "queue", "name": "orders", "age_seconds": 90.0},
    "memory": {"used": 50, "limit": 100}, "store": {"used": 95, "limit": 100}, "spool": {"used": 0, "limit": 100},
    "held": 1, "producers_held": [{"age_seconds": 4.0, "cause": "store-limit"}],
    "attention": [
        {"severity": "warning", "text": "messages wait", "kind": "queue", "name": f"q{number}"} for number in range(10)
    ],
    "attention_left_out": 5,
}  # fmt: skip


@pytest.fixture
def told(broker: FakeBroker) -> FakeBroker:
    broker.answer("GET", "/overview", OVERVIEW)
    broker.answer("GET", "/queues", {"queues": [QUEUE], "next": None, "total": 1})
    return broker


def drawn(found: dict[str, Any], trouble: str = "") -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(screen(found, "http://here", trouble))
        return console.export_text()


def test_once_prints_the_state(told: FakeBroker, run: Run) -> None:
    result = run("top", "--once")
    assert result.exit_code == 0
    for text in ("12.5/s", "1,234", "messages wait", "consumer-bu", "producers held: 1", "and 7 more"):
        assert text in result.output
    assert told.calls[1][2] == {"sort": "-in_rate", "limit": "15"}


def test_programs_get_the_values(told: FakeBroker, run: Run) -> None:
    found = json.loads(run("top", "--output", "json").output)
    assert found["overview"] == OVERVIEW
    assert found["queues"] == [QUEUE]


def test_names_cannot_move_the_cursor_and_a_quiet_broker_is_said_to_be_fine() -> None:
    text = drawn({"overview": {**OVERVIEW, "attention": [], "attention_left_out": 0}, "queues": [QUEUE]})
    assert "\x1b" not in text
    assert r"orders\x1b[2J" in text
    assert "nothing needs attention" in text


def test_live_it_looks_again_and_goes_on_without_an_answer(
    told: FakeBroker, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    looks = iter([None, None, BrokerUnreachable("gone", url="x"), None, KeyboardInterrupt()])
    look = top_module._look

    def looked(api: Any) -> dict[str, Any]:
        trouble = next(looks)
        if trouble is not None:
            raise trouble
        return look(api)

    def shows(found: dict[str, Any], url: str, trouble: str = "") -> str:
        shown.append(trouble)
        return url

    monkeypatch.setattr(top_module, "_look", looked)
    monkeypatch.setattr(top_module, "on_terminal", lambda stream: True)
    monkeypatch.setattr("quire.cli.top.screen", shows)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    assert run("top", "--interval", "0.5").exit_code == 0
    assert shown == ["", "", "gone", ""]
