"""The scenario of the stream with a stuck message: the others must not notice it, and the lag must be exact."""

import statistics
import uuid
from collections import defaultdict
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace

from quire.cli.perf.crew import Counts
from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.link import Link
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.own_broker import OwnBroker
from quire.cli.perf.stream_crew import measure_stream
from quire.cli.perf.stream_lag import lag
from quire.cli.perf.stream_load import StreamLoad
from quire.cli.perf.stream_member import StreamMember

ROUNDS = 3
"""How often the stream is measured with and without a stuck message, in turn."""
RATE = 4000.0
"""How many messages a second are sent, so that their time is the broker's and not that of a queue before it."""
MAX_P50_TO_FREE, MAX_P99_TO_FREE = 1.5, 2.0
"""How long messages may take beside a stuck one, as a share of what they take without it."""
EXTRA = 1000
"""How many messages are sent at once where the lag is looked at."""

_STREAM, _GROUP = "perf.lag", "perf"


@dataclass
class StuckStream:
    """One run.

    Args:
        broker: a running broker of its own.
        load: what is sent and taken in each measurement; messages are acknowledged one by one.
        live: shows how far it is.
    """

    broker: OwnBroker
    load: StreamLoad
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Measure in turn, and then look at the lag while nothing moves.

        Raises:
            QuireError: the broker failed.
        """
        times: dict[bool, dict[str, list[float]]] = {False: defaultdict(list), True: defaultdict(list)}
        wrong = 0
        for number in range(ROUNDS):
            for stuck in (False, True):
                self._done = (2 * number + stuck) / (2 * ROUNDS)
                wrong += self._measure(stuck, times[stuck])
        moments = self._lags()
        wrong += sum(expected != seen for expected, seen in moments)
        free, beside = _medians(times[False]), _medians(times[True])
        return [
            Finding("messages", self.load.messages),
            Finding("free_p50_ms", free["p50"]),
            Finding("stuck_p50_ms", beside["p50"]),
            at_most("p50_to_free", round(beside["p50"] / free["p50"], 2), MAX_P50_TO_FREE),
            Finding("free_p99_ms", free["p99"]),
            Finding("stuck_p99_ms", beside["p99"]),
            at_most("p99_to_free", round(beside["p99"] / free["p99"], 2), MAX_P99_TO_FREE),
            Finding("lags_looked_at", 2 * ROUNDS + len(moments)),
            at_most("lags_wrong", wrong, 0),
        ]

    def _measure(self, stuck: bool, times: Mapping[str, list[float]]) -> bool:
        """Measure once.

        Returns:
            Whether the lag was wrong when all had come.
        """
        load = replace(
            self.load, rate=RATE, ack="client-individual", stuck=stuck, queue=f"perf.{uuid.uuid4().hex[:12]}"
        )

        def tick(counts: Counts) -> None:
            text = f"{'with' if stuck else 'without'} a stuck message: {counts.received}"
            self.live.show(text, self._done + counts.received / load.messages / (2 * ROUNDS))

        figures = measure_stream(self.broker.target, load, tick)
        for name, value in figures.latency_ms.items():
            times[name].append(value)
        return lag(self.broker.api, load.queue, load.group) != stuck

    def _lags(self) -> list[tuple[int, int]]:
        """Look at the lag at moments when nothing moves.

        Returns:
            What it was expected to be and what it was, each time.
        """
        moments: list[tuple[int, int]] = []

        def look(expected: int) -> None:
            moments.append((expected, lag(self.broker.api, _STREAM, _GROUP)))

        with closing(StreamMember(self.broker.target, _STREAM, _GROUP, prefetch=EXTRA)) as member:
            self._send()
            came = member.take(EXTRA)
            look(EXTRA)
            stuck, *others = came
            member.settle(others[::2])
            look(EXTRA - len(others[::2]))
            member.settle(others[1::2])
            look(1)
            self._send()
            look(EXTRA + 1)
        look(EXTRA + 1)
        self.broker.restart()
        look(EXTRA + 1)
        with closing(StreamMember(self.broker.target, _STREAM, _GROUP, prefetch=EXTRA + 1)) as member:
            came = member.take(EXTRA + 1)
            member.settle([message for message in came if message.place != stuck.place])
            look(1)
            member.settle([message for message in came if message.place == stuck.place])
            look(0)
            member.disconnect()
        return moments

    def _send(self) -> None:
        """Send messages, and wait until the broker has confirmed them."""
        load = StreamLoad(EXTRA, numbered=True, queue=_STREAM)
        with closing(Link(self.broker.target)) as link:
            link.send(b"".join([load.batch_frames(index, EXTRA, 0) for index in range(load.batches(EXTRA))]))
            link.disconnect()


def _medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in times.items()}
