"""What all scenarios have: a broker of their own, its memory, and what people see meanwhile."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.rig import MemoryWatch, OwnBroker
from benchmarks.scenarios.findings import Finding, at_most
from quire.cli.perf.measure import Counts, LiveFigures, Tick
from quire.clock import SystemClock
from quire.units import format_size

MAX_RSS_ANON = 120_000_000
"""How much memory the broker's process may take, in bytes."""
HEADERS = 256
"""How much more than its body a message of a load takes, in bytes, beside what the broker adds to each."""
SILENCE = 30.0
"""After how long without a message no more is expected, in seconds."""
IDLE = 0.002
"""How long a consumer waits that has nothing to do, in seconds."""


@dataclass
class Scenario:
    """One run; a scenario's own fields are its options.

    Attributes:
        broker: a running broker of its own, with ``ENVIRONMENT``.
        live: shows how far it is.
        memory_limit: the broker's, in bytes.
        tables: tells how many bytes the broker's tables take on PostgreSQL's disk; None with another store.
    """

    ENVIRONMENT: ClassVar[Mapping[str, str]] = {}

    broker: OwnBroker
    live: LiveFigures
    memory_limit: int

    def __post_init__(self) -> None:
        self.tables: Callable[[], int] | None = None
        self.clock = SystemClock()
        self.watch = MemoryWatch(self.broker)

    def run(self) -> list[Finding]:
        """Do it all, and say what was found."""
        raise NotImplementedError

    def show(self, text: str, share: float) -> None:
        """Show how far it is, and look at the broker's memory."""
        self.watch.look()
        self.live.show(f"{text}, memory {format_size(self.watch.peak)}", min(share, 1.0))

    def tick(self, text: str, total: int, done: float = 0.0, part: float = 1.0) -> Tick:
        """Shows how far a load is, which is a part of the scenario: SEND and MESSAGE frames count towards a total."""

        def tick(counts: Counts) -> None:
            self.show(f"{text}: sent {counts.sent}, received {counts.received}",
                      done + part * (counts.sent + counts.received) / total)  # fmt: skip

        return tick

    def rss_anon(self) -> Finding:
        """The most memory that the broker's process took."""
        return at_most("peak_rss_anon_bytes", self.watch.peak, MAX_RSS_ANON)
