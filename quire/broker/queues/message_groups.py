"""Message groups: which consumer has which group (JMSXGroupID, JMSXGroupSeq).

A group keeps its owner until the owner leaves or the group is closed. An exclusive consumer gets the groups of the
others only with their next messages; if there are none until it leaves, the owners still have their groups.

Groups with a message in flight are never forgotten, however many there are; of the others the oldest are, beyond a
limit, which changes no order.
"""

from collections.abc import Callable, Iterable
from itertools import islice

from quire.broker.core.subscription import Subscription
from quire.message import Message

GROUP_ID = b"JMSXGroupID"
GROUP_SEQUENCE = b"JMSXGroupSeq"

GROUP_LIMIT = 100_000
"""With so many groups, owners of groups that have nothing in flight are forgotten, the oldest first."""

_LOOK = 100
"""How many of the oldest groups are looked at when there are too many."""


def restarts_group(message: Message) -> bool:
    """Whether a message begins its group anew (JMSXGroupSeq is 1), for whichever consumer; not when it comes again."""
    return not message.redelivered and message.header(GROUP_SEQUENCE) == "1"


def closes_group(message: Message) -> bool:
    """Whether a message is the last one of its group (JMSXGroupSeq is negative); not when it comes again."""
    return not message.redelivered and (message.header(GROUP_SEQUENCE) or "").startswith("-")


class Group:
    """One group.

    Attributes:
        name: its JMSXGroupID.
        owner: the consumer that has it.
        in_flight: how many of its messages are in flight.
        given_up: whether it is closed when nothing of it is in flight any more.
        lent: whether its owner is given nothing now, so that another consumer may have its next message.
        is_new: whether its owner has not been given a message of it yet.
    """

    __slots__ = ("given_up", "in_flight", "is_new", "lent", "name", "owner")

    def __init__(self, name: str, owner: Subscription) -> None:
        self.name = name
        self.owner = owner
        self.in_flight = 0
        self.given_up = self.lent = False
        self.is_new = True

    @property
    def moving(self) -> bool:
        """Whether its next message may go to another consumer when nothing of it is in flight any more."""
        return self.given_up or self.lent


class MessageGroups:
    """The groups of one queue.

    Attributes:
        groups: by name.
    """

    __slots__ = ("_barred", "_changed", "_in_flight", "_owned", "groups")

    def __init__(self, changed: Callable[[str, Subscription | None], None]) -> None:
        self.groups: dict[str, Group] = {}
        self._changed = changed
        self._owned: dict[Subscription, int] = {}
        self._in_flight: dict[int, Group] = {}
        self._barred: set[Subscription] = set()

    @property
    def is_full(self) -> bool:
        """Whether one more group has others forgotten."""
        return len(self.groups) >= GROUP_LIMIT

    def owner(self, name: str) -> Subscription | None:
        """The consumer that has a group; None if it has no owner."""
        group = self.groups.get(name)
        return None if group is None else group.owner

    def is_moving(self, name: str) -> bool:
        """Whether a group waits for its messages in flight before it gets another owner."""
        group = self.groups.get(name)
        return group is not None and group.moving and group.in_flight > 0

    def bound_to(self, name: str) -> Subscription | None:
        """The consumer that the next message of a group has to go to or wait for; None if any free one may have it."""
        group = self.groups.get(name)
        return None if group is None or (group.lent and not self.is_moving(name)) else group.owner

    def count(self, subscription: Subscription) -> int:
        """How many groups a consumer has."""
        return self._owned.get(subscription, 0)

    def restarts(self, message: Message) -> bool:
        """Whether a message begins its group anew, for whichever consumer."""
        return restarts_group(message)

    def assign(self, name: str, owner: Subscription) -> Group:
        """A group gets an owner, instead of the one it has if it has one."""
        group = self.groups.get(name)
        if group is None:
            if self.is_full:
                self._forget_idle()
            group = self.groups[name] = Group(name, owner)
        else:
            self._owned[group.owner] -= 1
            group.owner, group.is_new = owner, True
            group.given_up = group.lent = False
        self._owned[owner] = self._owned.get(owner, 0) + 1
        self._changed(name, owner)
        return group

    def close(self, name: str) -> None:
        """A group has no owner any more."""
        group = self.groups.pop(name, None)
        if group is not None:
            self._owned[group.owner] -= 1
            self._changed(name, None)

    def move(self, name: str) -> None:
        """A group is to have another owner: it loses the one it has when nothing of it is in flight any more."""
        self.groups[name].given_up = True
        if not self.groups[name].in_flight:
            self.close(name)

    def take(self, name: str, owner: Subscription, message: Message) -> bool:
        """A consumer is given a message of a group, and has the group from now on.

        A negative JMSXGroupSeq closes the group: the next message of that name goes to any free consumer.

        Returns:
            Whether it is the first one of the group for this consumer.
        """
        known = self.owner(name) is owner and not restarts_group(message)
        group = self.groups[name] if known else self.assign(name, owner)
        first, group.is_new = group.is_new, False
        group.in_flight += 1
        self._in_flight[message.sequence] = group
        if closes_group(message):
            self.close(name)
        return first

    def settled(self, messages: Iterable[Message]) -> None:
        """Messages are not in flight any more."""
        for message in messages:
            group = self._in_flight.pop(message.sequence, None)
            if group is not None:
                group.in_flight -= 1
                if group.moving and not group.in_flight and self.groups.get(group.name) is group:
                    self._let_move(group)

    def _let_move(self, group: Group) -> None:
        """Nothing of a group that moves is in flight any more."""
        if group.given_up:
            self.close(group.name)
        else:
            self._changed(group.name, None)

    def leave(self, subscription: Subscription) -> None:
        """A consumer goes: its groups have no owner any more."""
        if self._owned.get(subscription):
            for name in [group.name for group in self.groups.values() if group.owner is subscription]:
                self.close(name)
        self._owned.pop(subscription, None)

    def lend(self, barred: set[Subscription]) -> None:
        """Some consumers are given nothing now: others may have the next messages of their groups, and the groups.

        Groups of which no other consumer took a message meanwhile remain with their owners.

        Args:
            barred: the present consumers that are given nothing.
        """
        if barred != self._barred:
            self._barred = barred
            for group in self.groups.values():
                if group.lent is not (group.owner in barred):
                    group.lent = not group.lent
                    self._changed(group.name, self.bound_to(group.name))

    def rebalance(self, present: list[Subscription]) -> None:
        """Take groups from those that have more than their share: there is a new consumer.

        Groups without messages in flight change hands at once, and rather than others.
        """
        share = -(-len(self.groups) // len(present))
        surplus = {s: self.count(s) - share for s in present}
        for group in self.groups.values():
            if group.moving and group.owner in surplus:
                surplus[group.owner] -= 1
        for group in sorted(self.groups.values(), key=lambda group: group.in_flight > 0):
            if not group.moving and surplus.get(group.owner, 0) > 0:
                surplus[group.owner] -= 1
                self.move(group.name)

    def _forget_idle(self) -> None:
        """Forget the oldest groups that have nothing in flight; the others of the oldest are looked at last again."""
        for name in list(islice(self.groups, _LOOK)):
            if not self.groups[name].in_flight:
                self.close(name)
            else:
                self.groups[name] = self.groups.pop(name)
