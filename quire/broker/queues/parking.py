"""Messages of a lane that no present consumer can take now, and the message groups that are one reason for it.

They are parked by sequence, without their bodies, and the scan goes on behind them (rule 9). They are parked by who may
take them: the owner of their group, consumers with one of the selectors they match, or a consumer that is not there.
Of the last kind only the first is remembered: when a consumer with a new selector comes, the lane is scanned again.

A message group (JMSXGroupID, JMSXGroupSeq) keeps its owner until the owner leaves or the group is closed. An exclusive
consumer gets the groups of the others only with their next messages; if there are none until it leaves, the owners
still have their groups. Groups with a message in flight are never forgotten, however many there are; of the others the
oldest are, beyond a limit, which changes no order.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable
from heapq import heappop, heappush
from itertools import islice

from quire.broker.core.subscription import Subscription
from quire.clock import Clock
from quire.message import Message

Takers = Subscription | tuple[str, ...]
"""Who may take what is parked: the owner of its group, or consumers with one of these selectors (``ANYBODY``)."""

ANYBODY: Takers = ()
"""Not known yet: the dispatch has not looked at the first message."""

_COMPACT = 4096


class Fifo:
    """Sequences and sizes, in the order of the lane.

    Args:
        group: the message group they are of; None if they are of none.

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
        """Put a message in its place: behind the others, unless it came back."""
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
        """Take the first one out."""
        entry = (self.first, self._sizes[self._head], self)
        self._head += 1
        return entry

    def put_back(self, sequence: int, size: int) -> None:
        """Undo the last ``pop`` that is not undone."""
        self._head -= 1
        self._sequences[self._head], self._sizes[self._head] = sequence, size

    def above(self, sequence: int) -> "array[int]":
        """The sequences above one."""
        return self._sequences[bisect_right(self._sequences, sequence, self._head) :]


Entry = tuple[int, int, Fifo]
"""A parked message: its sequence, its size in bytes, and where it is parked."""


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


PARKED_LIMIT = 1_000_000
"""With so many parked messages waiting for present consumers of one lane, the scan stops: 12 bytes each."""

GROUP_COST = 50
"""As how many messages a group counts that has something parked, for what it takes in memory itself."""

Heap = list[tuple[int, Fifo]]


class Parking:
    """What is parked in one lane.

    Attributes:
        groups: by message group, what waits for the group's owner.
        matched: by the selectors that match it (of consumers that were there), what waits for one of them.
        kept: those of them that are nowhere but in memory, by sequence.
        unwanted: the first sequence that no consumer wants that was there; 0 if there is none.
        unwanted_since: since when there is one, on the monotonic clock.
        count: how many are in ``groups`` and ``matched``.
        full_since: since when it is full, if it is.
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
        """Whether so much waits for present consumers that the scan stops."""
        return self.count + GROUP_COST * len(self.groups) >= PARKED_LIMIT

    def holds(self, group: str, sequence: int) -> bool:
        """Whether a message of a group has to wait for an earlier one."""
        fifo = self.groups.get(group)
        return fifo is not None and len(fifo) > 0 and fifo.first < sequence

    # In.

    def park(self, message: Message, group: str | None, takers: Takers) -> None:
        """Park a message, in the order of the lane.

        Args:
            group: its message group, if it has one.
        """
        if not message.stored:
            self.kept[message.sequence] = message
        if group is None and not takers:
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
        """No present consumer wants a message."""
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

    def owned(self, group: str, owner: Subscription | None) -> None:
        """A group has another owner, or none any more."""
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
            below: messages from this sequence on are not taken.

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
        """A message that ``take`` gave is parked no more."""
        self._restarts.discard(entry[0])
        entry[2].since = self._clock.monotonic()

    def forget_empty(self) -> None:
        """Forget groups and selectors that have nothing parked any more."""
        if not self.is_full:
            self.full_since = 0.0
        emptied, self._emptied = self._emptied, []
        for fifo in emptied:
            if not fifo and fifo.group is not None:
                self.groups.pop(fifo.group, None)
            elif not fifo and isinstance(fifo.takers, tuple):
                self.matched.pop(fifo.takers, None)

    def leave(self, subscription: Subscription) -> None:
        """A consumer went; its groups have no owner any more."""
        self._heaps.pop(subscription, None)

    def discard(self, sequences: set[int]) -> list[Message]:
        """Messages are removed. Stored ones stay on the lists, and are not there any more when they are recalled."""
        return [self.kept.pop(sequence) for sequence in sequences & self.kept.keys()]

    def clear(self) -> list[Message]:
        """Forget everything."""
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
        """The parked sequences above one, without the unwanted ones."""
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
    """Whether consumers with one of some selectors are among those that may take something."""
    return isinstance(takers, tuple) and (not takers or not texts.isdisjoint(takers))
