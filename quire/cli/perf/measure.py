"""Runs a load and says how fast it went."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any

from quire.cli.perf.crew import Counts, Crew, Tick
from quire.cli.perf.link import Link
from quire.cli.perf.load import Load, Target
from quire.cli.perf.workers import Slot
from quire.clock import SystemClock

_TICK_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class Figures:
    """The result of a load."""

    messages: int  # received
    receipts: int
    elapsed_seconds: float  # from the first SEND to the last acknowledgement and receipt; a backlog's without its pause
    messages_per_s: float
    sent_per_s: float  # until the last receipt
    received_per_s: float  # until the last acknowledgement
    latency_ms: dict[str, float] = field(default_factory=dict)  # ``p50``, ``p95``, ``p99``, ``max``; empty in a backlog

    def record(self) -> dict[str, Any]:
        """All of it, as it is printed: rates without fractions, no latencies where there are none."""
        rates = {name: round(getattr(self, name)) for name in ("messages_per_s", "sent_per_s", "received_per_s")}
        record = asdict(self) | {"elapsed_seconds": round(self.elapsed_seconds, 3)} | rates
        return {name: value for name, value in record.items() if value != {}}


def measure(target: Target, load: Load, tick: Tick) -> Figures:
    """Run a load; ``tick`` is told how far it is."""
    if load.latency:
        return _measure_latency(target, load, tick)
    with Crew(target, load, tick) as crew:
        if load.backlog:
            crew.start_producers()
            crew.finish()
            crew.start_consumers()
        else:
            crew.start_consumers()
            crew.start_producers()
        crew.finish()
        return figures(crew, load)


def figures(crew: Crew, load: Load) -> Figures:
    """How fast a load went; to be asked when all workers are done."""
    counts, sending = crew.counts(), span(crew.producers, crew.producers)
    taking = span(crew.consumers if load.backlog else crew.producers, crew.consumers)
    elapsed = sending + taking if load.backlog else max(sending, taking)
    rates = (load.messages / elapsed, counts.sent / sending, counts.received / taking)
    return Figures(counts.received, counts.receipts, elapsed, *rates, percentiles(crew.latencies))


def percentiles(seconds: list[float]) -> dict[str, float]:
    """What shares of some times stayed below, in milliseconds; nothing if there are none."""
    if not seconds:
        return {}
    ordered = sorted(seconds)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: round(ordered[ceil(share * len(ordered)) - 1] * 1000, 3) for name, share in shares.items()}


def span(starters: Sequence[Slot], enders: Sequence[Slot]) -> float:
    """From when the first of some workers began until the last of some ended, in seconds."""
    return max(slot.ended for slot in enders) - min(slot.started for slot in starters)


def _measure_latency(target: Target, load: Load, tick: Tick) -> Figures:
    """One message in flight: this process sends it and waits for it."""
    clock = SystemClock()
    times: list[float] = []
    with closing(Link(target)) as link:
        link.send(f"SUBSCRIBE\nid:1\ndestination:{load.destination}\nack:auto\nreceipt:1\n\n\0".encode())
        link.receive_until(b"RECEIPT\n")
        began = shown = clock.monotonic()
        for number in range(load.messages):
            frame = b"".join(load.frames(number, 1, load.messages, 0))
            sent = clock.monotonic()
            link.send(frame)
            link.receive_until(b"MESSAGE\n")
            now = clock.monotonic()
            times.append(now - sent)
            if now - shown > _TICK_INTERVAL:
                shown = now
                tick(Counts(number + 1, 0, number + 1))
        elapsed = clock.monotonic() - began
    rate = load.messages / elapsed
    return Figures(load.messages, 0, elapsed, rate, rate, rate, percentiles(times))
