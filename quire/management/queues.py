"""Queues, topics and durable subscriptions: what is known of them; create, delete, pause, send, move, purge.

Between two steps of a large operation the caller lets the open commit end.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from quire.broker.admission import check_room
from quire.broker.broker import Broker
from quire.broker.core.subscription import Confirmation
from quire.broker.queues.queue import LaneDispatch, Queue
from quire.broker.routing.route import route_of
from quire.broker.routing.temporary import check_client_id
from quire.broker.streams.groups.group import Group
from quire.broker.topics.topic import MEMORY_LIMIT, PENDING_LIMIT, DurableSubscription, Topic
from quire.destination import Destination, DestinationKind, checked, written
from quire.errors import (
    DestinationExists,
    DestinationInUse,
    InvalidArgument,
    QuireError,
    StoreError,
    UnknownDestination,
    UnknownGroup,
)
from quire.management.blocked import PAUSED_AT, blocked, consumers, held_producers
from quire.management.messages import (
    ALL,
    MAX_PAGE,
    STEP,
    STEP_BYTES,
    Choice,
    Draft,
    MessageTransfer,
    MessageViewer,
    Places,
    TransferRights,
)
from quire.management.overview import Sampler, name_of
from quire.management.tables import Reader, Table, concerned, name_of_destination, rates
from quire.message import unescape
from quire.resources import DurableStatus, GroupPage, GroupStatus, QueueStatus, TopicStatus, TopicSubscriptionStatus
from quire.selectors import selector

if TYPE_CHECKING:
    from quire.broker.core.subscription import Subscription
    from quire.broker.topics.topic import TopicSubscription


def slow_consumers(source: Any) -> int:
    return len([subscription for subscription in source.subscriptions if subscription.full_since is not None])


def delayed(source: LaneDispatch) -> int:
    return sum([len(lane.delayed) for lane in source.lanes])


def _next_due(queue: LaneDispatch) -> int | None:
    due = min([lane.delayed.earliest for lane in queue.lanes if lane.delayed], default=None)
    return None if due is None else queue.core.wall.shown_ms(due)


def _parked(queue: "LaneDispatch") -> tuple[int, int]:
    """How many messages wait for consumers that are there, and how many of them not for the owner of a group."""
    parkings = [lane.parking for lane in queue.lanes]
    for_consumers = sum([len(fifo) for parking in parkings for fifo in parking.matched.values()])
    return sum([parking.count for parking in parkings]), for_consumers


def _status(queue: "Queue", name: str) -> GroupStatus:
    parked = sum([len(lane.parking.groups[name]) for lane in queue.lanes if name in lane.parking.groups])
    group = queue.groups.groups.get(name)
    if group is None:
        return GroupStatus(name, None, None, 0, parked, False)
    return GroupStatus(name, group.owner.session.name, group.owner.id, group.in_flight, parked, group.moving)


def delete_queue(broker: Broker, name: str, *, force: bool = False) -> Iterator[int]:
    """Purge a queue in steps, and then delete it; tells how many messages each step removed.

    The purge lets the ledger know of each message. Without ``force``, a queue with consumers raises
    ``DestinationInUse``, also one that gets a consumer meanwhile.
    """
    queue = broker.destinations.existing_queue(name)
    _dismiss(queue, force)
    yield from MessageTransfer(broker, queue, ALL)
    if broker.queues.get(name) is queue:
        _dismiss(queue, force)
        rest = queue.depth
        broker.destinations.delete_queue(queue)
        yield rest


def delete_topic(broker: Broker, name: str, *, force: bool = False) -> Iterator[int]:
    """Delete a topic, with its durable subscriptions and their messages; tells how many were stored.

    Without ``force``, a topic with consumers or durable subscriptions raises ``DestinationInUse``.
    """
    topic = broker.destinations.existing_topic(name)
    consumers, durables = len(topic.subscriptions), len(topic.durables)
    if (consumers or durables) and not force:
        text = f"the topic {name!r} has consumers: {consumers}, durable subscriptions: {durables}"
        raise DestinationInUse(text, name=name, consumers=consumers, durables=durables)
    dismiss_consumers(topic, f"the topic {name!r} was deleted")
    stored = topic.depth
    broker.destinations.delete_topic(topic)
    yield stored


def _dismiss(queue: Queue, force: bool) -> None:
    name = queue.destination.name
    for subscription in list(queue.subscriptions):
        subscription.leave_now()
    if queue.subscriptions and not force:
        count = len(queue.subscriptions)
        raise DestinationInUse(f"the queue {name!r} has consumers: {count}", name=name, consumers=count)
    dismiss_consumers(queue, f"the queue {name!r} was deleted")


def dismiss_consumers(source: LaneDispatch | Topic, text: str) -> None:
    for session in list(dict.fromkeys([subscription.session for subscription in source.subscriptions])):
        session.fail(UnknownDestination(text, name=source.destination.name))
    for subscription in list(source.subscriptions):
        subscription.leave_now()


T = TypeVar("T")


class Management:
    """Looks at a broker's queues and changes them. All names may raise ``UnknownDestination``."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.sampler = Sampler(broker)  # looks at everything every few seconds, once it is started
        self.viewer = MessageViewer(broker)
        self.status = Reader(
            QueueStatus, name="destination.name", resident_bytes="memory.used", lanes=lambda q: len(q.lanes),
            prioritized=lambda q: len(q.lanes) > 1, consumers=lambda q: len(q.subscriptions),
            slow_consumers=slow_consumers, groups=lambda q: len(q.groups.groups),
            parked_for_consumers=lambda q: _parked(q)[1], parked_for_groups=lambda q: _parked(q)[0] - _parked(q)[1],
            delayed=delayed, next_due=_next_due, oldest_message_age_seconds=self.sampler.first_messages.age,
            blocked=partial(blocked, broker), subscriptions=partial(consumers, broker),
            producers_held=lambda q: held_producers(broker, q.destination.name), **rates(self.sampler),
        )  # fmt: skip

    def confirm(self, done: Callable[[QuireError | None], None]) -> None:
        """Call ``done`` when the open commit is durable, or with its error: then its messages are refused."""
        waiting = Confirmation(done)
        self.broker.core.sent(waiting)
        self.broker.core.confirm(waiting, [b""])

    def table(self) -> Table[Queue]:
        return Table(
            lambda: destinations(self.broker, DestinationKind.QUEUE, self.broker.queues), name_of_destination,
            self.status.columns | {"oldest": self.sampler.age},
            {
                "nonempty": lambda q: q.depth > 0, "consumed": lambda q: bool(q.subscriptions),
                "unconsumed": lambda q: q.depth > 0 and not q.subscriptions, "paused": lambda q: q.paused,
                "dead-letter": lambda q: q.is_dead_letter_queue, "attention": concerned(self.sampler),
            },
            is_ordered=True,
        )  # fmt: skip

    def _existing(self, name: str) -> Queue:
        return self.broker.destinations.existing_queue(name)

    def queue(self, name: str) -> QueueStatus:
        return self.status(self._existing(name))

    def store_size(self) -> tuple[int | None, int | None]:
        """How many bytes are in use in the store's files, and how many are free in them; None if unreadable."""
        try:
            return self.broker.core.store.size(), self.broker.core.store.free()
        except StoreError:  # the part that has to use the store tells of it
            return None, None

    def lane_count(self) -> int:
        found = self.broker.destinations
        own = [len(source.lanes) for known in (found.queues, found.topics) for source in known.values()]
        return sum(own) + found.partitions

    def record_count(self) -> int:
        """How many records all destinations have, about."""
        found = self.broker.destinations
        depths = [source.depth for known in (found.queues, found.topics) for source in known.values()]
        return sum(depths) + sum([stream.count for stream in found.streams.values()])

    def create(self, name: str) -> QueueStatus:
        if name in self.broker.queues:
            raise DestinationExists(f"the queue {name!r} already exists", name=name)
        return self.status(self.broker.queue(name))

    def pause(self, name: str) -> QueueStatus:
        """Stop a queue's deliveries, also over a restart; producers go on. A paused one stays as it is."""
        queue = self._existing(name)
        if not queue.paused:
            self._set_paused(queue, {"paused": True, PAUSED_AT: self.broker.core.clock.now_ms()})
        return self.status(queue)

    def resume(self, name: str) -> QueueStatus:
        queue = self._existing(name)
        if queue.paused:
            self._set_paused(queue, {})
            queue.wake()
        return self.status(queue)

    def _set_paused(self, queue: Queue, pause: dict[str, object]) -> None:
        kept = {name: value for name, value in queue.stored.settings.items() if name not in ("paused", PAUSED_AT)}
        queue.paused = bool(pause)
        queue.stored = queue.stored._replace(settings=kept | pause)
        self.broker.core.change_destination(queue.stored.id, queue.stored)

    def groups(self, name: str, after: str = "", limit: int = MAX_PAGE) -> GroupPage:
        """A page of a queue's groups behind a name: those that a consumer has, or whose messages wait in memory."""
        queue = self._existing(name)
        owned = queue.groups.groups
        names = owned.keys() | {name for lane in queue.lanes for name, fifo in lane.parking.groups.items() if fifo}
        found = heapq.nsmallest(limit + 1, [name for name in names if name > after])
        page = [_status(queue, name) for name in found[:limit]]
        return GroupPage(page, page[-1].name if len(found) > limit else None)

    def close_group(self, name: str, group: str) -> None:
        """Take a message group from its owner; messages in flight stay there, so two consumers may have some."""
        queue = self._existing(name)
        if queue.groups.owner(group) is None:
            raise UnknownGroup(f"no consumer of {name!r} has the group {group[:100]!r}", queue=name, group=group[:100])
        queue.groups.close(group)
        queue.wake()

    def send(
        self, name: str, draft: Draft, count: int = 1, kind: DestinationKind = DestinationKind.QUEUE, sender: str = ""
    ) -> Iterator[list[str]]:
        """Send a message some times, in steps of message ids. If a limit is reached, what earlier steps sent stays."""
        broker = self.broker
        destination = checked(kind, name)
        headers = draft.send_headers(destination, broker.core.settings.stomp)
        if (limit := broker.routing.size_limit([destination])) is not None:
            limit.check(len(draft.body))
        step = max(1, min(STEP, STEP_BYTES // (len(draft.body) + 1)))
        for sent in range(0, count, step):
            check_room(broker.core, name, stored=draft.persistent)
            route = route_of(broker.routing, headers, sender=sender)
            stamp = b"\ntimestamp:%d\n" % broker.core.clock.now_ms()
            ids = [b"%d" % broker.core.next_message_id() for _ in range(min(step, count - sent))]
            for id in ids:
                content = b"".join((broker.core.id_prefix, id, stamp, route.lines, draft.body))
                route.target.send(content, route.expiration, route.priority, route.persistent)
            prefix = unescape(broker.core.id_prefix.removeprefix(b"message-id:")).decode()
            yield [prefix + id.decode() for id in ids]

    def purge(self, name: str, choice: Choice = ALL, *, counts: bool = False) -> MessageTransfer:
        """Remove messages that are not in flight, in steps; or only count them. Without a choice no content is read."""
        return MessageTransfer(self.broker, self._existing(name), choice, counts=counts)

    def move(
        self, name: str, to: str, choice: Choice = ALL, rights: TransferRights | None = None, *, counts: bool = False
    ) -> MessageTransfer:
        """Move messages that are not in flight, oldest first, in steps; ``to`` is a queue's name or ``topic://NAME``."""
        source, places = self._places(name, _elsewhere(name, to), rights)
        return MessageTransfer(self.broker, source, choice, None if counts else places, counts=counts)

    def copy(
        self, name: str, to: str, choice: Choice = ALL, rights: TransferRights | None = None, *, counts: bool = False
    ) -> MessageTransfer:
        """As ``move``, but the messages stay in their queue as well; those in flight are copied too."""
        source, places = self._places(name, _elsewhere(name, to), rights)
        return MessageTransfer(self.broker, source, choice, None if counts else places, copies=True, counts=counts)

    def redrive(
        self, name: str, choice: Choice = ALL, to: str | None = None, rights: TransferRights | None = None, *,
        counts: bool = False,
    ) -> MessageTransfer:  # fmt: skip
        """Send dead letters back where they came from, or elsewhere, oldest first, in steps. Other messages stay."""
        destination = None if to is None else _elsewhere(name, to)
        source, places = self._places(name, destination, rights, redrives=True, counts=counts)
        return MessageTransfer(self.broker, source, choice, places, counts=counts)

    def _places(
        self, name: str, to: Destination | None, rights: TransferRights | None, *, redrives: bool = False,
        counts: bool = False,
    ) -> tuple[Queue, Places]:  # fmt: skip
        source, text = self._existing(name), None if to is None else f"/{to.kind}/{to.name}"
        return source, Places(self.broker, source, rights, text, redrives=redrives, counts=counts)


def _elsewhere(name: str, to: str) -> Destination:
    """Where messages of a queue go; not to where they are."""
    destination = written(to)
    if destination == Destination(DestinationKind.QUEUE, name):
        raise InvalidArgument(f"the messages are in {to!r} already", argument="to")
    return destination


def destinations(broker: Broker, kind: DestinationKind, known: Mapping[str, T]) -> list[T]:
    return [known[name] for name in broker.destinations.names(kind) if name in known]


def dismiss_members(group: Group, error: QuireError) -> None:
    for member in list(group.members.values()):
        member.session.fail(error)
        group.leave(member, str(error))


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
