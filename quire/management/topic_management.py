"""The operator's door to topics and durable subscriptions: look, create, delete, browse, purge."""

from collections.abc import Iterator

from quire.broker.routing.temporary import check_client_id
from quire.broker.topics.durable import DurableSubscription
from quire.destination import DestinationKind
from quire.errors import DestinationExists
from quire.management.deletion import delete_topic, dismiss_consumers
from quire.management.management import Management, listed
from quire.management.message_transfer import ALL, Choice, MessageTransfer
from quire.management.topic_status import DurableStatus, TopicStatus, TopicStatusReader
from quire.selectors import selector


class TopicManagement:
    """Shows and changes a broker's topics and durable subscriptions; an unknown name is an error."""

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self.reader = TopicStatusReader(management.broker, management.sampler)

    # Topics.

    def topics(self, after: str = "") -> Iterator[TopicStatus]:
        """The topics behind a name, by name; each is looked at when it is asked for."""
        known = self._broker.destinations.topics
        return listed(self._broker, DestinationKind.TOPIC, known, after, self.reader.topic)

    def topic(self, name: str) -> TopicStatus:
        return self.reader.topic(self._broker.destinations.existing_topic(name))

    def create(self, name: str) -> TopicStatus:
        if name in self._broker.destinations.topics:
            raise DestinationExists(f"the topic {name!r} already exists", name=name)
        return self.reader.topic(self._broker.topic(name))

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Delete a topic, with its durable subscriptions and their messages; tells how many were stored."""
        return delete_topic(self._broker, name, force=force)

    # Durable subscriptions.

    def durables(self) -> Iterator[DurableStatus]:
        """All durable subscriptions, by client id and name; each is looked at when it is asked for."""
        return (self.reader.durable(durable) for durable in sorted(self._broker.durables, key=lambda d: d.key))

    def durable(self, client_id: str, name: str) -> DurableStatus:
        return self.reader.durable(self._broker.durables.existing(client_id, name))

    def create_durable(
        self, client_id: str, name: str, topic: str, *, wanted: str | None = None, no_local: bool = False,
        retroactive: bool = False,
    ) -> DurableStatus:  # fmt: skip
        """Make a durable subscription, as its first consumer does."""
        check_client_id(client_id)
        if self._broker.durables.find(client_id, name) is not None:
            text = f"the client {client_id!r} already has a durable subscription {name!r}"
            raise DestinationExists(text, client=client_id, name=name)
        chooser = None if wanted is None else selector(wanted)
        durable = self._broker.durables.create(
            client_id, name, self._broker.topic(topic), selector=chooser, no_local=no_local, retroactive=retroactive
        )
        return self.reader.durable(durable)

    def delete_durable(self, client_id: str, name: str, *, force: bool = False) -> Iterator[int]:
        """Remove a durable subscription, with what waits for it; tells how many messages that was."""
        durable = self._broker.durables.existing(client_id, name)
        if force:
            dismiss_consumers(durable, f"the durable subscription {name!r} was removed")
        waiting = durable.depth
        self._broker.durables.remove(client_id, name)
        yield waiting

    def purge_durable(
        self, client_id: str, name: str, choice: Choice = ALL, *, counts: bool = False
    ) -> MessageTransfer:
        """Finish messages of a durable subscription that are not in flight, in steps; or only count them."""
        return MessageTransfer(self._broker, self._broker.durables.existing(client_id, name), choice, counts=counts)

    def existing_durable(self, client_id: str, name: str) -> DurableSubscription:
        """The durable subscription of a client id and a name."""
        return self._broker.durables.existing(client_id, name)
