"""A subscription as its client sees it: what it may get, and in which order."""

from typing import Literal

from quire.testing.stepped import Frame
from tests.simulation.cluster.promises import ClusterSent, Delivery
from tests.simulation.cluster.setup import ALL_QUEUES
from tests.simulation.rules import Broken, Rule

AckMode = Literal["client", "client-individual"]


MOST = 2.9
"""So many times its prefetch a consumer of several shards may have: what one of them leaves another may give."""


class InFlight:
    """A message that a consumer was given and has not settled."""

    def __init__(self, frame: Frame, delivery: Delivery) -> None:
        self.frame = frame
        self.delivery = delivery


class ClusterSubscribed:
    """A subscription.

    Args:
        shards: how many shards there are.
    """

    def __init__(self, queue: str, ack: AckMode, prefetch: int, shards: int) -> None:
        self.queue = queue
        self.ack = ack
        self.prefetch = int(MOST * max(prefetch, shards)) if queue == ALL_QUEUES else prefetch
        self.in_flight: dict[ClusterSent, InFlight] = {}
        self.held: dict[ClusterSent, None] = {}
        self._headers = {"activemq.prefetchSize": str(prefetch)}
        self._newest: dict[tuple[str, str], ClusterSent] = {}

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its SUBSCRIBE frame."""
        return self._headers

    @property
    def free(self) -> list[ClusterSent]:
        """What is in flight and not settled in the open transaction."""
        return [sent for sent in self.in_flight if sent not in self.held]

    def covered(self, pick: int) -> list[ClusterSent]:
        """What an acknowledgement of one of the free messages is about: in ``client`` mode all up to it."""
        free = self.free
        index = pick % len(free)
        return free[: index + 1] if self.ack == "client" else [free[index]]

    def got(self, sent: ClusterSent, frame: Frame, delivery: Delivery) -> None:
        """A message came."""
        if self.queue not in (ALL_QUEUES, sent.queue):
            raise Broken(Rule.ROUTE, f"{sent} came to a consumer of {self.queue}, it was sent to {sent.queue}")
        if frame.headers.get("redelivered") != "true":
            self._check_order(sent)
        self.in_flight.pop(sent, None)  # it was rejected, say, and came again
        self.in_flight[sent] = InFlight(frame, delivery)

    def _check_order(self, sent: ClusterSent) -> None:
        """What comes for the first time is in the order in which one producer has sent it to one queue."""
        key = (sent.producer, sent.queue)
        newest = self._newest.setdefault(key, sent)
        if newest.number > sent.number:
            raise Broken(Rule.ORDER, f"{sent} came after {newest}")
        self._newest[key] = sent

    def check_credit(self) -> None:
        """Is there no more in flight than may be?"""
        if len(self.in_flight) - len(self.held) > self.prefetch:
            raise Broken(Rule.CREDIT, f"{len(self.free)} messages of {self.queue} are in flight to one consumer")
