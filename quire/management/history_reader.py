"""The history of the broker, or of one destination, durable subscription or consumer group."""

from typing import TYPE_CHECKING, Annotated

import msgspec

from quire.errors import InvalidArgument
from quire.management.described import Status, doc
from quire.management.sampling.history import SPANS
from quire.management.sampling.objects import existing

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.management.sampling.sampler import Sampler

Values = list[float | None]


class HistoryPoints(Status, frozen=True):
    """The last minutes or hours of an object: arrays of the same length. Null stands for what is not known."""

    of: Annotated[str, doc("broker, queue, topic, stream, durable or group.")]
    name: Annotated[str, doc("The name; empty for the broker.")]
    span: Annotated[str, doc("How far back: 5m, 1h or 24h.")]
    step_seconds: Annotated[int, doc("The time between two points, at the least.")]
    at: Annotated[list[int], doc("The times of the points, in milliseconds since the epoch, oldest first.")]
    entered: Annotated[Values, doc("Messages that came, per second, up to each point.")] = msgspec.field(name="in")
    left: Annotated[Values, doc("Messages that left, per second.")] = msgspec.field(name="out")
    depth: Annotated[Values, doc("Messages at that time; of a group its lag.")]
    oldest: Annotated[Values, doc("The age of the first message in seconds.")]


class HistoryReader:
    """Tells histories."""

    def __init__(self, broker: "Broker", sampler: "Sampler") -> None:
        self._broker = broker
        self._sampler = sampler

    def read(self, of: str, name: str, span: str) -> HistoryPoints:
        """The history of an object; without traffic it has none yet. An unknown object is an error."""
        index = next((index for index, known in enumerate(SPANS) if known.name == span), None)
        if index is None:
            raise InvalidArgument(f"span is {span[:20]!r}: write 5m, 1h or 24h", argument="span")
        history = self._sampler.history
        if of != "broker":
            known = self._sampler.of(existing(self._broker, of, name))
            if known is None or known.history is None:
                return HistoryPoints(of, name, span, SPANS[index].step, [], [], [], [], [])
            history = known.history
        wall = self._broker.core.wall
        slots = list(self._sampler.timelines[index].slots(wall.steady_ms()))
        points = [history.point(index, slot) for slot, _ in slots]
        times = [wall.shown_ms(at) for _, at in slots]
        return HistoryPoints(
            of, name, span, SPANS[index].step, times, [point.entered for point in points],
            [point.left for point in points], [point.depth for point in points], [point.oldest for point in points],
        )  # fmt: skip
