"""The scenario of the selector: the few messages that somebody wants are behind a million that nobody does."""

from contextlib import closing
from dataclasses import dataclass, replace

from quire.cli.api import queue_path
from quire.cli.perf.crew import Counts
from quire.cli.perf.delivery_log import DeliveryLog
from quire.cli.perf.findings import Finding, at_most
from quire.cli.perf.link import Link
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import Load
from quire.cli.perf.measure import percentiles, send
from quire.cli.perf.numbered_consumer import Delivery, NumberedConsumer
from quire.cli.perf.own_broker import START_LIMIT, MemoryWatch, OwnBroker
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable
from quire.units import format_size

MATCHES = 5
"""How many messages match; they are the last ones."""
MAX_FIRST_MATCH = 5.0
"""How long it may take from SUBSCRIBE to the first match, in seconds."""
MAX_LATENCY_MS = 250.0
"""How long another queue's messages may take meanwhile, 99 of 100 of them, in milliseconds."""
MAX_RSS_ANON = 120_000_000
"""How much memory the broker's process may take, in bytes."""

_WANTED, _OTHER = "red", "blue"
_PREFETCH = 1000
_PROBE = Load(1, receipts=False, queue="perf.probe")
_PROBE_INTERVAL = 0.01
_SILENCE = 10.0
_LOOK_INTERVAL = 0.1


@dataclass
class Selector:
    """One run.

    Args:
        broker: a running broker of its own.
        load: how many messages, of what size.
        live: shows how far it is.
    """

    broker: OwnBroker
    load: Load
    live: LiveFigures

    def run(self) -> list[Finding]:
        """Fill the queue, kill the broker, start it again, look for the matches, take the others.

        Raises:
            QuireError: the broker failed.
        """
        self._watch = MemoryWatch(self.broker)
        self._mistaken = 0
        others, wanted = self._fill(_OTHER, self.load.messages - MATCHES), self._fill(_WANTED, MATCHES)
        start = self.broker.restart()
        target, queue = self.broker.target, self.load.queue
        with closing(NumberedConsumer(target, queue, _PREFETCH, f"color = '{_WANTED}'")) as chooser:
            first, latencies = self._first_match(chooser, wanted)
            self._take(chooser, wanted, _WANTED)
            # The one that chooses stays: what it does not want must reach the other one all the same.
            with closing(NumberedConsumer(target, queue, _PREFETCH)) as taker:
                rate = self._take(taker, others, _OTHER)
                taker.disconnect()
            chooser.disconnect()
        left = self.broker.api.call("GET", queue_path(queue))["depth"]
        return [
            Finding("messages", self.load.messages),
            Finding("accepts_after_seconds", round(start, 3)),
            at_most("first_match_after_seconds", round(first, 3), MAX_FIRST_MATCH),
            Finding("other_queue_messages", len(latencies)),
            at_most("other_queue_p99_ms", percentiles(latencies)["p99"], MAX_LATENCY_MS),
            at_most("lost", others.missing + wanted.missing, 0),
            at_most("twice", sum(log.duplicates + log.unflagged_duplicates for log in (others, wanted)), 0),
            at_most("out_of_order", others.out_of_order + wanted.out_of_order, 0),
            at_most("to_the_wrong_consumer", self._mistaken, 0),
            at_most("left_in_the_queue", left, 0),
            Finding("others_taken_per_s", round(rate)),
            at_most("peak_rss_anon_bytes", self._watch.peak, MAX_RSS_ANON),
        ]

    def _fill(self, color: str, messages: int) -> DeliveryLog:
        """Send messages of a color, numbered from 0.

        Returns:
            What is to see their deliveries.
        """

        def tick(counts: Counts) -> None:
            self._show(f"filling, {color}: {counts.sent}", counts.sent / messages)

        load = replace(self.load, messages=messages, consumers=0, numbered=True, headers=f"color:{color}\n")
        send(self.broker.target, load, tick)
        return DeliveryLog(messages)

    def _first_match(self, chooser: NumberedConsumer, log: DeliveryLog) -> tuple[float, list[float]]:
        """Wait for the first match, and send messages through another queue meanwhile, one at a time.

        Returns:
            After how many seconds the match came, and how many those messages took.
        """
        clock = SystemClock()
        began, latencies = clock.monotonic(), []
        probe = b"".join(_PROBE.frames(0, 1, 1, 0))
        with closing(Link(self.broker.target)) as link:
            link.send(f"SUBSCRIBE\nid:1\ndestination:/queue/{_PROBE.queue}\nack:auto\n\n\0".encode())
            while not log.received:
                sent = clock.monotonic()
                link.send(probe)
                link.receive_until(b"MESSAGE\n")
                latencies.append(clock.monotonic() - sent)
                self._delivered(chooser, chooser.receive(_PROBE_INTERVAL), log, _WANTED)
                elapsed = clock.monotonic() - began
                self._show(f"looking for the first match: {elapsed:.1f} s", elapsed / MAX_FIRST_MATCH)
                if elapsed > START_LIMIT:
                    raise BrokerUnreachable(f"no match came within {START_LIMIT:g} s")
        return elapsed, latencies

    def _take(self, consumer: NumberedConsumer, log: DeliveryLog, color: str) -> float:
        """Take messages of a color until all are there, or nothing comes any more.

        Returns:
            How many per second.
        """
        clock = SystemClock()
        began = last = clock.monotonic()
        while log.missing and clock.monotonic() - last < _SILENCE:
            if deliveries := consumer.receive(_LOOK_INTERVAL):
                self._delivered(consumer, deliveries, log, color)
                last = clock.monotonic()
            self._show(f"taking, {color}: {log.received}", log.received / (log.received + log.missing))
        return log.received / (clock.monotonic() - began)

    def _delivered(self, consumer: NumberedConsumer, deliveries: list[Delivery], log: DeliveryLog, color: str) -> None:
        """Note what came, and acknowledge it."""
        line = f"color:{color}\n".encode()
        for delivery in deliveries:
            if line in delivery.head:
                log.delivered(delivery.number, delivery.redelivered)
            else:
                self._mistaken += 1
        consumer.acknowledge(deliveries)

    def _show(self, text: str, share: float) -> None:
        self._watch.look()
        self.live.show(f"{text}, memory {format_size(self._watch.peak)}", min(share, 1.0))
