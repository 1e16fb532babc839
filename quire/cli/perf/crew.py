"""The processes of one measurement: started together, watched, and ended whatever happens."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.context import ForkProcess
from types import TracebackType
from typing import NamedTuple, Self

from quire.cli.perf.link import ANSWER_LIMIT
from quire.cli.perf.load import Load, Target
from quire.cli.perf.workers import Slot, consume, produce
from quire.client.remote_error import remote_error
from quire.clock import SystemClock
from quire.errors import BrokerUnreachable, QuireError

LOOK_INTERVAL = 0.02
"""How often the workers are looked at, in seconds."""


class Counts(NamedTuple):
    """How far a load is, in messages: ``sent``, confirmed (``receipts``) and ``received``."""

    sent: int
    receipts: int
    received: int


Tick = Callable[[Counts], None]
"""Called often while a load is under way."""


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
        """Start the consumers, and wait until they are subscribed."""
        slots = [*self.producers, *self.consumers]
        for slot in self.consumers:
            self._start(partial(consume, self._target, self._load, slots, slot))
        self._wait(lambda: all(slot.ready for slot in self.consumers))

    def start_producers(self) -> None:
        """Start the producers, wait until they are connected, and let them begin."""
        for slot, share in zip(self.producers, self._load.shares(), strict=True):
            self._start(partial(produce, self._target, self._load, share, slot, self._begin))
        self._wait(lambda: all(slot.ready for slot in self.producers))
        self._begin.set()

    def finish(self) -> None:
        """Wait until all that were started are done, or what stopped one of them is raised."""
        self._wait(lambda: not self.is_working)

    @property
    def is_working(self) -> bool:
        """Whether a worker that was started is not done."""
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
