"""The scenario of a stream's speed: batches are appended while a group takes them; if wished, beside another broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.load import GROUP, stream_load
from benchmarks.scenarios.findings import Finding, at_most
from benchmarks.scenarios.scenario import Scenario
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import Figures, measure

ROUNDS = 3
"""How often each broker is measured, in turn: machines are not equally fast at all times."""
WARM_UP = 0.1
"""How many messages go through a broker before it is measured, as a share of those that count."""


@dataclass
class Stream(Scenario):
    """Measure a stream: batches of 32 messages with a receipt, a group that acknowledges 32 at a time."""

    messages: int
    size: int
    peer: tuple[str, int] | None
    login: str
    passcode: str

    def run(self) -> list[Finding]:
        """Measure in turn; through the peer as many messages go as in ``confirm``."""
        self._lag, done = 0, 0.0
        ours: list[Figures] = []
        theirs: list[Figures] = []
        for part in [WARM_UP, *[1.0] * ROUNDS]:
            count, part = round(self.messages * part), part / (ROUNDS + WARM_UP)
            load = stream_load(count, self.size)
            ours.append(measure(self.broker.target, load, self.tick("the stream", 2 * count, done, part)))
            self._lag += self.broker.lag(load.queue, GROUP)
            if self.peer:
                target = Target(*self.peer, self.login, self.passcode)
                theirs.append(measure(target, Load(count, self.size), self.tick("the peer", 2 * count, done, part)))
            done += part
        return self._findings(ours[1:], theirs[1:])

    def _findings(self, ours: Sequence[Figures], theirs: Sequence[Figures]) -> list[Finding]:
        speed = median(figures.messages_per_s for figures in ours)
        findings = [
            Finding("messages", self.messages),
            Finding("messages_per_s", round(speed)),
            Finding("appended_per_s", round(median(figures.sent_per_s for figures in ours))),
            Finding("consumed_per_s", round(median(figures.received_per_s for figures in ours))),
            Finding("p50_ms", median(figures.latency_ms["p50"] for figures in ours)),
            Finding("p99_ms", median(figures.latency_ms["p99"] for figures in ours)),
            at_most("twice", sum(figures.messages for figures in ours) - ROUNDS * self.messages, 0),
            at_most("lag_when_all_is_taken", self._lag, 0),
            self.rss_anon(),
        ]
        if theirs:
            peer = median(figures.messages_per_s for figures in theirs)
            findings += [Finding("peer_confirm_per_s", round(peer)), Finding("to_peer", round(speed / peer, 2))]
        return findings
