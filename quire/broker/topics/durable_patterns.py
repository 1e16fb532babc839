"""Durable subscriptions to all topics that match a pattern: one for each topic.

The client's consumer makes those of the topics that are there, in steps. The pattern is a mark of its own: topics that
come later, while the client is away or after a restart, are subscribed to before their first message.

A pattern is removed at once, its durable subscriptions in steps. Its mark says so until they are gone, so a crash on
the way leaves none of them behind.
"""

import logging
from collections.abc import Callable
from functools import partial

import msgspec

from quire.broker.core.core import Core
from quire.broker.topics.durable_subscription import DurableSubscription
from quire.broker.topics.durables import Durables, check_name
from quire.broker.topics.topic import Topic
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import QuireError
from quire.logs import event
from quire.selectors import selector
from quire.store.marks import walk_marks

MARKS = "sub/p/"
"""What the keys of the marks begin with that have the patterns."""

STEP = 50
"""How many durable subscriptions of a removed pattern one step removes."""

RESERVED = "ActiveMQ.Advisory."
"""How the names of topics begin that no pattern of a durable subscription means: what they tell is of the moment."""


class PatternDefinition(msgspec.Struct, array_like=True, frozen=True):
    """What a durable subscription to a pattern is.

    Attributes:
        client_id: whose it is.
        name: what the client calls it.
        pattern: which topics it is to.
        selector: which messages it wants; None for all.
        no_local: whether it does not want what its own connection sends.
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
        topic: the topic of a name.
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
        """Take what the store has; the topics and their durable subscriptions are there already."""
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
        """Such a subscription of a client and a name, or None."""
        known = self._by_key.get((client_id, name))
        return None if known is None else known[1]

    def keep(
        self, client_id: str, name: str, pattern: str, *, selector: str | None, no_local: bool, owner: str = ""
    ) -> None:
        """A consumer of such a subscription comes: it is made, or made anew if it wants something else.

        Raises:
            DestinationInUse: it has a consumer.
            InvalidArgument: a new one's name is too long.
            TooManySubscriptions: a new one is one too many.
        """
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
        """The name of the durable subscription to one of the topics."""
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
        """Remove such a subscription, with what waits for it.

        Raises:
            DestinationInUse: it has a consumer.
        """
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
        """The durable subscriptions of a pattern whose numbers are below one."""
        start = f"{definition.name}:"
        return [d for d in self._durables.of_pattern(definition.client_id, start) if d.number < before]

    def _remove_children(self, number: int, children: list[DurableSubscription]) -> None:
        """Remove the durable subscriptions of a pattern in steps, and its mark at last."""
        for durable in children:
            durable.is_leaving = True
        step = partial(self._remove_some, number, children)
        self._core.steps.add(step, "the removal of a durable subscription to a pattern")

    def _remove_some(self, number: int, children: list[DurableSubscription]) -> bool:
        for durable in children[-STEP:]:
            if not durable.is_deleted:  # its topic was deleted, or its consumer came back for something else
                self._durables.drop(durable)
        del children[-STEP:]
        if not children:
            self._core.set_mark(f"{MARKS}{number}", None)
        return bool(children)
