"""A streaming query that writes to a broker, while all it needs is killed again and again; then everything is counted.

``python -m tests.spark.kill_writing --kills 20`` kills Python workers, the driver and the broker at random moments, and
starts again what does not start again by itself. With ``--executor`` the executor is a process of its own, and is
killed too. At the end each row of each batch has to be in its destination once.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from quire.clock import SystemClock
from tests.docs.pages import ROOT
from tests.spark.processes import EXECUTOR, PYTHON_WORKER, Process, descendants
from tests.spark.target_broker import TargetBroker
from tests.spark.writing_query import DESTINATIONS

CLOCK = SystemClock()

LONGEST_RUN = 300.0
"""How long it may take until a batch is written, on a busy machine, in seconds."""

VICTIMS = {"worker": 9, "broker": 9, "executor": 4, "driver": 2}
"""Who is killed, and how often beside the others."""

_SIGNS = {"worker": PYTHON_WORKER, "executor": EXECUTOR}
"""What stands in the command lines of the victims."""


class Killing:
    """A query, its broker, and who kills them."""

    def __init__(self, directory: Path, seed: int, rows: int, *, executor: bool) -> None:
        self._random = Random(seed)
        self._rows = rows  # in each batch
        self._master = "local-cluster[1,2,512]" if executor else "local[2,8]"
        self._checkpoint = directory / "checkpoint"
        self._log = directory / "driver.log"
        self._driver: subprocess.Popen[bytes] | None = None
        self._processes: set[Process] = set()  # all that the drivers had, to end them when their driver is killed
        self.broker = TargetBroker(directory)
        self.killed: Counter[str] = Counter()

    def run(self, victims: list[str], pause: float) -> None:
        self.broker.start()
        self.broker.call("PUT", "/durables/c/b", {"topic": "b"})
        try:
            for victim in victims:
                self._wait_for_batch(self._written() + 1)
                time.sleep(self._random.uniform(0, pause))
                self._kill(victim)
            self._wait_for_batch(self._written() + 2)
            self._end_driver()
            while any(stage["decided"] for stage in self.broker.call("GET", "/write/stages")["stages"]):
                time.sleep(0.05)
            self.broker.process.stop()
        finally:
            self._end_driver()
            self.broker.process.kill()

    def counts(self) -> Counter[tuple[str, int]]:
        return Counter((destination, int(body)) for destination, body in self.broker.stored())

    def expected(self) -> Counter[tuple[str, int]]:
        """How often it should be there: all rows of all batches that Spark has decided to write, or of one less."""
        rows = range(len(self.counts()) // self._rows * self._rows)
        return Counter((DESTINATIONS[row % len(DESTINATIONS)], row) for row in rows)

    @property
    def batches(self) -> int:
        return self._written() + 1

    def _written(self) -> int:
        """The last batch that Spark knows to be written; -1 if there is none."""
        files = [path.name for path in (self._checkpoint / "commits").glob("*") if path.name.isdecimal()]
        return max([int(name) for name in files], default=-1)

    def _wait_for_batch(self, number: int) -> None:
        deadline = CLOCK.monotonic() + LONGEST_RUN
        while self._written() < number:
            assert CLOCK.monotonic() < deadline, f"nothing is written any more:\n{self._log.read_text()[-5000:]}"
            if self._driver is None or self._driver.poll() is not None:
                self._end_driver()
                self._start_driver()
            self._processes |= descendants(self._process.pid)
            time.sleep(0.05)

    def _start_driver(self) -> None:
        command = [sys.executable, "-m", "tests.spark.writing_query", self.broker.url, str(self._checkpoint)]
        given = ["--master", self._master, "--rows", str(self._rows)]
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen([*command, *given], cwd=ROOT, stdout=log, stderr=log)

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        assert self._driver is not None
        return self._driver

    def _kill(self, victim: str) -> None:
        self.killed[victim] += 1
        if victim == "broker":
            self.broker.process.kill()
            self.broker.start()
        elif victim == "driver":
            self._end_driver()
        else:
            while not (found := [each for each in descendants(self._process.pid) if _SIGNS[victim] in each.command]):
                self._wait_for_batch(self._written() + 1)
            self._random.choice(sorted(found)).kill()

    def _end_driver(self) -> None:
        """Kill the driver, its Java first, and what is left of its executors and workers."""
        if self._driver is None:
            return
        self._processes |= descendants(self._driver.pid)
        for process in sorted(self._processes):
            process.kill()
        self._processes.clear()
        self._driver.kill()
        self._driver.wait()
        self._driver = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how many [20]")
    parser.add_argument("--seed", type=int, default=1, help="of what is random [1]")
    parser.add_argument("--rows", type=int, default=9000, help="in each batch [9000]")
    parser.add_argument("--pause", type=float, default=3.0, help="the longest time before a kill, in seconds [3]")
    parser.add_argument("--executor", action="store_true", help="kill the executor too; it takes longer to begin")
    given = parser.parse_args()
    victims = [name for name, times in VICTIMS.items() for _ in range(times) if given.executor or name != "executor"]
    random = Random(given.seed)
    began = CLOCK.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        killing = Killing(Path(directory), given.seed, given.rows, executor=given.executor)
        killing.run([random.choice(victims) for _ in range(given.kills)], given.pause)
        counts, expected = killing.counts(), killing.expected()
        wrong = {row: (counts[row], expected[row]) for row in counts | expected if counts[row] != expected[row]}
        seconds = CLOCK.monotonic() - began
        print(f"killed {dict(killing.killed)} in {seconds:.0f} s; {killing.batches} batches, {counts.total()} rows")
        print(f"rows that are not there once: {len(wrong)} {dict(list(wrong.items())[:10])}")
        sys.exit(1 if wrong or killing.batches * given.rows > len(counts) else 0)


if __name__ == "__main__":
    main()
