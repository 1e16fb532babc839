"""SIGHUP makes a running broker read its policies again."""

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.crash.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file."""
    file = tmp_path / "quire.toml"
    file.write_text("[policy]\nmemory_limit = 0\n")
    return file


@pytest.fixture
def broker(tmp_path: Path, file: Path) -> Iterator[BrokerProcess]:
    """A broker with the settings file."""
    broker = BrokerProcess(tmp_path)
    broker.start("--config", str(file))
    try:
        broker.port()
        yield broker
    finally:
        broker.kill()


def test_policies_are_read_again_and_a_broken_file_changes_nothing(broker: BrokerProcess, file: Path) -> None:
    file.write_text('[[policies]]\ndestination = "orders.>"\ngc_inactive_destinations = true\n')
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for_event("settings.reloaded")
    file.write_text("[policy]\nno_such_key = 1\n")
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for_event("settings.refused")
    assert httpx.get(f"{broker.http}/api/v1/broker").status_code == 200


def test_a_broker_that_waits_for_the_store_reads_its_settings_again_once_it_has_started(
    broker: BrokerProcess, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "standby").mkdir()
    standby = BrokerProcess(tmp_path / "standby")
    standby.data, standby.store = broker.data, broker.store
    standby.start("--config", str(file), "--standby")
    try:
        standby.wait_for_event("broker.standby")
        standby.process.send_signal(signal.SIGHUP)
        broker.process.terminate()
        standby.wait_for_event("settings.reloaded")
    finally:
        standby.kill()
