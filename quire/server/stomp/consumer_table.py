"""What all consumers of a connection have in common: their numbers, and what is known of messages given to them."""

from quire.broker.broker import Broker
from quire.broker.core.subscription import Subscription
from quire.broker.streams.groups.member import GroupMember
from quire.broker.transactions.transaction import RolledBack
from quire.errors import LimitExceeded
from quire.message import Message
from quire.protocols.stomp.versions import Version
from quire.server.stomp.client_session import ClientSession
from quire.server.stomp.message_ids import MessageIds
from quire.server.stomp.stomp_consumer import StompConsumer

MAX_CONSUMERS = 10_000
"""How many destinations all subscriptions of a connection may consume, those that wildcards match included."""


class ConsumerTable:
    """The consumers of a session."""

    def __init__(self, broker: Broker, session: ClientSession) -> None:
        self.broker = broker
        self.session = session
        self.subscriptions: dict[int, Subscription] = {}  # by number; a consumer has one for each destination
        self.consumers: dict[int, StompConsumer] = {}  # by the numbers of their subscriptions
        self.members: dict[str, GroupMember] = {}  # and readers, by the ids of their subscriptions
        self.rolled_back = RolledBack()
        self.message_ids = MessageIds(self.subscriptions)
        self._next_number = 0

    def check_room(self, more: int) -> None:
        """Raises LimitExceeded if the connection may not consume so many more destinations."""
        if len(self.subscriptions) + more > MAX_CONSUMERS:
            what = "those that wildcards match and the partitions of streams included"
            raise LimitExceeded(f"a connection may consume {MAX_CONSUMERS} destinations, {what}", limit=MAX_CONSUMERS)

    def next_number(self) -> int:
        """A number for one more subscription of the core."""
        self._next_number += 1
        return self._next_number - 1

    def enter(self, subscription: Subscription, consumer: StompConsumer) -> None:
        """A consumer has one more subscription of the core."""
        self.subscriptions[subscription.number] = subscription
        self.consumers[subscription.number] = consumer

    def remove(self, subscription: Subscription) -> None:
        """A subscription of the core goes."""
        del self.subscriptions[subscription.number], self.consumers[subscription.number]

    def take(self, subscription: Subscription, sequences: list[int]) -> list[Message]:
        """Take settled messages out of what is in flight."""
        messages = subscription.take(sequences)
        if self.session.version is not Version.V1_2:
            self.message_ids.settled(subscription, messages)
        return messages
