"""A broker in a process of its own, on a store that outlives it: started, killed and started again."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from quire.errors import BrokerUnreachable

START_SECONDS = 90.0
"""How long a start may take on a busy machine before it counts as hung."""

QUIRE = [sys.executable, "-c", "from quire.cli.main import main; main()"]
_ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
_ENVIRONMENT["QUIRE_CONSOLE__ENABLED"] = "false"


def quire(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line, ``quire("store", "verify", ...)`` say."""
    command = [*QUIRE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS, env=_ENVIRONMENT, check=False)


class BrokerProcess:
    """A broker."""

    start_seconds = START_SECONDS  # how long its start may take

    def __init__(self, directory: Path, store: str = "", settings: dict[str, str] | None = None) -> None:
        self.data = directory / "data"
        self.store = store or f"lmdb://{self.data}/store"  # its URL
        self.log_path = directory / "broker.log"
        self._environment = _ENVIRONMENT | {f"QUIRE_{name}": value for name, value in (settings or {}).items()}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *flags: str) -> None:
        """Start it as a user does."""
        self._run([*QUIRE, "broker", "start", "--http", "127.0.0.1:0"], *flags)

    def start_with_fault(self, fault: str, point: str, nth: int, times: int = 1) -> None:
        """Start one that fails; see ``quire.testing.crash``."""
        plan = ["--fault", fault, "--point", point, "--nth", str(nth), "--times", str(times)]
        self._run([sys.executable, "-m", "quire.testing.crash", *plan])

    def _run(self, command: list[str], *flags: str) -> None:
        common = ["--store", self.store, "--data", str(self.data)]
        common += ["--stomp", "127.0.0.1:0", "--openwire", "127.0.0.1:0"]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen([*command, *common, *flags], stdout=log, stderr=log, env=self._environment)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process, "the broker was not started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def port(self) -> int:
        return int(str(self._listening()["stomp"]).rpartition(":")[2])

    def openwire(self) -> str:
        return f"tcp://{self._listening()['openwire']}"

    def _listening(self) -> dict[str, object]:
        deadline = time.monotonic() + self.start_seconds
        while True:
            assert self.process.poll() is None, f"the broker ended with {self.process.returncode}:\n{self.log}"
            assert time.monotonic() < deadline, f"the broker does not listen after {self.start_seconds} s:\n{self.log}"
            facts = self._facts()
            if facts.get("pid") == self.process.pid:
                return facts
            time.sleep(0.01)

    def _facts(self) -> dict[str, object]:
        try:
            facts: dict[str, object] = json.loads((self.data / "broker.json").read_text())
        except FileNotFoundError:
            return {}
        return facts

    @property
    def http(self) -> str:
        return f"http://{self._facts()['http']}"

    def rss_anon(self) -> int:
        """The memory that is the process's own, in bytes: pages of its store's file do not count."""
        return int(self._proc("status").partition("RssAnon:")[2].split()[0]) * 1024

    def _proc(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.process.pid}/{name}").read_text()
        except OSError as error:
            raise BrokerUnreachable(f"cannot read the broker's {name}: it has ended, or this is no Linux") from error

    def metric(self, name: str) -> float:
        return float(next(line for line in self._metrics() if line.startswith(f"{name} ")).split()[1])

    def metric_of_all(self, name: str) -> float:
        return sum([float(line.rpartition(" ")[2]) for line in self._metrics() if line.startswith(f"{name}{{")])

    def _metrics(self) -> list[str]:
        with urllib.request.urlopen(f"{self.http}/metrics", timeout=START_SECONDS) as answer:
            lines: list[str] = answer.read().decode().splitlines()
        return lines

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def events(self, name: str) -> list[dict[str, object]]:
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == name]

    def wait_for_event(self, name: str) -> dict[str, object]:
        deadline = time.monotonic() + START_SECONDS
        while not (found := self.events(name)):
            assert time.monotonic() < deadline, f"no event {name} after {START_SECONDS} s:\n{self.log}"
            time.sleep(0.02)
        return found[0]

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL. One that was not started, or has ended, stays as it is."""
        if self._process:
            self._process.kill()
            self._process.wait(START_SECONDS)

    def stop(self) -> None:
        self.process.terminate()
        assert self.wait() == 0, f"the broker did not stop well:\n{self.log}"

    def wait(self) -> int:
        """Wait for its end."""
        return self.process.wait(START_SECONDS)

    def wait_until_it_killed_itself(self) -> None:
        assert self.wait() == -signal.SIGKILL, f"the broker ended otherwise than by its fault:\n{self.log}"
