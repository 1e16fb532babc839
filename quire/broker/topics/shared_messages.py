"""The memory of messages that several subscriptions of a topic have: each message counts once."""

from collections.abc import Iterable

from quire.cursors.memory_usage import MemoryUsage
from quire.message import MESSAGE_OVERHEAD, Message


class SharedMessages:
    """What the plain subscriptions of one topic have in memory, waiting or in flight.

    Messages are told apart by their content: shells that share it are one message. A message that was read from the
    store twice takes its memory twice, and counts so.
    """

    def __init__(self, memory: MemoryUsage) -> None:
        self._memory = memory
        self._holders: dict[int, int] = {}  # by the id of the content, which lives as long as it has holders

    def hold(self, message: Message, *, force: bool = False) -> bool:
        """One more subscription has a message.

        Args:
            force: whether it is taken even if memory refuses it.

        Returns:
            Whether there was memory for it.
        """
        key = id(message.content)
        holders = self._holders.get(key, 0)
        if not holders:
            charge = message.size + MESSAGE_OVERHEAD
            if force:
                self._memory.force(charge)
            elif not self._memory.reserve(charge):
                return False
        self._holders[key] = holders + 1
        return True

    def release(self, messages: Iterable[Message]) -> None:
        """A subscription is done with messages that it held."""
        free = 0
        for message in messages:
            key = id(message.content)
            holders = self._holders.pop(key) - 1
            if holders:
                self._holders[key] = holders
            else:
                free += message.size + MESSAGE_OVERHEAD
        if free:
            self._memory.release(free)
