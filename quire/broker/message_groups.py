"""Message groups: which consumer has which group (JMSXGroupID, JMSXGroupSeq).

A group keeps its owner until the owner leaves or the group is closed. Groups with a message in flight are never
forgotten, however many there are; of the others the oldest are, beyond a limit, which changes no order.
"""

from collections.abc import Callable, Iterable

from quire.broker.subscription import Subscription
from quire.message import Message

GROUP_ID = b"JMSXGroupID"
GROUP_SEQUENCE = b"JMSXGroupSeq"

GROUP_LIMIT = 100_000
"""With more groups than this, owners of groups that have nothing in flight are forgotten, the oldest first."""

_LOOK = 100
"""How many of the oldest groups are looked at when there are too many."""


def restarts_group(message: Message) -> bool:
    """Whether a message begins its group anew (JMSXGroupSeq is 1), for whichever consumer."""
    return not message.redelivered and message.header(GROUP_SEQUENCE) == "1"


class Group:
    """One group.

    Attributes:
        name: its name. After it was closed there may be another group of that name.
        owner: the consumer that has it.
        in_flight: how many of its messages are in flight.
        moving: whether it is to get another owner when nothing of it is in flight any more.
    """

    __slots__ = ("in_flight", "moving", "name", "owner")

    def __init__(self, name: str, owner: Subscription) -> None:
        self.name = name
        self.owner = owner
        self.in_flight = 0
        self.moving = False


class MessageGroups:
    """The groups of one queue.

    Args:
        changed: told of every change of an owner: the group, the owner before, the owner now; None is nobody.

    Attributes:
        groups: by name.
    """

    def __init__(self, changed: Callable[[str, Subscription | None, Subscription | None], None]) -> None:
        self.groups: dict[str, Group] = {}
        self._changed = changed
        self._owned: dict[Subscription, int] = {}
        self._in_flight: dict[int, Group] = {}

    def owner(self, name: str) -> Subscription | None:
        """Who has a group; None if nobody."""
        group = self.groups.get(name)
        return None if group is None else group.owner

    def is_moving(self, name: str) -> bool:
        """Whether a group waits for its messages in flight before it gets another owner."""
        group = self.groups.get(name)
        return group is not None and group.moving

    def count(self, subscription: Subscription) -> int:
        """How many groups a consumer has."""
        return self._owned.get(subscription, 0)

    def assign(self, name: str, owner: Subscription) -> None:
        """A group gets an owner, instead of the one it has if it has one."""
        group = self.groups.get(name)
        before = None
        if group is None:
            self.groups[name] = Group(name, owner)
            if len(self.groups) > GROUP_LIMIT:
                self._forget_idle()
        else:
            before = group.owner
            self._owned[before] -= 1
            group.owner, group.moving = owner, False
        self._owned[owner] = self._owned.get(owner, 0) + 1
        self._changed(name, before, owner)

    def close(self, name: str) -> None:
        """A group has no owner any more."""
        group = self.groups.pop(name, None)
        if group is not None:
            self._owned[group.owner] -= 1
            self._changed(name, group.owner, None)

    def take(self, name: str, owner: Subscription, message: Message) -> bool:
        """A consumer is given a message of a group, and has the group from now on.

        A negative JMSXGroupSeq closes the group: the next message of that name goes to whoever is free.

        Returns:
            Whether it is the first one of the group for this consumer.
        """
        first = self.owner(name) is not owner or restarts_group(message)
        if first:
            self.assign(name, owner)
        group = self._in_flight[message.sequence] = self.groups[name]
        group.in_flight += 1
        if (message.header(GROUP_SEQUENCE) or "").startswith("-"):
            self.close(name)
        return first

    def settled(self, messages: Iterable[Message]) -> None:
        """Messages are not in flight any more."""
        for message in messages:
            group = self._in_flight.pop(message.sequence, None)
            if group is not None:
                group.in_flight -= 1
                if group.moving and not group.in_flight and self.groups.get(group.name) is group:
                    self.close(group.name)

    def leave(self, subscription: Subscription) -> None:
        """A consumer goes: its groups have no owner any more."""
        if self._owned.get(subscription):
            for name in [name for name, group in self.groups.items() if group.owner is subscription]:
                self.close(name)
        self._owned.pop(subscription, None)

    def rebalance(self, present: list[Subscription]) -> None:
        """Take groups from those that have more than their share: there is somebody new.

        A group with messages in flight changes hands when they are settled.

        Args:
            present: the consumers, the new one among them.
        """
        share = -(-len(self.groups) // len(present))
        surplus = {s: self.count(s) - share for s in present}
        for name, group in list(self.groups.items()):
            if surplus.get(group.owner, 0) > 0 and not group.moving:
                surplus[group.owner] -= 1
                group.moving = True
                if group.in_flight <= 0:
                    self.close(name)

    def _forget_idle(self) -> None:
        """Forget some groups that have nothing in flight."""
        for name in [name for _, name in zip(range(_LOOK), self.groups, strict=False)]:
            if self.groups[name].in_flight <= 0:
                self.close(name)
