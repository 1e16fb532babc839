"""SIGHUP makes a running broker read its policies again."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

pytestmark = [pytest.mark.slow]

PROGRAM = "from quire.cli.main import main; main()"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """A broker with a settings file: its process, its API, the file."""
    file = tmp_path / "quire.toml"
    file.write_text("[policy]\nmemory_limit = 0\n")
    data = tmp_path / "data"
    flags = ["--data", str(data), "--config", str(file)]
    flags += ["--stomp", "127.0.0.1:0", "--openwire", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "broker", "start", *flags], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        facts = data / "broker.json"
        wait_for(facts.exists)
        yield process, f"http://{json.loads(facts.read_text())['http']}/api/v1", file
    finally:
        process.terminate()
        process.communicate(timeout=90)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so, at most a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_until(log: IO[bytes], event: bytes) -> None:
    """Read a broker's log up to the line of an event; the time limit of the test ends it."""
    for line in log:
        if event in line:
            return
    pytest.fail(f"the log ended without {event!r}")


def test_policies_are_read_again_and_a_broken_file_changes_nothing(
    broker: tuple[subprocess.Popen[bytes], str, Path],
) -> None:
    process, api, file = broker
    log = process.stderr
    assert log is not None
    file.write_text('[[policies]]\ndestination = "orders.>"\ngc_inactive_destinations = true\n')
    process.send_signal(signal.SIGHUP)
    read_until(log, b"settings.reloaded")
    file.write_text("[policy]\nno_such_key = 1\n")
    process.send_signal(signal.SIGHUP)
    read_until(log, b"settings.refused")
    assert httpx.get(f"{api}/broker").status_code == 200


def test_a_broker_that_waits_for_the_store_reads_its_settings_again_once_it_has_started(
    broker: tuple[subprocess.Popen[bytes], str, Path],
) -> None:
    owner, _, file = broker
    flags = ["--config", str(file), "--data", str(file.parent / "data"), "--standby"]
    flags += ["--stomp", "127.0.0.1:0", "--openwire", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    standby = subprocess.Popen([sys.executable, "-c", PROGRAM, "broker", "start", *flags], stderr=subprocess.PIPE)
    try:
        assert standby.stderr is not None
        read_until(standby.stderr, b"broker.standby")
        standby.send_signal(signal.SIGHUP)
        owner.terminate()
        read_until(standby.stderr, b"settings.reloaded")
    finally:
        standby.terminate()
        standby.communicate(timeout=90)
