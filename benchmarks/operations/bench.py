"""A broker under measurement: what an operation takes, of time, of the event loop, of memory."""

import json
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from quire.cli.api import exchange
from quire.cli.perf.own_broker import OwnBroker
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable

LONGEST = "quire_loop_longest_turn_seconds"
SAMPLE_INTERVAL = 0.01
"""How often the memory of the process is looked at, in seconds."""

FLAGS = {"memory-limit": "64MiB"}


class Row(NamedTuple):
    """What one part of an operation took.

    Attributes:
        what: what was done.
        seconds: for how long.
        number: to how many messages, destinations or requests.
        longest_turn: for how long the event loop was busy at the most, in seconds.
        rss_anon: the most memory of its own that the process had, in bytes.
    """

    what: str
    seconds: float
    number: int
    longest_turn: float
    rss_anon: int


class Bench:
    """A broker of its own in a temporary directory, on LMDB. As a context manager it is started, and ended.

    Args:
        scale: by what the sizes of operations are multiplied.
        tell: is told of each row, and what the broker logged about long turns meanwhile.

    Attributes:
        broker: the process.
        rows: what was measured.
    """

    def __init__(self, scale: float, tell: Callable[[Row, list[str]], None]) -> None:
        self._scale = scale
        self._tell = tell
        self._directory = tempfile.TemporaryDirectory(prefix="quire-operations-")
        self.path = Path(self._directory.name)
        self._clock = SystemClock()
        self.broker = self._make({})
        self.rows: list[Row] = []
        self._read_lines = 0

    def _make(self, environment: Mapping[str, str]) -> OwnBroker:
        return OwnBroker(self.path, {**FLAGS, "store": f"lmdb://{self.path}/store"}, environment)

    def scaled(self, count: int) -> int:
        """How many of something there are at this scale."""
        return max(int(count * self._scale), 1)

    def restart_with(self, environment: Mapping[str, str]) -> None:
        """Start it again with other settings."""
        self.broker.kill()
        self.broker = self._make(environment)
        self.broker.start()

    @contextmanager
    def measure(self, what: str, count: int) -> Iterator[None]:
        """Measure what is done inside.

        Args:
            what: what it is.
            number: to how many messages, destinations or requests it is done.
        """
        self.longest_turn()  # from here on
        self.long_turns()
        with _Memory(self.broker) as memory:
            began = self._clock.monotonic()
            yield
            seconds = self._clock.monotonic() - began
        row = Row(what, seconds, count, self.longest_turn(), memory.peak)
        self.rows.append(row)
        self._tell(row, self.long_turns())

    def longest_turn(self) -> float:
        """The longest turn of the event loop since this was asked last, in seconds."""
        _, content = exchange("GET", f"{self.broker.api.url}/metrics", None)
        for family in text_string_to_metric_families(content.decode()):
            if family.name == LONGEST:
                return float(family.samples[0].value)
        raise BrokerUnreachable("the broker does not measure its turns")

    def long_turns(self) -> list[str]:
        """What the broker's log says about turns that took long, since this was asked last."""
        lines = (self.path / "broker.log").read_text("utf-8", "replace").splitlines()
        new, self._read_lines = lines[self._read_lines :], len(lines)
        events = [json.loads(line) for line in new if line.startswith("{")]
        return [str(event["text"]) for event in events if event.get("event") == "loop.slow"]

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.kill()
        self._directory.cleanup()


class _Memory:
    """The most memory that a broker's process has, looked at by a thread."""

    def __init__(self, broker: OwnBroker) -> None:
        self.peak = 0
        self._broker = broker
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while True:
            self.peak = max(self.peak, self._broker.rss_anon())
            if self._done.wait(SAMPLE_INTERVAL):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
