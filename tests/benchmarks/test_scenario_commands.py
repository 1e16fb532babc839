"""``python -m benchmarks.scenarios``: what the options mean. The brokers and the scenarios are stand-ins."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from benchmarks.rig import OwnBroker
from benchmarks.scenarios import __main__ as program
from benchmarks.scenarios.progress import Progress
from benchmarks.scenarios.scenario import Finding, at_most
from quire.errors import BrokerUnreachable

Run = Callable[..., Result]

DEFAULTS = {
    "reconnect": ("16000000", {"messages": 200_000, "size": 1024, "seed": 1}),
    "depth": ("64000000", {"messages": 1_000_000}),
    "hostile": ("64000000", {"messages": 100_000}),
    "selector": ("64000000", {"messages": 1_000_000}),
    "groups": ("16000000", {"messages": 200_000, "seed": 1}),
    "wakeups": ("64000000", {"queues": 10_000, "persistent": False, "seconds": 5}),
    "progress": ("64000000", {}),
    "stream": ("64000000", {"messages": 50_000, "size": 1024, "peer": None, "login": "", "passcode": ""}),
    "stuck": ("64000000", {"messages": 50_000, "size": 1024}),
    "leases": ("64000000", {"count": 10_000, "seed": 1}),
    "rebalance": ("64000000", {"seconds": 60, "seed": 1}),
}


class FakeOwnBroker:
    """Stands for a scenario's broker: remembers how it was started."""

    flags: Mapping[str, str]
    directory: Path
    environment: Mapping[str, str] | None
    is_running = False

    def make(self, directory: Path, flags: Mapping[str, str], environment: Mapping[str, str] | None) -> Self:
        self.directory, self.flags, self.environment = directory, flags, environment
        return self

    def __enter__(self) -> Self:
        self.is_running = True
        return self

    def __exit__(self, *error: object) -> None:
        self.is_running = False


class FakeRuns:
    """Stands for the runs of all scenarios: each finds what it was told to find, with the options of the last."""

    finding: Finding | Exception = at_most("missing", 0, 0)
    made: dict[str, Any]


@pytest.fixture
def own_broker(monkeypatch: pytest.MonkeyPatch) -> FakeOwnBroker:
    fake = FakeOwnBroker()
    monkeypatch.setattr(program, "OwnBroker", fake.make)
    monkeypatch.setattr(program, "unwind_on_sigterm", lambda: None)
    return fake


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> FakeRuns:
    fake = FakeRuns()

    def run(scenario: Any) -> list[Finding]:
        fake.made = {name: value for name, value in vars(scenario).items() if name in scenario.__dataclass_fields__}
        if isinstance(fake.finding, Exception):
            raise fake.finding
        return [fake.finding]

    for entry in program.ENTRIES.values():
        monkeypatch.setattr(entry.scenario, "run", run)
    return fake


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(program.main, list(arguments), catch_exceptions=False)

    return invoke


@pytest.mark.parametrize("name", list(program.ENTRIES))
def test_a_scenario_has_a_broker_of_its_own(own_broker: FakeOwnBroker, runs: FakeRuns, run: Run, name: str) -> None:
    limit, options = DEFAULTS[name]
    result = run(name, "--output", "json")
    assert result.exit_code == 0
    assert own_broker.flags == {"memory-limit": limit}
    assert own_broker.environment == program.ENTRIES[name].scenario.ENVIRONMENT
    assert runs.made.pop("broker") is own_broker
    assert runs.made.pop("memory_limit") == int(limit)
    del runs.made["live"]
    assert runs.made == options
    assert not own_broker.is_running
    assert not own_broker.directory.exists()


def test_a_broken_promise_is_a_failure(own_broker: FakeOwnBroker, runs: FakeRuns, run: Run) -> None:
    runs.finding = at_most("missing", 1, 0)
    result = run("reconnect", "--store", "memory:", "--messages", "2000", "--memory-limit", "1MB")
    assert result.exit_code == 1
    assert "missing  1         at most 0  no" in result.stdout
    assert own_broker.flags == {"memory-limit": "1000000", "store": "memory:"}


def test_a_broker_that_fails_is_an_error_and_its_data_goes(own_broker: FakeOwnBroker, runs: FakeRuns, run: Run) -> None:
    runs.finding = BrokerUnreachable("the broker closed the connection")
    result = run("depth")
    assert result.exit_code == 5
    assert "error: the broker closed the connection" in result.stderr
    assert not own_broker.is_running
    assert not own_broker.directory.exists()


def test_keep_leaves_the_data(own_broker: FakeOwnBroker, runs: FakeRuns, run: Run) -> None:
    result = run("hostile", "--keep")
    assert f"the broker's data and log are in {own_broker.directory}" in result.stderr
    own_broker.directory.rmdir()


def test_numbers_must_fit_into_a_body(own_broker: FakeOwnBroker, runs: FakeRuns, run: Run) -> None:
    assert run("reconnect", "--size", "11").exit_code == 2
    assert not hasattr(own_broker, "flags")


@pytest.mark.parametrize(
    "arguments",
    [["stream", "--size", "large"], ["stream", "--peer", "nowhere"], ["stuck", "--peer", "host:7"], ["unknown"]],
)
def test_wrong_options_are_usage_errors(
    own_broker: FakeOwnBroker, runs: FakeRuns, run: Run, arguments: list[str]
) -> None:
    assert run(*arguments).exit_code == 2
    assert not hasattr(own_broker, "flags")


@pytest.mark.parametrize(
    ("word", "url"), [("lmdb", "lmdb://{}/store"), ("sqlite", "sqlite:///{}/store.db"), ("memory:", "memory:")]
)
def test_a_store_may_be_a_word(tmp_path: Path, word: str, url: str) -> None:
    assert OwnBroker(tmp_path, {"store": word}).store == url.format(tmp_path)


def test_the_environment_of_a_scenario_is_its_brokers(own_broker: FakeOwnBroker, runs: FakeRuns, run: Run) -> None:
    assert run("progress", "--store", "sqlite").exit_code == 0
    assert own_broker.flags["store"] == "sqlite"
    assert own_broker.environment == Progress.ENVIRONMENT != {}


def test_a_stream_is_measured_with_a_peer_or_without(own_broker: FakeOwnBroker, runs: FakeRuns, run: Run) -> None:
    result = run("stream", "--size", "2KiB", "--peer", "host:7", "--login", "guest", "--passcode", "secret")
    assert result.exit_code == 0
    assert (runs.made["size"], runs.made["peer"]) == (2048, ("host", 7))
    assert (runs.made["login"], runs.made["passcode"]) == ("guest", "secret")
