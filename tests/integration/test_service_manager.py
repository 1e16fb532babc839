"""What a broker tells systemd, heard on a socket as systemd has one."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.crash.broker_process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What the broker tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(tmp_path / "notify"))
        ear.settimeout(60)
        yield ear


def broker_told(tmp_path: Path, limit: float, directory: Path | None = None) -> BrokerProcess:
    broker = BrokerProcess(directory or tmp_path)
    broker._environment |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": str(int(limit * 1e6))}
    return broker


def hear(ear: socket.socket, wanted: bytes) -> list[bytes]:
    """What is told until something is; the time limit of the socket ends it."""
    heard: list[bytes] = []
    while not heard or wanted not in heard[-1]:
        heard.append(ear.recv(1000))
    return heard


def test_systemd_is_told_of_the_start_of_life_and_of_the_end(told: socket.socket, tmp_path: Path) -> None:
    broker = broker_told(tmp_path, 0.4)
    broker.start()
    try:
        heard = hear(told, b"READY=1")
        assert heard[0] == b"STATUS=Starting."
        assert b"STATUS=Serving STOMP on 127.0.0.1:" in heard[-1]
        assert broker.events("broker.started")
        began = time.monotonic()
        for _ in range(5):
            hear(told, b"WATCHDOG=1")
        assert time.monotonic() - began < 5
        broker.process.terminate()
        hear(told, b"STOPPING=1")
        assert broker.wait() == 0
    finally:
        broker.kill()


def test_a_standby_is_ready_at_once_and_gives_signs_of_life(told: socket.socket, tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first, second = BrokerProcess(tmp_path / "first"), broker_told(tmp_path, 0.4, tmp_path / "second")
    second.store = first.store
    first.start()
    try:
        first.port()
        second.start("--standby")
        assert b"STATUS=Standing by." in hear(told, b"READY=1")[-1]
        hear(told, b"WATCHDOG=1")
        first.stop()
        hear(told, b"STATUS=Serving STOMP on 127.0.0.1:")
        second.stop()
    finally:
        first.kill()
        second.kill()


def test_a_loop_that_is_late_gives_no_sign_of_life(told: socket.socket, tmp_path: Path) -> None:
    broker = broker_told(tmp_path, 1.0)
    broker.start()
    try:
        hear(told, b"WATCHDOG=1")
        os.kill(broker.process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(broker.process.pid, signal.SIGCONT)
        assert broker.wait_for_event("service-manager.late")["level"] == "warning"
        hear(told, b"WATCHDOG=1")
        assert broker.metric("quire_loop_lag_seconds") > 0.5
    finally:
        broker.kill()


def test_a_broker_that_no_service_manager_started_tells_nothing(told: socket.socket, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        broker.wait_for_event("broker.started")
        told.settimeout(0.2)
        with pytest.raises(TimeoutError):
            told.recv(1000)
    finally:
        broker.stop()


def test_a_service_manager_that_is_gone_does_not_stop_the_broker(tmp_path: Path) -> None:
    broker = broker_told(tmp_path, 0)
    broker.start()
    try:
        assert broker.wait_for_event("service-manager.unreachable")["level"] == "warning"
        broker.wait_for_event("broker.started")
    finally:
        broker.stop()
