"""Programs that these tests need; a test without its program is skipped, and says which one it is."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"

START_SECONDS = 60.0


def program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: scripts/setup-tests.sh installs it")
    return found


def run(*command: str, cwd: Path = DEPLOY) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url  # where it answers

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.loads(answer.read())["data"]

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5):
                return True
        except (urllib.error.URLError, ConnectionError):
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}


class Stomp:
    """A client that speaks as much STOMP as is needed here."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.send("CONNECT", {"accept-version": "1.2", "host": "h"})
        self.receive()

    def send(self, command: str, headers: dict[str, str], body: str = "") -> None:
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        self._socket.sendall(f"{command}\n{lines}\n{body}\0".encode())

    def receive(self) -> dict[str, str]:
        frame = b""
        while not frame.endswith(b"\0"):
            frame += self._socket.recv(1)
        lines = frame.decode().strip("\n\0").split("\n\n")[0].split("\n")[1:]
        return dict(line.split(":", 1) for line in lines)

    def close(self) -> None:
        self._socket.close()


def wait_for(condition: Callable[[], object], what: str, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)


@pytest.fixture
def start_prometheus(tmp_path: Path) -> Iterator[Callable[[Path], Prometheus]]:
    processes: list[subprocess.Popen[bytes]] = []

    def start(config: Path) -> Prometheus:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        flags = [
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address={address}",
        ]
        with (tmp_path / "prometheus.log").open("wb") as log:
            processes.append(subprocess.Popen([program("prometheus"), *flags], stdout=log, stderr=log))
        prometheus = Prometheus(f"http://{address}")
        wait_for(prometheus.is_up, "Prometheus answers")
        return prometheus

    yield start
    for process in processes:
        process.kill()
        process.wait(10)
