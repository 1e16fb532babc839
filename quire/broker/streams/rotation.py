"""The partitions of a stream in turn, for messages that do not say which one they belong to."""

from quire.broker.streams.partition import Partition
from quire.message import Message


class Rotation:
    """A target of sends."""

    def __init__(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self._turn = 0

    def next(self) -> Partition:
        """Whose turn it is."""
        self._turn += 1
        return self._partitions[self._turn % len(self._partitions)]

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message, as ``Partition.send``."""
        self.next().send(content, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Message:
        """Take a message, as ``Partition.transfer``."""
        return self.next().transfer(content, expiration, priority, persistent)

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent. Their order is that of a partition: there is nothing to do."""
