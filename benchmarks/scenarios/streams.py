"""The scenarios of a stream's speed, beside a stuck message too, and of thousands of leases that end at their times."""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

from benchmarks.load import GROUP, NumberedLoad, send, stream_load
from benchmarks.scenarios.scenario import Finding, Scenario, at_least, at_most
from benchmarks.stomp_client import Consumer, member, send_all
from quire.cli.perf.load import Load, Target
from quire.cli.perf.measure import Crew, Figures, figures, measure, percentiles

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
        load = NumberedLoad(EXTRA, receipts=False, kind="stream", queue=_STREAM, turns=("partition", _PARTITIONS))
        send_all(self.broker.target, load.frames(0, EXTRA, EXTRA - 1, 0))


SHORTEST, LONGEST = 1_000, 30_000
"""How long leases last, in milliseconds: any time between, at random."""
FLOW_RATE = 5000.0
"""How many other messages a second go through the broker meanwhile."""
MIN_RATE = 0.95
"""How many of them must at least, as a share of that."""
ON_TIME = 1.0
"""How late a lease may end, in seconds, ..."""
MIN_ON_TIME = 0.99
"""... and how many leases must end so, as a share of all."""

_LEASED = "perf.leases"
_PATIENCE = 60.0
"""How long after the last one's time it waits for those that have not ended, in seconds."""
_LOOK_INTERVAL = 0.02


@dataclass
class Leases(Scenario):
    """Let thousands of leases end, each at a time of its own, while 5,000 messages a second flow."""

    # A group may have 2,000 messages of each partition in flight; and what was lost comes again when all is over.
    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__PARTITIONS": "8", "QUIRE_POLICY__RETRY_DELAYS": "60s"}

    count: int
    seed: int

    def run(self) -> list[Finding]:
        self._due: dict[tuple[int, int], float] = {}
        self._late: list[float] = []
        send(self.broker.target, stream_load(self.count, queue=_LEASED))
        flow = stream_load(round(FLOW_RATE * LONGEST / 1000), rate=FLOW_RATE)
        with Crew(self.broker.target, flow, lambda counts: None) as crew:
            crew.start_consumers()
            crew.start_producers()
            with closing(member(self.broker.target, _LEASED, "events:true\n", self.count)) as consumer:
                self._lease(consumer)
                self._wait(consumer, crew)
                consumer.disconnect()
            crew.finish()
            rate = figures(crew, flow).messages_per_s
        on_time = sum(late <= ON_TIME for late in self._late) / self.count
        return [
            Finding("leases", self.count),
            at_most("not_ended", self.count - len(self._late), 0),
            at_most("ended_early", sum(late < 0 for late in self._late), 0),
            at_least("on_time", round(on_time, 4), MIN_ON_TIME),
            *[Finding(f"late_{name}_ms", value) for name, value in percentiles(self._late).items()],
            at_least("flow_per_s", round(rate), FLOW_RATE * MIN_RATE),
        ]

    def _lease(self, consumer: Consumer) -> None:
        """Take all messages, and say of each how long its lease is to last from then on."""
        dice = random.Random(self.seed)
        while len(self._due) < self.count:
            for message in [message for message in consumer.take(1) if not message.event]:
                milliseconds = dice.randint(SHORTEST, LONGEST)
                self._due[message.place] = self.clock.monotonic() + milliseconds / 1000
                consumer.extend(message, milliseconds)

    def _wait(self, consumer: Consumer, crew: Crew) -> None:
        """Note when leases end, until all have or nothing is to be expected any more."""
        end = max(self._due.values()) + _PATIENCE
        while len(self._late) < self.count and (now := self.clock.monotonic()) < end:
            for message in consumer.receive(_LOOK_INTERVAL):
                if message.event == "lease-lost":
                    self._late.append(self.clock.monotonic() - self._due[message.place])
            crew.look()
            text = f"{len(self._late)} of {self.count} leases have ended, {crew.counts().received} messages flowed"
            self.show(text, max(0.0, 1 - (end - _PATIENCE - now) * 1000 / LONGEST))
