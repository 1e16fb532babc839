"""A topic whose policy has ``prioritized_messages``: a lane for each priority, and one ack set over all of them."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.topics.topic import Progress
from quire.errors import QuireError, StoreFull
from quire.management.messages import ALL, MessageTransfer
from quire.management.messages import browse as browse_page
from quire.management.queues import Management, TopicManagement
from quire.message import Message
from quire.store.base import Link, Page
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.recipients import (
    Recipient,
    accept,
    durable,
    leave,
    marks,
    offline,
    put,
    records,
    reject,
    settle,
)
from tests.unit.management.managed import browse

PRIORITIZED = {"prioritized_messages": True}


def prioritized(**policy: Any) -> SteppedBroker:
    return SteppedBroker(settings(policy={**PRIORITIZED, **policy}))


def send(stepped: SteppedBroker, *texts: str, **fields: Any) -> None:
    """Publish messages whose first character is their priority."""
    for text in texts:
        put(stepped, text, priority=int(text[0]), **fields)
    stepped.run()


def take_all(stepped: SteppedBroker, receiver: Recipient, subscription: Subscription) -> str:
    """Take and acknowledge messages until none comes any more."""
    got = []
    while messages := receiver.take():
        got += [message.body.decode() for message in messages]
        accept(subscription, *messages)
        stepped.run()
    return " ".join(got)


def drained(stepped: SteppedBroker, name: str = "d", prefetch: int = 1, **options: Any) -> str:
    """What a durable subscription gets now, one message after the other; its consumer leaves."""
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(name, prefetch=prefetch, **options)
    got = take_all(stepped, receiver, subscription)
    leave(subscription)
    stepped.run()
    return got


def is_clean(stepped: SteppedBroker) -> bool:
    """Whether nothing is left of messages, in the store or in memory."""
    topic = stepped.broker.topic("t")
    assert (topic.depth, topic.bytes, stepped.broker.core.stored_bytes) == (0, 0, 0)
    assert not stepped.store.marks("sub/d/")
    return records(stepped) == 0 and stepped.broker.core.memory.used == 0


# The order.


def test_a_backlog_comes_by_priority_and_in_the_order_of_sending_within_one() -> None:
    stepped = prioritized()
    offline(stepped)
    send(stepped, "0a", "5a", "9a", "1a", "8a", "4a", "6a", "2a", "7a", "3a", "5b", "9b", "0b")
    assert drained(stepped) == "9a 9b 8a 7a 6a 5a 5b 4a 3a 2a 1a 0a 0b"
    assert is_clean(stepped)


def test_a_late_message_of_high_priority_overtakes_the_backlog() -> None:
    stepped = prioritized()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=1)
    send(stepped, "1a", "1b")
    send(stepped, "9a")
    assert take_all(stepped, receiver, subscription) == "1a 9a 1b"
    assert is_clean(stepped)


def test_without_the_policy_priorities_change_nothing() -> None:
    stepped = SteppedBroker()
    offline(stepped)
    send(stepped, "0a", "9a")
    assert drained(stepped) == "0a 9a"


def test_each_subscription_has_the_order_of_its_own_and_the_body_is_stored_once() -> None:
    stepped = prioritized()
    offline(stepped, "x")
    send(stepped, "1a")
    offline(stepped, "y")
    send(stepped, "5a", "9a")
    assert records(stepped) == 3
    assert drained(stepped, "x") == "9a 5a 1a"
    assert (records(stepped), durable(stepped, "x").depth, durable(stepped, "y").depth) == (2, 0, 2)
    assert drained(stepped, "y") == "9a 5a"
    assert is_clean(stepped)


def test_a_selector_leaves_out_messages_of_every_priority() -> None:
    stepped = prioritized()
    offline(stepped, wanted="a = 'x'")
    send(stepped, "1a", "9a", a="x")
    send(stepped, "1b", "9b", "4b", a="y")
    send(stepped, "4c", a="x")
    assert drained(stepped, wanted="a = 'x'") == "9a 4c 1a"
    assert is_clean(stepped)


def test_a_selector_that_passes_over_much_holds_the_order(monkeypatch: Any) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.EARLY_HOLES", 0)
    monkeypatch.setattr("quire.broker.queues.shared_lane.SCAN_LIMIT", 3)
    stepped = prioritized()
    offline(stepped, wanted="a = 'x'")
    send(stepped, *["9b"] * 20, a="y")
    send(stepped, "1a", "9a", a="x")
    assert drained(stepped, wanted="a = 'x'") == "9a 1a"
    assert is_clean(stepped)


def test_no_local_leaves_out_what_the_own_connection_sends() -> None:
    stepped = prioritized()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(no_local=True, prefetch=1)
    send(stepped, "1a", "9a", sender=receiver)
    send(stepped, "1b", "9b")
    assert take_all(stepped, receiver, subscription) == "9b 1b"
    assert is_clean(stepped)


# What comes back.


def test_what_is_rejected_comes_back_within_its_priority() -> None:
    stepped = prioritized()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=1)
    send(stepped, "4a")
    send(stepped, "4b", "9a", "9b")
    reject(subscription, *receiver.take())
    stepped.run()
    (again,) = receiver.take()
    assert (again.body, again.redelivered) == (b"9a", False)
    reject(subscription, again)
    stepped.run()
    (again,) = receiver.take()
    assert (again.body, again.redelivered) == (b"9a", True)
    accept(subscription, again)
    stepped.run()
    assert take_all(stepped, receiver, subscription) == "9b 4a 4b"
    assert is_clean(stepped)


def test_delivery_states_survive_a_crash_and_go_with_their_messages() -> None:
    stepped = prioritized(maximum_redeliveries=-1)
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=2)
    send(stepped, "4a", "9a")
    reject(subscription, *receiver.take())
    stepped.run()
    again = stepped.reopen()
    assert len([mark for mark in marks(again) if mark.startswith("sub/d/")]) == 2
    receiver = Recipient(again)
    subscription = receiver.subscribe_durably(prefetch=10)
    messages = receiver.take()
    assert [(m.body, m.failures, m.redelivered) for m in messages] == [(b"9a", 1, True), (b"4a", 1, True)]
    accept(subscription, *messages)
    again.run()
    assert is_clean(again)


def test_each_priority_has_its_delivery_states() -> None:
    stepped = prioritized(maximum_redeliveries=-1)
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably()
    send(stepped, "9a", "4a", "9b")
    reject(subscription, *receiver.take())
    stepped.run()
    lanes = {lane.priority: lane for lane in durable(stepped).lanes}
    found = {p: [sequence for sequence, _ in lane.reader.deliveries(lane.id, 0, 9)] for p, lane in lanes.items()}
    assert (found[9], found[4], found[0]) == ([1, 3], [2], [])


def test_after_a_crash_what_was_delivered_is_flagged_and_nothing_else() -> None:
    stepped = prioritized()
    offline(stepped)
    send(stepped, "1a", "1b", "9a", "9b", "9c")
    receiver = Recipient(stepped)
    receiver.subscribe_durably(prefetch=2)
    assert receiver.bodies() == [b"9a", b"9b"]
    again = stepped.reopen()
    send(again, "9d")
    receiver = Recipient(again)
    receiver.subscribe_durably(prefetch=10)
    got = {message.body: message.redelivered for message in receiver.take()}
    assert list(got) == [b"9a", b"9b", b"9c", b"9d", b"1a", b"1b"]
    assert (got[b"9a"], got[b"9b"], got[b"9d"], got[b"1a"], got[b"1b"]) == (True, True, False, False, False)


def test_a_clean_stop_leaves_no_flag() -> None:
    stepped = prioritized()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=1)
    send(stepped, "9a", "1a")
    accept(subscription, *receiver.take())
    stepped.run()
    receiver.take()
    leave(subscription)
    durable(stepped).stop()
    stepped.run()
    again = stepped.reopen()
    receiver = Recipient(again)
    receiver.subscribe_durably()
    assert [(message.body, message.deliveries) for message in receiver.take()] == [(b"1a", 1)]
    stored = again.store.mark(durable(again).keys.progress)
    assert stored is not None
    assert msgspec.msgpack.decode(stored, type=Progress).lane_marks != ()


# It loses what somebody else removes.


def test_expired_messages_go_from_every_priority() -> None:
    stepped = prioritized(dead_letter_strategy="discarding")
    offline(stepped, "x")
    offline(stepped, "y")
    soon = stepped.clock.now_ms() + 1000
    send(stepped, "1a", "9a", "4a", expiration=soon)
    send(stepped, "1b", "9b")
    stepped.advance(60)
    settle(stepped)
    assert (records(stepped), durable(stepped, "x").depth, stepped.broker.topic("t").depth) == (2, 2, 2)
    assert [drained(stepped, name) for name in ("x", "y")] == ["9b 1b"] * 2
    assert is_clean(stepped)


def test_expired_messages_become_dead_letters_with_their_priority() -> None:
    stepped = prioritized()
    offline(stepped)
    send(stepped, "7a", expiration=stepped.clock.now_ms() + 1000)
    stepped.advance(60)
    settle(stepped)
    (letter,) = browse(stepped.broker, "ActiveMQ.DLQ").messages
    assert letter.priority == 7


def test_the_removal_of_a_subscription_leaves_nothing_behind() -> None:
    stepped = prioritized(maximum_redeliveries=-1)
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=2)
    offline(stepped, "other")
    send(stepped, *[f"{number % 10}a" for number in range(30)])
    reject(subscription, *receiver.take())
    leave(subscription)
    stepped.run()
    stepped.broker.durables.remove("c", "d")
    settle(stepped)
    assert records(stepped) == 30
    assert drained(stepped, "other") == " ".join([f"{priority}a" for priority in range(9, -1, -1) for _ in range(3)])
    stepped.broker.durables.remove("c", "other")
    settle(stepped)
    assert is_clean(stepped)
    assert marks(stepped) == []


def test_a_removal_goes_on_after_a_crash() -> None:
    stepped = prioritized()
    offline(stepped)
    send(stepped, "1a", "9a", "4a")
    stepped.broker.durables.remove("c", "d")
    stepped.turn()
    stepped.commit()
    again = stepped.reopen()
    settle(again)
    assert (records(again), marks(again)) == (0, [])


def test_a_deleted_topic_leaves_nothing_behind() -> None:
    stepped = prioritized()
    offline(stepped)
    send(stepped, "1a", "9a", "4a")
    lanes = stepped.broker.topic("t").lanes
    stepped.broker.destinations.delete_topic(stepped.broker.topic("t"))
    settle(stepped)
    assert [stepped.store.lane_state(lane).count for lane in lanes] == [0] * 10
    assert (marks(stepped), stepped.store.marks("topic/"), stepped.broker.core.stored_bytes) == ([], [], 0)


def test_an_operator_browses_in_the_order_of_sending_and_purges() -> None:
    stepped = prioritized()
    offline(stepped)
    send(stepped, "1a", "9a", "4a", "9b")
    page = browse_page(stepped.broker.core, durable(stepped), limit=3)
    assert [(message.body, message.priority) for message in page.messages] == [("1a", 1), ("9a", 9), ("4a", 4)]
    for _ in MessageTransfer(stepped.broker, durable(stepped), ALL):
        stepped.run()
    assert durable(stepped).depth == 0
    assert is_clean(stepped)
    assert TopicManagement(Management(stepped.broker)).topic("t").prioritized


# What a topic keeps.


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"subscription_recovery_policy": "last-image"}, "1c"),
        ({"subscription_recovery_policy": "fixed-count", "recovery_count": 4}, "9a 4a 9b 1c"),
        ({"subscription_recovery_policy": "fixed-size", "recovery_size": 135}, "4a 9b 1c"),
        ({"subscription_recovery_policy": "timed", "recovery_duration": 60.0}, "1a 1b 9a 4a 9b 1c"),
    ],
)
def test_retroactive_consumers_get_what_is_kept_in_the_order_of_sending(policy: dict[str, Any], kept: str) -> None:
    stepped = prioritized(**policy)
    send(stepped, "1a", "1b", "9a", "4a", "9b", "1c")
    for _ in range(2):
        settle(stepped)
        assert records(stepped) == stepped.broker.topic("t").kept.count == len(kept.split())
        receiver = Recipient(stepped)
        subscription = receiver.subscribe(retroactive=True, ack=AckMode.INDIVIDUAL, prefetch=2)
        stepped.run()
        assert take_all(stepped, receiver, subscription) == kept
        leave(subscription)
        stepped = stepped.reopen()


def test_a_retroactive_durable_subscription_begins_with_what_is_kept_by_priority() -> None:
    stepped = prioritized(subscription_recovery_policy="fixed-count", recovery_count=3)
    send(stepped, "1a", "9a", "4a", "9b")
    assert drained(stepped, retroactive=True) == "9a 9b 4a"
    assert (durable(stepped).depth, records(stepped), stepped.broker.topic("t").kept.count) == (0, 3, 3)


def test_what_is_kept_and_expires_goes() -> None:
    stepped = prioritized(subscription_recovery_policy="fixed-count", recovery_count=10)
    send(stepped, "1a", "9a", expiration=stepped.clock.now_ms() + 1000)
    send(stepped, "4a")
    stepped.advance(60)
    settle(stepped)
    assert (records(stepped), stepped.broker.topic("t").kept.count) == (1, 1)


# Failing commits, many holes, much that is finished.


def test_a_failed_commit_leaves_no_holes_and_loses_nothing() -> None:
    stepped = prioritized()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=1)
    send(stepped, "1a")
    send(stepped, "9a")
    accept(subscription, *receiver.take())
    put(stepped, "refused", priority=9)
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(1)
    send(stepped, "5a")
    assert take_all(stepped, receiver, subscription) == "9a 5a"
    assert (durable(stepped).finished.holes, is_clean(stepped)) == (0, True)


def test_with_too_many_holes_the_oldest_messages_close_them_first(monkeypatch: Any) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.HOLES_LIMIT", 2)
    stepped = prioritized()
    offline(stepped)
    send(stepped, "1a", "9a", "1b", "5a", "1c", "9b", "1d", "9c", "1e", "9d")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=1)
    got, holes = [], []
    while messages := receiver.take():
        got += [message.body.decode() for message in messages]
        accept(subscription, *messages)
        stepped.run()
        holes.append(durable(stepped).finished.holes)
    assert max(holes) <= 2 + 1  # the next message was on its way
    assert " ".join(got[:6]) == "9a 9b 9c 1a 1b 5a"
    assert sorted(got) == sorted(["1a", "9a", "1b", "5a", "1c", "9b", "1d", "9c", "1e", "9d"])
    assert is_clean(stepped)


def test_a_limit_of_holes_never_stops_a_long_history(monkeypatch: Any) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.HOLES_LIMIT", 20)
    stepped = prioritized()
    offline(stepped)
    sent = [f"{number * 7 % 10}-{number}" for number in range(300)]
    send(stepped, *sent)
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=5)
    got, most = [], 0
    while messages := receiver.take():
        got += [message.body.decode() for message in messages]
        accept(subscription, *messages)
        stepped.run()
        most = max(most, durable(stepped).finished.holes)
    assert sorted(got) == sorted(sent)
    assert most <= 20 + 10
    assert is_clean(stepped)


def play(stepped: SteppedBroker, sent: list[str]) -> list[bytes]:
    """A history of two subscriptions that reads the store in many ways; whoever is refused tries again."""
    done: list[bytes] = []

    def consume(name: str, most: int) -> None:
        receiver = Recipient(stepped)
        for _ in range(3):
            try:
                subscription = receiver.subscribe_durably(name, prefetch=2)
                break
            except QuireError:
                stepped.advance(1)
        settle(stepped, 0.05)
        for _ in range(most):
            stepped.advance(1.1)
            settle(stepped, 0.02)
            for message in receiver.take():
                if message.body.endswith(b"r") and not message.failures:
                    reject(subscription, message)
                else:
                    accept(subscription, message)
                    done.append(message.body)
        leave(subscription)
        settle(stepped, 0.02)

    consume("x", 1)
    consume("y", 1)
    for index in range(0, len(sent), 5):
        send(stepped, *sent[index : index + 5])
    consume("x", 3)
    send(stepped, "5-gone", expiration=stepped.clock.now_ms() + 1000)
    stepped.advance(90)
    settle(stepped)
    consume("y", 30)
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(retroactive=True)
    stepped.advance(1.1)
    settle(stepped)
    leave(subscription)
    consume("x", 30)
    return done


@pytest.mark.slow
@pytest.mark.parametrize("policy", [{}, PRIORITIZED])
@pytest.mark.parametrize("keeps", [{}, {"subscription_recovery_policy": "fixed-count", "recovery_count": 3}])
def test_any_read_may_fail(policy: dict[str, Any], keeps: dict[str, Any]) -> None:
    sent = [f"{(9, 0, 4)[number % 3]}-{number}{'r' * (number % 4 == 1)}" for number in range(15)]
    chosen = settings(
        policy={**policy, **keeps, "dead_letter_strategy": "discarding", "maximum_redeliveries": -1},
        memory={"limit": 3000},
    )
    reads = nth = 0
    while nth <= reads:
        store = FaultyStore(MemoryStore())
        store.open()
        stepped = SteppedBroker(chosen, store)
        before = store.reads
        if nth:
            store.at_read(nth)
        done = play(stepped, sent)
        reads = max(reads, store.reads - before)
        store.mend()
        assert sorted(done) == sorted([body.encode() for body in sent] * 2), f"read {nth}"
        left = stepped.broker.topic("t").kept.count
        assert records(stepped) == left, f"read {nth}"
        assert (durable(stepped, "x").depth, durable(stepped, "y").depth) == (0, 0), f"read {nth}"
        assert stepped.broker.core.memory.used == 0, f"read {nth}"
        nth += 1
    assert reads > 40


class CountingStore(MemoryStore):
    """An open store in memory that counts the records of its pages.

    Attributes:
        read: how many were read since it was set to zero, and links.
    """

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.open()

    def page(self, lane: int, start: int, byte_budget: int, limit: int) -> Page:
        """Read at most ten records."""
        page = super().page(lane, start, byte_budget, min(limit, 10))
        self.read += len(page.messages)
        return page

    def links(self, lane: int, start: int, limit: int) -> list[Link]:
        """Read links."""
        links = super().links(lane, start, limit)
        self.read += len(links)
        return links


def finish_every_other(stepped: SteppedBroker, priorities: Iterable[int], *, but_first: bool = False) -> None:
    """Two subscriptions; one of them has finished all messages of priority 9 between unfinished ones.

    Args:
        stepped: the broker.
        priorities: of the messages.
        but_first: whether the first one is left out.
    """
    offline(stepped, "behind")
    offline(stepped)
    send(stepped, *[f"{priority}-{number}" for number, priority in enumerate(priorities)])
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=1 + but_first)
    if but_first:
        receiver.got.pop(0)
    while (messages := receiver.take()) and messages[0].priority == 9:
        accept(subscription, *messages)
        stepped.run()
    leave(subscription)
    stepped.run()


@pytest.mark.parametrize("but_first", [False, True])
def test_what_is_finished_is_passed_over_a_bounded_part_in_a_turn_and_the_order_holds(
    but_first: bool, monkeypatch: Any
) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.LINKS", 10)
    store = CountingStore()
    stepped = SteppedBroker(settings(policy=PRIORITIZED), store)
    finish_every_other(stepped, [9, 1] * 300, but_first=but_first)
    send(stepped, "9-last")
    stepped = stepped.reopen()
    receiver = Recipient(stepped)
    broker = stepped.broker
    subscription = broker.durables.subscribe("c", "d", broker.topic("t"), receiver, id="r", prefetch=3)
    most = 0
    while len(receiver.got) <= but_first:
        store.read = 0
        stepped.turn()
        if stepped.writer.batch is not None:
            stepped.commit()
        most = max(most, store.read)
    assert most <= 60  # some pages and links of ten
    stepped.run()
    first = ["9-0"] * but_first + ["9-last"]
    assert take_all(stepped, receiver, subscription).split() == first + [f"1-{n}" for n in range(1, 600, 2)]
    assert (durable(stepped).depth, durable(stepped, "behind").depth, broker.core.memory.used) == (0, 601, 0)


def test_what_comes_back_behind_what_is_finished_keeps_its_place() -> None:
    store = CountingStore()
    stepped = SteppedBroker(settings(policy={**PRIORITIZED, "maximum_redeliveries": -1}), store)
    finish_every_other(stepped, [9, 1] * 100)
    send(stepped, "9-x", "9-y")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=2)
    settle(stepped)
    reject(subscription, *receiver.take())
    settle(stepped)
    assert take_all(stepped, receiver, subscription).split()[:3] == ["9-x", "9-y", "1-1"]


def test_links_of_what_is_finished_are_read_once() -> None:
    stepped = prioritized()
    finish_every_other(stepped, [9, 1] * 300)
    lane = durable(stepped).lanes[0]
    read: list[int] = []
    links = lane.reader._store.links

    def counted(lane: int, start: int, limit: int) -> list[Link]:
        found = links(lane, start, limit)
        read.append(len(found))
        return found

    lane.reader._store.links = counted  # type: ignore[method-assign]
    assert lane.reader.links(lane.id, 0, 1) == []
    once = sum(read)
    read.clear()
    assert lane.reader.links(lane.id, 0, 1) == []
    assert lane.head() is None
    assert sum(read) == 0
    assert 250 <= once < 700


def test_a_look_at_the_oldest_message_is_short_and_the_next_one_goes_on(monkeypatch: Any) -> None:
    monkeypatch.setattr("quire.broker.queues.shared_lane.LINKS", 20)
    stepped = prioritized()
    finish_every_other(stepped, [9, 9, 9, 1] * 50)
    stepped.advance(10)
    send(stepped, "9-last")
    found = durable(stepped.reopen())
    heads: list[int | None] = []
    while not heads or heads[-1] is None:
        heads.append(found.lanes[0].head())
    assert heads == [None] * 6 + [201]  # 150 records before it, 20 or 21 in a look
    assert found.lanes[0].head() == 201
    door = TopicManagement(Management(stepped.broker))
    assert door.durable("c", "d").oldest_message_age_seconds == 10


def test_memory_stays_bounded_with_a_large_backlog() -> None:
    stepped = SteppedBroker(settings(policy=PRIORITIZED, memory={"limit": 20_000}))
    offline(stepped)
    for number in range(200):
        put(stepped, b"x" * 1000, priority=number % 10)
    stepped.run()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe_durably(prefetch=10)
    got: list[Message] = []
    while messages := receiver.take():
        got += messages
        accept(subscription, *messages)
        stepped.run()
    assert [message.priority for message in got] == [priority for priority in range(9, -1, -1) for _ in range(20)]
    assert stepped.broker.core.memory.peak <= 20_000 + 10 * 1500  # and one message of each priority
    assert is_clean(stepped)


# It becomes prioritized, and plain again.


def test_a_topic_gets_its_lanes_at_a_start_when_it_has_no_records_and_its_subscriptions_go_on() -> None:
    stepped = SteppedBroker(settings())
    offline(stepped)
    send(stepped, "1a", "9a")
    stepped = stepped.reopen(settings(policy=PRIORITIZED))
    assert len(stepped.broker.topic("t").lanes) == 1
    assert drained(stepped) == "1a 9a"
    for policy, lanes, order in ((PRIORITIZED, 10, "9b 1b"), ({}, 1, "1b 9b"), (PRIORITIZED, 10, "9b 1b")):
        stepped = stepped.reopen(settings(policy=policy))
        assert len(stepped.broker.topic("t").lanes) == lanes
        assert (durable(stepped).depth, durable(stepped).bytes) == (0, 0)
        stepped.run()
        assert len(stepped.store.marks("topic/")) == 1
        send(stepped, "1b", "9b")
        stepped = stepped.reopen()
        assert (durable(stepped).depth, stepped.broker.topic("t").depth) == (2, 2)
        assert drained(stepped) == order
        assert is_clean(stepped)
        assert durable(stepped).finished.holes == 0


def test_a_crash_before_the_new_lanes_are_stored_changes_nothing() -> None:
    stepped = SteppedBroker(settings())
    offline(stepped)
    send(stepped, "1a")
    assert drained(stepped) == "1a"
    stepped = stepped.reopen(settings(policy=PRIORITIZED)).reopen()
    send(stepped, "1b", "9b")
    stepped = stepped.reopen()
    assert drained(stepped) == "9b 1b"


def test_a_topic_that_gets_lanes_keeps_messages_from_then_on() -> None:
    stepped = SteppedBroker(settings())
    offline(stepped)
    send(stepped, *["4a"] * 10)
    drained(stepped)
    policy = {**PRIORITIZED, "subscription_recovery_policy": "fixed-count"}
    stepped = stepped.reopen(settings(policy=policy))
    send(stepped, "4b")
    assert stepped.broker.topic("t").kept.count == 1
    stepped = stepped.reopen()
    assert (stepped.broker.topic("t").kept.count, records(stepped), durable(stepped).depth) == (1, 1, 1)


def test_what_a_topic_keeps_begins_anew_with_its_lanes() -> None:
    timed = {"subscription_recovery_policy": "timed", "recovery_duration": 1.0}
    stepped = SteppedBroker(settings(policy=timed))
    send(stepped, *["4a"] * 10)
    stepped.advance(5)
    settle(stepped)
    assert (records(stepped), stepped.broker.topic("t").kept.first) == (0, 11)
    stepped = stepped.reopen(settings(policy={**timed, **PRIORITIZED}))
    send(stepped, "4b")
    assert (len(stepped.broker.topic("t").lanes), stepped.broker.topic("t").kept.count, records(stepped)) == (10, 1, 1)


def test_the_progress_of_an_older_version_is_understood() -> None:
    older = msgspec.msgpack.encode([3, 300, 7, 0])
    assert msgspec.msgpack.decode(older, type=Progress) == Progress(3, 300, 7, 0, ())


# Plain subscriptions.


def test_what_waits_for_a_plain_subscription_comes_by_priority() -> None:
    stepped = prioritized()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    send(stepped, "4a")
    send(stepped, "1a", "9a", "1b", "9b", "4b")
    assert take_all(stepped, receiver, subscription) == "4a 9a 9b 4b 1a 1b"
    assert stepped.broker.core.memory.used == 0


def test_what_comes_back_to_a_plain_subscription_waits_within_its_priority() -> None:
    stepped = prioritized()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=2)
    send(stepped, "4a", "1a", "9a", "1b", "4b")
    reject(subscription, *receiver.take())
    stepped.run()
    assert take_all(stepped, receiver, subscription) == "9a 4a 4b 1a 1b"
    assert stepped.broker.core.memory.used == 0


def test_what_waits_for_a_plain_subscription_comes_in_order_without_the_policy() -> None:
    stepped = SteppedBroker()
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    send(stepped, "4a", "1a", "9a")
    assert take_all(stepped, receiver, subscription) == "4a 1a 9a"


@pytest.mark.parametrize("strategy", ["oldest", "oldest-with-lowest-priority", "unique-property"])
def test_what_goes_from_a_slow_one_is_what_its_strategy_says(strategy: str) -> None:
    stepped = prioritized(
        maximum_pending_messages=2, message_eviction_strategy=strategy, eviction_property="p"
    )  # fmt: skip
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1)
    send(stepped, "4a")
    send(stepped, "9b", p="1")
    send(stepped, "1c", p="2")
    send(stepped, "5d", p="2")
    expected = {"oldest": "4a 5d 1c", "oldest-with-lowest-priority": "4a 9b 5d", "unique-property": "4a 9b 5d"}
    assert take_all(stepped, receiver, subscription) == expected[strategy]
    assert stepped.broker.core.memory.used == 0


def test_superseded_messages_that_were_given_out_are_forgotten() -> None:
    stepped = prioritized(message_eviction_strategy="unique-property", eviction_property="p")
    receiver = Recipient(stepped)
    subscription = receiver.subscribe(ack=AckMode.INDIVIDUAL, prefetch=1, maximum_pending=-1)
    send(stepped, "9a", "1a", "1b", p="low")
    for _ in range(200):
        send(stepped, "9b", "9b", p="high")
        for _ in range(2):
            accept(subscription, *receiver.take())
            stepped.run()
    strategy = subscription.source.pending._strategy  # type: ignore[attr-defined]
    assert len(strategy._superseded) < 100
