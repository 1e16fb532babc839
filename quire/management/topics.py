"""The operator's door to topics and durable subscriptions: what is known of them; create, delete, browse, purge."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from quire.broker.routing.temporary import check_client_id
from quire.broker.topics.durable import DurableSubscription
from quire.broker.topics.topic_subscription import MEMORY_LIMIT, PENDING_LIMIT
from quire.destination import DestinationKind
from quire.errors import DestinationExists
from quire.management.blocked import blocked, consumers, held_producers
from quire.management.queues import (
    Management,
    delayed,
    destinations,
    dismiss_consumers,
    slow_consumers,
)
from quire.management.sampling import name_of
from quire.management.tables import Reader, Table, concerned, name_of_destination, rates
from quire.resources import DurableStatus, TopicStatus, TopicSubscriptionStatus
from quire.selectors import selector

if TYPE_CHECKING:
    from quire.broker.core.subscription import Subscription
    from quire.broker.topics.topic import Topic
    from quire.broker.topics.topic_subscription import TopicSubscription


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
    def __init__(self, management: Management) -> None:
        self._broker = broker = management.broker
        self._sampler = sampler = management.sampler
        now, now_ms = broker.core.clock.monotonic, broker.core.clock.now_ms
        self.status = Reader(
            TopicStatus, name="destination.name", resident_bytes="memory.used", prioritized=lambda t: len(t.lanes) > 1,
            consumers=lambda t: len(t.subscriptions), slow_consumers=slow_consumers, durables=lambda t: len(t.durables),
            offline_durables=lambda t: len([d for d in t.durables if not d.subscriptions]),
            backlog=lambda t: sum([d.depth for d in t.durables]),
            discarded_for_pending_limit=lambda t: t.discarded[PENDING_LIMIT],
            discarded_for_memory_limit=lambda t: t.discarded[MEMORY_LIMIT],
            subscriptions=lambda t: [
                *[_non_durable(source, now()) for source in t.plain],
                *[_durable(durable, now()) for durable in t.durables],
            ],
            producers_held=lambda t: held_producers(broker, f"/topic/{t.destination.name}"), **rates(sampler),
        )  # fmt: skip
        definition = {name: f"definition.{name}" for name in ("client_id", "name", "topic", "selector", "no_local")}
        self.durable_status = Reader(
            DurableStatus, **definition, resident_bytes="memory.used", holes="finished.holes", delayed=delayed,
            oldest_message_age_seconds=sampler.first_messages.age,
            offline_seconds=lambda d: None if d.subscriptions else max(now_ms() - d.offline_since, 0) / 1000,
            blocked=partial(blocked, broker), consumers=partial(consumers, broker), **rates(sampler),
        )  # fmt: skip

    def table(self) -> "Table[Topic]":
        return Table(
            lambda: destinations(self._broker, DestinationKind.TOPIC, self._broker.destinations.topics),
            name_of_destination, self.status.columns,
            {"nonempty": lambda t: t.depth > 0, "consumed": lambda t: bool(t.subscriptions or t.durables)},
            is_ordered=True,
        )  # fmt: skip

    def topic(self, name: str) -> TopicStatus:
        return self.status(self._broker.destinations.existing_topic(name))

    def create(self, name: str) -> TopicStatus:
        if name in self._broker.destinations.topics:
            raise DestinationExists(f"the topic {name!r} already exists", name=name)
        return self.status(self._broker.topic(name))

    def durable_table(self) -> Table[DurableSubscription]:
        return Table(
            lambda: sorted(self._broker.durables, key=lambda d: d.key), partial(name_of, "durable"),
            self.durable_status.columns | {"oldest": self._sampler.age},
            {
                "nonempty": lambda d: d.depth > 0, "offline": lambda d: not d.subscriptions,
                "attention": concerned(self._sampler),
            },
        )  # fmt: skip

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
        durable = self._broker.durables.existing(client_id, name)
        if force:
            dismiss_consumers(durable, f"the durable subscription {name!r} was removed")
        waiting = durable.depth
        self._broker.durables.remove(client_id, name)
        yield waiting
