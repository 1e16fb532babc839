"""The scenario of the bug of 5.1: a consumer comes and goes while a queue that does not fit into memory fills up."""

import random
import time
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

from benchmarks.load import NumberedLoad
from benchmarks.scenarios.delivery_log import DeliveryLog
from benchmarks.scenarios.findings import Finding, at_most
from benchmarks.scenarios.scenario import HEADERS, SILENCE, Scenario
from benchmarks.stomp_client import Consumer, Message
from quire.cli.api import queue_path
from quire.cli.perf.load import Load
from quire.cli.perf.measure import Crew
from quire.errors import BrokerUnreachable
from quire.message import MESSAGE_OVERHEAD

LONGEST_STAY = 5000
"""After how many messages the consumer leaves at the latest."""
LONGEST_ACK = 100
"""How many messages it acknowledges together at the most; what it has not acknowledged comes back."""

_LOOK_INTERVAL = 0.005


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
        """Send, and take until everything has come or nothing comes any more."""
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
            time.sleep(_LOOK_INTERVAL)

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
