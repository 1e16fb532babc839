"""The scenario of the stream with a stuck message: the others must not notice it, and the lag must be exact."""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from statistics import median

from benchmarks.load import GROUP, NumberedLoad, stream_load
from benchmarks.scenarios.findings import Finding, at_most
from benchmarks.scenarios.scenario import Scenario
from benchmarks.stomp_client import member, send_all
from quire.cli.perf.measure import measure

ROUNDS = 3
"""How often the stream is measured with and without a stuck message, in turn."""
RATE = 4000.0
"""How many messages a second are sent, so that their time is the broker's and not that of a queue before it."""
MAX_P50_TO_FREE, MAX_P99_TO_FREE = 1.5, 2.0
"""How long messages may take beside a stuck one, as a share of what they take without it."""
EXTRA = 1000
"""How many messages are sent at once where the lag is looked at."""

_STREAM = "perf.lag"
_PARTITIONS = 4


@dataclass
class Stuck(Scenario):
    """Measure a stream with a stuck message and without: the other messages are as fast, and the lag is exact."""

    messages: int
    size: int

    def run(self) -> list[Finding]:
        """Measure in turn, and then look at the lag while nothing moves."""
        times: dict[bool, dict[str, list[float]]] = {False: defaultdict(list), True: defaultdict(list)}
        wrong = 0
        for number in range(2 * ROUNDS):
            stuck = number % 2 == 1
            wrong += self._measure(stuck, times[stuck], number / (2 * ROUNDS))
        moments = self._lags()
        wrong += sum(expected != seen for expected, seen in moments)
        free, beside = [{name: median(values) for name, values in times[stuck].items()} for stuck in (False, True)]
        return [
            Finding("messages", self.messages),
            Finding("free_p50_ms", free["p50"]),
            Finding("stuck_p50_ms", beside["p50"]),
            at_most("p50_to_free", round(beside["p50"] / free["p50"], 2), MAX_P50_TO_FREE),
            Finding("free_p99_ms", free["p99"]),
            Finding("stuck_p99_ms", beside["p99"]),
            at_most("p99_to_free", round(beside["p99"] / free["p99"], 2), MAX_P99_TO_FREE),
            Finding("lags_looked_at", 2 * ROUNDS + len(moments)),
            at_most("lags_wrong", wrong, 0),
        ]

    def _measure(self, stuck: bool, times: Mapping[str, list[float]], done: float) -> bool:
        """Measure once, with messages acknowledged one by one; whether the lag was wrong when all had come."""
        load = stream_load(self.messages, self.size, rate=RATE, ack="client-individual", ack_every=1, stuck=int(stuck))
        text = f"{'with' if stuck else 'without'} a stuck message"
        figures = measure(self.broker.target, load, self.tick(text, 2 * self.messages, done, 1 / (2 * ROUNDS)))
        for name, value in figures.latency_ms.items():
            times[name].append(value)
        return self.broker.lag(load.queue, GROUP) != stuck

    def _lags(self) -> list[tuple[int, int]]:
        """Look at the lag at moments when nothing moves: what it was expected to be and what it was, each time."""
        moments: list[tuple[int, int]] = []

        def look(expected: int) -> None:
            moments.append((expected, self.broker.lag(_STREAM, GROUP)))

        with closing(member(self.broker.target, _STREAM, prefetch=EXTRA)) as consumer:
            self._send()
            came = consumer.take(EXTRA)
            look(EXTRA)
            stuck, *others = came
            consumer.settle(others[::2])
            look(EXTRA - len(others[::2]))
            consumer.settle(others[1::2])
            look(1)
            self._send()
            look(EXTRA + 1)
        look(EXTRA + 1)
        self.broker.restart()
        look(EXTRA + 1)
        with closing(member(self.broker.target, _STREAM, prefetch=EXTRA + 1)) as consumer:
            came = consumer.take(EXTRA + 1)
            consumer.settle([message for message in came if message.place != stuck.place])
            look(1)
            consumer.settle([message for message in came if message.place == stuck.place])
            look(0)
            consumer.disconnect()
        return moments

    def _send(self) -> None:
        """Send messages, and wait until the broker has confirmed them."""
        load = NumberedLoad(EXTRA, receipts=False, kind="stream", queue=_STREAM, turns=("partition", _PARTITIONS))
        send_all(self.broker.target, load.frames(0, EXTRA, EXTRA - 1, 0))
