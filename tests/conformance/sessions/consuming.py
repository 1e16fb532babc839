"""Consumers: what they are given, their credit, how they go; browsers, patterns, members and readers."""

from typing import Any

import pytest

from quire.broker.routing.addresses import Address
from quire.broker.streams.groups.group import ALL, RETRIES
from quire.broker.streams.groups.group_definition import Mode
from quire.broker.streams.partition import Start, StartKind
from quire.destination import DestinationKind
from quire.errors import InvalidArgument, InvalidDestination, LimitExceeded, QuireError
from quire.selectors import selector
from quire.sessions.base import (
    ConsumerKind,
    LeavingKind,
    Seen,
    Settlement,
    SettlementKind,
    UpTo,
)
from tests.conformance.sessions.rig import AUTO, QUEUE, STREAM, TOPIC, Client, Delivery, Suite, World
from tests.conformance.sessions.rules import change_rules

ALL_QUEUES = Address(DestinationKind.QUEUE, ">")
DURABLE: dict[str, Any] = {"kind": ConsumerKind.DURABLE, "name": "d"}
BROWSER: dict[str, Any] = {"kind": ConsumerKind.BROWSER}
REJECTED = Settlement(SettlementKind.REJECTED)
DELIVERED = Settlement(SettlementKind.DELIVERED)
NONE = Seen(True)


def wait(world: World) -> None:
    """A minute goes by: partitions come to their members."""
    world.run()
    for _ in range(6):
        world.advance(10)


def queue(name: str) -> Address:
    return Address(DestinationKind.QUEUE, name)


class Consuming(Suite):
    def stream(self, partitions: int = 1, **policy: Any) -> World:
        """A world with the stream ``s``."""
        world = self.world(policy={"partitions": partitions, **policy})
        world.broker.broker.stream("s")
        world.run()
        return world

    def given(self, count: int = 5, **spec: Any) -> tuple[World, Client, Any, list[Delivery]]:
        """A consumer of a queue that was given messages."""
        world = self.world()
        client = world.connect()
        client.send("/queue/q", *[str(number) for number in range(1, count + 1)])
        consumer = client.consume(**spec)
        world.run()
        return world, client, consumer, client.take()

    # What a consumer is given.

    def test_a_consumer_has_what_its_specification_says(self) -> None:
        world = self.world()
        client = world.connect()
        consumer = client.consume(id="x", priority=3, exclusive=True, selector=selector("a = 'b'"), ack=AUTO)
        (part,) = consumer.parts
        assert consumer.only_part is part
        there: Any = part
        assert (there.id, there.priority, there.exclusive, there.prefetch) == ("x", 3, True, 1000)
        client.send("/queue/q", "1", headers={"a": "b"})
        client.send("/queue/q", "2")
        world.run()
        assert (client.bodies(), world.depth()) == (["1"], 1)

    def test_the_policy_says_the_prefetch_that_a_consumer_does_not_ask_for(self) -> None:
        prefetches = {
            "queue_prefetch": 1, "topic_prefetch": 2, "durable_topic_prefetch": 3, "queue_browser_prefetch": 4,
            "stream_prefetch": 5,
        }  # fmt: skip
        world = self.stream(**prefetches)
        client = world.connect(client_id="c")
        consumers = [client.consume(), client.consume(TOPIC, id="t"), client.consume(TOPIC, id="d", **DURABLE)]
        consumers.append(client.consume(id="b", **BROWSER))
        wholes: list[Any] = [client.member(id="m"), client.consume(ALL_QUEUES, id="p")]
        assert [part.prefetch for each in consumers for part in each.parts] == [1, 2, 3, 4]  # type: ignore[attr-defined]
        assert [each.whole.prefetch for each in wholes] == [5, 1]

    def test_a_durable_subscription_keeps_what_its_consumer_has_not_seen(self) -> None:
        world = self.world()
        client = world.connect(client_id="c")
        client.consume(TOPIC, **DURABLE)
        world.run()
        client.leave()
        other = world.connect("other", client_id="d")
        other.send("/topic/t", "1")
        world.run()
        again = world.connect("again", client_id="c")
        again.consume(TOPIC, **DURABLE)
        world.run()
        assert again.bodies() == ["1"]

    def test_a_durable_subscription_to_a_pattern_has_one_for_each_topic(self) -> None:
        world = self.world()
        client = world.connect(client_id="c")
        pattern = Address(DestinationKind.TOPIC, "a.>")
        client.call("create", Address(DestinationKind.TOPIC, "a.1"))
        world.run()
        consumer = client.consume(pattern, token="subscribed", **DURABLE)
        assert client.tokens == ["call"]
        world.run()
        client.send("/topic/a.2", "2")
        client.send("/topic/a.1", "1")
        world.run()
        assert sorted(client.bodies()) == ["1", "2"]
        client.unsubscribe(consumer)
        client.send("/topic/a.2", "3")
        world.run()
        again = client.consume(pattern, id="again", **DURABLE)
        world.run()
        assert sorted(client.bodies()) == ["1", "2", "3"]
        client.call("remove-durable", "c", "d", token="used")
        client.unsubscribe(again)
        client.call("remove-durable", "c", "d", token="removed")
        world.run()
        assert (client.errors, client.tokens[-1]) == ([("used", "destination-in-use")], "removed")
        assert list(world.broker.broker.durables) == []

    def test_the_durable_subscription_of_another_user_is_not_there(self) -> None:
        world = self.world()
        world.secure()
        owner = world.connect("owner", "other", client_id="c")
        consumer = owner.consume(TOPIC, **DURABLE)
        world.run()
        owner.unsubscribe(consumer)
        owner.leave()
        world.run()
        change_rules(world, {"subject": "user:none", "allow": ["read"], "destination": "t"})
        client = world.connect(user="none", client_id="c")
        with pytest.raises(QuireError) as refused:
            client.consume(TOPIC, **DURABLE)
        client.call("remove-durable", "c", "d")
        assert (refused.value.code, client.codes) == ("unknown-subscription", ["unknown-subscription"])

    @pytest.mark.parametrize(
        ("addresses", "spec"),
        [
            ((QUEUE,), DURABLE),
            ((TOPIC, QUEUE), DURABLE),
            ((QUEUE, queue("r")), BROWSER),
            ((TOPIC,), BROWSER),
            ((ALL_QUEUES,), BROWSER),
            ((STREAM, QUEUE), {}),
            ((Address(DestinationKind.STREAM, ">"),), {}),
        ],
    )
    def test_some_consumers_make_no_sense(self, addresses: tuple[Address, ...], spec: dict[str, Any]) -> None:
        client = self.world().connect(client_id="c")
        with pytest.raises(InvalidArgument):
            client.consume(*addresses, **spec)
        assert dict(client.session.parts) == {}

    def test_how_much_a_session_may_consume(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("quire.sessions.consumers.MAX_PARTS", 6)
        monkeypatch.setattr("quire.sessions.consumers.MAX_SELECTORS", 20)
        world = self.stream(2)
        client = world.connect()
        client.member()  # it may be given three parts
        client.consume(id="1", selector=selector("a = 'bcdefgh'"))
        with pytest.raises(LimitExceeded):
            client.consume(id="2", selector=selector("a = 'bcdefgh'"))
        with pytest.raises(LimitExceeded):
            client.member(id="other")
        with pytest.raises(LimitExceeded):
            client.consume(*[queue(str(number)) for number in range(5)], id="list")
        world.run()
        assert len(client.session.parts) == 4
        client.consume(id="3")
        client.consume(id="4")
        with pytest.raises(LimitExceeded):
            client.consume(id="5")

    def test_advisories_tell_of_consumers(self) -> None:
        world = self.world()
        listener, client = world.connect("listener"), world.connect()
        listener.consume(Address(DestinationKind.TOPIC, "ActiveMQ.Advisory.Consumer.Queue.q"))
        world.run()
        consumer = client.consume(prefetch=7)
        browser = client.consume(id="browser", **BROWSER)
        client.unsubscribe(browser)
        client.unsubscribe(consumer)
        world.run()
        told = [(each.message.header(b"consumerCount"), each.message.body[:20]) for each in listener.take()]
        assert told == [("1", b'{"event":"started","'), ("0", b'{"event":"stopped","')]

    def test_a_consumer_of_advisories_is_told_first_what_is_there(self) -> None:
        world = self.world()
        client = world.connect()
        temporary = client.session.temporary(DestinationKind.QUEUE)
        client.consume(temporary)
        client.consume(id="other")
        client.call("producer", "p", QUEUE, True)
        world.run()
        names = ("TempQueue", "Queue", "Connection", "Producer.Queue.q", "Consumer.Queue.q")
        told = []
        for name in names:
            topic = Address(DestinationKind.TOPIC, f"ActiveMQ.Advisory.{name}")
            client.consume(topic, id=name, replay=True)
            client.consume(topic, id=f"no {name}")
            world.run()
            told.append(len([each for each in client.take() if b"created" in each.message.body or each.message.body]))
        assert told == [1, 1, 1, 1, 1]

    # Credit, and pulls.

    def test_a_prefetch_is_a_window_that_settling_opens_again(self) -> None:
        world, client, consumer, first = self.given(prefetch=2)
        assert len(first) == 2
        client.these(first[0])
        world.run()
        assert client.bodies() == ["3"]
        client.session.credit(consumer, 4)
        world.run()
        assert client.bodies() == ["4", "5"]

    def test_several_parts_share_a_prefetch(self) -> None:
        world = self.world()
        client = world.connect()
        for name in ("q", "r"):
            client.send(f"/queue/{name}", *"1234")
        consumer = client.consume(QUEUE, queue("r"), prefetch=3)
        world.run()
        first = client.take()
        assert len(first) == 3
        client.these(first[0])
        world.run()
        assert len(client.take()) == 1
        client.session.credit(consumer, 5)
        world.run()
        assert len(client.take()) == 2

    def test_without_a_prefetch_only_what_is_pulled_comes(self) -> None:
        world, client, consumer, first = self.given(prefetch=0)
        assert first == []
        client.session.pull(consumer, 2, 0)
        world.run()
        assert (client.bodies(), client.pulls) == (["1", "2"], [0])
        assert client.log[-1] == ("pull", 0)

    @pytest.mark.parametrize("wait_ms", [-1, 500])
    def test_the_end_of_a_pull_says_how_many_did_not_come(self, wait_ms: int) -> None:
        world, client, consumer, _ = self.given(2, prefetch=0)
        client.session.pull(consumer, 5, wait_ms)
        world.run()
        world.advance(0.6)
        assert (client.bodies(), client.pulls) == (["1", "2"], [3])
        client.send("/queue/q", "late")
        client.session.pull(consumer, 1, wait_ms)
        world.run()
        world.advance(0.6)
        assert (client.bodies(), client.pulls) == (["late"], [3, 0])
        client.send("/queue/q", "not asked for")
        world.run()
        assert client.bodies() == []

    def test_a_pull_that_does_not_wait_says_at_once_that_the_store_fails(self) -> None:
        world, client, consumer, _ = self.given(1, prefetch=0)
        sender = world.connect("sender")
        client.session.pull(consumer, 1, -1)
        sender.send("/queue/q", "2")
        world.fail()
        assert (client.pulls, client.bodies()) == ([1], [])

    def test_a_pull_takes_the_place_of_the_last_one_and_none_ends_it(self) -> None:
        world = self.world()
        client = world.connect()
        consumer = client.consume(prefetch=0)
        client.session.pull(consumer, 1, 500)
        client.session.pull(consumer, 2, 1000)
        world.advance(0.6)
        assert client.pulls == []
        client.session.pull(consumer, 0, -1)
        world.run()
        assert client.pulls == [0]
        client.send("/queue/q", "1")
        world.run()
        assert client.bodies() == []

    def test_a_prefetch_ends_a_pull_without_a_word(self) -> None:
        world = self.world()
        client = world.connect()
        consumer = client.consume(prefetch=0)
        client.session.pull(consumer, 1, 500)
        client.session.credit(consumer, 10)
        client.send("/queue/q", "1", "2")
        world.run()
        world.advance(1)
        assert (client.bodies(), client.pulls) == (["1", "2"], [])

    def test_a_pull_ends_with_its_consumer(self) -> None:
        world, client, consumer, _ = self.given(0, prefetch=0)
        client.session.pull(consumer, 1, 500)
        client.unsubscribe(consumer)
        client.session.pull(consumer, 1, 500)
        client.session.credit(consumer, 10)
        world.advance(1)
        assert client.pulls == []

    def test_who_has_a_prefetch_or_several_destinations_does_not_pull(self) -> None:
        client = self.world().connect()
        for consumer in (client.consume(), client.consume(QUEUE, TOPIC, id="list", prefetch=0)):
            with pytest.raises(InvalidArgument):
                client.session.pull(consumer, 1, 0)

    @pytest.mark.parametrize("ack", [AUTO, None])
    def test_a_member_pulls_from_all_its_partitions_and_some_retries(self, ack: Any) -> None:
        world = self.stream(3, retry_delays="0s")
        client = world.connect()
        consumer = client.member(spec={"prefetch": 0, **({} if ack is None else {"ack": ack})})
        client.send("/stream/s", *[str(number) for number in range(9)])
        world.run()
        client.session.pull(consumer, 4, -1)
        world.run()
        first = client.take()
        assert (len(first), client.pulls) == (4, [0])
        if ack is None:
            for each in first:
                client.these(each, how=REJECTED)
            world.advance(1)
            client.session.pull(consumer, 10, 1000)
            world.run()
            again = client.take()
            assert len([each for each in again if each.part.partition == RETRIES]) == 2
            assert len(again) == 7
            world.advance(1)
            assert client.pulls == [0, 3]

    def test_a_pull_that_does_not_wait_sees_what_has_to_be_stored_first(self) -> None:
        world, client, consumer, _ = self.given(1, prefetch=0)
        client.unsubscribe(consumer)
        puller = client.consume(id="puller", prefetch=0)
        client.session.pull(puller, 1, -1)
        world.run()
        assert (client.bodies(), client.pulls) == (["1"], [0])

    def test_a_pull_brings_messages_of_a_partition_that_comes_later(self) -> None:
        world = self.stream()
        first, client = world.connect("first"), world.connect("second")
        other = first.member()
        wait(world)
        consumer = client.member(spec={"prefetch": 0})
        wait(world)
        client.session.pull(consumer, 1, 0)
        first.unsubscribe(other)
        wait(world)
        first.send("/stream/s", "1")
        world.run()
        assert (client.bodies(), client.pulls) == (["1"], [0])

    def test_a_member_that_pulled_may_have_a_prefetch(self) -> None:
        world = self.stream()
        client = world.connect()
        consumer = client.member(spec={"prefetch": 0})
        wait(world)
        client.send("/stream/s", "1", "2")
        client.session.pull(consumer, 1, 0)
        world.run()
        client.session.credit(consumer, 10)
        world.run()
        assert client.bodies() == ["1", "2"]
        assert {part.prefetch for part in consumer.parts} == {10}  # type: ignore[attr-defined]

    # Going.

    @pytest.mark.parametrize(
        ("last", "is_alone", "unseen"),
        [
            (None, False, [1, 2, 3, 4, 5]),
            (2, False, [3, 4, 5]),
            (3, False, [1, 2, 4, 5]),  # it was acknowledged, and ranges have all that was given before
            (3, True, [4, 5]),
        ],
    )
    def test_what_an_application_has_not_seen_comes_back_as_if_it_had_not_been_given(
        self, last: int | None, is_alone: bool, unseen: list[int]
    ) -> None:
        world, client, consumer, given = self.given()
        if last == 3:
            client.these(given[2])
            world.run()
        sequence = None if last is None else given[last - 1].message.sequence
        client.unsubscribe(consumer, Seen(True, sequence, consumer.only_part, is_alone), "gone")
        other = world.connect("other")
        other.consume()
        world.run()
        assert client.tokens == ["gone"]
        assert sorted([int(each.message.body) for each in other.take() if not each.message.redelivered]) == unseen

    def test_what_comes_back_of_a_consumer_has_not_failed(self) -> None:
        world, client, consumer, _ = self.given(2)
        client.unsubscribe(consumer)
        other = world.connect("other")
        other.consume()
        world.run()
        assert [(e.message.redelivered, e.message.failures) for e in other.take()] == [(True, 0), (True, 0)]

    @pytest.mark.parametrize(("seen", "flags"), [(NONE, [False] * 4), (Seen(True, 1), [True] * 4)])
    def test_of_a_list_a_number_says_nothing_of_what_was_seen(self, seen: Seen, flags: list[bool]) -> None:
        world = self.world()
        client = world.connect()
        for name in ("q", "r"):
            client.send(f"/queue/{name}", "1", "2")
        consumer = client.consume(QUEUE, queue("r"))
        world.run()
        client.take()
        client.unsubscribe(consumer, seen)
        client.consume(QUEUE, queue("r"), id="next")
        world.run()
        assert [each.message.redelivered for each in client.take()] == flags

    @pytest.mark.parametrize(("place", "flags"), [(None, [False] * 3), (0, [True, False, False]), (9, [True] * 3)])
    def test_what_a_member_has_not_seen_comes_back_too(self, place: int | None, flags: list[bool]) -> None:
        world = self.stream()
        client = world.connect()
        consumer = client.member()
        world.run()
        client.send("/stream/s", "1", "2", "3")
        world.run()
        given = client.take()
        seen = NONE
        if place == 0:
            seen = Seen(True, given[0].message.sequence, given[0].part)
        elif place == 9:
            other_part = world.connect("other").consume().only_part
            seen = Seen(True, 1, other_part)
        client.unsubscribe(consumer, seen)
        client.member(id="next")
        wait(world)
        assert [each.message.redelivered for each in client.take()] == flags

    @pytest.mark.slow
    def test_a_consumer_that_left_with_much_gives_it_back_in_order(self) -> None:
        world, client, consumer, given = self.given(6000, prefetch=10_000)
        assert len(given) == 6000
        client.unsubscribe(consumer)
        client.consume(id="next", prefetch=10_000)
        world.run()
        assert [int(body) for body in client.bodies()] == list(range(1, 6001))

    def test_consumers_leave_once(self) -> None:
        world, client, consumer, _ = self.given()
        client.unsubscribe(consumer, token="first")
        client.unsubscribe(consumer, token="again")
        world.run()
        assert (client.tokens, client.gone) == (["first", "again"], [0])

    @pytest.mark.parametrize("loss_counts", [True, False])
    def test_a_slow_consumer_ends_and_is_told(self, loss_counts: bool) -> None:
        world = self.world(policy={"slow_consumer_strategy": "abort", "max_slow_duration": 2.0})
        client, other = world.connect(), world.connect("other")
        client.consume(id="slow", prefetch=1, loss_counts=loss_counts)
        client.send("/queue/q", "1", "2")
        for _ in range(6):
            world.run()
            world.advance(1)
        assert (client.consumers_ended, dict(client.session.parts)) == ([("slow", "slow-consumer")], {})
        other.consume()
        world.run()
        assert [each.message.failures for each in other.take()] == [int(loss_counts), 0]

    # Browsers.

    def test_a_browser_is_shown_everything_and_takes_nothing(self) -> None:
        world, client, _, _ = self.given()
        client.consume(id="browser", selector=selector("JMSPriority = 4"), **BROWSER)
        world.run()
        assert (client.bodies(), client.shown, world.depth()) == (["1", "2", "3", "4", "5"], [0], 5)

    def test_a_browser_is_shown_so_many_until_it_has_seen_them(self) -> None:
        world, client, consumer, _ = self.given(3, prefetch=1)
        browser = client.consume(id="browser", prefetch=2, **BROWSER)
        world.run()
        first = client.take()
        assert ([each.message.body for each in first], client.shown) == ([b"1", b"2"], [])
        client.up_to(first[1])
        world.run()
        assert (client.bodies(), client.shown) == (["3"], [0])
        client.unsubscribe(browser, NONE)
        world.run()
        assert len(consumer.parts[0].in_flight) == 1

    def test_a_browser_of_a_stream_is_shown_all_partitions(self) -> None:
        world = self.stream(2)
        client = world.connect()
        client.send("/stream/s", "1", "2", "3", "4")
        world.run()
        client.consume(STREAM, **BROWSER)
        world.run()
        shown = client.take()
        assert sorted([each.message.body for each in shown]) == [b"1", b"2", b"3", b"4"]
        assert [each.message.sequence & 0xFFFFF for each in shown] == [0, 0, 1, 1]
        assert client.shown == [0]

    def test_a_temporary_queue_is_browsed(self) -> None:
        world = self.world()
        client = world.connect()
        address = client.session.temporary(DestinationKind.QUEUE)
        client.send(str(address), "1")
        client.consume(address, **BROWSER)
        world.run()
        assert (client.bodies(), client.shown) == (["1"], [0])

    # Patterns and lists.

    def test_a_pattern_gets_destinations_that_come_later(self) -> None:
        world = self.world()
        client = world.connect()
        consumer = client.consume(queue("a.*"))
        client.send("/queue/a.1", "1")
        client.send("/queue/b.1", "2")
        world.run()
        (given,) = client.take()
        assert (given.message.body, given.part.destination.name) == (b"1", "a.1")
        assert consumer.only_part is None

    def test_a_destination_that_a_pattern_cannot_have_later_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("quire.sessions.consumers.MAX_PARTS", 1)
        world = self.world()
        client, other = world.connect(), world.connect("other")
        client.consume(ALL_QUEUES)
        other.send("/queue/1", "1", token="sent")
        other.send("/queue/2", "2", token="sent")
        world.run()
        assert (client.errors, client.bodies(), other.tokens) == ([(None, "limit-exceeded")], ["1"], ["sent"] * 2)

    def test_a_pattern_that_cannot_have_all_while_it_is_awaited_is_no_consumer(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("quire.sessions.consumers.MAX_PARTS", 150)
        world = self.world()
        client = world.connect()
        for number in range(200):
            client.call("create", queue(f"q{number}"))
        world.run()
        client.tokens.clear()
        client.consume(ALL_QUEUES, token="subscribed")
        world.run()
        assert (client.errors, client.tokens) == ([("subscribed", "limit-exceeded")], [])
        assert dict(client.session.parts) == {}
        assert len(client.gone) == 150

    def test_a_pattern_that_cannot_have_all_at_once_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("quire.sessions.consumers.MAX_PARTS", 1)
        world = self.world()
        client = world.connect()
        with pytest.raises(LimitExceeded):
            client.consume(QUEUE, TOPIC)
        world.run()
        assert (dict(client.session.parts), client.gone) == ({}, [0])
        assert world.broker.queue("q").consumer_count == 0

    def test_a_list_has_no_temporary_destination(self) -> None:
        client = self.world().connect()
        address = client.session.temporary(DestinationKind.QUEUE)
        with pytest.raises(InvalidDestination):
            client.consume(QUEUE, address)

    def test_the_oldest_message_of_each_destination_of_a_lost_list_counts_as_failed(self) -> None:
        world = self.world()
        client, other = world.connect(), world.connect("other")
        for name in ("q", "r"):
            client.send(f"/queue/{name}", "1", "2")
        client.consume(QUEUE, queue("r"))
        world.run()
        client.leave(LeavingKind.LOST)
        other.consume(QUEUE, queue("r"))
        world.run()
        assert sorted([each.message.failures for each in other.take()]) == [0, 0, 1, 1]

    # Members and readers.

    def test_a_member_has_a_part_for_each_partition_and_one_for_retries(self) -> None:
        world = self.stream(2)
        client = world.connect()
        consumer: Any = client.member(events=True)
        wait(world)
        assert sorted([part.partition for part in consumer.parts]) == [RETRIES, 0, 1]
        assert [name for name, _ in client.events] == ["assigned", "assigned"]
        assert {(int(facts["partition"]), int(facts["epoch"])) for _, facts in client.events} == {
            (part.partition, part.epoch) for part in consumer.parts if part.partition != RETRIES
        }

    def test_who_does_not_ask_for_events_is_told_none(self) -> None:
        world = self.stream(2)
        client = world.connect()
        client.member()
        wait(world)
        assert client.events == []

    def test_a_retry_says_where_its_origin_is(self) -> None:
        world = self.stream(2, retry_delays="0s")
        client = world.connect()
        client.member()
        wait(world)
        client.send("/stream/s", "1", headers={"partition": "1"})
        world.run()
        (first,) = client.take()
        client.these(first, how=REJECTED)
        world.advance(1)
        (again,) = client.take()
        parts: list[Any] = [first.part, again.part]
        assert [part.origin(each.message) for part, each in zip(parts, (first, again), strict=True)] == [(1, 1)] * 2
        assert again.part.partition == RETRIES

    @pytest.mark.parametrize(
        ("member", "kind", "failures"),
        [
            (None, LeavingKind.CLEAN, 0),
            (None, LeavingKind.LOST, 1),
            (None, LeavingKind.BLAMELESS, 0),
            ("a", LeavingKind.LOST, None),
            ("a", LeavingKind.CLEAN, None),
        ],
    )
    def test_a_member_with_a_name_is_awaited_and_of_another_one_the_oldest_message_counts(
        self, member: str | None, kind: LeavingKind, failures: int | None
    ) -> None:
        world = self.stream(retry_delays="0s", member_grace=1000.0)
        client, other = world.connect(), world.connect("other")
        client.member("g", member, spec={"loss_counts": False})
        wait(world)
        client.send("/stream/s", "1")
        world.run()
        client.leave(kind)
        other.member("g")
        wait(world)
        assert [each.message.failures for each in other.take()] == ([] if failures is None else [failures])

    def test_a_member_that_unsubscribes_is_not_awaited(self) -> None:
        world = self.stream()
        client, other = world.connect(), world.connect("other")
        consumer = client.member("g", "a")
        wait(world)
        client.send("/stream/s", "1")
        world.run()
        client.unsubscribe(consumer)
        other.member("g")
        wait(world)
        assert [each.message.failures for each in other.take()] == [0]

    def test_a_member_that_comes_back_has_what_it_had(self) -> None:
        world = self.stream()
        client = world.connect()
        client.member("g", "a")
        wait(world)
        client.send("/stream/s", "1")
        world.run()
        client.leave(LeavingKind.LOST)
        again = world.connect("again")
        consumer = again.member("g", "a", held=ALL)
        world.run()
        assert again.bodies() == []
        assert [len(part.in_flight) for part in consumer.parts if part.partition == 0] == [1]

    def test_members_of_a_broadcasting_group_get_everything(self) -> None:
        world = self.stream()
        one, two, three = world.connect("one"), world.connect("two"), world.connect("three")
        one.member("g", "a", mode=Mode.BROADCASTING)
        two.member("g", "b", mode=Mode.BROADCASTING)
        three.member("g", mode=Mode.BROADCASTING)
        wait(world)
        one.send("/stream/s", "1")
        world.run()
        assert [one.bodies(), two.bodies(), three.bodies()] == [["1"]] * 3
        assert sorted(world.broker.broker.stream("s").groups) == ["g/a", "g/b"]

    @pytest.mark.parametrize(("start", "bodies"), [(None, ["2"]), (Start(StartKind.EARLIEST), ["1", "2"])])
    @pytest.mark.parametrize("group", [None, "g"])
    def test_a_reader_and_a_new_group_begin_where_they_say(
        self, group: str | None, start: Start | None, bodies: list[str]
    ) -> None:
        world = self.stream()
        client = world.connect()
        client.send("/stream/s", "1")
        world.run()
        consumer = client.member(group, start=start)
        wait(world)
        client.send("/stream/s", "2")
        world.run()
        assert client.bodies() == bodies
        client.unsubscribe(consumer)
        world.run()
        assert list(world.broker.broker.groups.readers) == []

    def test_a_members_credit_is_of_all_its_partitions(self) -> None:
        world = self.stream(3)
        client = world.connect()
        consumer = client.member(spec={"prefetch": 2})
        wait(world)
        client.send("/stream/s", *"123456")
        world.run()
        first = client.take()
        assert len(first) == 2
        client.session.credit(consumer, 4)
        world.run()
        assert len(client.take()) == 2
        client.settle(UpTo(first[1].part, None, first[1].message.sequence))
        world.run()
        assert len(client.take()) == 2

    def test_a_member_belongs_to_its_user(self) -> None:
        world = self.stream()
        world.secure()
        client, thief = world.connect(user="other"), world.connect("thief", "denied")
        client.member("g", "a")
        world.run()
        with pytest.raises(QuireError) as refused:
            thief.member("g", "a")
        assert (refused.value.code, dict(thief.session.parts)) == ("access-refused", {})
