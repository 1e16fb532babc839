"""Key-ordered consumption: of each key one message is out at a time, and the other keys go on."""

from collections.abc import Callable, Iterable

from quire.broker.core.subscription import Subscription
from quire.broker.queues.message_groups import Group, MessageGroups
from quire.message import Message


class KeyOrder(MessageGroups):
    """The keys that have a message in flight; each is a message group for as long as it has one."""

    def __init__(self, changed: Callable[[str, Subscription | None], None]) -> None:
        super().__init__(changed)
        self._keys: dict[int, Group] = {}

    def is_moving(self, name: str) -> bool:
        """Whether a key has to wait."""
        return name in self.groups

    def restarts(self, message: Message) -> bool:
        """Never: numbers within a group say nothing about a key."""
        return False

    def take(self, name: str, owner: Subscription, message: Message) -> bool:
        """A consumer is given a message of a key, or has one from another one now."""
        group = self.assign(name, owner)
        if self._keys.get(message.sequence) is not group:
            self._keys[message.sequence] = group
            group.in_flight += 1
        return False

    def settled(self, messages: Iterable[Message]) -> None:
        """Messages are not in flight any more: the next ones of their keys may go."""
        for message in messages:
            group = self._keys.pop(message.sequence, None)
            if group is not None and self.groups.get(group.name) is group:
                group.in_flight -= 1  # members that come back may say that they have several
                if not group.in_flight:
                    self.close(group.name)
