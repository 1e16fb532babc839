"""The processes of a stream's load, and how fast they went."""

from functools import partial

from quire.cli.perf.crew import Crew, Tick
from quire.cli.perf.load import Target
from quire.cli.perf.measure import Figures, percentiles
from quire.cli.perf.stream_load import StreamLoad
from quire.cli.perf.stream_workers import append, take_part


class StreamCrew(Crew):
    """The workers of one load of a stream. As a context manager it ends them.

    Args:
        target: the broker.
        load: what to send and take.
        tick: is told how far they are.
    """

    def __init__(self, target: Target, load: StreamLoad, tick: Tick) -> None:
        super().__init__(target, load, tick)
        self._stream_load = load

    def start_consumers(self) -> None:
        """Start the members of the group, and wait until they have subscribed."""
        slots = [*self.producers, *self.consumers]
        for slot in self.consumers:
            self._start(partial(take_part, self._target, self._stream_load, slots, slot))
        self._wait(lambda: all(slot.ready for slot in self.consumers))

    def start_producers(self) -> None:
        """Start the producers, wait until they are connected, and let them begin."""
        for slot, share in zip(self.producers, self._load.shares(), strict=True):
            self._start(partial(append, self._target, self._stream_load, share, slot, self._begin))
        self._wait(lambda: all(slot.ready for slot in self.producers))
        self._begin.set()

    def figures(self) -> Figures:
        """How fast it went, from the first SEND on; to be asked when all are done."""
        began = min(slot.started for slot in self.producers)
        sending = max(slot.ended for slot in self.producers) - began
        taking = max(slot.ended for slot in self.consumers) - began
        elapsed, counts = max(sending, taking), self.counts()
        return Figures(
            counts.received,
            counts.receipts,
            elapsed,
            self._load.messages / elapsed,
            counts.sent / sending,
            counts.received / taking,
            percentiles(self.latencies),
        )


def measure_stream(target: Target, load: StreamLoad, tick: Tick) -> Figures:
    """Send messages to a stream while a group takes them.

    Args:
        target: the broker.
        load: what to send and take.
        tick: is told how far it is.

    Returns:
        What ``measure`` returns; ``receipts`` are those of batches.

    Raises:
        BrokerUnreachable: nobody answers, or no more.
        QuireError: what the broker refused.
    """
    with StreamCrew(target, load, tick) as crew:
        crew.start_consumers()
        crew.start_producers()
        crew.finish()
        return crew.figures()
