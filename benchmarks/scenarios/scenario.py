"""What all scenarios have: a broker of their own, its memory, what people see, and findings beside promises."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from benchmarks.rig import MemoryWatch, OwnBroker
from quire.cli.output import Column, Output, readable
from quire.cli.perf.measure import Counts, LiveFigures, Tick
from quire.clock import SystemClock
from quire.units import format_size

_COLUMNS = [
    Column("figure", "Figure"), Column("value", "Measured"), Column("promise", "Promised"), Column("kept", "Kept"),
]  # fmt: skip


class Finding(NamedTuple):
    figure: str  # its name; ends with the unit, as ``_bytes`` or ``_seconds``
    value: float  # what was measured
    promise: str = ""  # what it must be, in words; empty if nothing is promised
    kept: bool | None = None  # whether it is; None if nothing is promised


def at_most(figure: str, value: float, limit: float) -> Finding:
    return Finding(figure, value, f"at most {readable(figure, limit)}", value <= limit)


def at_least(figure: str, value: float, limit: float) -> Finding:
    return Finding(figure, value, f"at least {readable(figure, limit)}", value >= limit)


def exactly(figure: str, value: int, wanted: int) -> Finding:
    return Finding(figure, value, f"exactly {wanted}", value == wanted)


def report(output: Output, findings: Sequence[Finding]) -> int:
    rows = []
    for finding in findings:
        row = finding._asdict()
        if output.format == "table":
            row["value"] = readable(finding.figure, finding.value)
        rows.append(row)
    output.rows(rows, _COLUMNS)
    return int(any(finding.kept is False for finding in findings))


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
    """One run; a scenario's own fields are its options."""

    ENVIRONMENT: ClassVar[Mapping[str, str]] = {}

    broker: OwnBroker  # a running broker of its own, with ``ENVIRONMENT``
    live: LiveFigures  # shows how far it is
    memory_limit: int  # the broker's, in bytes

    def __post_init__(self) -> None:
        self.tables: Callable[[], int] | None = None
        self.clock = SystemClock()
        self.watch = MemoryWatch(self.broker)

    def run(self) -> list[Finding]:
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
        return at_most("peak_rss_anon_bytes", self.watch.peak, MAX_RSS_ANON)
