"""What 1.0 and 1.1 acknowledge by: the ids of the messages that a connection was given."""

from collections.abc import Iterable, Mapping

from quire.broker.core.subscription import Subscription
from quire.message import Message
from quire.server.stomp.stomp_consumer import StompConsumer

MAX_SETTLED_IDS = 1000
"""Of so many messages that were settled without their id (in a transaction, by UNSUBSCRIBE) the ids may be kept."""

Given = tuple[StompConsumer, Subscription, int]
"""Who was given a message, and its sequence."""


class MessageIds:
    """Who was given a message, by its id. It may have some that were settled otherwise, a bounded number."""

    def __init__(self, subscriptions: Mapping[int, Subscription]) -> None:
        self._subscriptions = subscriptions
        self._given: dict[str, list[Given]] = {}

    def __len__(self) -> int:
        return len(self._given)

    def find(self, id: str, wanted: str | None) -> list[Given]:
        """Who was given a message of an id; of one subscription if the frame names it."""
        return [given for given in self._given.get(id, ()) if wanted in (None, given[1].id)]

    def note(self, consumer: StompConsumer, subscription: Subscription, messages: Iterable[Message]) -> None:
        """Messages are given to a consumer, or it has them from before."""
        self._forget_settled()
        for message in messages:
            entries, given = self._given.setdefault(message.id, []), (consumer, subscription, message.sequence)
            if given not in entries:
                entries.append(given)

    def settled(self, subscription: Subscription, messages: Iterable[Message]) -> None:
        """Messages are settled."""
        for message in messages:
            entries = self._given.get(message.id, [])
            entries[:] = [given for given in entries if given[1:] != (subscription, message.sequence)]
            if not entries:
                self._given.pop(message.id, None)

    def _forget_settled(self) -> None:
        if len(self._given) <= MAX_SETTLED_IDS:
            return
        in_flight = sum([len(subscription.in_flight) for subscription in self._subscriptions.values()])
        if len(self._given) <= MAX_SETTLED_IDS + 2 * in_flight:
            return
        kept = {}
        for id, entries in self._given.items():
            if left := [given for given in entries if given[2] in given[1].in_flight]:
                kept[id] = left
        self._given = kept
