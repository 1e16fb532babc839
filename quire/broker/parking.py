"""Messages of a lane that no present consumer can take now: parked by sequence, without their bodies.

The scan goes on behind them (rule 9). They are parked by what they wait for: the owner of their group, a consumer with
one of the selectors they match, or a consumer that is not there. Of the last kind only the first is remembered: when a
consumer with a new selector comes, the lane is scanned again.
"""

from array import array
from collections.abc import Iterator

from quire.broker.subscription import Subscription
from quire.clock import Clock
from quire.message import Message

PARKED_LIMIT = 1_000_000
"""With so many parked messages waiting for present consumers of one lane, the scan stops: 12 bytes each."""

_COMPACT = 4096


class Fifo:
    """Sequences and sizes, first in, first out.

    Attributes:
        since: since when the one that is first now is first, on the monotonic clock.
    """

    __slots__ = ("_head", "_sequences", "_sizes", "since")

    def __init__(self) -> None:
        self.since = 0.0
        self._sequences = array("Q")
        self._sizes = array("Q")
        self._head = 0

    def __len__(self) -> int:
        return len(self._sequences) - self._head

    def append(self, message: Message) -> None:
        """Put a message behind the others."""
        self._sequences.append(message.sequence)
        self._sizes.append(message.size)

    @property
    def first(self) -> int:
        """The first one's sequence; there must be one."""
        return self._sequences[self._head]

    def __iter__(self) -> "Iterator[Entry]":
        """The entries in order; it may not change meanwhile."""
        for index in range(self._head, len(self._sequences)):
            yield self._sequences[index], self._sizes[index], self

    def drop(self) -> None:
        """Forget the first one."""
        self._head += 1
        if self._head > _COMPACT and self._head * 2 > len(self._sequences):
            del self._sequences[: self._head]
            del self._sizes[: self._head]
            self._head = 0


Entry = tuple[int, int, Fifo]
"""A parked message: its sequence, its size in bytes, and where it is parked."""


class Parking:
    """What is parked in one lane.

    Args:
        clock: for ages.

    Attributes:
        groups: by message group, what waits for the group's owner.
        matched: by the selectors that match it (of consumers that were there), what waits for one of them.
        kept: those of them that are nowhere but in memory, by sequence.
        unwanted: the first sequence that no consumer wants that was there; 0 if there is none.
        unwanted_since: since when there is one, on the monotonic clock.
        count: how many are in ``groups`` and ``matched``.
        full_since: since when that is ``PARKED_LIMIT``, if it is.
    """

    def __init__(self, clock: Clock) -> None:
        self.groups: dict[str, Fifo] = {}
        self.matched: dict[tuple[str, ...], Fifo] = {}
        self.kept: dict[int, Message] = {}
        self.unwanted = 0
        self.unwanted_since = 0.0
        self.count = 0
        self.full_since = 0.0
        self._clock = clock
        self._by_owner: dict[Subscription | None, dict[str, None]] = {}
        self._has_empty = False

    def __bool__(self) -> bool:
        return bool(self.count or self.unwanted)

    def park_group(self, message: Message, group: str, owner: Subscription | None) -> None:
        """A message waits for the owner of its group, or for the group to get one."""
        fifo = self.groups.get(group)
        if fifo is None:
            fifo = self.groups[group] = Fifo()
            self._by_owner.setdefault(owner, {})[group] = None
        self._park(fifo, message)

    def park_matched(self, message: Message, selectors: tuple[str, ...]) -> None:
        """A message waits for credit of a consumer with one of some selectors; none at all means nobody wants it."""
        if selectors:
            fifo = self.matched.get(selectors)
            if fifo is None:
                fifo = self.matched[selectors] = Fifo()
            self._park(fifo, message)
            return
        if not self.unwanted:
            self.unwanted_since = self._clock.monotonic()
        self.unwanted = min(self.unwanted or message.sequence, message.sequence)
        if not message.stored:
            self.kept[message.sequence] = message

    def _park(self, fifo: Fifo, message: Message) -> None:
        if not fifo:
            fifo.since = self._clock.monotonic()
        fifo.append(message)
        self.count += 1
        if self.count == PARKED_LIMIT:
            self.full_since = self._clock.monotonic()
        if not message.stored:
            self.kept[message.sequence] = message

    def groups_of(self, owner: Subscription | None) -> list[str]:
        """The groups of an owner, or of none, that have something parked, in the order they were parked."""
        return list(self._by_owner.get(owner, ()))

    def owned(self, group: str, before: Subscription | None, owner: Subscription | None) -> None:
        """A group has another owner, or none any more."""
        if group in self.groups:
            self._by_owner.get(before, {}).pop(group, None)
            self._by_owner.setdefault(owner, {})[group] = None
        if before is not None and not self._by_owner.get(before):
            self._by_owner.pop(before, None)

    def drop(self, fifo: Fifo) -> None:
        """The first message of a fifo is parked no more."""
        fifo.drop()
        fifo.since = self._clock.monotonic()
        self.count -= 1
        self._has_empty = self._has_empty or not fifo

    def forget_empty(self) -> None:
        """Forget groups and selectors that have nothing parked any more."""
        if self._has_empty:
            self._has_empty = False
            self.matched = {key: fifo for key, fifo in self.matched.items() if fifo}
            for name in [name for name, fifo in self.groups.items() if not fifo]:
                del self.groups[name]
                for names in self._by_owner.values():
                    names.pop(name, None)
            self._by_owner = {owner: names for owner, names in self._by_owner.items() if names}

    def discard(self, sequences: set[int]) -> list[Message]:
        """Messages are removed. Stored ones stay on the lists, and are not there any more when they are recalled.

        Returns:
            Those that were nowhere but in memory.
        """
        return [self.kept.pop(sequence) for sequence in sequences & self.kept.keys()]

    def first(self) -> tuple[int, str, float]:
        """The lowest parked sequence, what it waits for, and since when; (0, "", 0.0) if nothing is parked."""
        found = [(fifo.first, "group-owner-busy", fifo.since) for fifo in self.groups.values() if fifo]
        found += [(fifo.first, "consumer-busy", fifo.since) for fifo in self.matched.values() if fifo]
        if self.unwanted:
            found.append((self.unwanted, "no-matching-consumer", self.unwanted_since))
        return min(found, default=(0, "", 0.0))

    def clear(self) -> list[Message]:
        """Forget everything.

        Returns:
            What was nowhere but in memory, in order.
        """
        kept = [self.kept[sequence] for sequence in sorted(self.kept)]
        self.groups.clear()
        self.matched.clear()
        self.kept.clear()
        self._by_owner.clear()
        self.unwanted = self.count = 0
        return kept
