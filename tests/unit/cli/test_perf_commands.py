"""``quire perf``: what the options mean. The broker and the measurement are stand-ins."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from quire.cli.perf import commands
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import Counts, Figures, Tick
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]


class FakeMeasurement:
    """Stands for ``measure``: remembers what it was asked for."""

    target: Target
    load: Load

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker

    def measure(self, target: Target, load: Load, tick: Tick) -> Figures:
        self.target, self.load = target, load
        self.broker.answer("DELETE", f"/queues/{load.queue}", {})
        tick(Counts(1, 1, 0))
        return Figures(load.messages, 7, 2.0, 5.0, 6.0, 5.0)


@pytest.fixture
def measurement(monkeypatch: pytest.MonkeyPatch, broker: FakeBroker) -> FakeMeasurement:
    fake = FakeMeasurement(broker)
    monkeypatch.setattr(commands, "measure", fake.measure)
    broker.answer("GET", "/broker", {"stomp": "127.0.0.1:5"})
    return fake


def test_run_asks_the_broker_and_leaves_no_queue(measurement: FakeMeasurement, broker: FakeBroker, run: Run) -> None:
    result = run("perf", "run", "--output", "json")
    assert result.exit_code == 0
    assert measurement.target == Target("127.0.0.1", 5)
    assert measurement.load == Load(50_000, queue=measurement.load.queue)
    assert broker.calls[-1][:2] == ("DELETE", f"/queues/{measurement.load.queue}")
    record = json.loads(result.stdout)
    assert (record["scenario"], record["size"], record["messages_per_s"]) == ("confirm", 1024, 5)


def test_run_against_any_broker_asks_nobody(
    measurement: FakeMeasurement, broker: FakeBroker, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    result = run("perf", "run", "--stomp", "ssl://host:7", "--user", "guest", "--password-file", str(file))
    assert result.exit_code == 0
    assert measurement.target == Target("host", 7, "guest", "secret", tls=True)
    assert "secret" not in repr(measurement.target)
    assert broker.calls == []


def test_options_stand_over_the_scenario(measurement: FakeMeasurement, run: Run) -> None:
    result = run(
        "perf", "run", "--scenario", "fanin", "-n", "10", "--size", "2KiB", "--producers", "2", "--window", "9",
        "--non-persistent", "--rate", "100", "--output", "json",
    )  # fmt: skip
    assert result.exit_code == 0
    load = measurement.load
    assert (load.messages, load.size, load.producers, load.consumers) == (10, 2048, 2, 4)
    assert (load.window, load.persistent, load.rate) == (9, False, 100.0)


def test_the_scenario_stands_without_options(measurement: FakeMeasurement, run: Run) -> None:
    run("perf", "run", "--scenario", "nonpersistent")
    assert (measurement.load.persistent, measurement.load.receipts) == (False, False)
    run("perf", "run", "--scenario", "latency", "--size", "10")
    assert (measurement.load.latency, measurement.load.messages, measurement.load.size) == (True, 1000, 10)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--scenario", "latency", "--producers", "2"],
        ["--scenario", "latency", "--rate", "5"],
        ["--size", "large"],
        ["--stomp", "nowhere"],
        ["--messages", "0"],
        ["--rate", "-1"],
    ],
)
def test_wrong_options_are_usage_errors(measurement: FakeMeasurement, run: Run, arguments: list[str]) -> None:
    assert run("perf", "run", *arguments).exit_code == 2
    assert not hasattr(measurement, "load")
