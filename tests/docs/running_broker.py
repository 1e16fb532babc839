"""A broker for the examples of one page: the command a user runs, on ports of its own."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_SECONDS = 90


@dataclass(frozen=True)
class RunningBroker:
    stomp_port: int
    http_port: int


@contextmanager
def running_broker(directory: Path) -> Iterator[RunningBroker]:
    log_path = directory / "broker.log"
    command = [str(Path(sys.executable).parent / "quire"), "broker", "start", "--data", "data"]
    command += ["--stomp", "127.0.0.1:0", "--openwire", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with log_path.open("wb") as log, subprocess.Popen(command, cwd=directory, stdout=log, stderr=log) as process:
        try:
            yield _wait_until_it_listens(process, directory / "data" / "broker.json", log_path)
            process.terminate()
            assert process.wait(_START_SECONDS) == 0, f"the broker did not stop well:\n{log_path.read_text()}"
        finally:
            process.kill()


def _wait_until_it_listens(process: subprocess.Popen[bytes], facts: Path, log: Path) -> RunningBroker:
    deadline = time.monotonic() + _START_SECONDS
    while not facts.exists():
        assert process.poll() is None, f"the broker ended with {process.returncode}:\n{log.read_text()}"
        assert time.monotonic() < deadline, f"no {facts.name} after {_START_SECONDS} s:\n{log.read_text()}"
        time.sleep(0.02)
    listening = json.loads(facts.read_text())
    return RunningBroker(_port(listening["stomp"]), _port(listening["http"]))


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
