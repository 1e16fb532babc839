"""Messages of a lane that wait for their next delivery."""

import heapq

from quire.message import Message


class DelayedMessages:
    """Messages that may not be delivered before a time. Those that are stored take no memory meanwhile.

    Attributes:
        kept: those of them that are nowhere but in memory, by sequence.
    """

    def __init__(self) -> None:
        self.kept: dict[int, Message] = {}
        self._lowest: int | None = None
        self._heap: list[tuple[int, int, int]] = []
        self._groups: dict[str, set[int]] = {}
        self._group_of: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._heap)

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def earliest(self) -> int:
        """When the first of them is due, in milliseconds since the epoch; there must be one."""
        return self._heap[0][0]

    @property
    def lowest(self) -> int:
        """The lowest sequence; there must be one."""
        if self._lowest is None:
            self._lowest = min([entry[1] for entry in self._heap])
        return self._lowest

    def add(self, message: Message, group: str | None) -> None:
        """A message waits until its ``not_before``.

        Args:
            message: set aside by the cursor.
            group: its message group, if it has one.
        """
        if self._lowest is not None or not self._heap:
            self._lowest = min(self._lowest or message.sequence, message.sequence)
        heapq.heappush(self._heap, (message.not_before, message.sequence, message.size))
        if not message.stored:
            self.kept[message.sequence] = message
        if group is not None:
            self._groups.setdefault(group, set()).add(message.sequence)
            self._group_of[message.sequence] = group

    def holds(self, group: str, sequence: int) -> bool:
        """Whether a message of a group has to wait for an earlier one."""
        return group in self._groups and min(self._groups[group]) < sequence

    def due(self, now_ms: int, limit: int, unsettled: set[int]) -> tuple[list[int], list[int]]:
        """The sequences and sizes of messages that are due, the longest due first; they stay until ``drop``.

        Args:
            now_ms: the time, in milliseconds since the epoch.
            limit: how many at the most.
            unsettled: those of which the store does not know yet why they wait; the first of them ends it.
        """
        found: list[tuple[int, int, int]] = []
        while self._heap and self._heap[0][0] <= now_ms and len(found) < limit:
            if self._heap[0][1] in unsettled:
                break
            found.append(heapq.heappop(self._heap))
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [entry[1] for entry in found], [entry[2] for entry in found]

    def drop(self, count: int) -> None:
        """The first of them wait no more."""
        self._lowest = None
        for _ in range(count):
            self._leave_group(heapq.heappop(self._heap)[1])

    def discard(self, sequences: set[int]) -> list[Message]:
        """Drop messages that are removed.

        Returns:
            Those that were nowhere but in memory.
        """
        gone = self.sequences() & sequences
        if gone:
            self._lowest = None
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
        self._lowest = None
        self._groups.clear()
        self.kept.clear()
        self._heap.clear()
        self._group_of.clear()
        return kept

    def _leave_group(self, sequence: int) -> None:
        group = self._group_of.pop(sequence, None)
        if group is not None:
            self._groups[group].discard(sequence)
            if not self._groups[group]:
                del self._groups[group]
