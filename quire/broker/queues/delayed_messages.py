"""Messages of a lane that wait for their next delivery."""

import heapq

from quire.message import Message

Entry = tuple[int, int, int]
"""When a message may be delivered, its sequence, its size."""


class DelayedMessages:
    """Messages that may not be delivered before a time. Those that are stored take no memory meanwhile.

    One that is taken out stays in the heaps until it is the first one there.

    Attributes:
        kept: those of them that are nowhere but in memory, by sequence.
    """

    __slots__ = ("_by_sequence", "_by_time", "_entries", "_group_of", "_groups", "kept")

    def __init__(self) -> None:
        self.kept: dict[int, Message] = {}
        self._entries: dict[int, Entry] = {}
        self._by_time: list[Entry] = []
        self._by_sequence: list[int] = []
        self._groups: dict[str, set[int]] = {}
        self._group_of: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def earliest(self) -> int:
        """When the first of them is due, by the steady time; there must be one."""
        self._forget_gone()
        return self._by_time[0][0]

    @property
    def lowest(self) -> int:
        """The lowest sequence; there must be one."""
        while self._by_sequence[0] not in self._entries:
            heapq.heappop(self._by_sequence)
        return self._by_sequence[0]

    def add(self, message: Message, group: str | None) -> None:
        """A message waits until its ``not_before``.

        Args:
            group: its message group, if it has one.
        """
        entry = self._entries[message.sequence] = (message.not_before, message.sequence, message.size)
        heapq.heappush(self._by_time, entry)
        heapq.heappush(self._by_sequence, message.sequence)
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
            now_ms: the steady time, in milliseconds.
            unsettled: those of which the store does not know yet why they wait; the first of them ends it.
        """
        found: list[Entry] = []
        while self and len(found) < limit and self.earliest <= now_ms and self._by_time[0][1] not in unsettled:
            found.append(heapq.heappop(self._by_time))
            if len(found) == len(self):
                break
        for entry in found:
            heapq.heappush(self._by_time, entry)
        return [entry[1] for entry in found], [entry[2] for entry in found]

    def drop(self, count: int) -> None:
        """The first of them wait no more."""
        for _ in range(count):
            self._forget_gone()
            self._leave(heapq.heappop(self._by_time)[1])
        self._tidy()

    def discard(self, sequences: set[int]) -> list[Message]:
        """Drop messages that are removed."""
        gone = [sequence for sequence in sequences if sequence in self._entries]
        for sequence in gone:
            self._leave(sequence)
        self._tidy()
        return [self.kept.pop(sequence) for sequence in gone if sequence in self.kept]

    def sequences(self) -> set[int]:
        """All of them."""
        return set(self._entries)

    def clear(self) -> list[Message]:
        """Forget all."""
        kept = list(self.kept.values())
        for table in (self.kept, self._entries, self._by_time, self._by_sequence, self._groups, self._group_of):
            table.clear()
        return kept

    def _forget_gone(self) -> None:
        """Have one that is there first in the heap."""
        heap, there = self._by_time, self._entries
        while there.get(heap[0][1]) is not heap[0]:
            heapq.heappop(heap)

    def _tidy(self) -> None:
        """When most of the heaps is gone, make them anew."""
        if len(self._by_time) > 2 * len(self) + 64:
            self._by_time = sorted(self._entries.values())
        if len(self._by_sequence) > 2 * len(self) + 64:
            self._by_sequence = sorted(self._entries)

    def _leave(self, sequence: int) -> None:
        del self._entries[sequence]
        group = self._group_of.pop(sequence, None)
        if group is not None:
            self._groups[group].discard(sequence)
            if not self._groups[group]:
                del self._groups[group]
