"""A broker under measurement: what an operation takes, of time, of the event loop, of memory."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.rig import MemoryWatch, OwnBroker, temporary_directory
from quire.cli.api import exchange
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable

LONGEST = "quire_loop_longest_turn_seconds"

FLAGS = {"memory-limit": "64MiB", "store": "lmdb"}


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

    broker: OwnBroker

    def __init__(self, scale: float, tell: Callable[[Row, list[str]], None]) -> None:
        self._scale = scale
        self._tell = tell
        self._clock = SystemClock()
        self._stack = ExitStack()
        self.rows: list[Row] = []
        self._read_lines = 0

    def scaled(self, count: int) -> int:
        """How many of something there are at this scale."""
        return max(int(count * self._scale), 1)

    @contextmanager
    def measure(self, what: str, count: int, *, starts: bool = False) -> Iterator[None]:
        """Measure what is done inside to so many messages, destinations or requests.

        A broker that has ended may be started first; that counts, and its memory is looked at when it is there.
        """
        if not starts:
            self.longest_turn()  # from here on
            self.long_turns()
        began = self._clock.monotonic()
        if starts:
            self.broker.start()
        with MemoryWatch(self.broker) as memory:
            yield
            seconds = self._clock.monotonic() - began
        row = Row(what, seconds, count, self.longest_turn(), memory.peak)
        self.rows.append(row)
        self._tell(row, self.long_turns())

    def now_ms(self) -> int:
        """The time in milliseconds since the epoch."""
        return self._clock.now_ms()

    def wait_until(self, time_ms: int) -> None:
        """Wait for a time, in milliseconds since the epoch."""
        time.sleep(max(time_ms - self.now_ms(), 0) / 1000)

    def longest_turn(self) -> float:
        """The longest turn of the event loop since this was asked last, in seconds."""
        _, content = exchange("GET", f"{self.broker.api.url}/metrics", None)
        for family in text_string_to_metric_families(content.decode()):
            if family.name == LONGEST:
                return float(family.samples[0].value)
        raise BrokerUnreachable("the broker does not measure its turns")

    def long_turns(self) -> list[str]:
        """What the broker's log says about turns that took long, since this was asked last."""
        lines = self.broker.log.splitlines()
        new, self._read_lines = lines[self._read_lines :], len(lines)
        events = [json.loads(line) for line in new if line.startswith("{")]
        return [str(event["text"]) for event in events if event.get("event") == "loop.slow"]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = stack.enter_context(temporary_directory())
            self.broker = stack.enter_context(OwnBroker(directory, FLAGS))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
