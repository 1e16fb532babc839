"""``quire perf``: what the options mean. The brokers and the measurement are stand-ins."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from click.testing import Result

from quire.cli.perf import commands
from quire.cli.perf.crew import Counts, Tick
from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import Figures
from quire.errors import BrokerUnreachable
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


def test_run_against_any_broker_asks_nobody(measurement: FakeMeasurement, broker: FakeBroker, run: Run) -> None:
    result = run("perf", "run", "--stomp", "host:7", "--login", "guest", "--passcode", "secret")
    assert result.exit_code == 0
    assert measurement.target == Target("host", 7, "guest", "secret")
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


class FakeOwnBroker:
    """Stands for a scenario's broker: remembers how it was started."""

    flags: Mapping[str, str]
    directory: Path
    is_running = False

    def make(self, directory: Path, flags: Mapping[str, str], environment: Mapping[str, str] | None) -> Self:
        self.directory, self.flags = directory, flags
        return self

    def __enter__(self) -> Self:
        self.is_running = True
        return self

    def __exit__(self, *error: object) -> None:
        self.is_running = False


@pytest.fixture
def own_broker(monkeypatch: pytest.MonkeyPatch) -> FakeOwnBroker:
    fake = FakeOwnBroker()
    monkeypatch.setattr(commands, "OwnBroker", fake.make)
    monkeypatch.setattr(commands, "unwind_on_sigterm", lambda: None)
    return fake


class FakeScenario:
    """Stands for a scenario: finds what it was told to find."""

    ENVIRONMENT: ClassVar = {"NAME": "value"}
    finding: Finding | Exception
    load: Load

    def __call__(self, broker: object, load: Load, *rest: Any) -> Self:
        self.load = load
        return self

    def run(self) -> list[Finding]:
        if isinstance(self.finding, Exception):
            raise self.finding
        return [self.finding]


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> FakeScenario:
    fake = FakeScenario()
    for name in ("Depth", "Hostile", "Reconnect"):
        monkeypatch.setattr(commands, name, fake)
    return fake


@pytest.mark.parametrize(
    ("name", "messages", "limit"),
    [("reconnect", 200_000, "16000000"), ("depth", 1_000_000, "64000000"), ("hostile", 100_000, "64000000")],
)
def test_a_scenario_has_a_broker_of_its_own(
    own_broker: FakeOwnBroker, scenario: FakeScenario, run: Run, name: str, messages: int, limit: str
) -> None:
    scenario.finding = at_most("missing", 0, 0)
    result = run("perf", "scenario", name, "--output", "json")
    assert result.exit_code == 0
    assert own_broker.flags == {"memory-limit": limit}
    assert scenario.load.messages == messages
    assert not own_broker.is_running
    assert not own_broker.directory.exists()


def test_a_broken_promise_is_a_failure(own_broker: FakeOwnBroker, scenario: FakeScenario, run: Run) -> None:
    scenario.finding = at_most("missing", 1, 0)
    result = run("perf", "scenario", "reconnect", "--store", "memory:", "--messages", "2000", "--memory-limit", "1MB")
    assert result.exit_code == 1
    assert "missing  1         at most 0  no" in result.stdout
    assert own_broker.flags == {"memory-limit": "1000000", "store": "memory:"}


def test_a_broker_that_fails_is_an_error_and_its_data_goes(
    own_broker: FakeOwnBroker, scenario: FakeScenario, run: Run
) -> None:
    scenario.finding = BrokerUnreachable("the broker closed the connection")
    result = run("perf", "scenario", "depth")
    assert result.exit_code == 5
    assert not own_broker.is_running
    assert not own_broker.directory.exists()


def test_keep_leaves_the_data(own_broker: FakeOwnBroker, scenario: FakeScenario, run: Run) -> None:
    scenario.finding = at_most("missing", 0, 0)
    result = run("perf", "scenario", "hostile", "--keep")
    assert f"the broker's data and log are in {own_broker.directory}" in result.stderr
    own_broker.directory.rmdir()


def test_numbers_must_fit_into_a_body(own_broker: FakeOwnBroker, scenario: FakeScenario, run: Run) -> None:
    assert run("perf", "scenario", "reconnect", "--size", "11").exit_code == 2
    assert not hasattr(own_broker, "flags")
