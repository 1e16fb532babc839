"""Looks at all destinations, durable subscriptions and groups every few seconds, in steps."""

from typing import TYPE_CHECKING, Any

from quire.management.sampling.first_messages import FirstMessages
from quire.management.sampling.history import SPANS, History, Timeline
from quire.management.sampling.sample_pass import Sample, SamplePass
from quire.management.sampling.sampled import Sampled

if TYPE_CHECKING:
    from quire.broker.broker import Broker

INTERVAL = 2.0
"""How many seconds are between two passes, at the least."""

SHARE = 100
"""The pause after a pass is at least so many times what the pass took: it never takes more than a hundredth."""


class Sampler:
    """One sampler for all who look. It samples from ``start`` on.

    Attributes:
        latest: what the last whole pass found.
        timelines: the times of the points of all histories, by span.
        history: the last minutes and hours of the whole broker.
        first_messages: knows when first messages were sent.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._clock = broker.core.clock
        self._sampled: dict[Any, Sampled] = {}
        self._waiting: dict[Any, str] = {}
        self._entered = self._left = 0
        self._busy = 0.0
        self.first_messages = FirstMessages(broker)
        self.timelines = [Timeline(span) for span in SPANS]
        self.latest = Sample()
        self.history = History(self._clock.monotonic(), 0, 0)

    def start(self) -> None:
        """Sample from now on."""
        self._begin()

    def of(self, source: Any) -> Sampled | None:
        """What is known of an object; None if it has not been looked at yet."""
        return self._sampled.get(source)

    def rates(self, source: Any) -> tuple[float, float]:
        """How many messages come to an object and leave it, per second."""
        known = self._sampled.get(source)
        return (0.0, 0.0) if known is None else (round(known.in_rate, 3), round(known.out_rate, 3))

    def age(self, source: Any) -> float:
        """The age of an object's first message when it was last looked at, in seconds; -1 if unknown."""
        known = self._sampled.get(source)
        if known is None or known.first_at is None:
            return -1.0
        return max(self._clock.now_ms() - known.first_at, 0) / 1000

    def sample(self) -> None:
        """Make one whole pass now."""
        work = self._new_pass()
        while work.step():
            pass
        self._take(work)

    def _begin(self) -> None:
        work, self._busy = self._new_pass(), 0.0

        def step() -> bool:
            began = self._clock.monotonic()
            has_more = work.step()
            if not has_more:
                self._take(work)
            self._busy += self._clock.monotonic() - began
            if not has_more:
                self._broker.core.scheduler.call_later(max(INTERVAL, self._busy * SHARE), self._begin)
            return has_more

        self._broker.core.steps.add(step, "the sample of all destinations", stores=False)

    def _new_pass(self) -> SamplePass:
        return SamplePass(self._broker, self._sampled, self.latest, self.timelines, self.first_messages, self._waiting)

    def _take(self, work: SamplePass) -> None:
        """A pass is done: note what it found of the whole broker."""
        sample, last = work.sample, self.latest
        self._sampled = work.sampled
        self._entered += sample.entered
        self._left += sample.left
        elapsed = sample.at - last.at
        if last.at_ms and elapsed > 0:
            sample.in_rate, sample.out_rate = sample.entered / elapsed, sample.left / elapsed
        age = None if sample.oldest is None else max(sample.at_ms - sample.oldest[0], 0) / 1000
        for index in work.due:
            line = self.timelines[index]
            self.history.note(index, line.next_slot, sample.at, self._entered, self._left, sample.depth, age)
            line.advance(sample.steady_ms)
        self.latest = sample
