"""The durable subscriptions of a broker: found by client id and name, made, removed, ended if offline for too long.

One is removed in steps: records that only it needed, its marks, at last its definition, which says that it is being
removed. So a crash on the way leaves nothing behind that the next start would not remove.

A durable subscription to all topics that match a pattern is one for each topic. The client's consumer makes those of
the topics that are there, in steps. The pattern is a mark of its own: topics that come later, while the client is away
or after a restart, are subscribed to before their first message. A pattern is removed at once, its durable
subscriptions in steps, and its mark says so until they are gone.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from quire.broker.core.core import Core
from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.broker.queues.shared_lane import read_finished
from quire.broker.topics.topic import (
    DEFINITIONS,
    Definition,
    DurableSubscription,
    Progress,
    Topic,
    definition_key,
    durable_keys,
)
from quire.cursors.ack_set import AckSet
from quire.destination import MAX_NAME, Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import DestinationInUse, InvalidArgument, QuireError, UnknownSubscription
from quire.logs import event
from quire.scheduler import Timer
from quire.selectors import Selector, selector
from quire.store.base import walk_marks

MARK_STEP = 200
"""How many marks one step removes; they are read with their values, pages of ack sets of some kilobytes."""


class Durables:
    def __init__(self, core: Core, topics: Mapping[str, Topic]) -> None:
        self._core = core
        self._topics = topics
        core.limits.count_subscriptions(self.__len__)
        self._by_key: dict[tuple[str, str], DurableSubscription] = {}
        self._timers: dict[DurableSubscription, Timer] = {}
        self._next_number = 1

    def load(self) -> None:
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
            self._remove(number, topic, definition.start + 1)
            return
        with store.snapshot() as reader:
            finished = read_finished(reader, keys)
            progress = msgspec.msgpack.decode(reader.mark(keys.progress) or b"", type=Progress)
        self._enter(DurableSubscription(self.watch, self.drop, topic, number, definition, progress, finished))

    def _enter(self, durable: DurableSubscription) -> None:
        self._by_key[durable.key] = durable
        durable.topic.add_durable(durable)
        self.watch(durable)

    # Find.

    def __iter__(self) -> Iterator[DurableSubscription]:
        return iter(list(self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def of_pattern(self, client_id: str, start: str) -> list[DurableSubscription]:
        return [
            durable
            for (client, name), durable in self._by_key.items()
            if client == client_id and name.startswith(start) and name == start + durable.topic.destination.name
        ]

    @property
    def next_number(self) -> int:
        return self._next_number

    def find(self, client_id: str, name: str) -> DurableSubscription | None:
        known = self._by_key.get((client_id, name))
        return None if known is None or known.is_leaving else known

    def existing(self, client_id: str, name: str) -> DurableSubscription:
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
            no_local: whether it does not want what its own connection sends.
            retroactive: whether a new one begins with what the topic keeps.
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
        durable = DurableSubscription(
            self.watch, self.drop, topic, self._next_number, wanted, None, AckSet(wanted.start)
        )
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
        durable = self.create(
            client_id, name, topic, selector=selector, no_local=no_local, retroactive=retroactive, owner=session.user
        )  # fmt: skip
        subscription = kind(session, durable, id=id, number=number, ack=ack, prefetch=prefetch, priority=priority)
        durable.add(subscription)
        return subscription

    def check_free(self, durable: DurableSubscription) -> None:
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
        durable = self.existing(client_id, name)
        self.check_free(durable)
        self.drop(durable)

    def drop(self, durable: DurableSubscription) -> None:
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
        self._remove(durable.number, topic, durable.start + 1)

    def _remove(self, number: int, topic: Topic | None, first: int) -> None:
        """Remove its records from the first that it may have needed, then its marks; without a topic only these."""
        step = partial(self._remove_marks, number)
        begin = partial(self._core.steps.add, step, "the removal of a durable subscription")
        if topic is None:
            self._core.after_commit(begin)
        else:
            topic.sweep(first, topic.next_sequence - 1, begin)

    def _remove_marks(self, number: int) -> bool:
        core, keys = self._core, durable_keys(number)
        found = [key for prefix in (keys.pages, keys.states) for key, _ in core.store.marks(prefix, limit=MARK_STEP)]
        for key in found or (keys.progress, definition_key(number)):
            core.set_mark(key, None)
        return bool(found)

    # Offline for too long.

    def watch(self, durable: DurableSubscription) -> None:
        """End a subscription when it has been offline for as long as its policy allows."""
        self._forget_timer(durable)
        if (seconds := self._left(durable)) is not None:
            self._timers[durable] = self._core.scheduler.call_later(max(seconds, 0.0), lambda: self._end(durable))

    def _left(self, durable: DurableSubscription) -> float | None:
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


MARKS = "sub/p/"
"""What the keys of the marks begin with that have the patterns."""

REMOVED_AT_ONCE = 50
"""How many durable subscriptions of a removed pattern one step removes."""

RESERVED = "ActiveMQ.Advisory."
"""How the names of topics begin that no pattern of a durable subscription means: what they tell is of the moment."""


class PatternDefinition(msgspec.Struct, array_like=True, frozen=True):
    """What a durable subscription to a pattern is.

    Attributes:
        removed_before: of one that is being removed the number of the first durable subscription that is not its own;
            0 while it is there.
        owner: the user who made it; empty if there were no users.
    """

    client_id: str
    name: str
    pattern: str
    selector: str | None
    no_local: bool
    removed_before: int = 0
    owner: str = ""


class DurablePatterns:
    """All durable subscriptions to patterns.

    Args:
        watch: has the second one called with each new destination, in the name of the first; None ends that.
    """

    def __init__(
        self,
        core: Core,
        durables: Durables,
        topic: Callable[[str], Topic],
        watch: Callable[[object, Callable[[Destination], None] | None], None],
    ) -> None:
        self._core = core
        self._durables = durables
        self._topic = topic
        self._watch = watch
        self._by_key: dict[tuple[str, str], tuple[int, PatternDefinition, Pattern]] = {}
        self._next_number = 1
        core.limits.count_subscriptions(lambda: len(self._by_key))

    def load(self) -> None:
        with self._core.store.snapshot() as reader:
            for key, value in walk_marks(reader, MARKS):
                number = int(key.removeprefix(MARKS))
                self._next_number = max(self._next_number, number + 1)
                definition = msgspec.msgpack.decode(value, type=PatternDefinition)
                if definition.removed_before:
                    self._remove_children(number, self._children(definition, definition.removed_before))
                else:
                    self._enter(number, definition)

    def _enter(self, number: int, definition: PatternDefinition) -> None:
        key = (definition.client_id, definition.name)
        self._by_key[key] = number, definition, Pattern(definition.pattern)
        self._watch(self, self._destination_created)

    def find(self, client_id: str, name: str) -> PatternDefinition | None:
        known = self._by_key.get((client_id, name))
        return None if known is None else known[1]

    def keep(
        self, client_id: str, name: str, pattern: str, *, selector: str | None, no_local: bool, owner: str = ""
    ) -> None:
        definition = PatternDefinition(client_id, name, pattern, selector, no_local, owner=owner)
        known = self._by_key.get((client_id, name))
        if known is not None and msgspec.structs.replace(known[1], owner=owner) == definition:
            return
        if known is not None:
            self.remove(client_id, name)
        elif self._durables.find(client_id, name) is not None:
            self._durables.remove(client_id, name)
        else:
            check_name(name)
            self._core.limits.check_subscriptions()
        self._core.set_mark(f"{MARKS}{self._next_number}", msgspec.msgpack.encode(definition))
        self._enter(self._next_number, definition)
        self._next_number += 1

    def child(self, name: str, topic: str) -> str:
        return f"{name}:{topic}"

    def _destination_created(self, destination: Destination) -> None:
        """A destination has come. What cannot be subscribed to it is told in the log: it is not the sender's fault."""
        if destination.kind is not DestinationKind.TOPIC or destination.name.startswith(RESERVED):
            return
        for _, definition, pattern in list(self._by_key.values()):
            if pattern.matches(destination.name):
                try:
                    self._subscribe(definition, destination.name)
                except QuireError as error:
                    facts = {"client": definition.client_id, "subscription": definition.name}
                    text = f"{definition.name} of {definition.client_id} does not get topic {destination.name}: {error}"
                    event("subscription.incomplete", text, logging.ERROR, topic=destination.name, **facts)

    def _subscribe(self, definition: PatternDefinition, topic: str) -> None:
        wanted = None if definition.selector is None else selector(definition.selector)
        self._durables.create(
            definition.client_id, self.child(definition.name, topic), self._topic(topic), selector=wanted,
            no_local=definition.no_local, owner=definition.owner,
        )  # fmt: skip

    def remove(self, client_id: str, name: str) -> None:
        number, definition, _ = self._by_key[client_id, name]
        next_number = self._durables.next_number
        children = self._children(definition, next_number)
        for durable in children:
            if durable.subscriptions:
                self._durables.check_free(durable)
        del self._by_key[client_id, name]
        if not self._by_key:
            self._watch(self, None)
        removed = msgspec.structs.replace(definition, removed_before=next_number)
        self._core.set_mark(f"{MARKS}{number}", msgspec.msgpack.encode(removed))
        self._remove_children(number, children)

    def _children(self, definition: PatternDefinition, before: int) -> list[DurableSubscription]:
        start = f"{definition.name}:"
        return [d for d in self._durables.of_pattern(definition.client_id, start) if d.number < before]

    def _remove_children(self, number: int, children: list[DurableSubscription]) -> None:
        for durable in children:
            durable.is_leaving = True
        step = partial(self._remove_some, number, children)
        self._core.steps.add(step, "the removal of a durable subscription to a pattern")

    def _remove_some(self, number: int, children: list[DurableSubscription]) -> bool:
        for durable in children[-REMOVED_AT_ONCE:]:
            if not durable.is_deleted:  # its topic was deleted, or its consumer came back for something else
                self._durables.drop(durable)
        del children[-REMOVED_AT_ONCE:]
        if not children:
            self._core.set_mark(f"{MARKS}{number}", None)
        return bool(children)
