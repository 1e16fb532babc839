"""What is killed, and what has to be there in the end."""

import math
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random

import msgspec

from quire.clock import SystemClock
from quire.spark.writing import BulkWrites
from tests.docs.pages import ROOT
from tests.spark.pipeline_kills import queries
from tests.spark.processes import PYTHON_WORKER, Process, descendants
from tests.spark.standalone_cluster import StandaloneCluster
from tests.spark.target_broker import TargetBroker

VICTIMS = {"python": 8, "executor": 8, "broker": 8, "driver": 4, "worker": 3, "bulk server": 3, "planner": 2}
"""Who is killed, and how often beside the others: a Python worker, an executor, the broker, the driver, a machine of
the cluster, the process that reads for Spark, and the driver's Python."""

LONGEST = 600.0
"""How long a batch may take on a busy machine, in seconds."""

TRIES = 5

RATE = 20
"""How many numbers are sent each 0.1 seconds."""

_BULK = "quire.http.bulk"

FAR = 10_000_000
"""A number after all windows that are looked at."""


class Producer(threading.Thread):
    """Sends the numbers from 0 on, to two partitions in turn. What it is not sure of it sends again."""

    def __init__(self, broker: TargetBroker) -> None:
        super().__init__(name="producer")
        self._broker = BulkWrites(broker.url, LONGEST)
        self._ended = threading.Event()
        self._next = 0

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self.send(list(range(self._next, self._next + RATE)))
            self._next += RATE

    def send(self, numbers: list[int]) -> None:
        rows = {
            "destination": queries.NUMBERS,
            "value": [b"%d" % number for number in numbers],
            "partition": [number % 2 for number in numbers],
        }
        self._broker.write(msgspec.msgpack.encode(rows))

    def end(self) -> None:
        self._ended.set()
        if self.is_alive():
            self.join()


class Killing:
    """The queries, their broker and their cluster, and who kills them."""

    def __init__(self, directory: Path, seed: int, kills: int) -> None:
        self.broker = TargetBroker(directory)
        self.killed: Counter[str] = Counter()
        self.failed = 0
        self.work = directory / "work"
        self._cluster = StandaloneCluster(directory)
        self._random = Random(seed)
        self._kills = kills
        self._log = directory / "driver.log"
        self._driver: subprocess.Popen[bytes] | None = None

    def run(self, victims: list[str], pause: float, limit: float = math.inf) -> None:
        clock = SystemClock()
        until = clock.monotonic() + limit
        self.broker.start()
        for stream, partitions in (("numbers", 2), ("sums", 1)):
            self.broker.call("PUT", f"/streams/{stream}", {"partitions": partitions})
        producer = Producer(self.broker)
        try:
            with self._cluster:
                producer.start()
                names = (queries.PARQUET, queries.STREAM, queries.REPLAY)
                for number, victim in enumerate(victims):
                    if clock.monotonic() > until:
                        break
                    self._wait_for_batches([names[number % len(names)]])
                    time.sleep(self._random.uniform(0, pause))
                    print(f"kill {number + 1}: {victim}", file=sys.stderr, flush=True)
                    self._kill(victim)
                self._wait_for_batches(list(names))
                self._end_driver()
                producer.end()
                for far in (FAR, 2 * FAR):
                    producer.send([far, far + 1])
                    self._finish()
            while any(stage["decided"] for stage in self.broker.call("GET", "/write/stages")["stages"]):
                time.sleep(0.05)
            self.broker.process.stop()
        finally:
            producer.end()
            self._end_driver()
            self.broker.process.kill()

    def _kill(self, victim: str) -> None:
        self.killed[victim] += 1
        if victim == "broker":
            self.broker.process.kill()
            self.broker.start()
        elif victim == "driver":
            self._end_driver()
        elif victim == "worker":
            number = self._random.randrange(2)
            self._cluster.kill_worker(number)
            self._cluster.start_worker(number)
        else:
            self._random.choice(self._wait_for_one(victim)).kill()

    def _wait_for_one(self, victim: str) -> list[Process]:
        deadline = SystemClock().monotonic() + LONGEST
        while not (found := self._found(victim)):
            assert SystemClock().monotonic() < deadline, f"there is no {victim}: {self._tail}"
            self._see_that_it_runs()
            time.sleep(0.05)
        return found

    def _found(self, victim: str) -> list[Process]:
        if victim == "executor":
            return self._cluster.executors()
        if victim == "python":
            return self._cluster.python_workers()
        sign, of = (_BULK, self.broker.process.process.pid) if victim == "bulk server" else (PYTHON_WORKER, self._pid)
        return sorted([process for process in descendants(of) if sign in process.command])

    def _wait_for_batches(self, names: list[str]) -> None:
        """See that queries run until each has written a batch more."""
        before = {name: self._written(name) for name in names}
        deadline = SystemClock().monotonic() + LONGEST
        while any([self._written(name) <= before[name] for name in names]):
            assert SystemClock().monotonic() < deadline, f"{names} write nothing any more: {self._tail}"
            self._see_that_it_runs()
            time.sleep(0.05)

    def _written(self, query: str) -> int:
        """The last batch that Spark knows to be written; -1 if there is none."""
        files = queries.checkpoint(self.work, query).glob("commits/*")
        return max([int(path.name) for path in files if path.name.isdecimal()], default=-1)

    def _see_that_it_runs(self) -> None:
        if self._driver is not None and self._driver.poll() is not None:
            self.failed += 1
            self._end_driver()
        if self._driver is None:
            self._driver = self._start()

    def _start(self, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.spark.pipeline_kills.queries", self.broker.url, str(self.work)]
        given = ["--master", self._cluster.url, "--chunks", str(40 * self._kills), *more]
        with self._log.open("ab") as log:
            environment = self._cluster.driver_environment() | {"PYTHONPATH": str(ROOT)}
            return subprocess.Popen([*command, *given], cwd=ROOT, stdout=log, stderr=log, env=environment)

    def _finish(self) -> None:
        """Let the windows be written that are over. A busy machine may need more than one try."""
        for _ in range(TRIES):
            self._driver = self._start("--finish")
            code = self._driver.wait(LONGEST)
            self._end_driver()
            if code == 0:
                return
            self.failed += 1
        raise AssertionError(f"the queries do not end: {self._tail}")

    @property
    def _pid(self) -> int:
        return -1 if self._driver is None else self._driver.pid

    @property
    def _tail(self) -> str:
        return self._log.read_text("utf-8", "replace")[-5000:]

    def _end_driver(self) -> None:
        """Kill the driver, its Java first. Its executors end with it."""
        if self._driver is not None:
            for process in sorted(descendants(self._driver.pid)):
                process.kill()
            self._driver.kill()
            self._driver.wait()
            self._driver = None
