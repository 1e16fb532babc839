"""A consumer of several shards: of a pattern, of a list, of what each shard has a part of.

Each shard has an ordinary consumer. To the client they are one: with one prefetch, one order in which it was given
messages, and pulls that bring so many in all.

**What the client has** is an ordered table of parts and sequences, for messages that are to be settled. It resolves
what is said of all messages up to one, and of the last one that was seen.

**One prefetch** P over k shards: each may have a share of it in flight. If a shard is full and fewer than P are in
flight in all, its window is raised by that room; when more than P are in flight, raised windows go back to the share.
Nothing is subtracted for the windows of shards that have nothing to give: else a client that settles in lots of P
would wait for ever.

**A pull** of n asks one shard after the other for what is there, that one first that gave last, until n have come. If
the client waits for more, all shards are asked at once. When one gives, the others are asked anew for what is left, or
for none. It is over when each has answered the newest that it was asked. What comes beyond n is released at once: no
message waits at a consumer that did not ask for it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from quire.broker.core.subscription import AckMode
from quire.destination import Destination
from quire.errors import InvalidArgument, InvalidHeader, UnknownMessage
from quire.message import Message
from quire.sessions.base import (
    RELEASED,
    UNKNOWN,
    Consumer,
    ConsumerKind,
    Part,
    Seen,
    Session,
    Settlement,
    SettlementKind,
    Step,
    SubscribeSpec,
    These,
    Tx,
    UpTo,
)
from quire.sessions.settling import run_of, up_to

Key = tuple[int, int]
"""A message that the client has: the number of its part, and its sequence."""

Covered = dict["SpreadPart", list[int]]
"""Messages, by part, each in the order in which the client was given them."""

_SETTLED = frozenset({
    SettlementKind.ACCEPTED, SettlementKind.REJECTED, SettlementKind.DEAD, SettlementKind.POISON,
    SettlementKind.RELEASED, SettlementKind.UNMATCHED, SettlementKind.EXPIRED, SettlementKind.UNWRITABLE,
})  # fmt: skip
"""After which the client does not have a message any more."""

_WAIT = frozenset({
    SettlementKind.ACCEPTED, SettlementKind.REJECTED, SettlementKind.DEAD, SettlementKind.UNMATCHED,
})  # fmt: skip
"""What waits for the commit of a transaction."""


class SpreadPart:
    """A part of a consumer of several shards, in front of the shard's own."""

    __slots__ = ("consumer", "inner", "number", "shard", "writer")

    def __init__(self, consumer: "SpreadConsumer", inner: Part, shard: "Shard") -> None:
        self.consumer = consumer
        self.inner = inner  # the shard's own
        self.shard = shard  # what the consumer has at that shard
        self.number = inner.number
        self.writer: Any = None

    @property
    def in_flight(self) -> dict[int, Message]:
        return self.inner.in_flight

    @in_flight.setter
    def in_flight(self, in_flight: dict[int, Message]) -> None:
        self.inner.in_flight = in_flight

    @property
    def partition(self) -> int | None:
        """It is none of a member."""
        return self.inner.partition

    @property
    def epoch(self) -> int:
        """It is none of a member."""
        return self.inner.epoch

    @property
    def destination(self) -> Destination:
        return self.inner.destination

    def acknowledge(self, sequences: list[int]) -> list[int]:
        self.consumer.forget([(self.number, sequence) for sequence in sequences])
        others = self.inner.acknowledge(sequences)
        self.consumer.adjust()
        return others


class Shard:
    """What a consumer has at one of its shards."""

    __slots__ = ("consumer", "session", "taking", "window")

    def __init__(self, session: Session, consumer: Consumer, window: int) -> None:
        self.session = session  # at the shard
        self.consumer = consumer  # at the shard
        self.window = window  # how many messages may be in flight
        self.taking = 0  # how many are, and take credit


class SpreadConsumer:
    """One consumer.

    Args:
        now: the time, in seconds, on the monotonic clock.
        pull_ended: is told when a pull is over, and how many messages have not come.

    Attributes:
        parts: what it has there.
    """

    def __init__(
        self, spec: SubscribeSpec, prefetch: int, count: int, *, extends: bool, now: Callable[[], float],
        pull_ended: Callable[["SpreadConsumer", int], None],
    ) -> None:  # fmt: skip
        self.spec = spec  # what it wants in all
        self.only_part = None
        self.shards: dict[int, Shard] = {}  # at which it is, by number
        self._parts: dict[int, SpreadPart] = {}
        self.browsing: set[int] = set()  # the shards that have not shown all yet, if it is a browser
        self._prefetch = prefetch  # how many messages may be in flight in all
        self._count = count  # at how many shards it is
        self._extends = extends  # whether a message takes no credit when the client has told that it is delivered
        self._is_tracked = spec.ack is not AckMode.AUTO and spec.kind is not ConsumerKind.BROWSER
        self._given: dict[Key, SpreadPart] = {}
        self._quiet: set[Key] = set()  # those that take no credit: delivered, or settled in a transaction
        self._marked: dict[Key, None] = {}  # what the client, which has failed over, had before
        self._in_transactions: dict[Tx, list[Key]] = {}
        self._pull = _Pull(self, now, lambda left: pull_ended(self, left))

    @property
    def parts(self) -> Sequence[SpreadPart]:
        return list(self._parts.values())

    # Its shards.

    @property
    def share(self) -> int:
        return max(self._prefetch // self._count, 1) if self._prefetch else 0

    def subscribed(self, number: int, session: Session, consumer: Consumer) -> None:
        self.shards[number] = Shard(session, consumer, self.share)
        if self.spec.kind is ConsumerKind.BROWSER:
            self.browsing.add(number)

    def part_added(self, number: int, inner: Part) -> SpreadPart:
        part = self._parts[inner.number] = SpreadPart(self, inner, self.shards[number])
        return part

    def part_gone(self, inner: Part) -> SpreadPart | None:
        """A shard has a part less: what the client has of it is gone."""
        part = self._parts.pop(inner.number, None)
        if part is not None:
            self.forget([key for key in self._given if key[0] == inner.number])
            self.adjust()
        return part

    def lost(self, number: int) -> list[SpreadPart]:
        """It is not subscribed at a shard any more. Returns the parts that are gone."""
        shard = self.shards.pop(number, None)
        self.browsing.discard(number)
        gone = [part for part in self._parts.values() if part.shard is shard]
        for part in gone:
            self.part_gone(part.inner)
        return gone

    # What it is given.

    def given(self, part: SpreadPart, messages: list[Message]) -> list[Message]:
        """A shard gives messages; those that the client gets."""
        if not self._prefetch and self.spec.kind is not ConsumerKind.BROWSER:
            messages, beyond = self._pull.came(part.shard, messages)
            if beyond:
                part.shard.session.settle(These(part.inner, [message.sequence for message in beyond]), RELEASED)
        if self._is_tracked:
            number, given = part.number, self._given
            for message in messages:
                given[number, message.sequence] = part
            part.shard.taking += len(messages)
            self.adjust()
        return messages

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            part = self._given.pop(key, None)
            if part is not None:
                self._marked.pop(key, None)
                if key in self._quiet:
                    self._quiet.discard(key)
                else:
                    part.shard.taking -= 1

    def _hush(self, keys: Iterable[Key]) -> None:
        """Messages take no credit."""
        for key in keys:
            if key in self._given and key not in self._quiet:
                self._quiet.add(key)
                self._given[key].shard.taking -= 1

    # What is said of it.

    def settled(self, what: These | UpTo, how: Settlement, tx: Tx | None) -> Covered:
        """The client says what becomes of messages: which ones these are, by part."""
        part = what.part
        assert isinstance(part, SpreadPart)
        if isinstance(what, These):
            keys = [(part.number, sequence) for sequence in what.sequences]
        else:
            keys = self._up_to(part, what, how)
        covered: Covered = {}
        for number, sequence in keys:
            covered.setdefault(self._given.get((number, sequence), part), []).append(sequence)
        if how.kind is SettlementKind.DELIVERED:
            if self._extends:
                self._hush(keys)
        elif tx is not None and how.kind in _WAIT:
            self._in_transactions.setdefault(tx, []).extend([key for key in keys if key in self._given])
            self._hush(keys)
        elif how.kind in _SETTLED:
            self.forget(keys)
        return covered

    def _up_to(self, part: SpreadPart, what: UpTo, how: Settlement) -> list[Key]:
        last = part.number, what.last
        if last not in self._given:
            text = f"message {what.last} is not in flight on {self.spec.id!r}"
            raise UnknownMessage(text, sequence=what.last)
        if how.kind is SettlementKind.DELIVERED and what.first is None and what.expected == 1:
            self._marked[last] = None
        first = None if what.first is None else ((what.first_part or part).number, what.first)
        if what.expected == 1 or first == last:
            return [last]
        run = run_of(self._given, self._marked, first, last, what.expected)
        if not run:
            raise InvalidArgument(f"message {what.first} was dispatched after message {what.last}", argument="first")
        held = {key for keys in self._in_transactions.values() for key in keys}
        return [key for key in run if key not in held]

    def transaction_ended(self, tx: Tx, step: Step) -> None:
        """A transaction is over. A rollback that keeps leaves its messages with the client."""
        keys = self._in_transactions.pop(tx, [])
        if step is not Step.ROLLBACK_KEEP:
            self.forget(keys)
        for key in keys:
            if key in self._quiet:
                self._quiet.discard(key)
                self._given[key].shard.taking += 1
        if keys:
            self.adjust()

    def seen(self, number: int, seen: Seen) -> Seen:
        """What a shard is told of the last message that the client has seen: its own last one."""
        if not seen.is_known or seen.last is None or seen.part is None:
            return seen
        last = seen.part.number, seen.last
        shard = self.shards[number]
        if last in self._given:
            its = [key for key in up_to(self._given, last) if self._given[key].shard is shard]
            return Seen(True, its[-1][1], self._given[its[-1]].inner, seen.is_alone) if its else Seen(True)
        if not seen.is_alone:  # it was acknowledged, and with it all before
            return Seen(True)
        part = self._parts.get(seen.part.number)
        if part is not None and part.shard is shard:
            return Seen(True, seen.last, part.inner, True)
        return UNKNOWN

    # Its prefetch.

    def set_prefetch(self, prefetch: int) -> None:
        self._prefetch = prefetch
        self._pull.drop()
        for shard in self.shards.values():
            self._set_window(shard, self.share)
        self.adjust()

    def adjust(self) -> None:
        """See that shards go on that have given their shares, while the client takes more."""
        if not (self._is_tracked and self._prefetch):
            return
        room = self._prefetch - sum([shard.taking for shard in self.shards.values()])
        if room > 0:
            for shard in self.shards.values():
                if shard.taking >= shard.window:
                    self._set_window(shard, shard.taking + room)
        elif room < 0:
            share = self.share
            for shard in self.shards.values():
                if shard.window > share:
                    self._set_window(shard, share)

    def _set_window(self, shard: Shard, window: int) -> None:
        shard.window = window
        shard.session.credit(shard.consumer, window)

    # Pulls.

    def pull(self, count: int, wait_ms: int) -> None:
        if self._prefetch:
            text = f"{self.spec.id!r} is not one that pulls: subscribe with activemq.prefetchSize:0"
            raise InvalidHeader(text, header="destination")
        self._pull.begin(count, wait_ms)

    def pull_ended(self, consumer: Consumer) -> None:
        shard = next((shard for shard in self.shards.values() if shard.consumer is consumer), None)
        if shard is not None:
            self._pull.answered(shard)


class _Pull:
    """The pulls of a consumer."""

    def __init__(self, consumer: SpreadConsumer, now: Callable[[], float], ended: Callable[[int], None]) -> None:
        self._consumer = consumer
        self._now = now
        self._ended = ended  # is told when one is over, and how many messages have not come
        self._is_open = self._asks_all = False
        self._left = 0
        self._wait = 0
        self._deadline = 0.0
        self._next: list[Shard] = []  # those that are asked one after the other
        self._asked: dict[Shard, None] = {}  # those that have not answered yet
        self._last: Shard | None = None  # that has given something last

    def begin(self, count: int, wait_ms: int) -> None:
        """Begin one, in the place of the last one."""
        self._is_open = self._asks_all = False
        self._left, self._next = 0, []
        for shard in list(self._asked):
            self._ask(shard, 0, -1)
        self._is_open = True
        self._left, self._wait = count, wait_ms
        self._deadline = self._now() + wait_ms / 1000
        if count:
            shards = list(self._consumer.shards.values())
            self._next = sorted(shards, key=lambda shard: shard is not self._last)
            self._ask(self._next.pop(0), count, -1)
        self._end_if_over()

    def drop(self) -> None:
        """The last one brings nothing more, and its end is not told."""
        self._is_open = False
        self._left, self._next = 0, []
        self._asked.clear()

    def came(self, shard: Shard, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """A shard gives messages: those that were asked for, and those beyond."""
        wanted, beyond = messages[: self._left], messages[self._left :]
        if wanted:
            self._last = shard
            self._left -= len(wanted)
            if self._asks_all:
                for other in list(self._asked):
                    if other is not shard:
                        self._ask(other, self._left, self._waits)
        return wanted, beyond

    def answered(self, shard: Shard) -> None:
        """A shard has answered the newest that it was asked."""
        if self._asked.pop(shard, self) is self:
            return
        if self._next and self._left:
            self._ask(self._next.pop(0), self._left, -1)
        elif self._left and self._wait >= 0 and not (self._asked or self._asks_all or self._is_late):
            self._asks_all = True
            for each in self._consumer.shards.values():
                self._ask(each, self._left, self._waits)
        self._end_if_over()

    @property
    def _waits(self) -> int:
        if self._wait <= 0:
            return self._wait
        return max(round((self._deadline - self._now()) * 1000), 1)

    @property
    def _is_late(self) -> bool:
        return self._wait > 0 and self._now() >= self._deadline

    def _ask(self, shard: Shard, count: int, wait_ms: int) -> None:
        self._asked[shard] = None
        shard.session.pull(shard.consumer, count, wait_ms if count else -1)

    def _end_if_over(self) -> None:
        if self._is_open and not self._asked and not (self._next and self._left):
            self._is_open = False
            self._ended(self._left)
