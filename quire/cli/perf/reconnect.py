"""The scenario of the bug of 5.1: a consumer comes and goes while a queue that does not fit into memory fills up."""

import random
import time
from dataclasses import dataclass
from typing import ClassVar

from quire.cli.api import queue_path
from quire.cli.perf.crew import Crew
from quire.cli.perf.delivery_log import DeliveryLog
from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import NUMBER_DIGITS, Load
from quire.cli.perf.own_broker import MemoryWatch, OwnBroker
from quire.client.connection import Connection, Frame, connect
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.message import MESSAGE_OVERHEAD

LONGEST_STAY = 5000
"""After how many messages the consumer leaves at the latest."""
LONGEST_ACK = 100
"""How many messages it acknowledges together at the most; what it has not acknowledged comes back."""
MAX_RSS_ANON = 120_000_000
"""How much memory the broker's process may take, in bytes."""
_HEADERS = 256
_SILENCE = 10.0
_LOOK_INTERVAL = 0.005


@dataclass
class Reconnect:
    """One run.

    Args:
        broker: a running broker of its own, with ``ENVIRONMENT``.
        load: numbered messages, one producer, no consumers.
        memory_limit: the broker's, in bytes.
        seed: decides when the consumer leaves and what it acknowledges together.
        live: shows how far it is.
    """

    # Dead letters are no part of this: a consumer that leaves early again and again must not make any.
    ENVIRONMENT: ClassVar = {"QUIRE_POLICY__MAXIMUM_REDELIVERIES": "1000000000"}

    broker: OwnBroker
    load: Load
    memory_limit: int
    seed: int
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Send, and take until everything has come or nothing comes any more.

        Raises:
            QuireError: the broker failed.
        """
        self._random = random.Random(self.seed)  # noqa: S311 - it only has to be repeatable
        self._log = DeliveryLog(self.load.messages)
        self._watch = MemoryWatch(self.broker)
        connections, began = 0, SystemClock().monotonic()
        with Crew(self.broker.target, self.load, lambda counts: self._watch.look()) as crew:
            crew.start_producers()
            goes_on = True
            while goes_on:
                goes_on = self._stay(crew)
                connections += 1
                self._wait_until_alone()
            crew.finish()
        elapsed = SystemClock().monotonic() - began
        left = self.broker.api.call("GET", queue_path(self.load.queue))["depth"]
        return self._findings(connections, elapsed, left)

    def _stay(self, crew: Crew) -> bool:
        """Connect, take some messages, and leave without a word.

        Returns:
            Whether there is more to come.
        """
        stay = self._random.randint(1, max(2, min(LONGEST_STAY, self.load.messages // 20)))
        together = self._random.randint(1, LONGEST_ACK)
        held: list[Frame] = []
        with connect(self.broker.target.host, self.broker.target.port) as connection:
            # More than fits: what comes back and what is read in must fight for the memory.
            connection.subscribe(f"/queue/{self.load.queue}", prefetch=self.memory_limit // self.load.size + 1)
            self._log.connected()
            for _ in range(stay):
                frame = self._next_frame(connection, crew)
                if frame is None:
                    return False
                self._log.delivered(int(frame.body[:NUMBER_DIGITS]), frame.headers.get("redelivered") == "true")
                held.append(frame)
                if len(held) >= together or not self._log.missing:
                    for each in held:
                        connection.ack(each)
                    held.clear()
                    self._show(crew)
                if not self._log.missing:
                    connection.disconnect()
                    return False
        return True

    def _next_frame(self, connection: Connection, crew: Crew) -> Frame | None:
        """The next message; None if none comes although all are sent."""
        while True:
            was_working = crew.is_working
            frame = connection.receive(_SILENCE)
            if frame or not was_working:
                return frame
            crew.look()

    def _wait_until_alone(self) -> None:
        """Until the broker has seen that the consumer left: while it believes in two, no order is promised."""
        deadline = SystemClock().monotonic() + _SILENCE
        while self.broker.api.call("GET", queue_path(self.load.queue))["consumers"]:
            if SystemClock().monotonic() > deadline:
                raise BrokerUnreachable(f"the broker did not see within {_SILENCE:g} s that a consumer had left")
            time.sleep(_LOOK_INTERVAL)

    def _show(self, crew: Crew) -> None:
        self._watch.look()
        log, sent = self._log, crew.counts().sent
        text = f"sent {sent}, received {log.received}, out of order {log.out_of_order}, again {log.duplicates}"
        self.live.show(text, log.received / self.load.messages)

    def _findings(self, connections: int, elapsed: float, left: int) -> list[Finding]:
        log, one_message = self._log, self.load.size + _HEADERS + MESSAGE_OVERHEAD
        return [
            Finding("messages", self.load.messages),
            Finding("received", log.received),
            at_most("missing", log.missing, 0),
            at_most("out_of_order", log.out_of_order, 0),
            at_most("unflagged_duplicates", log.unflagged_duplicates, 0),
            at_most("left_in_the_queue", left, 0),
            Finding("redelivered", log.redelivered),
            Finding("duplicates", log.duplicates),
            Finding("connections", connections),
            at_most("peak_resident_bytes", self.broker.memory_peak(), self.memory_limit + one_message),
            at_most("peak_rss_anon_bytes", self._watch.peak, MAX_RSS_ANON),
            Finding("elapsed_seconds", round(elapsed, 3)),
            Finding("received_per_s", round(log.received / elapsed)),
        ]
