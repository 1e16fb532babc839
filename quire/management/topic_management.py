"""The operator's door to topics and durable subscriptions: look, create, delete, browse, purge."""

from collections.abc import Iterator

from quire.broker.topics.durable_subscription import DurableSubscription
from quire.broker.topics.topic import Topic
from quire.destination import DestinationKind
from quire.errors import DestinationExists, DestinationInUse, UnknownDestination
from quire.management.management import ALL, BrowsePage, Management
from quire.management.message_transfer import Choice, MessageTransfer
from quire.management.topic_status import DurableStatus, TopicStatus, TopicStatusReader
from quire.selectors import selector


class TopicManagement:
    """Looks at a broker's topics and durable subscriptions and changes them.

    Names of topics may raise ``UnknownDestination``, a client id with a name ``UnknownSubscription``.

    Args:
        management: the door to its queues.
    """

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self._management = management
        self._reader = TopicStatusReader(management.broker, management.reader)

    # Topics.

    def topics(self, after: str = "") -> Iterator[TopicStatus]:
        """All topics, by name; each is looked at when it is asked for.

        Args:
            after: only those behind this name.
        """
        destinations = self._broker.destinations
        for name in destinations.names(DestinationKind.TOPIC, after):
            if topic := destinations.topics.get(name):
                yield self._reader.topic(topic)

    def topic(self, name: str) -> TopicStatus:
        """One topic."""
        return self._reader.topic(self._broker.destinations.existing_topic(name))

    def create(self, name: str) -> TopicStatus:
        """Make a topic.

        Raises:
            DestinationExists: it is there.
            InvalidDestination: it cannot be a name.
        """
        if name in self._broker.destinations.topics:
            raise DestinationExists(f"there is a topic {name!r} already", name=name)
        return self._reader.topic(self._broker.topic(name))

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Delete a topic, with its durable subscriptions and their messages.

        Args:
            name: its name.
            force: disconnect its consumers first, and remove its durable subscriptions.

        Yields:
            How many stored messages it had.

        Raises:
            DestinationInUse: it has consumers or durable subscriptions.
        """
        topic = self._broker.destinations.existing_topic(name)
        consumers, durables = len(topic.subscriptions), len(topic.durables)
        if (consumers or durables) and not force:
            text = f"the topic {name!r} has consumers: {consumers}, durable subscriptions: {durables}"
            raise DestinationInUse(text, name=name, consumers=consumers, durables=durables)
        self._dismiss(topic, f"the topic {name!r} was deleted")
        stored = topic.depth
        self._broker.destinations.delete_topic(topic)
        yield stored

    def _dismiss(self, source: Topic | DurableSubscription, text: str) -> None:
        """Disconnect all consumers."""
        for session in list(dict.fromkeys([subscription.session for subscription in source.subscriptions])):
            session.fail(UnknownDestination(text, name=source.destination.name))
        for subscription in list(source.subscriptions):
            subscription.leave_now()

    # Durable subscriptions.

    def durables(self) -> Iterator[DurableStatus]:
        """All durable subscriptions, by client id and name; each is looked at when it is asked for."""
        return (self._reader.durable(durable) for durable in sorted(self._broker.durables, key=lambda d: d.key))

    def durable(self, client_id: str, name: str) -> DurableStatus:
        """One durable subscription."""
        return self._reader.durable(self._broker.durables.existing(client_id, name))

    def create_durable(
        self, client_id: str, name: str, topic: str, *, wanted: str | None = None, no_local: bool = False,
        retroactive: bool = False,
    ) -> DurableStatus:  # fmt: skip
        """Make a durable subscription, as its first consumer does.

        Args:
            client_id: whose it is.
            name: what the client calls it.
            topic: its topic; it is created if it is not there.
            wanted: a JMS selector; only messages that it matches.
            no_local: whether it does not want what its own connection sends.
            retroactive: whether it begins with what the topic keeps.

        Raises:
            DestinationExists: it is there.
            InvalidDestination: the topic cannot have such a name.
            InvalidSelector: the selector cannot be read.
        """
        if self._broker.durables.find(client_id, name) is not None:
            text = f"the client {client_id!r} has a durable subscription {name!r} already"
            raise DestinationExists(text, client=client_id, name=name)
        chooser = None if wanted is None else selector(wanted)
        durable = self._broker.durables.create(
            client_id, name, self._broker.topic(topic), selector=chooser, no_local=no_local, retroactive=retroactive
        )
        return self._reader.durable(durable)

    def delete_durable(self, client_id: str, name: str, *, force: bool = False) -> Iterator[int]:
        """Remove a durable subscription, with what waits for it.

        Args:
            client_id: whose it is.
            name: what the client calls it.
            force: disconnect its consumer first.

        Yields:
            How many messages waited.

        Raises:
            DestinationInUse: it has a consumer.
        """
        durable = self._broker.durables.existing(client_id, name)
        if force:
            self._dismiss(durable, f"the durable subscription {name!r} was removed")
        waiting = durable.depth
        self._broker.durables.remove(client_id, name)
        yield waiting

    def purge_durable(self, client_id: str, name: str, choice: Choice = ALL) -> MessageTransfer:
        """Finish messages of a durable subscription that are not in flight, in steps."""
        return MessageTransfer(self._broker, self._broker.durables.existing(client_id, name), choice)

    def browse_durable(
        self, client_id: str, name: str, after: str | None = None, limit: int = 100, wanted: str | None = None
    ) -> BrowsePage:
        """A page of what a durable subscription has not finished; as ``Management.browse`` for a queue."""
        return self._management.browse_source(self._broker.durables.existing(client_id, name), after, limit, wanted)
