"""What the options of the scenarios for streams mean. The brokers and the scenarios are stand-ins."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from click.testing import Result

from quire.cli.perf import commands
from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.load import Target

Run = Callable[..., Result]


class FakeOwnBroker:
    """Stands for a scenario's broker: remembers how it was started."""

    flags: Mapping[str, str]
    directory: Path
    environment: Mapping[str, str] | None

    def make(self, directory: Path, flags: Mapping[str, str], environment: Mapping[str, str] | None) -> Self:
        self.directory, self.flags, self.environment = directory, flags, environment
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class FakeScenario:
    """Stands for a scenario: remembers what it was made with, and finds nothing wrong."""

    ENVIRONMENT: ClassVar = {"NAME": "value"}
    made: tuple[Any, ...] = ()

    def __call__(self, *arguments: Any) -> Self:
        self.made = arguments[1:-1]
        return self

    def run(self) -> list[Finding]:
        return [at_most("missing", 0, 0)]


@pytest.fixture
def own_broker(monkeypatch: pytest.MonkeyPatch) -> FakeOwnBroker:
    fake = FakeOwnBroker()
    monkeypatch.setattr(commands, "OwnBroker", fake.make)
    monkeypatch.setattr(commands, "unwind_on_sigterm", lambda: None)
    return fake


@pytest.fixture
def scenarios(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeScenario]:
    fakes = {name: FakeScenario() for name in ("Progress", "Stream", "StuckStream", "Leases", "Rebalance")}
    for name, fake in fakes.items():
        monkeypatch.setattr(commands, name, fake)
    return fakes


def test_a_store_may_be_a_word(own_broker: FakeOwnBroker, scenarios: dict[str, FakeScenario], run: Run) -> None:
    for word, url in (("lmdb", "lmdb://{}/store"), ("sqlite", "sqlite:///{}/store.db"), ("memory:", "memory:")):
        assert run("perf", "scenario", "progress", "--store", word).exit_code == 0
        assert own_broker.flags["store"] == url.format(own_broker.directory)
    assert own_broker.environment == FakeScenario.ENVIRONMENT


def test_a_stream_is_measured_with_a_peer_or_without(
    own_broker: FakeOwnBroker, scenarios: dict[str, FakeScenario], run: Run
) -> None:
    assert run("perf", "scenario", "stream", "--size", "2KiB").exit_code == 0
    load, peer = scenarios["Stream"].made
    assert (load.messages, load.size, load.ack, peer) == (50_000, 2048, "client", None)
    result = run("perf", "scenario", "stream", "--peer", "host:7", "--login", "guest", "--passcode", "secret")
    assert result.exit_code == 0
    assert scenarios["Stream"].made[1] == Target("host", 7, "guest", "secret")
    assert run("perf", "scenario", "stream", "--peer", "nowhere").exit_code == 2


def test_a_stuck_message_is_a_scenario_of_its_own(
    own_broker: FakeOwnBroker, scenarios: dict[str, FakeScenario], run: Run
) -> None:
    assert run("perf", "scenario", "stream", "--stuck").exit_code == 0
    assert len(scenarios["StuckStream"].made) == 1
    assert scenarios["Stream"].made == ()
    assert run("perf", "scenario", "stream", "--stuck", "--peer", "host:7").exit_code == 2


def test_leases_and_rebalance_have_their_sizes(
    own_broker: FakeOwnBroker, scenarios: dict[str, FakeScenario], run: Run
) -> None:
    assert run("perf", "scenario", "leases", "--seed", "7").exit_code == 0
    assert scenarios["Leases"].made == (10_000, 7)
    assert run("perf", "scenario", "rebalance").exit_code == 0
    assert scenarios["Rebalance"].made == (60, 1)
