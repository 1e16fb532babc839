"""``quire broker``: starting with the right settings; asking a running one."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from quire.errors import StoreLocked
from quire.settings import Settings
from tests.unit.cli.conftest import FakeBroker

Run = Callable[..., Result]


@dataclass
class FakeService:
    """Stands for ``run`` of ``quire.server.process``: remembers what it was to run."""

    started: list[tuple[Settings, bool]] = field(default_factory=list)
    reload: Callable[[], Settings] = Settings
    result: int | Exception = 0

    def run(self, settings: Settings, *, standby: bool, http: object, reload: Callable[[], Settings]) -> int:
        self.started.append((settings, standby))
        self.reload = reload
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    fake = FakeService()
    monkeypatch.setattr("quire.server.process.run", fake.run)
    return fake


def test_start_without_options_has_the_defaults(
    service: FakeService, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUIRE_CONSOLE__ENABLED")
    assert run("broker", "start").exit_code == 0
    assert service.started == [(Settings(), False)]


def test_start_passes_every_flag_on(service: FakeService, run: Run) -> None:
    run(
        "broker", "start", "--data", "d", "--store", "sqlite:///s", "--stomp", "0.0.0.0:1", "--http", "[::]:2",
        "--memory-limit", "1MiB", "--sync", "interval", "--standby", "--insecure",
    )  # fmt: skip
    settings, standby = service.started[0]
    assert standby
    assert settings.insecure
    assert (settings.store.data, settings.store.url, settings.store.sync) == ("d", "sqlite:///s", "interval")
    assert (settings.stomp.address, settings.http.address) == ("0.0.0.0:1", "[::]:2")
    assert settings.memory.limit == 2**20


def test_start_reads_file_and_environment(
    service: FakeService, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text('[broker]\nname = "b"\n[memory]\nlimit = "1MB"\n')
    monkeypatch.setenv("QUIRE_MEMORY__LIMIT", "2MB")
    run("broker", "start", "--config", str(tmp_path / "c.toml"))
    settings = service.started[0][0]
    assert (settings.broker.name, settings.memory.limit) == ("b", 2_000_000)
    (tmp_path / "c.toml").write_text("[policy]\nqueue_prefetch = 5\n")
    assert service.reload().policies.base.queue_prefetch == 5


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--memory-limit", "much"], "invalid-settings"),
        (["--stomp", "0.0.0.0:61613"], "insecure-address"),
        (["--config", "none.toml"], "invalid-settings"),
    ],
)
def test_start_with_wrong_settings_is_a_usage_error(
    service: FakeService, run: Run, arguments: list[str], code: str
) -> None:
    result = run("broker", "start", *arguments)
    assert result.exit_code == 2
    assert f"({code})" in result.stderr
    assert service.started == []


def test_start_returns_the_exit_code_of_the_service(service: FakeService, run: Run) -> None:
    service.result = 4
    assert run("broker", "start").exit_code == 4


def test_start_prints_the_error_of_the_service(service: FakeService, run: Run) -> None:
    service.result = StoreLocked("host 7 has the store", owner="host 7")
    result = run("--output", "json", "broker", "start")
    assert result.exit_code == 4
    assert json.loads(result.stderr)["error"]["code"] == "store-locked"


FACTS: dict[str, Any] = {"name": "quire", "uptime_seconds": 60.0, "store": {"url": "lmdb:///d", "bytes": 4096}}


def test_status_shows_the_facts(broker: FakeBroker, run: Run) -> None:
    broker.answer("GET", "/broker", FACTS)
    assert run("broker", "status").output.splitlines() == [
        "name            quire",
        "uptime_seconds  0:01:00",
        "store.url       lmdb:///d",
        "store.bytes     4.0 KiB",
    ]
    assert json.loads(run("broker", "status", "--output", "json").output) == FACTS


def test_stop_asks_the_broker_to_stop(broker: FakeBroker, run: Run) -> None:
    broker.answer("POST", "/broker/stop", {})
    assert run("broker", "stop", "--url", "http://127.0.0.1:9").output == "the broker is stopping\n"
    assert broker.urls == ["http://127.0.0.1:9"]


def test_data_finds_a_broker_on_this_machine(broker: FakeBroker, run: Run, tmp_path: Path) -> None:
    (tmp_path / "broker.json").write_text(json.dumps({"pid": 1, "stomp": "127.0.0.1:2", "http": "127.0.0.1:3"}))
    broker.answer("GET", "/broker", FACTS)
    run("broker", "status", "--data", str(tmp_path))
    assert broker.urls == ["http://127.0.0.1:3"]


def test_no_broker_exits_with_5(run: Run, tmp_path: Path) -> None:
    result = run("broker", "status", "--data", str(tmp_path))
    assert result.exit_code == 5
    assert "(broker-unreachable)" in result.stderr
