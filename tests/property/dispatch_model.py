"""What a queue must do, said plainly: the model beside the queue of ``test_dispatch_machine``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from quire.broker.core.subscription import AckMode, Session, Subscription
from quire.errors import QuireError
from quire.message import Message
from quire.settings import Policy

RESTARTED = "x"
"""The group that has messages which begin it anew, and which close it: it may have several owners at a time."""

WANTS: dict[str | None, Callable[["Item"], bool]] = {
    None: lambda item: True,
    "color = 'red'": lambda item: item.color == "red",
    "color = 'blue'": lambda item: item.color == "blue",
    "color <> 'green'": lambda item: item.color != "green",
    "color = 'none'": lambda item: False,
}
"""Selectors, and what they mean."""


@dataclass(eq=False)
class Item:
    number: int  # its own
    order: int  # its place in the queue; not for ever, if it is moved to the tail
    color: str
    group: str | None
    group_sequence: str | None
    lane: int  # its priority in a prioritized queue
    expiration: int
    persistent: bool
    content: bytes
    commit: int  # the number of the commit that brings it
    is_live: bool = False  # whether that is done
    is_gone: bool = False  # whether it is settled, removed, a dead letter, or was refused
    is_brought: bool = False  # whether a failed commit does not refuse it
    holder: "Consumer | None" = None  # who has it in flight
    came_back: bool = False  # whether it came back from a consumer of this broker
    was_seen: bool = False  # whether any consumer ever had it
    may_be_flagged: bool = False  # whether it may be flagged without that, after a crash
    deliveries: int = 0
    failures: int = 0
    not_before: int = 0

    @property
    def is_waiting(self) -> bool:
        return self.is_live and not self.is_gone and self.holder is None

    @property
    def restarts(self) -> bool:
        return self.group_sequence == "1" and not self.deliveries and not self.may_be_flagged

    def is_expired(self, now_ms: int) -> bool:
        return 0 < self.expiration <= now_ms


@dataclass(frozen=True)
class Receipt:
    consumer: "Consumer"
    message: Message
    redelivered: bool
    counts: tuple[int, int]
    is_first_of_group: bool


class Sender(Session):
    """A session that sends; it hears when its sends fail, and forgets it."""

    name = "somebody"

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        raise AssertionError("it consumes nothing")

    def confirmed(self, receipts: list[bytes]) -> None: ...

    def fail(self, error: QuireError) -> None: ...

    def end_consumer(self, subscription: Subscription, error: QuireError) -> None: ...

    def flush(self) -> None: ...

    def resume(self) -> None: ...


class Consumer(Sender):
    subscription: Subscription

    def __init__(self, receipts: list[Receipt]) -> None:
        self._receipts = receipts  # takes what it is given

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        assert self.writable
        self._receipts += [Receipt(self, m, m.redelivered, (m.deliveries, m.failures), first) for m in messages]

    def wants(self, item: Item) -> bool:
        wanted = self.subscription.selector
        return WANTS[wanted.text if wanted else None](item)


@dataclass
class Start:
    """What the order within a step depends on, as it was when the step began."""

    owners: dict[str, Consumer]  # of the groups that do not move
    heads: set[Item]  # the first waiting message of each group, in each lane
    unsettled: set[int]  # the numbers of messages of which the store does not know that they came back


@dataclass
class Model:
    """The messages and the consumers of the queue."""

    policy: Policy  # the queue's
    items: dict[int, Item] = field(default_factory=dict)  # by number
    consumers: list[Consumer] = field(default_factory=list)  # in the order they came
    last_of_group: dict[str, Consumer] = field(default_factory=dict)  # who was given the last message of a group
    _next_order: int = 0

    def next_order(self) -> int:
        self._next_order += 1
        return self._next_order

    def waiting(self) -> list[Item]:
        return sorted([item for item in self.items.values() if item.is_waiting], key=lambda item: item.order)

    def eligible(self) -> list[Consumer]:
        """The consumers that are given anything at all."""
        exclusive = [c for c in self.consumers if c.subscription.exclusive]
        if self.policy.all_consumers_exclusive_by_default:
            exclusive = self.consumers
        return [max(exclusive, key=lambda c: c.subscription.priority)] if exclusive else self.consumers

    def is_wanted(self, item: Item) -> bool:
        return any(consumer.wants(item) for consumer in self.eligible())

    def heads(self) -> set[Item]:
        """The messages that come next in their groups, in each lane; what nobody wants holds up nobody."""
        first: dict[tuple[str, int], Item] = {}
        for item in self.waiting():
            if item.group is not None and self.is_wanted(item):
                first.setdefault((item.group, item.lane), item)
        return set(first.values())

    # What happens.

    def committed(self, number: int) -> None:
        """All commits up to one are done."""
        for item in self.items.values():
            item.is_live = item.is_live or item.commit <= number

    def failed(self, brought: Iterable[int], commit: int) -> None:
        """What was not committed is refused, or brought again by a later commit, in this order."""
        for item in self.items.values():
            if not item.is_live and not item.is_brought:
                item.is_gone = True
        for number in brought:
            self.items[number].order, self.items[number].commit = self.next_order(), commit

    def came_back(
        self, items: list[Item], failed: int, now_ms: int, commit: int, *, at_once: bool, delay_ms: int | None = None
    ) -> None:
        """Consumers did not acknowledge messages; the first so many of them failed."""
        for index, item in enumerate(items):
            has_failed = index < failed
            item.holder, item.came_back = None, True
            item.deliveries += 1
            item.failures += has_failed
            item.not_before = 0
            if 0 <= self.policy.maximum_redeliveries < item.failures:
                item.is_gone = True
            elif has_failed and not at_once:
                if delay := self.delay_of(item) if delay_ms is None else delay_ms:
                    item.not_before = now_ms + delay
                if self.policy.redelivery_at == "tail":
                    item.order, item.commit = self.next_order(), commit
                    item.is_live, item.is_brought = False, True

    def delay_of(self, item: Item) -> int:
        policy = self.policy
        return round((policy.initial_redelivery_delay if item.failures == 1 else policy.redelivery_delay) * 1000)

    # What was given out.

    def take(self, receipts: list[Receipt], now_ms: int, start: Start) -> None:
        given = [(receipt.consumer, self.items[number_of(receipt.message)]) for receipt in receipts]
        for receipt, (consumer, item) in zip(receipts, given, strict=True):
            self._may_be_given(receipt, consumer, item, now_ms)
            if item.group is not None:
                if not receipt.is_first_of_group:
                    assert self.last_of_group[item.group] is consumer
                self.last_of_group[item.group] = consumer
            item.was_seen = True
            is_auto = consumer.subscription.ack is AckMode.AUTO
            item.holder, item.is_gone = (None, True) if is_auto else (consumer, False)
        left = [item for item in self.waiting() if not item.is_expired(now_ms)]
        for index, (consumer, item) in enumerate(given):
            later = given[index + 1 :]
            self._order_was_kept(consumer, item, [i for c, i in later if c is consumer], left, now_ms, start)
            self._group_was_kept(consumer, item, later, left)
        for name in {item.group for _, item in given} - {None, RESTARTED}:
            assert len({item.holder for item in self.items.values() if item.group == name and item.holder}) <= 1

    def _may_be_given(self, receipt: Receipt, consumer: Consumer, item: Item, now_ms: int) -> None:
        assert item.is_waiting
        assert consumer in self.eligible()
        assert consumer.wants(item)
        assert not item.is_expired(now_ms)
        assert item.not_before <= now_ms
        assert receipt.message.content == item.content
        assert receipt.counts == (item.deliveries, item.failures)
        if receipt.redelivered != (item.deliveries > 0):
            assert item.may_be_flagged
            assert receipt.redelivered or not item.was_seen

    def _order_was_kept(
        self, consumer: Consumer, item: Item, later: list[Item], left: list[Item], now_ms: int, start: Start
    ) -> None:
        """The consumer could have had nothing before it that it was given later, or not yet."""
        for other in (*later, *left):
            if other.lane != item.lane or other.order > item.order or (item.came_back and not other.came_back):
                continue
            if not consumer.wants(other) or other.not_before > now_ms or other.number in start.unsettled:
                continue
            if other.group is not None and (start.owners.get(other.group) is not consumer or other not in start.heads):
                continue
            raise AssertionError(f"{item} was given before {other}")

    def _group_was_kept(
        self, consumer: Consumer, item: Item, later: list[tuple[Consumer, Item]], left: list[Item]
    ) -> None:
        """Nothing of its group that anybody wants was overtaken, be it delayed."""
        if item.group is None:
            return
        others = [other for other in left if self.is_wanted(other)]
        others += [i for c, i in later if c is consumer or item.group != RESTARTED]
        for other in others:
            overtaken = other.group == item.group and other.lane == item.lane and other.order < item.order
            assert not overtaken or (item.came_back and not other.came_back), f"{item} overtook {other}"


def number_of(message: Message) -> int:
    return int(message.header(b"number") or -1)
