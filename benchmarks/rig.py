"""A broker of its own for measurements, and the machine it runs on."""

import os
import platform
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

from quire import __version__
from quire.cli.api import Api, path, queue_path
from quire.cli.perf.load import Target
from quire.client.sync import connect
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.settings import split_address
from tests.acceptance.crash.broker_process import QUIRE, BrokerProcess

START_LIMIT = 60.0
"""How long it may take to start or to stop, in seconds."""
STORES = {"lmdb": "lmdb://%s/store", "sqlite": "sqlite:///%s/store.db"}
"""Stores in the broker's directory, by what ``store`` may be instead of a URL."""


class OwnBroker(BrokerProcess):
    """A broker process. As a context manager it is started, and killed at the end."""

    target: Target  # its STOMP port
    api: Api  # its HTTP API

    def __init__(self, directory: Path, flags: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        given = {"http": "127.0.0.1:0", **flags}
        store = given.pop("store", "")
        super().__init__(directory, STORES[store] % directory if store in STORES else store)
        self._environment |= environment or {}
        self.flags = [part for name, value in given.items() for part in (f"--{name}", value)]

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, *flags: str) -> None:
        """Start it, and wait until it listens."""
        self._run([*QUIRE, "broker", "start"], *self.flags, *flags)
        try:
            facts = self._listening()
        except AssertionError as error:
            raise BrokerUnreachable(f"the broker did not start:\n{self.log[-2000:]}") from error
        self.target = Target(*split_address(str(facts["stomp"])))
        self.api = Api(f"http://{facts['http']}")

    def restart(self) -> float:
        """Kill it and start it again; after how many seconds a client was connected."""
        self.kill()
        clock = SystemClock()
        began = clock.monotonic()
        self.start()
        connect(self.openwire()).open().close()
        return clock.monotonic() - began

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
