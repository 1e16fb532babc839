"""A broker of a scenario's own: a process with its data in a directory, that can be killed and started again."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from quire.cli.api import Api
from quire.cli.perf.load import Target
from quire.client.connection import connect
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.settings import broker_file, split_address

START_LIMIT = 60.0
"""How long it may take to start or to stop, in seconds."""
_LOOK_INTERVAL = 0.002
_PROGRAM = "from quire.cli.main import main; main()"
_RSS_ANON = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class OwnBroker:
    """A broker process. As a context manager it is started, and killed at the end.

    Args:
        directory: where it keeps its data and its log.
        flags: of ``quire broker start``, without the dashes: ``{"memory-limit": "16MB"}``.
        environment: settings that have no flag, as environment variables.
    """

    target: Target
    api: Api

    def __init__(self, directory: Path, flags: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self._log = directory / "broker.log"
        self._facts = broker_file(str(directory / "data"))
        given = {"data": str(directory / "data"), "stomp": "127.0.0.1:0", "http": "127.0.0.1:0", **flags}
        options = [part for name, value in given.items() for part in (f"--{name}", value)]
        self._command = [sys.executable, "-c", _PROGRAM, "broker", "start", *options]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens.

        Raises:
            BrokerUnreachable: it did not start; the text has the end of its log.
        """
        with self._log.open("ab") as log:
            process = self._process = subprocess.Popen(  # noqa: S603 - the command is ours
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = SystemClock().monotonic() + START_LIMIT
        while not (facts := self._read_facts(process.pid)):
            if process.poll() is not None or SystemClock().monotonic() > deadline:
                end = self._log.read_text(errors="replace")[-2000:]
                raise BrokerUnreachable(f"the scenario's broker did not start:\n{end}")
            time.sleep(_LOOK_INTERVAL)
        self.target = Target(*split_address(facts["stomp"]))
        self.api = Api(f"http://{facts['http']}")

    def kill(self) -> None:
        """End it as a power cut would: without a word."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def restart(self) -> float:
        """Kill it and start it again.

        Returns:
            After how many seconds a client was connected.
        """
        self.kill()
        clock = SystemClock()
        began = clock.monotonic()
        self.start()
        connect(self.target.host, self.target.port).close()
        return clock.monotonic() - began

    def rss_anon(self) -> int:
        """The memory that is the process's own, in bytes: pages of its store's file do not count.

        Raises:
            BrokerUnreachable: the system does not tell (it is Linux's ``RssAnon``), or the process is gone.
        """
        assert self._process
        try:
            found = _RSS_ANON.search(Path(f"/proc/{self._process.pid}/status").read_text())
        except OSError:
            found = None
        if found is None:
            raise BrokerUnreachable("cannot read the memory of the broker: it has ended, or this is no Linux")
        return int(found.group(1)) * 1024

    def cpu_seconds(self) -> float:
        """How much time its threads have spent on processors, in seconds.

        Raises:
            BrokerUnreachable: the system does not tell (it is Linux's ``/proc/PID/stat``), or the process is gone.
        """
        assert self._process
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except OSError as error:
            text = "cannot read the processor time of the broker: it has ended, or this is no Linux"
            raise BrokerUnreachable(text) from error
        # The name of the process, in brackets, may have spaces; utime and stime are the 12th and 13th field behind it.
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def memory_peak(self) -> int:
        """The most bytes of messages that were resident at once."""
        peak: int = self.api.call("GET", "/broker")["memory"]["peak"]
        return peak

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


class MemoryWatch:
    """The most memory a broker's process takes, looked at now and then.

    Args:
        broker: the broker.

    Attributes:
        peak: the most so far, in bytes.
    """

    INTERVAL = 0.1

    def __init__(self, broker: OwnBroker) -> None:
        self._broker = broker
        self._clock = SystemClock()
        self._next = 0.0
        self.peak = 0

    def look(self) -> None:
        """Look, unless it was a moment ago."""
        now = self._clock.monotonic()
        if now >= self._next:
            self._next = now + self.INTERVAL
            self.peak = max(self.peak, self._broker.rss_anon())


def unwind_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what it has started and written goes with it."""
    signal.signal(signal.SIGTERM, _exit)


@contextmanager
def scenario_directory(keep: bool) -> Iterator[Path]:
    """A directory for a scenario's broker.

    Args:
        keep: leave it there afterwards.
    """
    directory = Path(tempfile.mkdtemp(prefix="quire-perf-"))
    try:
        yield directory
    finally:
        if not keep:
            shutil.rmtree(directory)


def _exit(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
