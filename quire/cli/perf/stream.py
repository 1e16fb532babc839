"""The scenario of a stream's speed: batches are appended while a group takes them; if wished, beside another broker."""

import statistics
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from quire.cli.perf.crew import Counts, Tick
from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import Figures, measure
from quire.cli.perf.own_broker import MemoryWatch, OwnBroker
from quire.cli.perf.stream_crew import measure_stream
from quire.cli.perf.stream_lag import lag
from quire.cli.perf.stream_load import StreamLoad

ROUNDS = 3
"""How often each broker is measured, in turn: machines are not equally fast at all times."""
WARM_UP = 0.1
"""How many messages go through a broker before it is measured, as a share of those that count."""
MAX_RSS_ANON = 120_000_000
"""How much memory the broker's process may take, in bytes."""


@dataclass
class Stream:
    """One run.

    Args:
        broker: a running broker of its own.
        load: what is sent and taken in each measurement.
        peer: another broker, through which as many messages go as in ``confirm``; None for nobody.
        live: shows how far it is.
    """

    broker: OwnBroker
    load: StreamLoad
    peer: Target | None
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Measure in turn.

        Raises:
            QuireError: a broker failed.
        """
        self._watch = MemoryWatch(self.broker)
        self._lag, self._done = 0, 0
        ours: list[Figures] = []
        theirs: list[Figures] = []
        for count in [round(self.load.messages * WARM_UP), *[self.load.messages] * ROUNDS]:
            ours.append(self._measure(count))
            if self.peer:
                theirs.append(measure(self.peer, Load(count, self.load.size), self._tick("the peer", count)))
            self._done += count
        return self._findings(ours[1:], theirs[1:])

    def _measure(self, count: int) -> Figures:
        load = replace(self.load, messages=count, queue=f"perf.{uuid.uuid4().hex[:12]}")
        figures = measure_stream(self.broker.target, load, self._tick("the stream", count))
        self._lag += lag(self.broker.api, load.queue, load.group)
        return figures

    def _tick(self, name: str, count: int) -> Tick:
        total = self.load.messages * (ROUNDS + WARM_UP)

        def tick(counts: Counts) -> None:
            self._watch.look()
            text = f"{name}: sent {counts.sent}, received {counts.received} of {count}"
            self.live.show(text, (self._done + counts.received) / total)

        return tick

    def _findings(self, ours: Sequence[Figures], theirs: Sequence[Figures]) -> list[Finding]:
        speed = statistics.median(figures.messages_per_s for figures in ours)
        findings = [
            Finding("messages", self.load.messages),
            Finding("messages_per_s", round(speed)),
            Finding("appended_per_s", round(statistics.median(figures.sent_per_s for figures in ours))),
            Finding("consumed_per_s", round(statistics.median(figures.received_per_s for figures in ours))),
            Finding("p50_ms", statistics.median(figures.latency_ms["p50"] for figures in ours)),
            Finding("p99_ms", statistics.median(figures.latency_ms["p99"] for figures in ours)),
            at_most("twice", sum(figures.messages for figures in ours) - ROUNDS * self.load.messages, 0),
            at_most("lag_when_all_is_taken", self._lag, 0),
            at_most("peak_rss_anon_bytes", self._watch.peak, MAX_RSS_ANON),
        ]
        if theirs:
            peer = statistics.median(figures.messages_per_s for figures in theirs)
            findings += [Finding("peer_confirm_per_s", round(peer)), Finding("to_peer", round(speed / peer, 2))]
        return findings
