"""A cluster of Spark's own kind on this machine: a master and workers, whose Python need not have Quire.

They are processes that listen on loopback on free ports. A driver reaches them by ``StandaloneCluster.url``::

    with StandaloneCluster(tmp_path, python=bare_python(tmp_path / "bare")) as cluster:
        subprocess.run([*SUBMIT, "--master", cluster.url, *options, "program.py"], env=cluster.driver_environment())
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from quire.clock import SystemClock
from tests.spark.processes import EXECUTOR, PYTHON_WORKER, Process, descendants

HOME = Path(pyspark.__file__).parent
"""Where Spark is."""

SUBMIT = [str(HOME / "bin" / "spark-submit")]

START_LIMIT = 240.0
"""How long a master or a worker may take to start, in seconds."""

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_LISTENS = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_OF_A_DRIVER = ("SPARK_", "PYSPARK_", "PYTHON")
"""How variables begin that would tell a cluster's process what a driver or this process was told."""


def bare_python(directory: Path) -> Path:
    """Make an environment that has no package at all; its ``python3``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return directory / "bin" / "python3"


class StandaloneCluster:
    """A master and workers. As a context manager it is started, and all of it is killed at the end.

    Args:
        python: the Python that is the first ``python3`` for executors. A driver that does not set ``PYSPARK_PYTHON``
            has them run it. None: the one that runs this.
        cores: of each worker.
        memory: of each worker, as Spark writes it.
    """

    def __init__(
        self, directory: Path, *, python: Path | None = None, workers: int = 2, cores: int = 1, memory: str = "1g"
    ) -> None:
        self.url = ""  # the master's, ``spark://127.0.0.1:PORT``
        self._directory = directory / "cluster"  # for logs, and for the directories of workers
        self._python = python or Path(sys.executable)
        self._number = workers
        self._given = ["--cores", str(cores), "--memory", memory]
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        try:
            master = self._master = self._start("master", _MASTER, [])
            self.url = self._wait_for(master, "master", _LISTENS)
            for number in range(self._number):
                self._begin_worker(number)
            for number, worker in self._workers.items():
                self._wait_for_worker(number, worker)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        for number in list(self._workers):
            self.kill_worker(number)
        if self._master is not None:
            self._master.kill()
            self._master.wait()
            self._master = None

    def kill_worker(self, number: int) -> None:
        """Kill a worker, its executors and their Python, as a machine that fails."""
        worker = self._workers.pop(number)
        processes = descendants(worker.pid)
        worker.kill()
        worker.wait()
        for process in processes:
            process.kill()

    def start_worker(self, number: int) -> None:
        self._begin_worker(number)
        self._wait_for_worker(number, self._workers[number])

    def executors(self, worker: int | None = None) -> list[Process]:
        return self._found(EXECUTOR, worker)

    def python_workers(self, worker: int | None = None) -> list[Process]:
        return self._found(PYTHON_WORKER, worker)

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text("utf-8", "replace")

    def driver_environment(self) -> dict[str, str]:
        """Variables for a driver: its own first ``python3`` is the Python that runs this."""
        environment = _clean_environment(Path(sys.executable))
        return {**environment, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    def _found(self, sign: str, worker: int | None) -> list[Process]:
        wanted = self._workers.values() if worker is None else [self._workers[worker]]
        return sorted([process for one in wanted for process in descendants(one.pid) if sign in process.command])

    def _begin_worker(self, number: int) -> None:
        name = f"worker-{number}"
        arguments = [*self._given, "--work-dir", str(self._directory / name), self.url]
        self._workers[number] = self._start(name, _WORKER, arguments)

    def _start(self, name: str, program: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        environment = _clean_environment(self._python)
        environment |= {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1"}
        ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        command = [str(HOME / "bin" / "spark-class"), program, *ports, *arguments]
        with (self._directory / f"{name}.log").open("ab") as log:
            log.truncate(0)
            return subprocess.Popen(
                command, cwd=self._directory, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _wait_for_worker(self, number: int, worker: subprocess.Popen[bytes]) -> None:
        self._wait_for(worker, f"worker-{number}", re.compile(f"({_REGISTERED})"))

    def _wait_for(self, process: subprocess.Popen[bytes], name: str, sign: re.Pattern[str]) -> str:
        clock = SystemClock()
        deadline = clock.monotonic() + START_LIMIT
        while not (found := sign.search(self.log(name))):
            if process.poll() is not None or clock.monotonic() > deadline:
                raise AssertionError(f"{name} of Spark did not start:\n{self.log(name)[-3000:]}")
            time.sleep(0.05)
        return found[1]


def _clean_environment(python: Path) -> dict[str, str]:
    """This process's variables without those that are about Python and Spark, and with another first ``python3``."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OF_A_DRIVER)}
    return {**kept, "PATH": f"{python.parent}{os.pathsep}{kept.get('PATH', os.defpath)}"}
