"""Messages of a lane that no present consumer can take now.

They are parked by sequence, without their bodies, and the scan goes on behind them (rule 9). They are parked by who may
take them: the owner of their group, consumers with one of the selectors they match, or a consumer that is not there.
Of the last kind only the first is remembered: when a consumer with a new selector comes, the lane is scanned again.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable
from heapq import heappop, heappush

from quire.clock import Clock
from quire.message import Message

Takers = Hashable
"""Who may take what is parked: the owner of its group, or a tuple: consumers with one of these selectors."""

ANYBODY: Takers = ()
"""Not known yet: the dispatch has not looked at the first message."""

_COMPACT = 4096


class Fifo:
    """Sequences and sizes, in the order of the lane.

    Attributes:
        takers: who may take the first of them.
        since: since when nothing of it was taken, on the monotonic clock.
    """

    __slots__ = ("_head", "_sequences", "_sizes", "group", "since", "takers")

    def __init__(self, group: str | None) -> None:
        self.group = group
        self.takers: Takers = ANYBODY
        self.since = 0.0
        self._sequences = array("Q")
        self._sizes = array("I")
        self._head = 0

    def __len__(self) -> int:
        return len(self._sequences) - self._head

    @property
    def first(self) -> int:
        """The first one's sequence; there must be one."""
        return self._sequences[self._head]

    def add(self, message: Message) -> None:
        if self._head > _COMPACT and self._head * 2 > len(self._sequences):
            del self._sequences[: self._head]
            del self._sizes[: self._head]
            self._head = 0
        place = len(self._sequences)
        if self and message.sequence < self._sequences[-1]:
            place = bisect_left(self._sequences, message.sequence, self._head)
        self._sequences.insert(place, message.sequence)
        self._sizes.insert(place, message.size)

    def pop(self) -> "Entry":
        entry = (self.first, self._sizes[self._head], self)
        self._head += 1
        return entry

    def put_back(self, sequence: int, size: int) -> None:
        self._head -= 1
        self._sequences[self._head], self._sizes[self._head] = sequence, size

    def above(self, sequence: int) -> "array[int]":
        return self._sequences[bisect_right(self._sequences, sequence, self._head) :]


Entry = tuple[int, int, Fifo]
"""A parked message: its sequence, its size in bytes, and where it is parked."""


GROUP_SEQUENCE = b"JMSXGroupSeq"


def restarts_group(message: Message) -> bool:
    return not message.redelivered and message.header(GROUP_SEQUENCE) == "1"


PARKED_LIMIT = 1_000_000
"""With so many parked messages waiting for present consumers of one lane, the scan stops: 12 bytes each."""

GROUP_COST = 50
"""As how many messages a group counts that has something parked, for what it takes in memory itself."""

Heap = list[tuple[int, Fifo]]


class Parking:
    """What is parked in one lane.

    Attributes:
        unwanted: the first sequence that no consumer wants that was there; 0 if there is none.
        with_selectors: whether the owner of a group may not want all its messages. Then each of them is looked at when
            it becomes the first one.
    """

    __slots__ = (
        "_clock", "_emptied", "_heaps", "_restarts", "count", "full_since", "groups", "kept", "matched", "unwanted",
        "unwanted_since", "with_selectors",
    )  # fmt: skip

    def __init__(self, clock: Clock) -> None:
        self.groups: dict[str, Fifo] = {}
        self.matched: dict[tuple[str, ...], Fifo] = {}
        self.kept: dict[int, Message] = {}
        self.unwanted = 0
        self.unwanted_since = 0.0
        self.count = 0
        self.full_since = 0.0
        self.with_selectors = False
        self._clock = clock
        self._heaps: dict[Takers, Heap] = {}  # by who may take them: the fifos, by their first sequence
        self._restarts: set[int] = set()  # parked behind others of their group, which they begin anew
        self._emptied: list[Fifo] = []

    def __bool__(self) -> bool:
        return bool(self.count or self.unwanted)

    @property
    def is_full(self) -> bool:
        return self.count + GROUP_COST * len(self.groups) >= PARKED_LIMIT

    def holds(self, group: str, sequence: int) -> bool:
        fifo = self.groups.get(group)
        return fifo is not None and len(fifo) > 0 and fifo.first < sequence

    # In.

    def park(self, message: Message, group: str | None, takers: Takers) -> None:
        if not message.stored:
            self.kept[message.sequence] = message
        if group is None and takers == ANYBODY:
            self.note_unwanted(message.sequence)
            return
        fifo = self._fifo(group, takers)
        if not fifo or message.sequence < fifo.first:
            fifo.add(message)
            fifo.since = self._clock.monotonic()
            self.wait_for(fifo, takers)
        else:
            fifo.add(message)
            if group is not None and restarts_group(message):
                self._restarts.add(message.sequence)
        self.count += 1
        if self.is_full:
            self.full_since = self.full_since or self._clock.monotonic()

    def note_unwanted(self, sequence: int) -> None:
        if not self.unwanted:
            self.unwanted_since = self._clock.monotonic()
        self.unwanted = min(self.unwanted or sequence, sequence)

    def _fifo(self, group: str | None, takers: Takers) -> Fifo:
        if group is not None:
            fifo = self.groups.get(group)
            if fifo is None:
                fifo = self.groups[group] = Fifo(group)
            return fifo
        assert isinstance(takers, tuple)
        fifo = self.matched.get(takers)
        if fifo is None:
            fifo = self.matched[takers] = Fifo(None)
        return fifo

    def wait_for(self, fifo: Fifo, takers: Takers) -> None:
        """Other consumers may take what is in a fifo: its first message was looked at, or its group changed hands."""
        fifo.takers = takers
        if fifo:
            self._restarts.discard(fifo.first)
            self._line_up(fifo)

    def _line_up_rest(self, fifo: Fifo) -> None:
        """The first message of a fifo was taken: who may take the next one, if there is one?"""
        if not fifo:
            self._emptied.append(fifo)
            return
        if self.with_selectors and fifo.group is not None:
            fifo.takers = ANYBODY
        self._line_up(fifo)

    def owned(self, group: str, owner: Takers | None) -> None:
        if (fifo := self.groups.get(group)) is not None:
            fifo.takers = ANYBODY if owner is None or self.with_selectors else owner
            self._line_up(fifo)

    def _takers(self, fifo: Fifo) -> Takers:
        return ANYBODY if fifo.first in self._restarts else fifo.takers

    def _line_up(self, fifo: Fifo) -> None:
        if fifo:
            heappush(self._heaps.setdefault(self._takers(fifo), []), (fifo.first, fifo))

    # Out.

    def take(
        self, owners: Collection[Takers], texts: set[str], is_held: Callable[[str, int], bool], below: int, limit: int
    ) -> list[Entry]:
        """Take out the first messages that some consumers may take, in the order of the lane.

        Args:
            is_held: whether a message of a group has to wait, whichever consumer owns it; asked with its sequence.

        Returns:
            What was taken out; ``put_back`` what they cannot be given, ``done`` for each of the others.
        """
        heaps = {takers: heap for takers, heap in self._heaps.items() if takers in owners or _any_of(takers, texts)}
        found: list[Entry] = []
        held: list[Fifo] = []
        while heaps and len(found) < limit:
            takers, fifo = self._pop_first(heaps)
            if fifo is None:
                continue
            if fifo.first >= below:
                held.append(fifo)
                break
            if fifo.group is not None and is_held(fifo.group, fifo.first):
                held.append(fifo)
                continue
            found.append(fifo.pop())
            self._line_up_rest(fifo)
            if not fifo or self._takers(fifo) in heaps:
                continue
            if self._takers(fifo) != takers:
                break  # others may take the next one, and before what comes after it
            heaps[takers] = self._heaps[takers]
        for fifo in held:
            self._line_up(fifo)
        self.count -= len(found)
        return found

    def _pop_first(self, heaps: dict[Takers, Heap]) -> tuple[Takers, Fifo | None]:
        """Whose turn it is in some heaps, and the fifo, out of its heap; None if that was lined up again since."""
        takers = min(heaps, key=lambda takers: heaps[takers][0][0])
        first, fifo = heappop(heaps[takers])
        if not heaps[takers]:
            del heaps[takers], self._heaps[takers]
        is_there = fifo and fifo.first == first and self._takers(fifo) == takers
        return takers, fifo if is_there else None

    def put_back(self, entries: list[Entry]) -> None:
        """Park again what ``take`` gave; of each fifo all that was behind the first one put back."""
        for sequence, size, fifo in reversed(entries):
            fifo.put_back(sequence, size)
        for fifo in dict.fromkeys([entry[2] for entry in entries]):
            self._line_up(fifo)
        self.count += len(entries)

    def done(self, entry: Entry) -> None:
        self._restarts.discard(entry[0])
        entry[2].since = self._clock.monotonic()

    def forget_empty(self) -> None:
        if not self.is_full:
            self.full_since = 0.0
        emptied, self._emptied = self._emptied, []
        for fifo in emptied:
            if not fifo and fifo.group is not None:
                self.groups.pop(fifo.group, None)
            elif not fifo and isinstance(fifo.takers, tuple):
                self.matched.pop(fifo.takers, None)

    def leave(self, consumer: Takers) -> None:
        self._heaps.pop(consumer, None)

    def discard(self, sequences: set[int]) -> list[Message]:
        """Messages are removed. Stored ones stay on the lists, and are not there any more when they are recalled."""
        return [self.kept.pop(sequence) for sequence in sequences & self.kept.keys()]

    def clear(self) -> list[Message]:
        kept = [self.kept[sequence] for sequence in sorted(self.kept)]
        for table in (self.groups, self.matched, self.kept, self._heaps):
            table.clear()
        self._restarts.clear()
        self._emptied.clear()
        self.unwanted = self.count = 0
        self.full_since = 0.0
        return kept

    # Look.

    def above(self, sequence: int) -> set[int]:
        fifos = (*self.groups.values(), *self.matched.values())
        return {parked for fifo in fifos for parked in fifo.above(sequence)}

    def first(self) -> tuple[int, str, float]:
        """The lowest parked sequence, what it waits for, and since when; (0, "", 0.0) if nothing is parked."""
        found = [(fifo.first, "group-owner-busy", fifo.since) for fifo in self.groups.values() if fifo]
        found += [(fifo.first, "consumer-busy", fifo.since) for fifo in self.matched.values() if fifo]
        if self.unwanted:
            found.append((self.unwanted, "no-matching-consumer", self.unwanted_since))
        return min(found, default=(0, "", 0.0))


def _any_of(takers: Takers, texts: set[str]) -> bool:
    return isinstance(takers, tuple) and (not takers or not texts.isdisjoint(takers))
