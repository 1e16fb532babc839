"""Virtual topics: what is sent to one goes to its subscribers, and to every queue that is named after it.

``VirtualTopic.Orders`` feeds the queues ``Consumer.NAME.VirtualTopic.Orders``. Each queue keeps a copy of its own for
the consumers that share it. A queue is fed from the moment it is there; subscribing to it makes it. (ActiveMQ's
``VirtualTopic`` interceptor.)
"""

from collections.abc import Callable, Iterator, Sequence

from quire.broker.core.services import Target
from quire.broker.dead_letter import ORIGIN
from quire.broker.destinations import Destinations
from quire.broker.routing.composite import FanOut
from quire.broker.routing.virtual_names import VirtualNames
from quire.destination import Destination, DestinationKind
from quire.message import with_headers
from quire.settings.keys import VirtualSettings


class VirtualTopics:
    """Which topics are virtual, and which queues they feed (section ``virtual`` of the settings)."""

    def __init__(self, settings: VirtualSettings, destinations: Destinations) -> None:
        self._destinations = destinations
        self._names = VirtualNames(settings)
        self._queues: dict[str, dict[str, None]] | None = None

    def is_virtual(self, topic: str) -> bool:
        """Whether a topic is virtual."""
        return self._names.is_virtual(topic)

    def queues(self, topic: str) -> list[Destination]:
        """The queues that a virtual topic feeds now, in the order they were made."""
        if self._queues is None:
            self._queues = {}
            for name in self._destinations.queues:
                self._note(Destination(DestinationKind.QUEUE, name))
            self._destinations.watch(self, self._note)
        known = self._queues.get(topic, {})
        for name in [name for name in known if name not in self._destinations.queues]:
            del known[name]
        return [Destination(DestinationKind.QUEUE, name) for name in known]

    def _note(self, destination: Destination) -> None:
        """A destination is there: if it is a queue named after a topic, remember it."""
        if self._queues is None or destination.kind is not DestinationKind.QUEUE:
            return
        if (topic := self._names.topic_of(destination.name)) is not None:
            self._queues.setdefault(topic, {})[destination.name] = None


class VirtualTopicTarget(FanOut):
    """A virtual topic that messages are sent to."""

    def __init__(
        self, destinations: Destinations, topics: VirtualTopics, name: str, own: "Target",
        target_of: "Callable[[Destination], Target]",
    ) -> None:  # fmt: skip
        self._destinations = destinations
        self._topics = topics
        self._name = name
        self._own = own
        self._target_of = target_of
        self._origin = {ORIGIN: f"/topic/{name}"}
        self._queues: list[Target] = []
        self._grouped = False
        self._version = -1

    def targets(self) -> "Sequence[Target]":
        """The topic, and the queues there are now."""
        if self._version != self._destinations.version:
            self._queues = [self._target_of(queue) for queue in self._topics.queues(self._name)]
            self._version = self._destinations.version
            if self._grouped:
                for queue in self._queues:
                    queue.expect_groups()
        return [self._own, *self._queues]

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here; queues that come later are told too."""
        self._grouped = True
        super().expect_groups()

    def copies(
        self, content: bytes, expiration: int, priority: int, persistent: bool
    ) -> "Iterator[tuple[Target, bytes]]":
        """The message goes to the topic, and a copy that says so to each queue."""
        own, *queues = self.targets()
        yield own, content
        if queues:
            copy = with_headers(content, self._origin)
            for queue in queues:
                yield queue, copy
