"""The durable subscriptions of a broker: found by client id and name, made, removed, ended if offline for too long."""

import logging
from collections.abc import Callable, Iterator, Mapping

import msgspec

from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.queues.lane_records import read_finished
from quire.broker.topics.durable_progress import DEFINITIONS, Definition, Progress, definition_key, durable_keys
from quire.broker.topics.durable_removal import DurableRemoval
from quire.broker.topics.durable_subscription import DurableSubscription
from quire.broker.topics.topic import Topic
from quire.cursors.ack_set import AckSet
from quire.destination import MAX_NAME
from quire.errors import DestinationInUse, InvalidArgument, UnknownSubscription
from quire.logs import event
from quire.scheduler import Timer
from quire.selectors import Selector
from quire.store.marks import walk_marks


class Durables:
    """All durable subscriptions."""

    def __init__(self, core: Core, topics: Mapping[str, Topic]) -> None:
        self._core = core
        self._topics = topics
        core.limits.count_subscriptions(self.__len__)
        self._by_key: dict[tuple[str, str], DurableSubscription] = {}
        self._timers: dict[DurableSubscription, Timer] = {}
        self._next_number = 1

    def load(self) -> None:
        """Take what the store has; the topics are there already."""
        with self._core.store.snapshot() as reader:
            definitions = list(walk_marks(reader, DEFINITIONS))
        for key, value in definitions:
            number = int(key.removeprefix(DEFINITIONS))
            self._next_number = max(self._next_number, number + 1)
            self._load(number, msgspec.msgpack.decode(value, type=Definition))

    def _load(self, number: int, definition: Definition) -> None:
        store, keys = self._core.store, durable_keys(number)
        topic = self._topics.get(definition.topic)
        if definition.is_removed or topic is None:
            DurableRemoval(self._core, number, topic, definition.start + 1)
            return
        with store.snapshot() as reader:
            finished = read_finished(reader, keys)
            progress = msgspec.msgpack.decode(reader.mark(keys.progress) or b"", type=Progress)
        self._enter(DurableSubscription(self, topic, number, definition, progress, finished))

    def _enter(self, durable: DurableSubscription) -> None:
        self._by_key[durable.key] = durable
        durable.topic.add_durable(durable)
        self.watch(durable)

    # Find.

    def __iter__(self) -> Iterator[DurableSubscription]:
        """All of them."""
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def of_pattern(self, client_id: str, start: str) -> list[DurableSubscription]:
        """The subscriptions of a client whose names are a text and their topic; there may be tens of thousands."""
        return [
            durable
            for (client, name), durable in self._by_key.items()
            if client == client_id and name.startswith(start) and name == start + durable.topic.destination.name
        ]

    @property
    def next_number(self) -> int:
        """The number of the next one that is made."""
        return self._next_number

    def find(self, client_id: str, name: str) -> DurableSubscription | None:
        """The subscription of a client and a name, or None."""
        known = self._by_key.get((client_id, name))
        return None if known is None or known.is_leaving else known

    def existing(self, client_id: str, name: str) -> DurableSubscription:
        """The subscription of a client and a name.

        Raises:
            UnknownSubscription: there is none.
        """
        durable = self.find(client_id, name)
        if durable is None:
            text = f"the client {client_id[:60]!r} has no durable subscription {name[:60]!r}"
            raise UnknownSubscription(text, client=client_id[:60], name=name[:60])
        return durable

    # Come.

    def create(
        self, client_id: str, name: str, topic: Topic, *, selector: Selector | None = None, no_local: bool = False,
        retroactive: bool = False, owner: str = "",
    ) -> DurableSubscription:  # fmt: skip
        """The subscription of a client and a name; made anew if it is to another topic or wants something else.

        One that is made anew loses what waited for the old one (JMS 2.0, section 8.3.4: changing topic or selector is
        deleting it and making another one).

        Args:
            selector: which messages it wants; None for all.
            no_local: whether it does not want what its own connection sends.
            retroactive: whether a new one begins with what the topic keeps.
            owner: the user who makes it.

        Raises:
            InvalidArgument: a new one's name is too long.
            StoreError: what the topic keeps cannot be read. Nothing is done.
        """
        known = self._by_key.get((client_id, name))
        text = None if selector is None else selector.text
        if known is not None:
            self.check_free(known)
            definition = known.definition
            is_same = known.topic is topic and not known.is_leaving
            if is_same and (definition.selector, definition.no_local) == (text, no_local):
                return known
        else:
            check_name(name.removesuffix(f":{topic.destination.name}"))  # a pattern's subscription ends like that
            self._core.limits.check_subscriptions()
        start = topic.next_sequence - 1  # not what is in the open commit: that was sent before
        wanted = Definition(client_id, name, topic.destination.name, text, no_local, start, owner=owner)
        if retroactive or topic.policy.always_retroactive:
            wanted = _with_kept(wanted, topic)
        if known is not None:
            self.drop(known)
        durable = DurableSubscription(self, topic, self._next_number, wanted, None, AckSet(wanted.start))
        self._next_number += 1
        self._enter(durable)
        durable.note_change()
        return durable

    def subscribe(
        self, client_id: str, name: str, topic: Topic, session: Session, *, id: str, number: int = 0,
        ack: AckMode = AckMode.INDIVIDUAL, prefetch: int = 100, selector: Selector | None = None,
        no_local: bool = False, priority: int = 0, retroactive: bool = False,
        kind: Callable[..., Subscription] = Subscription,
    ) -> Subscription:  # fmt: skip
        """The consumer of a durable subscription comes. ``create`` says what its arguments change.

        Args:
            selector: which messages it wants; None for all.
            no_local: whether it does not want what its own connection sends.
            priority: of no effect: it is the only consumer.
            retroactive: whether a new subscription begins with what the topic keeps.
        """
        durable = self.create(
            client_id, name, topic, selector=selector, no_local=no_local, retroactive=retroactive, owner=session.user
        )  # fmt: skip
        subscription = kind(session, durable, id=id, number=number, ack=ack, prefetch=prefetch, priority=priority)
        durable.add(subscription)
        return subscription

    def check_free(self, durable: DurableSubscription) -> None:
        """See that a subscription has no consumer.

        Raises:
            DestinationInUse: it has one.
        """
        for subscription in list(durable.subscriptions):
            subscription.leave_now()
        if durable.subscriptions:
            client, name = durable.key
            connection = durable.subscriptions[0].session.name
            raise DestinationInUse(
                f"the durable subscription {name[:60]!r} of the client {client[:60]!r} has a consumer, in connection "
                f"{connection}: there can be only one",
                client=client[:60], name=name[:60], connection=connection,
            )  # fmt: skip

    # Go.

    def remove(self, client_id: str, name: str) -> None:
        """Remove a subscription, with what waits for it.

        Raises:
            UnknownSubscription: there is none.
        """
        durable = self.existing(client_id, name)
        self.check_free(durable)
        self.drop(durable)

    def drop(self, durable: DurableSubscription) -> None:
        """Remove a subscription without a consumer, with what waits for it."""
        core, topic = self._core, durable.topic
        del self._by_key[durable.key]
        durable.is_deleted = True
        self._forget_timer(durable)
        topic.remove_durable(durable)
        core.dispatch.forget(durable)
        durable.memory.release(durable.memory.used)
        core.forget(durable)
        removed = msgspec.structs.replace(durable.definition, is_removed=True)
        core.set_mark(definition_key(durable.number), msgspec.msgpack.encode(removed))
        DurableRemoval(core, durable.number, topic, durable.start + 1)

    # Offline for too long.

    def watch(self, durable: DurableSubscription) -> None:
        """End a subscription when it has been offline for as long as its policy allows."""
        self._forget_timer(durable)
        if (seconds := self._left(durable)) is not None:
            self._timers[durable] = self._core.scheduler.call_later(max(seconds, 0.0), lambda: self._end(durable))

    def _left(self, durable: DurableSubscription) -> float | None:
        """For how many seconds a subscription may stay offline still; None if there is no end."""
        seconds = durable.policy.offline_durable_subscriber_timeout
        if seconds < 0 or durable.subscriptions:
            return None
        return seconds - (self._core.wall.past_ms() - durable.offline_since) / 1000

    def _forget_timer(self, durable: DurableSubscription) -> None:
        if timer := self._timers.pop(durable, None):
            timer.cancel()

    def _end(self, durable: DurableSubscription) -> None:
        left = self._left(durable)
        if left is not None and left > 0:  # the clock was set meanwhile
            self.watch(durable)
        elif left is not None:
            client, name = durable.key
            facts = {"topic": durable.destination.name, "client": client, "subscription": name}
            seconds = durable.policy.offline_durable_subscriber_timeout
            text = f"durable subscription {name} of {client} was offline for {seconds:g} s: removed with its messages"
            event("subscription.expired", text, logging.WARNING, messages=durable.depth, **facts)
            self.drop(durable)


def check_name(name: str) -> None:
    """See that a client's name for a durable subscription is not longer than a destination's may be.

    Raises:
        InvalidArgument: it is.
    """
    if len(name.encode()) > MAX_NAME:
        text = f"{name[:60]!r} is too long for the name of a durable subscription: up to {MAX_NAME} bytes"
        raise InvalidArgument(text, argument="name", limit=MAX_NAME)


def _with_kept(definition: Definition, topic: Topic) -> Definition:
    """A definition that begins with what a topic keeps, and with what it is about to keep."""
    first, last = topic.kept.window()
    if not topic.kept.is_keeping or first > last + 1:
        return definition
    return msgspec.structs.replace(
        definition, start=first - 1, appended=topic.appended - topic.kept.count,
        appended_bytes=topic.appended_bytes - topic.kept.bytes,
    )  # fmt: skip
