"""The scenarios of a deep queue, of a selector behind a million messages, and of a consumer that comes and goes."""

import random
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar

from benchmarks.load import NumberedLoad, Taken, send, take
from benchmarks.rig import START_LIMIT
from benchmarks.scenarios.logs import DeliveryLog
from benchmarks.scenarios.scenario import HEADERS, SILENCE, Finding, Scenario, at_least, at_most
from benchmarks.stomp_client import Consumer, Message
from quire.cli.api import queue_path
from quire.cli.perf.load import Link, Load
from quire.cli.perf.measure import Crew, percentiles
from quire.client import AckMode, Queue
from quire.client.sync import connect
from quire.errors import BrokerUnreachable
from quire.message import MESSAGE_OVERHEAD

SLICE = 10_000
"""How many messages a measurement takes, from the deep queue and from a shallow one."""
ROUNDS = 5
"""How often each is measured, in turn: machines are not equally fast at all times."""
MAX_START = 1.0
"""How long a restart after a kill may take until connections are accepted, in seconds."""
MAX_FIRST_MESSAGE = 1.5
"""How long it may take until the first message has come, in seconds."""
MIN_DRAIN_SHARE = 0.9
"""How fast a deep queue must be drained, as a share of a shallow one's rate."""
MIN_DRAIN_SHARE_POSTGRESQL = 0.75
"""The same where what is not in memory comes over a connection."""
MAX_EMPTY_TABLES = 2_000_000
"""How many bytes the tables on PostgreSQL may take once the queue is empty: indexes have a least size."""
MAX_VACUUM = 30.0
"""How long it may take until they are that small, in seconds."""
_LOOK = 0.25


@dataclass
class Depth(Scenario):
    """Fill a queue, kill the broker, start it again, drain the queue.

    Memory, the time of the restart and the speed of draining may not depend on how many messages wait.
    """

    messages: int

    def run(self) -> list[Finding]:
        load = Load(self.messages)
        fill_rate = send(self.broker.target, load, self.tick("filling", self.messages))
        full = [Finding("tables_full_bytes", self.tables())] if self.tables else []
        self.broker.kill()
        accepts, first = self._restart(load)
        deep, shallow = self._compare(replace(load, messages=min(SLICE, self.messages // (2 * ROUNDS))))
        rest = self._take(replace(load, messages=self.broker.depth(load.queue)), "draining the rest")
        share = MIN_DRAIN_SHARE_POSTGRESQL if self.tables else MIN_DRAIN_SHARE
        deep_rate, shallow_rate = [median(each.per_s for each in taken) for taken in (deep, shallow)]
        return [
            Finding("messages", self.messages),
            Finding("filled_per_s", round(fill_rate)),
            at_most("accepts_after_seconds", round(accepts, 3), MAX_START),
            at_most("first_message_after_seconds", round(first, 3), MAX_FIRST_MESSAGE),
            Finding("deep_drained_per_s", round(deep_rate)),
            Finding("shallow_drained_per_s", round(shallow_rate)),
            at_least("deep_to_shallow", round(deep_rate / shallow_rate, 3), share),
            Finding("rest_drained_per_s", round(rest.per_s)),
            at_most("lost", self.messages - sum(each.messages for each in (*deep, rest)), 0),
            self.rss_anon(),
            *full,
            *(self._shrink(self.tables) if self.tables else []),
        ]

    def _shrink(self, tables: Callable[[], int]) -> list[Finding]:
        began = self.clock.monotonic()
        while tables() > MAX_EMPTY_TABLES and self.clock.monotonic() < began + 2 * MAX_VACUUM:
            self.show("waiting for the vacuum", 1.0)
            time.sleep(_LOOK)
        return [
            at_most("tables_empty_bytes", tables(), MAX_EMPTY_TABLES),
            at_most("tables_empty_after_seconds", round(self.clock.monotonic() - began, 1), MAX_VACUUM),
        ]

    def _restart(self, load: Load) -> tuple[float, float]:
        """Start the broker again; after how many seconds a connection was accepted, and the first message had come."""
        began = self.clock.monotonic()
        self.broker.start()
        with connect(self.broker.openwire()) as connection:
            accepts = self.clock.monotonic() - began
            consumer = connection.session(AckMode.INDIVIDUAL).consumer(Queue(load.queue), prefetch=1)
            if consumer.receive(START_LIMIT) is None:
                raise BrokerUnreachable(f"no message came within {START_LIMIT:g} s after the restart")
            return accepts, self.clock.monotonic() - began

    def _compare(self, part: Load) -> tuple[list[Taken], list[Taken]]:
        deep, shallow = [], []
        other = replace(part, queue=f"{part.queue}.shallow")
        for number in range(1, ROUNDS + 1):
            deep.append(self._take(part, f"draining the deep queue, {number} of {ROUNDS}"))
            send(self.broker.target, other, self.tick("filling the shallow queue", other.messages))
            shallow.append(self._take(other, f"draining the shallow queue, {number} of {ROUNDS}"))
        return deep, shallow

    def _take(self, load: Load, text: str) -> Taken:
        return take(self.broker.target, load, self.tick(text, load.messages))


MATCHES = 5
"""How many messages match; they are the last ones."""
MAX_FIRST_MATCH = 5.0
"""How long it may take from SUBSCRIBE to the first match, in seconds."""
MAX_LATENCY_MS = 250.0
"""How long another queue's messages may take meanwhile, 99 of 100 of them, in milliseconds."""

_WANTED, _OTHER = "red", "blue"
_PROBE = Load(1, receipts=False, queue="perf.probe")
_PROBE_INTERVAL = 0.01
_LOOK_INTERVAL = 0.1


@dataclass
class Selector(Scenario):
    """Look for a few messages behind all others, after a kill and a restart.

    Only the last ones match the selector of the first consumer. The others are for a second one, which has none.
    """

    messages: int

    def run(self) -> list[Finding]:
        self._load = NumberedLoad(self.messages)
        self._mistaken = 0
        others, wanted = self._fill(_OTHER, self.messages - MATCHES), self._fill(_WANTED, MATCHES)
        start = self.broker.restart()
        target, destination = self.broker.target, self._load.destination
        with closing(Consumer(target, destination, headers=f"selector:color = '{_WANTED}'\n")) as chooser:
            first, latencies = self._first_match(chooser, wanted)
            self._take(chooser, wanted, _WANTED)
            # The one that chooses stays: what it does not want must reach the other one all the same.
            with closing(Consumer(target, destination)) as taker:
                rate = self._take(taker, others, _OTHER)
                taker.disconnect()
            chooser.disconnect()
        return [
            Finding("messages", self.messages),
            Finding("accepts_after_seconds", round(start, 3)),
            at_most("first_match_after_seconds", round(first, 3), MAX_FIRST_MATCH),
            Finding("other_queue_messages", len(latencies)),
            at_most("other_queue_p99_ms", percentiles(latencies)["p99"], MAX_LATENCY_MS),
            at_most("lost", others.missing + wanted.missing, 0),
            at_most("twice", sum(log.duplicates + log.unflagged_duplicates for log in (others, wanted)), 0),
            at_most("out_of_order", others.out_of_order + wanted.out_of_order, 0),
            at_most("to_the_wrong_consumer", self._mistaken, 0),
            at_most("left_in_the_queue", self.broker.depth(self._load.queue), 0),
            Finding("others_taken_per_s", round(rate)),
            self.rss_anon(),
        ]

    def _fill(self, color: str, messages: int) -> DeliveryLog:
        """Send messages of a color, numbered from 0; what is to see their deliveries."""
        load = replace(self._load, messages=messages, headers=f"color:{color}\n")
        send(self.broker.target, load, self.tick(f"filling, {color}", messages))
        return DeliveryLog(messages)

    def _first_match(self, chooser: Consumer, log: DeliveryLog) -> tuple[float, list[float]]:
        """Wait for the first match, and send messages through another queue meanwhile, one at a time.

        Returns:
            After how many seconds the match came, and how many those messages took.
        """
        began, latencies = self.clock.monotonic(), []
        probe = b"".join(_PROBE.frames(0, 1, 1, 0))
        with closing(Link(self.broker.target)) as link:
            link.send(f"SUBSCRIBE\nid:1\ndestination:{_PROBE.destination}\nack:auto\n\n\0".encode())
            while not log.received:
                sent = self.clock.monotonic()
                link.send(probe)
                link.receive_until(b"MESSAGE\n")
                latencies.append(self.clock.monotonic() - sent)
                self._delivered(chooser, chooser.receive(_PROBE_INTERVAL), log, _WANTED)
                elapsed = self.clock.monotonic() - began
                self.show(f"looking for the first match: {elapsed:.1f} s", elapsed / MAX_FIRST_MATCH)
                if elapsed > START_LIMIT:
                    raise BrokerUnreachable(f"no match came within {START_LIMIT:g} s")
        return elapsed, latencies

    def _take(self, consumer: Consumer, log: DeliveryLog, color: str) -> float:
        began = last = self.clock.monotonic()
        while log.missing and self.clock.monotonic() - last < SILENCE:
            if messages := consumer.receive(_LOOK_INTERVAL):
                self._delivered(consumer, messages, log, color)
                last = self.clock.monotonic()
            self.show(f"taking, {color}: {log.received}", log.received / log.messages)
        return log.received / (self.clock.monotonic() - began)

    def _delivered(self, consumer: Consumer, messages: list[Message], log: DeliveryLog, color: str) -> None:
        for message in messages:
            if message.header("color") == color:
                log.delivered(message.number, message.is_redelivered)
            else:
                self._mistaken += 1
        consumer.acknowledge(messages)


LONGEST_STAY = 5000
"""After how many messages the consumer leaves at the latest."""
LONGEST_ACK = 100
"""How many messages it acknowledges together at the most; what it has not acknowledged comes back."""

_ALONE_INTERVAL = 0.005


@dataclass
class Reconnect(Scenario):
    """Let a consumer come and go while a queue fills that does not fit into memory.

    Nothing may be lost, nothing may come out of order, and what comes twice must be flagged as redelivered.
    """

    # Dead letters are no part of this: a consumer that leaves early again and again must not make any.
    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__MAXIMUM_REDELIVERIES": "1000000000"}

    messages: int
    size: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        # Bodies begin with their number, whatever else is sent.
        self.load: Load = NumberedLoad(self.messages, self.size)

    def run(self) -> list[Finding]:
        self._dice = random.Random(self.seed)
        self._log = DeliveryLog(self.messages)
        connections, began = 0, self.clock.monotonic()
        with Crew(self.broker.target, self.load, lambda counts: self.watch.look()) as crew:
            crew.start_producers()
            goes_on = True
            while goes_on:
                goes_on = self._stay(crew)
                connections += 1
                self._wait_until_alone()
            crew.finish()
        return self._findings(connections, self.clock.monotonic() - began)

    def _stay(self, crew: Crew) -> bool:
        """Connect, take some messages, and leave without a word; whether there is more to come."""
        stay = self._dice.randint(1, max(2, min(LONGEST_STAY, self.messages // 20)))
        together = self._dice.randint(1, LONGEST_ACK)
        # More than fits: what comes back and what is read in must fight for the memory.
        prefetch = self.memory_limit // self.size + 1
        with closing(Consumer(self.broker.target, self.load.destination, prefetch)) as consumer:
            self._log.connected()
            held: list[Message] = []
            while stay > 0:
                messages = self._next_messages(consumer, crew)[:stay]
                if not messages:
                    return False
                stay -= len(messages)
                for message in messages:
                    self._log.delivered(message.number, message.is_redelivered)
                    held.append(message)
                    if len(held) >= together or not self._log.missing:
                        consumer.acknowledge(held)
                        held.clear()
                        self._show(crew)
                if not self._log.missing:
                    consumer.disconnect()
                    return False
        return True

    def _next_messages(self, consumer: Consumer, crew: Crew) -> list[Message]:
        """The next messages; none if none comes although all are sent."""
        began, was_working = self.clock.monotonic(), crew.is_working
        while not (messages := consumer.receive(SILENCE)):
            if self.clock.monotonic() - began < SILENCE:
                continue  # something else came, or a part of a message
            if not was_working:
                break
            crew.look()
            began, was_working = self.clock.monotonic(), crew.is_working
        return messages

    def _wait_until_alone(self) -> None:
        """Until the broker has seen that the consumer left: while it believes in two, no order is promised."""
        deadline = self.clock.monotonic() + SILENCE
        while self.broker.api.call("GET", queue_path(self.load.queue))["consumers"]:
            if self.clock.monotonic() > deadline:
                raise BrokerUnreachable(f"the broker did not see within {SILENCE:g} s that a consumer had left")
            time.sleep(_ALONE_INTERVAL)

    def _show(self, crew: Crew) -> None:
        log, sent = self._log, crew.counts().sent
        text = f"sent {sent}, received {log.received}, out of order {log.out_of_order}, again {log.duplicates}"
        self.show(text, log.received / self.messages)

    def _findings(self, connections: int, elapsed: float) -> list[Finding]:
        log, one_message = self._log, self.size + HEADERS + MESSAGE_OVERHEAD
        return [
            Finding("messages", self.messages),
            Finding("received", log.received),
            at_most("missing", log.missing, 0),
            at_most("out_of_order", log.out_of_order, 0),
            at_most("unflagged_duplicates", log.unflagged_duplicates, 0),
            at_most("left_in_the_queue", self.broker.depth(self.load.queue), 0),
            Finding("redelivered", log.redelivered),
            Finding("duplicates", log.duplicates),
            Finding("connections", connections),
            at_most("peak_resident_bytes", self.broker.memory_peak(), self.memory_limit + one_message),
            self.rss_anon(),
            Finding("elapsed_seconds", round(elapsed, 3)),
            Finding("received_per_s", round(log.received / elapsed)),
        ]
