"""The operator's door to topics and durable subscriptions: what is known of them; create, delete, browse, purge."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from quire.broker.routing.temporary import check_client_id
from quire.broker.topics.topic import MEMORY_LIMIT, PENDING_LIMIT, DurableSubscription
from quire.destination import DestinationKind
from quire.errors import DestinationExists
from quire.management.blocked import blocked, consumers, held_producers
from quire.management.messages import ALL, Choice, MessageTransfer
from quire.management.queues import (
    Management,
    delayed,
    delete_topic,
    destinations,
    dismiss_consumers,
    listed,
    slow_consumers,
)
from quire.management.sampling import Sampler, name_of
from quire.management.tables import Reader, Table, concerned, name_of_destination, rates
from quire.resources import DurableStatus, TopicStatus, TopicSubscriptionStatus
from quire.selectors import selector

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.core.subscription import Subscription
    from quire.broker.topics.topic import Topic, TopicSubscription


def topic_reader(broker: "Broker", sampler: Sampler) -> Reader[TopicStatus]:
    now = broker.core.clock.monotonic
    return Reader(
        TopicStatus, name="destination.name", resident_bytes="memory.used", prioritized=lambda t: len(t.lanes) > 1,
        consumers=lambda t: len(t.subscriptions), slow_consumers=slow_consumers, durables=lambda t: len(t.durables),
        offline_durables=lambda t: len([d for d in t.durables if not d.subscriptions]),
        backlog=lambda t: sum([d.depth for d in t.durables]),
        discarded_for_pending_limit=lambda t: t.discarded[PENDING_LIMIT],
        discarded_for_memory_limit=lambda t: t.discarded[MEMORY_LIMIT],
        subscriptions=lambda t: [
            *[_non_durable(source, now()) for source in t.plain], *[_durable(durable, now()) for durable in t.durables],
        ],
        producers_held=lambda t: held_producers(broker, f"/topic/{t.destination.name}"), **rates(sampler),
    )  # fmt: skip


def durable_reader(broker: "Broker", sampler: Sampler) -> Reader[DurableStatus]:
    now_ms = broker.core.clock.now_ms
    definition = {name: f"definition.{name}" for name in ("client_id", "name", "topic", "selector", "no_local")}
    return Reader(
        DurableStatus, **definition, resident_bytes="memory.used", holes="finished.holes", delayed=delayed,
        oldest_message_age_seconds=sampler.first_messages.age,
        offline_seconds=lambda d: None if d.subscriptions else max(now_ms() - d.offline_since, 0) / 1000,
        blocked=partial(blocked, broker), consumers=partial(consumers, broker), **rates(sampler),
    )  # fmt: skip


def _non_durable(source: "TopicSubscription", now: float) -> TopicSubscriptionStatus:
    known = source.subscription
    return TopicSubscriptionStatus(
        client_id=None, name=None, connection=known.session.name, id=known.id, selector=_selector(known),
        prefetch=known.prefetch, in_flight=len(known.in_flight), pending=source.depth - len(known.in_flight),
        discarded=sum(source.discarded.values()), slow_seconds=_slow(known, now),
    )  # fmt: skip


def _durable(durable: "DurableSubscription", now: float) -> TopicSubscriptionStatus:
    known = durable.subscriptions[0] if durable.subscriptions else None
    client_id, name = durable.key
    return TopicSubscriptionStatus(
        client_id=client_id, name=name, connection=known.session.name if known else None,
        id=known.id if known else None, selector=durable.definition.selector, prefetch=known.prefetch if known else 0,
        in_flight=durable.in_flight, pending=durable.depth - durable.in_flight, discarded=0,
        slow_seconds=_slow(known, now) if known else None,
    )  # fmt: skip


def _selector(subscription: "Subscription") -> str | None:
    return None if subscription.selector is None else subscription.selector.text


def _slow(subscription: "Subscription", now: float) -> float | None:
    return None if subscription.full_since is None else now - subscription.full_since


class TopicManagement:
    """Shows and changes a broker's topics and durable subscriptions; an unknown name is an error."""

    def __init__(self, management: Management) -> None:
        self._broker = management.broker
        self._sampler = management.sampler
        self.status = topic_reader(management.broker, management.sampler)
        self.durable_status = durable_reader(management.broker, management.sampler)

    # Topics.

    def table(self) -> "Table[Topic]":
        return Table(
            lambda: destinations(self._broker, DestinationKind.TOPIC, self._broker.destinations.topics),
            name_of_destination, self.status.columns,
            {"nonempty": lambda t: t.depth > 0, "consumed": lambda t: bool(t.subscriptions or t.durables)},
            is_ordered=True,
        )  # fmt: skip

    def topics(self, after: str = "") -> Iterator[TopicStatus]:
        """The topics behind a name, by name; each is looked at when it is asked for."""
        known = self._broker.destinations.topics
        return listed(self._broker, DestinationKind.TOPIC, known, after, self.status)

    def topic(self, name: str) -> TopicStatus:
        return self.status(self._broker.destinations.existing_topic(name))

    def create(self, name: str) -> TopicStatus:
        if name in self._broker.destinations.topics:
            raise DestinationExists(f"the topic {name!r} already exists", name=name)
        return self.status(self._broker.topic(name))

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Delete a topic, with its durable subscriptions and their messages; tells how many were stored."""
        return delete_topic(self._broker, name, force=force)

    # Durable subscriptions.

    def durable_table(self) -> Table[DurableSubscription]:
        return Table(
            lambda: sorted(self._broker.durables, key=lambda d: d.key), partial(name_of, "durable"),
            self.durable_status.columns | {"oldest": self._sampler.age},
            {
                "nonempty": lambda d: d.depth > 0, "offline": lambda d: not d.subscriptions,
                "attention": concerned(self._sampler),
            },
        )  # fmt: skip

    def durables(self) -> Iterator[DurableStatus]:
        """All durable subscriptions, by client id and name; each is looked at when it is asked for."""
        return (self.durable_status(durable) for durable in sorted(self._broker.durables, key=lambda d: d.key))

    def durable(self, client_id: str, name: str) -> DurableStatus:
        return self.durable_status(self._broker.durables.existing(client_id, name))

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
        return self.durable_status(durable)

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
        return self._broker.durables.existing(client_id, name)
