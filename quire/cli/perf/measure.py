"""Runs a load in processes that end whatever happens, says how fast it went, and shows it while it runs."""

import multiprocessing
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from math import ceil
from multiprocessing.context import ForkProcess
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from quire.cli.output import Output, on_terminal
from quire.cli.perf.load import ANSWER_LIMIT, Link, Load, Slot, Target, consume, produce
from quire.client.remote import remote_error
from quire.clock import Clock, SystemClock
from quire.errors import BrokerUnreachable, QuireError

if TYPE_CHECKING:
    from rich.progress import Progress


LOOK_INTERVAL = 0.02  # how often the workers are looked at, in seconds


class Counts(NamedTuple):
    sent: int
    receipts: int
    received: int


Tick = Callable[[Counts], None]  # called often while a load is under way


class Crew:
    """The workers of one load. As a context manager it ends them; ``tick`` is told how far they are."""

    def __init__(self, target: Target, load: Load, tick: Tick) -> None:
        # Forked: a process that starts afresh would spend a tenth of a second of the broker's machine on imports.
        self._context = multiprocessing.get_context("fork")
        slots = self._context.RawArray(Slot, load.producers + load.consumers)
        self.producers: Sequence[Slot] = slots[: load.producers]
        self.consumers: Sequence[Slot] = slots[load.producers :]
        self.latencies: list[float] = []
        self._target, self._load, self._tick = target, load, tick
        self._begin = self._context.Event()
        self._results = self._context.SimpleQueue()
        self._processes: list[ForkProcess] = []

    def start_consumers(self) -> None:
        slots = [*self.producers, *self.consumers]
        for slot in self.consumers:
            self._start(partial(consume, self._target, self._load, slots, slot))
        self._wait(lambda: all(slot.ready for slot in self.consumers))

    def start_producers(self) -> None:
        for slot, share in zip(self.producers, self._load.shares(), strict=True):
            self._start(partial(produce, self._target, self._load, share, slot, self._begin))
        self._wait(lambda: all(slot.ready for slot in self.producers))
        self._begin.set()

    def finish(self) -> None:
        """Wait until all that were started are done, or what stopped one of them is raised."""
        self._wait(lambda: not self.is_working)

    @property
    def is_working(self) -> bool:
        return any(process.is_alive() for process in self._processes)

    def counts(self) -> Counts:
        return Counts(
            sum(slot.sent for slot in self.producers),
            sum(slot.receipts for slot in self.producers),
            sum(slot.received for slot in self.consumers),
        )

    def look(self) -> None:
        """Take what workers have reported; what stopped one of them is raised."""
        while not self._results.empty():
            code, result = self._results.get()
            if code:
                raise remote_error(code, result, {})
            self.latencies += result
        for process in self._processes:
            if process.exitcode:
                raise QuireError(f"a load process ended with exit code {process.exitcode}", exitcode=process.exitcode)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
            process.join()
        self._results.close()

    def _start(self, work: Callable[[], list[float]]) -> None:
        process = self._context.Process(target=self._report, args=(work,), daemon=True)
        self._processes.append(process)
        process.start()

    def _report(self, work: Callable[[], list[float]]) -> None:
        """In the worker: do its work, and say what came of it. Ctrl-C is for the parent, which then ends the crew."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._results.put(("", work()))
        except QuireError as error:
            self._results.put((error.code, str(error)))

    def _wait(self, is_over: Callable[[], bool]) -> None:
        counts, deadline = self.counts(), SystemClock().monotonic() + ANSWER_LIMIT
        while not is_over():
            time.sleep(LOOK_INTERVAL)
            self.look()
            self._tick(self.counts())
            if counts != self.counts():
                counts, deadline = self.counts(), SystemClock().monotonic() + ANSWER_LIMIT
            if SystemClock().monotonic() > deadline:
                raise BrokerUnreachable(f"no message was sent or received for {ANSWER_LIMIT:g} s: {counts}")
        self.look()


_TICK_INTERVAL = 0.1


@dataclass(frozen=True, slots=True)
class Figures:
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
    return max(slot.ended for slot in enders) - min(slot.started for slot in starters)


def _measure_latency(target: Target, load: Load, tick: Tick) -> Figures:
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


LINE_INTERVAL = 1.0  # how far apart plain lines are, in seconds
_BAR_INTERVAL = 0.1


class LiveFigures:
    """Shows the progress of a measurement on standard error; prints no plain lines when ``output`` is for programs."""

    def __init__(self, output: Output, clock: Clock) -> None:
        self._output = output
        self._clock = clock
        self._bar = _bar() if on_terminal(sys.stderr) else None
        self._next = clock.monotonic()

    def show(self, text: str, share: float) -> None:
        """Show figures in one line, and which share is done; most calls come too soon and cost nothing."""
        now = self._clock.monotonic()
        if now < self._next:
            return
        self._next = now + (_BAR_INTERVAL if self._bar else LINE_INTERVAL)
        if self._bar:
            # Drawn here and now: a thread of its own could not be forked safely.
            self._bar.update(self._bar.task_ids[0], description=text, completed=share, refresh=True)
        else:
            self._output.note(f"{share:4.0%}  {text}")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()


def _bar() -> "Progress":
    # Rich takes a tenth of a second to import: only those who see its bar pay.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TaskProgressColumn(), BarColumn(), TextColumn("{task.description}", markup=False))
    bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
    bar.add_task("", total=1.0)
    return bar
