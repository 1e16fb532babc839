"""Messages of a lane that wait for their next delivery."""

import heapq

from quire.message import Message


class DelayedMessages:
    """Messages that may not be delivered before a time. Those that are stored take no memory meanwhile.

    Attributes:
        groups: how many of them each message group has; a group waits for them.
        kept: those of them that are nowhere but in memory, by sequence.
    """

    def __init__(self) -> None:
        self.groups: dict[str, int] = {}
        self.kept: dict[int, Message] = {}
        self._heap: list[tuple[int, int, int]] = []
        self._group_of: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def earliest(self) -> int:
        """When the first of them is due, in milliseconds since the epoch; there must be one."""
        return self._heap[0][0]

    def add(self, message: Message, group: str | None) -> None:
        """A message waits until its ``not_before``.

        Args:
            message: set aside by the cursor.
            group: its message group, if it has one.
        """
        heapq.heappush(self._heap, (message.not_before, message.sequence, message.size))
        if not message.stored:
            self.kept[message.sequence] = message
        if group is not None:
            self.groups[group] = self.groups.get(group, 0) + 1
            self._group_of[message.sequence] = group

    def due(self, now_ms: int, limit: int) -> tuple[list[int], list[int]]:
        """The sequences and sizes of messages that are due, the longest due first; they stay until ``drop``."""
        found: list[tuple[int, int, int]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < limit:
            found.append(heapq.heappop(self._heap))
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [entry[1] for entry in found], [entry[2] for entry in found]

    def drop(self, count: int) -> None:
        """The first of them wait no more."""
        for _ in range(count):
            self._leave_group(heapq.heappop(self._heap)[1])

    def discard(self, sequences: set[int]) -> list[Message]:
        """Drop messages that are removed.

        Returns:
            Those that were nowhere but in memory.
        """
        gone = self.sequences() & sequences
        if gone:
            self._heap = [entry for entry in self._heap if entry[1] not in gone]
            heapq.heapify(self._heap)
            for sequence in gone:
                self._leave_group(sequence)
        return [self.kept.pop(sequence) for sequence in gone & self.kept.keys()]

    def sequences(self) -> set[int]:
        """All of them."""
        return {entry[1] for entry in self._heap}

    def clear(self) -> list[Message]:
        """Forget all.

        Returns:
            Those that were nowhere but in memory.
        """
        kept = list(self.kept.values())
        self.groups.clear()
        self.kept.clear()
        self._heap.clear()
        self._group_of.clear()
        return kept

    def _leave_group(self, sequence: int) -> None:
        group = self._group_of.pop(sequence, None)
        if group is not None:
            self.groups[group] -= 1
            if not self.groups[group]:
                del self.groups[group]
