"""A broker of its own for measurements, and the machine it runs on."""

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from quire import __version__
from quire.cli.api import Api, path, queue_path
from quire.cli.perf.load import Target
from quire.client.sync import connect
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.settings import broker_file, split_address

START_LIMIT = 60.0
"""How long it may take to start or to stop, in seconds."""
STORES = {"lmdb": "lmdb://%s/store", "sqlite": "sqlite:///%s/store.db"}
"""Stores in the broker's directory, by what ``store`` may be instead of a URL."""

_LOOK_INTERVAL = 0.002
_PROGRAM = "from quire.cli.main import main; main()"
_RSS_ANON = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class OwnBroker:
    """A broker process. As a context manager it is started, and killed at the end."""

    target: Target  # its STOMP port
    openwire: str  # its URL for Quire's client
    api: Api  # its HTTP API

    def __init__(self, directory: Path, flags: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self._log = directory / "broker.log"
        self._facts = broker_file(str(directory / "data"))
        addresses = dict.fromkeys(("stomp", "openwire", "http"), "127.0.0.1:0")
        given = {"data": str(directory / "data"), **addresses, **flags}
        if given.get("store") in STORES:
            given["store"] = STORES[given["store"]] % directory
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        self.command = [sys.executable, "-c", _PROGRAM, "broker", "start", *options]  # how it is started
        self._environment = {**os.environ, "QUIRE_CONSOLE__ENABLED": "false", **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def start(self) -> None:
        with self._log.open("ab") as log:
            process = self._process = subprocess.Popen(
                self.command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = SystemClock().monotonic() + START_LIMIT
        while not (facts := self._read_facts(process.pid)):
            if process.poll() is not None or SystemClock().monotonic() > deadline:
                raise BrokerUnreachable(f"the broker did not start:\n{self.log[-2000:]}")
            time.sleep(_LOOK_INTERVAL)
        self.target = Target(*split_address(facts["stomp"]))
        self.openwire = f"tcp://{facts['openwire']}"
        self.api = Api(f"http://{facts['http']}")

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()

    def restart(self) -> float:
        """Kill it and start it again; after how many seconds a client was connected."""
        self.kill()
        clock = SystemClock()
        began = clock.monotonic()
        self.start()
        connect(self.openwire).open().close()
        return clock.monotonic() - began

    def rss_anon(self) -> int:
        """The memory that is the process's own, in bytes: pages of its store's file do not count."""
        found = _RSS_ANON.search(self._proc("status"))
        if found is None:
            raise BrokerUnreachable("cannot read the memory of the broker: it has ended")
        return int(found.group(1)) * 1024

    def cpu_seconds(self) -> float:
        """How much time its threads have spent on processors, in seconds."""
        # The name of the process, in brackets, may have spaces; utime and stime are the 12th and 13th field behind it.
        user, system = self._proc("stat").rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory_peak(self) -> int:
        peak: int = self.api.call("GET", "/broker")["memory"]["peak"]
        return peak

    def depth(self, queue: str) -> int:
        depth: int = self.api.call("GET", queue_path(queue))["depth"]
        return depth

    def lag(self, stream: str, group: str) -> int:
        lag: int = self.api.call("GET", path("groups", stream, group, "lag"))["lag"]
        return lag

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _read_facts(self, pid: int) -> dict[str, Any] | None:
        """What the process writes when it listens; one that was killed has left its own behind."""
        try:
            facts: dict[str, Any] = json.loads(self._facts.read_text())
        except FileNotFoundError:
            return None
        return facts if facts["pid"] == pid else None

    def _proc(self, name: str) -> str:
        assert self._process
        try:
            return Path(f"/proc/{self._process.pid}/{name}").read_text()
        except OSError as error:
            raise BrokerUnreachable(f"cannot read the broker's {name}: it has ended, or this is no Linux") from error


class MemoryWatch:
    """The most memory a broker's process takes, in bytes: ``peak``.

    It is looked at whenever ``look`` is called, or by a thread while this is a context manager.
    """

    INTERVAL = 0.1
    THREAD_INTERVAL = 0.01

    def __init__(self, broker: OwnBroker) -> None:
        self.peak = 0
        self._broker = broker
        self._clock = SystemClock()
        self._next = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def look(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + self.INTERVAL
            self.peak = max(self.peak, self._broker.rss_anon())

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self._broker.rss_anon())
            if self._done.wait(self.THREAD_INTERVAL):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()


def unwind_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what it has started and written goes with it."""
    signal.signal(signal.SIGTERM, _exit)


@contextmanager
def temporary_directory(keep: bool = False) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="quire-benchmark-"))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


PACKAGES = ("lmdb", "SQLAlchemy", "uvloop")
"""What the speed depends on, beside Python."""


def machine() -> str:
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def versions() -> str:
    others = [f"{name} {version(name)}" for name in PACKAGES]
    return ", ".join([f"Quire {__version__}", f"Python {platform.python_version()}", *others])


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
