"""The scenario of the selector: the few messages that one consumer wants are behind a million for another."""

from contextlib import closing
from dataclasses import dataclass, replace

from benchmarks.load import NumberedLoad, send
from benchmarks.rig import START_LIMIT
from benchmarks.scenarios.delivery_log import DeliveryLog
from benchmarks.scenarios.findings import Finding, at_most
from benchmarks.scenarios.scenario import SILENCE, Scenario
from benchmarks.stomp_client import Consumer, Message
from quire.cli.perf.load import Link, Load
from quire.cli.perf.measure import percentiles
from quire.errors import BrokerUnreachable

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
        """Fill the queue, kill the broker, start it again, look for the matches, take the others."""
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
        """Take messages of a color until all are there, or nothing comes any more; how many per second."""
        began = last = self.clock.monotonic()
        while log.missing and self.clock.monotonic() - last < SILENCE:
            if messages := consumer.receive(_LOOK_INTERVAL):
                self._delivered(consumer, messages, log, color)
                last = self.clock.monotonic()
            self.show(f"taking, {color}: {log.received}", log.received / log.messages)
        return log.received / (self.clock.monotonic() - began)

    def _delivered(self, consumer: Consumer, messages: list[Message], log: DeliveryLog, color: str) -> None:
        """Note what came, and acknowledge it."""
        for message in messages:
            if message.header("color") == color:
                log.delivered(message.number, message.is_redelivered)
            else:
                self._mistaken += 1
        consumer.acknowledge(messages)
