"""What a new consumer of advisories is told of what is there already, as ActiveMQ does.

A client of ActiveMQ must know every temporary destination: one that it does not know counts as deleted.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice

from quire.broker.advisories import PREFIX
from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.topics.topic_subscription import TopicSubscription
from quire.destination import Destination, DestinationKind

STEP = 100
"""How many advisories a consumer is told at once."""

_TEMPORARY = {"TempQueue": DestinationKind.QUEUE, "TempTopic": DestinationKind.TOPIC}
_KINDS = {"Queue": DestinationKind.QUEUE, "Topic": DestinationKind.TOPIC}

_WITH_PRODUCERS = {**_KINDS, "Stream": DestinationKind.STREAM}


class AdvisoryReplay:
    """Tells consumers of advisories what is there."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def begin(self, subscription: Subscription) -> None:
        """A consumer of a topic has come."""
        source, topic = subscription.source, subscription.source.destination
        if isinstance(source, TopicSubscription) and topic.name.startswith(PREFIX):
            contents = self._contents(topic.name.removeprefix(PREFIX))
            if self._step(source, contents):
                step = partial(self._step, source, contents)
                self._broker.core.steps.add(step, "what a consumer of advisories is told at first", stores=False)

    def _step(self, source: TopicSubscription, contents: Iterator[bytes]) -> bool:
        """Tell the next ones; whether there are more."""
        some = list(islice(contents, STEP))
        if some and source.subscriptions:
            self._broker.advisories.replay(source, some)
        return len(some) == STEP and bool(source.subscriptions)

    def _contents(self, name: str) -> Iterator[bytes]:
        broker, advisories = self._broker, self._broker.advisories
        event, _, rest = name.partition(".")
        if event in _TEMPORARY:
            for destination in broker.routing.temporaries.all(_TEMPORARY[event]):
                yield advisories.destination_content("created", destination)
        elif event in _KINDS:
            for found in list(broker.destinations.names(_KINDS[event])):
                yield advisories.destination_content("created", Destination(_KINDS[event], found))
        elif event == "Connection":
            yield from advisories.connections()
        elif event == "Producer":
            kind, _, found = rest.partition(".")
            if kind in _WITH_PRODUCERS:
                yield from advisories.producers(Destination(_WITH_PRODUCERS[kind], found))
        elif event == "Consumer":
            kind, _, found = rest.partition(".")
            queue, topic = broker.destinations.queues.get(found), broker.destinations.topics.get(found)
            source = queue if kind == "Queue" else topic
            consumers = [] if source is None else list(source.subscriptions)
            for consumer in consumers:
                yield advisories.consumer_content("started", consumer, len(consumers))
