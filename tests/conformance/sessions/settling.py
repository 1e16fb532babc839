"""What becomes of messages: each kind of settlement, each way to name messages, of queues, topics and members."""

from typing import Any, NamedTuple

import pytest

from quire.broker.routing.addresses import Address
from quire.broker.streams.groups.group import ALL
from quire.destination import DestinationKind
from quire.sessions.base import (
    ACCEPTED,
    DELIVERED,
    RELEASED,
    Consumer,
    ConsumerKind,
    Handle,
    Handles,
    LeavingKind,
    Settlement,
    SettlementKind,
    Step,
    UpTo,
)
from tests.conformance.sessions.rig import AUTO, CLIENT, QUEUE, TOPIC, Client, Delivery, Suite, World, handle

TX = b"lt"
REJECTED = Settlement(SettlementKind.REJECTED)
DEAD = Settlement(SettlementKind.DEAD)
POISON = Settlement(SettlementKind.POISON, cause="it broke")
UNMATCHED = Settlement(SettlementKind.UNMATCHED)
EXPIRED = Settlement(SettlementKind.EXPIRED)
UNWRITABLE = Settlement(SettlementKind.UNWRITABLE, cause="it is too large")
REDELIVERED = Settlement(SettlementKind.REDELIVERED)
SOURCES = ("queue", "topic", "durable", "list", "member")
AT_ONCE = {"initial_redelivery_delay": 0.0, "redelivery_delay": 0.0, "retry_delays": "1s", "partitions": 1}


class Given(NamedTuple):
    """A consumer that was given messages."""

    world: World
    client: Client
    consumer: Consumer
    deliveries: list[Delivery]

    @property
    def in_flight(self) -> int:
        return sum([len(part.in_flight) for part in self.consumer.parts])

    def again(self, seconds: float = 2.0) -> list[Delivery]:
        """What it is given from now on, or after a while."""
        self.world.run()
        self.world.advance(seconds)
        return self.client.take()


class Settlements(Suite):
    def given(self, source: str = "queue", *bodies: str, **spec: Any) -> Given:
        """A consumer of a queue, a topic, a durable subscription, a list of two queues, or a member.

        Of a list the second queue has every second message.
        """
        world = self.world(policy={**AT_ONCE, **spec.pop("policy", {})})
        client = world.connect(client_id="c")
        destination = {"topic": "/topic/t", "durable": "/topic/t", "member": "/stream/s"}.get(source, "/queue/q")
        if source == "member":
            world.broker.broker.stream("s")
            world.run()
            consumer = client.member("g", spec=spec)
        elif source == "list":
            consumer = client.consume(QUEUE, Address(DestinationKind.QUEUE, "r"), **spec)
        elif source == "durable":
            consumer = client.consume(TOPIC, kind=ConsumerKind.DURABLE, name="d", **spec)
        else:
            consumer = client.consume(TOPIC if source == "topic" else QUEUE, **spec)
        world.run()
        for number, body in enumerate(bodies or ("1", "2", "3")):
            client.send("/queue/r" if source == "list" and number % 2 else destination, body)
            world.run()
        return Given(world, client, consumer, client.take())

    # Each kind, of each source.

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_is_accepted_is_done(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], token="settled")
        given.world.run()
        assert (given.client.tokens, given.in_flight, given.again()) == (["settled"], 2, [])
        given.client.up_to(given.deliveries[2], token="all")
        given.world.run()
        assert (given.client.tokens[1:], given.in_flight, given.client.errors) == (["all"], 0, [])

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_is_rejected_comes_again_and_has_failed(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], how=REJECTED)
        (again,) = given.again()
        assert (again.message.body, again.message.failures, again.message.redelivered) == (b"1", 1, True)

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_is_rejected_comes_again_after_the_delay_that_is_said(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], how=REJECTED._replace(delay_ms=10_000))
        assert given.again(9.0) == []
        assert [each.message.body for each in given.again(2.0)] == [b"1"]

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_is_a_dead_letter_is_one(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], how=DEAD)
        given.world.run()
        assert (letters(given), given.in_flight, given.again()) == (["1"], 2, [])

    @pytest.mark.parametrize("source", ["queue", "topic", "durable", "list"])
    def test_poison_is_a_dead_letter_that_says_why(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], how=POISON)
        given.world.run()
        assert letters(given, "dlqDeliveryFailureCause") == ["it broke"]

    def test_poison_of_a_member_is_tried_again(self) -> None:
        given = self.given("member")
        given.client.these(given.deliveries[0], how=POISON)
        assert [(each.message.body, each.message.failures) for each in given.again()] == [(b"1", 1)]

    def test_a_duplicate_is_told_from_what_failed(self) -> None:
        given = self.given()
        given.client.these(given.deliveries[0], how=POISON._replace(cause="duplicate suppressed by the client: again"))
        given.world.run()
        queue = given.world.broker.queue("q")
        assert (queue.suppressed, queue.dead_lettered) == (1, 0)

    @pytest.mark.parametrize(("how", "comes"), [(POISON, True), (UNWRITABLE, False)])
    def test_a_dead_letter_stays_where_it_is(self, how: Settlement, comes: bool) -> None:
        world = self.world(policy={**AT_ONCE, "dead_letter_queue": "q"})
        client = world.connect()
        consumer = client.consume(prefetch=1)
        client.send("/queue/q", "1", "2")
        world.run()
        client.these(*client.take(), how=how)
        world.run()
        assert (client.bodies(), world.depth()) == (["1"] if comes else ["2"], 2)
        if not comes:
            client.unsubscribe(consumer)
            client.consume(id="next")
            world.run()
            assert client.bodies() == ["1", "2"]

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_is_released_comes_again_and_nothing_is_counted(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], how=RELEASED)
        (again,) = given.again(0.0)
        assert (again.message.body, again.message.failures, again.message.deliveries) == (b"1", 0, 0)
        assert not again.message.redelivered

    def test_what_is_released_has_its_old_place(self) -> None:
        given = self.given("queue", prefetch=2)
        other = given.world.connect("other")
        given.client.these(*given.deliveries[:2], how=RELEASED)
        given.client.unsubscribe(given.consumer)
        other.consume()
        given.world.run()
        assert other.bodies() == ["1", "2", "3"]

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_is_delivered_takes_no_credit_and_stays_in_flight(self, source: str) -> None:
        given = self.given(source, prefetch=2)
        assert len(given.deliveries) == 2
        given.client.these(given.deliveries[0], how=DELIVERED)
        assert [each.message.body for each in given.again(0.0)] == [b"3"]
        assert given.in_flight == 3
        given.client.these(given.deliveries[0])
        given.world.run()
        assert (given.in_flight, given.client.errors) == (2, [])

    def test_what_is_delivered_takes_credit_if_the_policy_says_so(self) -> None:
        given = self.given("queue", prefetch=2, policy={"use_prefetch_extension": False})
        given.client.these(given.deliveries[0], how=DELIVERED)
        assert given.again(0.0) == []

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_the_client_delivers_again_itself_changes_nothing(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], how=REDELIVERED)
        assert (given.again(), given.in_flight, given.client.errors) == ([], 3, [])

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_did_not_match_is_done_and_not_counted(self, source: str) -> None:
        given = self.given(source)
        part: Any = given.deliveries[0].part
        given.client.these(given.deliveries[0], how=UNMATCHED)
        given.world.run()
        assert (given.in_flight, part.source.dequeued, given.again()) == (2, 0, [])

    def test_what_expired_at_the_client_is_a_dead_letter(self) -> None:
        given = self.given()
        given.client.begin(TX)
        given.client.these(given.deliveries[0], how=EXPIRED, tx=TX)
        given.world.run()
        assert (letters(given), given.world.broker.queue("q").expired) == (["1"], 1)

    @pytest.mark.parametrize("source", SOURCES)
    def test_what_cannot_be_written_is_a_dead_letter(self, source: str) -> None:
        given = self.given(source)
        given.client.these(given.deliveries[0], how=UNWRITABLE)
        given.client.these(given.deliveries[0], how=UNWRITABLE)
        given.world.run()
        assert (letters(given), given.client.errors) == (["1"], [])

    def test_only_a_lease_is_extended(self) -> None:
        given = self.given()
        given.client.these(given.deliveries[0], how=Settlement(SettlementKind.EXTEND, 1000))
        assert given.client.codes == ["invalid-header"]

    def test_a_lease_ends_when_it_is_extended_to(self) -> None:
        given = self.given("member", policy={"consume_timeout": 10.0, "retry_delays": "0s"})
        given.client.these(given.deliveries[0], how=Settlement(SettlementKind.EXTEND, 30_000))
        given.client.these(given.deliveries[1])
        given.client.these(given.deliveries[2])
        assert given.again(29.0) == []
        assert [each.message.body for each in given.again(2.0)] == [b"1"]

    @pytest.mark.parametrize("how", [REJECTED, DEAD, Settlement(SettlementKind.EXTEND, 1000)])
    def test_what_a_browser_shows_is_not_rejected(self, how: Settlement) -> None:
        given = self.given("queue")
        shown = given.world.connect("browser")
        shown.consume(kind=ConsumerKind.BROWSER)
        given.world.run()
        first, *_ = shown.take()
        shown.these(first, how=how)
        shown.these(first, how=ACCEPTED, token="seen")
        given.world.run()
        assert (shown.codes, shown.tokens, given.world.depth()) == (["invalid-header"], ["seen"], 3)

    def test_what_is_done_when_it_is_written_is_not_settled(self) -> None:
        given = self.given("queue", ack=AUTO)
        given.world.run()
        given.client.these(given.deliveries[0])
        assert (given.client.codes, given.world.depth()) == (["unknown-message"], 0)

    # In a transaction.

    @pytest.mark.parametrize("source", SOURCES)
    @pytest.mark.parametrize("how", [ACCEPTED, UNMATCHED])
    def test_what_is_settled_in_a_transaction_waits_for_its_commit(self, source: str, how: Settlement) -> None:
        given = self.given(source)
        given.client.begin(TX)
        given.client.these(given.deliveries[0], how=how, tx=TX)
        given.world.run()
        assert given.in_flight == 3
        given.client.end(TX)
        assert (given.again(), given.in_flight, given.client.errors) == ([], 2, [])

    @pytest.mark.parametrize("source", SOURCES)
    @pytest.mark.parametrize("how", [REJECTED, DEAD, REJECTED._replace(delay_ms=60_000)])
    def test_what_is_rejected_in_a_transaction_has_failed_with_its_commit(self, source: str, how: Settlement) -> None:
        given = self.given(source)
        given.client.begin(TX)
        given.client.these(given.deliveries[0], how=how, tx=TX)
        assert given.again() == []
        given.client.end(TX)
        assert [(each.message.body, each.message.failures) for each in given.again()] == [(b"1", 1)]

    @pytest.mark.parametrize("source", SOURCES)
    def test_some_things_are_so_whatever_becomes_of_the_transaction(self, source: str) -> None:
        given = self.given(source, prefetch=3)
        given.client.begin(TX)
        given.client.these(given.deliveries[0], how=RELEASED, tx=TX)
        assert [each.message.body for each in given.again(0.0)] == [b"1"]
        given.client.these(given.deliveries[1], how=UNWRITABLE, tx=TX)
        given.client.these(given.deliveries[2], how=REDELIVERED, tx=TX)
        given.client.end(TX, Step.ROLLBACK)
        given.world.run()
        assert (letters(given), given.client.errors) == (["2"], [])

    @pytest.mark.parametrize("source", ["queue", "member"])
    def test_poison_is_no_part_of_a_transaction(self, source: str) -> None:
        given = self.given(source)
        given.client.begin(TX)
        given.client.these(given.deliveries[0], how=POISON, tx=TX, token="poison")
        assert (given.client.errors, given.in_flight) == ([("poison", "invalid-argument")], 3)

    def test_messages_in_an_open_transaction_take_no_credit(self) -> None:
        given = self.given("queue", prefetch=1)
        given.client.begin(TX)
        given.client.these(*given.deliveries, tx=TX)
        assert [each.message.body for each in given.again(0.0)] == [b"2"]

    def test_nothing_is_settled_in_an_unknown_transaction(self) -> None:
        given = self.given()
        for how in (ACCEPTED, DELIVERED, RELEASED):
            given.client.these(given.deliveries[0], how=how, tx=b"lnone", token="token")
        given.client.these(given.deliveries[0], tx=b"x00000001-aa-bb", token="token")
        assert given.client.codes == ["unknown-transaction"] * 3 + ["unknown-xid"]
        assert given.in_flight == 3

    # Ranges of one part.

    def test_a_range_without_a_first_one_begins_with_the_oldest(self) -> None:
        given = self.given()
        given.client.up_to(given.deliveries[1])
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"3"]

    def test_a_range_has_what_was_given_in_between_in_the_order_in_which_it_was_given(self) -> None:
        given = self.given("queue", "1", "2", "3", "4")
        first, second, third, fourth = given.deliveries
        given.client.these(first, how=RELEASED)
        (again,) = given.again(0.0)
        given.client.up_to(again, third, token="range")
        given.world.run()
        assert ([message.body for message in in_flight(given)], given.client.tokens) == ([b"2"], ["range"])
        assert second.message.sequence < fourth.message.sequence

    def test_a_range_that_ends_before_it_begins_is_none(self) -> None:
        given = self.given()
        given.client.up_to(given.deliveries[0], given.deliveries[1])
        assert (given.client.codes, given.in_flight) == (["invalid-argument"], 3)

    @pytest.mark.parametrize("how", [ACCEPTED, POISON, UNMATCHED, EXPIRED, REDELIVERED])
    def test_both_ends_of_a_range_are_in_flight(self, how: Settlement) -> None:
        given = self.given("queue", "1", "2", "3", "4")
        first, second, third, fourth = given.deliveries
        given.client.these(second)
        given.world.run()
        given.client.up_to(third, second, how=how, token="first")
        given.client.up_to(second, first, how=how, token="last")
        given.client.up_to(second, how=how, token="alone")
        assert given.client.errors == [(token, "unknown-message") for token in ("first", "last", "alone")]
        given.client.up_to(fourth, first, how=how, token="both")
        given.world.run()
        assert "both" in given.client.tokens

    def test_a_range_of_one_message_is_that_message(self) -> None:
        given = self.given()
        given.client.up_to(given.deliveries[1], given.deliveries[1])
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"1", b"3"]

    @pytest.mark.parametrize(("expected", "codes"), [(2, []), (3, ["invalid-argument"]), (0, [])])
    def test_a_range_has_as_many_messages_as_its_client_says(self, expected: int, codes: list[str]) -> None:
        given = self.given()
        given.client.up_to(given.deliveries[1], given.deliveries[0], expected)
        given.world.run()
        assert (given.client.codes, given.in_flight) == (codes, 3 if codes else 1)

    def test_a_range_in_a_transaction_may_have_more_messages_than_its_client_says(self) -> None:
        given = self.given()
        given.client.begin(TX)
        given.client.these(given.deliveries[1], tx=TX)
        given.client.up_to(given.deliveries[2], given.deliveries[0], 2, tx=TX)
        given.client.end(TX, token="committed")
        given.world.run()
        assert (given.client.tokens, given.client.errors, given.world.depth()) == (["committed"], [], 0)

    def test_clients_tell_of_deliveries_in_lots_of_which_some_are_done(self) -> None:
        given = self.given("queue", "1", "2", "3", "4", prefetch=3)
        given.client.these(given.deliveries[0])
        given.client.up_to(given.deliveries[2], given.deliveries[0], 3, how=DELIVERED)
        given.world.run()
        given.client.send("/queue/q", "5", "6")
        given.world.run()
        assert (given.client.bodies(), given.client.errors) == (["4", "5", "6"], [])

    # Had before: a client that has failed over says so of each message that its application had.

    @pytest.mark.parametrize("how", [ACCEPTED, POISON, UNMATCHED, EXPIRED, DELIVERED])
    def test_a_range_that_begins_with_what_the_client_had_before_has_all_of_that(self, how: Settlement) -> None:
        given = self.given("queue", *"123456", prefetch=100)
        for place in (2, 0):
            given.client.up_to(given.deliveries[place], expected=1, how=DELIVERED)
        given.client.up_to(given.deliveries[3], given.deliveries[2], 9, how=how)
        given.world.run()
        extended: Any = given.deliveries[0].part
        left = [b"5", b"6"]
        if how is DELIVERED:
            assert len(extended.extended) == 4
        else:
            assert [message.body for message in in_flight(given)] == left
        assert given.client.errors == []

    def test_a_range_within_what_the_client_had_before_has_that_alone(self) -> None:
        given = self.given("queue", *"1234")
        for place in (3, 1):
            given.client.up_to(given.deliveries[place], expected=1, how=DELIVERED)
        given.client.up_to(given.deliveries[1], given.deliveries[3])
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"1", b"3"]

    def test_a_range_may_begin_with_what_the_client_had_before_and_is_done(self) -> None:
        given = self.given("queue", *"1234")
        for place in (2, 0):
            given.client.up_to(given.deliveries[place], expected=1, how=DELIVERED)
        given.client.these(given.deliveries[2])
        given.client.up_to(given.deliveries[1], given.deliveries[2])
        given.world.run()
        assert ([message.body for message in in_flight(given)], given.client.errors) == ([b"4"], [])

    def test_what_a_client_had_before_may_be_acknowledged_in_a_transaction(self) -> None:
        given = self.given("queue", *"1234")
        for place in (3, 2):
            given.client.up_to(given.deliveries[place], expected=1, how=DELIVERED)
        given.client.begin(TX)
        given.client.up_to(given.deliveries[0], given.deliveries[3], 3, tx=TX)
        given.client.end(TX)
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"2"]

    # Ranges of several parts.

    def test_a_range_of_a_list_covers_all_its_parts(self) -> None:
        given = self.given("list", *"12345")
        given.client.up_to(given.deliveries[3])
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"5"]

    @pytest.mark.parametrize("named", [True, False])
    def test_a_range_of_a_list_is_so_many_messages_or_begins_with_the_first_one(self, named: bool) -> None:
        given = self.given("list", *"12345")
        given.client.up_to(given.deliveries[3], given.deliveries[1] if named else None, 3)
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"1", b"5"]

    def test_a_first_one_of_a_list_whose_part_is_not_known_says_nothing(self) -> None:
        given = self.given("list", *"12345")
        last = given.deliveries[3]
        given.client.settle(UpTo(last.part, last.message.sequence - 1, last.message.sequence, 2), ACCEPTED)
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"1", b"5", b"2"]

    def test_more_messages_than_there_are_is_all_of_them(self) -> None:
        given = self.given("list", *"12345")
        given.client.up_to(given.deliveries[3], expected=99)
        given.client.up_to(given.deliveries[4], expected=1)
        given.world.run()
        assert in_flight(given) == []

    def test_the_last_message_of_a_list_is_in_flight(self) -> None:
        given = self.given("list", *"12345")
        given.client.these(given.deliveries[3])
        given.client.up_to(given.deliveries[3], expected=2, how=DELIVERED)
        assert given.client.codes == ["unknown-message"]

    # What a rollback gave back.

    def test_what_a_rollback_gave_back_is_acknowledged_if_it_still_waits(self) -> None:
        given = self.given("queue", "1", prefetch=1, policy={"initial_redelivery_delay": 60.0})
        given.client.begin(TX)
        given.client.these(given.deliveries[0], tx=TX)
        given.client.end(TX, Step.ROLLBACK)
        given.world.run()
        given.client.these(given.deliveries[0], token="late")
        given.client.these(given.deliveries[0], token="unknown")
        given.world.run()
        assert (given.client.tokens, given.client.errors) == (["end", "late"], [("unknown", "unknown-message")])
        assert given.world.depth() == 0

    def test_what_a_rollback_gave_back_is_acknowledged_in_the_next_transaction(self) -> None:
        given = self.given("queue", "1", prefetch=1, policy={"initial_redelivery_delay": 60.0})
        for tx, step in ((TX, Step.ROLLBACK), (b"lu", Step.COMMIT)):
            given.client.begin(tx)
            given.client.these(given.deliveries[0], tx=tx)
            given.client.end(tx, step)
            given.world.run()
        assert (given.client.errors, given.world.depth()) == ([], 0)

    def test_a_range_may_end_with_what_a_rollback_gave_back(self) -> None:
        given = self.given("queue", *"123", ack=CLIENT, policy={"initial_redelivery_delay": 60.0})
        given.client.begin(TX)
        given.client.up_to(given.deliveries[1], tx=TX)
        given.client.end(TX, Step.ROLLBACK)
        given.world.run()
        given.client.up_to(given.deliveries[1], token="late")
        given.client.up_to(given.deliveries[1], how=REJECTED, token="rejected")
        given.world.run()
        assert (given.client.tokens[1:], given.world.depth()) == (["late"], 1)

    def test_such_a_range_is_part_of_the_next_transaction_and_has_no_first_one(self) -> None:
        given = self.given("queue", *"123", ack=CLIENT, policy={"initial_redelivery_delay": 60.0})
        given.client.begin(TX)
        given.client.up_to(given.deliveries[1], tx=TX)
        given.client.end(TX, Step.ROLLBACK)
        given.world.run()
        given.client.up_to(given.deliveries[1], given.deliveries[0], token="wrong")
        given.client.begin(b"lu")
        given.client.up_to(given.deliveries[1], tx=b"lu")
        given.client.end(b"lu")
        given.world.run()
        assert (given.client.errors, given.world.depth()) == ([("wrong", "unknown-message")], 1)

    def test_a_rejection_of_what_a_rollback_gave_back_says_nothing_new(self) -> None:
        given = self.given("queue", "1", prefetch=1, policy={"initial_redelivery_delay": 60.0})
        given.client.begin(TX)
        given.client.these(given.deliveries[0], tx=TX)
        given.client.end(TX, Step.ROLLBACK)
        given.world.run()
        given.client.these(given.deliveries[0], how=REJECTED, token="late")
        assert given.client.errors == []
        assert [each.message.failures for each in given.again(61.0)] == [1]

    def test_what_a_rollback_gave_back_is_unknown_when_its_consumer_is_gone(self) -> None:
        given = self.given("queue", "1", policy={"initial_redelivery_delay": 60.0})
        given.client.begin(TX)
        given.client.these(given.deliveries[0], tx=TX)
        given.client.end(TX, Step.ROLLBACK)
        given.client.unsubscribe(given.consumer)
        given.client.these(given.deliveries[0], token="late")
        given.world.run()
        assert (given.client.errors, given.world.depth()) == ([("late", "unknown-message")], 1)

    # Members: what comes late is no error.

    def late(self, **spec: Any) -> tuple[Given, Any]:
        """A member whose first lease has ended, and its group."""
        given = self.given("member", policy={"consume_timeout": 10.0, "retry_delays": "100s"}, **spec)
        given.client.these(*given.deliveries[1:])
        given.again(11.0)
        return given, given.world.broker.broker.groups.existing("s", "g")

    def test_a_late_acknowledgement_of_a_member_may_count(self) -> None:
        given, group = self.late()
        given.client.these(given.deliveries[0], token="late")
        given.client.these(given.deliveries[0], token="stale")
        given.world.run()
        assert (given.client.tokens, given.client.errors) == (["late", "stale"], [])
        assert (group.late, group.stale, group.fenced) == (1, 1, 0)
        assert given.again(200.0) == []

    def test_what_a_member_rejects_too_late_changes_nothing(self) -> None:
        given, group = self.late()
        given.client.begin(TX)
        given.client.these(given.deliveries[0], how=REJECTED)
        given.client.these(given.deliveries[0], tx=TX)
        given.client.up_to(given.deliveries[0], how=UNMATCHED)
        given.client.end(TX)
        given.world.run()
        assert (given.client.errors, group.late, group.stale) == ([], 0, 0)

    def test_what_is_of_a_part_that_is_gone_is_fenced(self) -> None:
        given = self.given("member")
        group = given.world.broker.broker.groups.existing("s", "g")
        given.client.unsubscribe(given.consumer)
        given.client.these(given.deliveries[0])
        given.client.up_to(given.deliveries[1])
        given.client.settle(Handles(given.consumer, [Handle(1, 1, 0, -1)]), token="gone")
        given.world.run()
        assert (given.client.errors, group.fenced) == ([], 3)
        assert [str(outcome) for outcome in given.client.results["gone"].values()] == ["fenced"]

    def test_a_range_of_a_member_begins_with_the_first_one_if_it_has_that(self) -> None:
        given = self.given("member", *"12345")
        given.client.up_to(given.deliveries[3], given.deliveries[1], 99)
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"1", b"5"]
        given.client.up_to(given.deliveries[4], given.deliveries[0], 1)
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"1"]

    def test_a_range_of_a_member_is_so_many_messages_if_it_has_the_first_one_no_more(self) -> None:
        given = self.given("member", *"12345")
        given.client.these(given.deliveries[1])
        given.client.up_to(given.deliveries[4], given.deliveries[1], 2)
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"1", b"3"]

    def test_a_range_of_a_member_leaves_out_what_is_in_a_transaction(self) -> None:
        given = self.given("member", *"1234")
        given.client.begin(TX)
        given.client.these(given.deliveries[1], tx=TX)
        given.client.up_to(given.deliveries[2], given.deliveries[0], 3)
        given.world.run()
        assert [message.body for message in in_flight(given)] == [b"2", b"4"]

    def test_a_range_of_a_member_that_ends_before_it_begins_is_none(self) -> None:
        given = self.given("member", *"123")
        given.client.up_to(given.deliveries[0], given.deliveries[2], 3)
        assert given.client.codes == ["invalid-argument"]

    @pytest.mark.parametrize("how", [ACCEPTED, UNMATCHED, REJECTED])
    def test_a_member_settles_nothing_in_an_xa_transaction(self, how: Settlement) -> None:
        given = self.given("member")
        given.client.begin(b"x00000001-aa-bb")
        given.client.these(given.deliveries[0], how=how, tx=b"x00000001-aa-bb", token="settled")
        given.client.these(given.deliveries[0], how=DELIVERED, tx=b"x00000001-aa-bb", token="delivered")
        given.world.run()
        assert (given.client.errors, given.client.tokens) == ([("settled", "invalid-argument")], ["delivered"])

    # Handles.

    def outcomes(self, given: Given, token: str = "handles") -> list[str]:
        given.world.run()
        return [str(outcome) for outcome in given.client.results.pop(token).values()]

    def test_each_handle_has_its_outcome_when_that_is_durable(self) -> None:
        given = self.given("member")
        first, second, _ = given.deliveries
        name = handle(second)
        given.client.settle(
            Handles(given.consumer, [handle(first), name._replace(last=name.last + 1)]), token="handles"
        )
        given.world.run_turns()
        assert given.client.results == {}
        assert self.outcomes(given) == ["done", "done", "done"]
        assert in_flight(given) == []

    def test_a_handle_of_another_epoch_is_fenced_and_of_a_settled_message_done(self) -> None:
        given = self.given("member")
        first, second, third = given.deliveries
        given.client.these(first)
        given.world.run()
        group = given.world.broker.broker.groups.existing("s", "g")
        handles = [handle(first), handle(second)._replace(epoch=99), handle(third)._replace(partition=9)]
        given.client.settle(Handles(given.consumer, handles), token="handles")
        assert self.outcomes(given) == ["done", "fenced", "fenced"]
        assert (group.fenced, [message.body for message in in_flight(given)]) == (2, [b"2", b"3"])

    @pytest.mark.parametrize(
        ("how", "outcome", "settled"),
        [
            (ACCEPTED, "late", "done"),
            (REJECTED, "late", "done"),
            (Settlement(SettlementKind.EXTEND, 60_000), "stale", "gone"),
        ],
    )
    def test_what_becomes_of_handles_whose_lease_has_ended(self, how: Settlement, outcome: str, settled: str) -> None:
        given, _ = self.late()
        given.client.handles(given.deliveries[0], given.deliveries[1], how=how)
        assert self.outcomes(given) == [outcome, settled]

    def test_a_handle_of_what_another_member_has_is_stale(self) -> None:
        given = self.given("member", policy={"consume_timeout": 10.0, "retry_delays": "1s"})
        given.client.session.credit(given.consumer, 0)
        other = given.world.connect("other")
        other.member("g")
        given.again(11.0)
        given.again(2.0)
        assert "1" in other.bodies()
        given.client.handles(given.deliveries[0])
        assert self.outcomes(given) == ["stale"]

    def test_a_lease_is_extended_by_handle(self) -> None:
        given = self.given("member", policy={"consume_timeout": 10.0, "retry_delays": "0s"})
        given.client.handles(*given.deliveries[1:])
        given.client.handles(given.deliveries[0], how=Settlement(SettlementKind.EXTEND, 30_000), token="extended")
        assert self.outcomes(given, "extended") == ["done"]
        assert given.again(29.0) == []

    def test_handles_are_settled_in_a_transaction(self) -> None:
        given, group = self.late()
        given.client.begin(TX)
        given.client.handles(given.deliveries[0], tx=TX)
        assert self.outcomes(given) == ["stale"]
        (again,) = given.again(101.0)
        given.client.handles(given.deliveries[0], again, tx=TX)
        assert self.outcomes(given) == ["stale", "done"]
        assert (len(in_flight(given)), group.late) == (1, 0)
        given.client.end(TX)
        given.world.run()
        assert in_flight(given) == []

    def test_cumulative_handles_are_about_all_that_was_given_before(self) -> None:
        given = self.given("member", *"1234", ack=CLIENT)
        given.client.handles(given.deliveries[2])
        assert self.outcomes(given) == ["done"]
        assert [message.body for message in in_flight(given)] == [b"4"]

    def test_a_member_that_comes_back_settles_what_it_had(self) -> None:
        world = self.world(policy=AT_ONCE)
        world.broker.broker.stream("s")
        world.run()
        client = world.connect()
        client.member("g", "a")
        world.run()
        client.send("/stream/s", "1", "2")
        world.run()
        deliveries = client.take()
        client.leave(LeavingKind.LOST)
        again = world.connect("again")
        consumer = again.member("g", "a", held=everything())
        world.run()
        again.settle(Handles(consumer, [handle(deliveries[0])]), token="handles")
        world.run()
        assert [str(outcome) for outcome in again.results["handles"].values()] == ["done"]
        (part, *_) = [part for part in consumer.parts if part.in_flight]
        assert [message.body for message in part.in_flight.values()] == [b"2"]


def everything() -> Any:
    """A member has all that it had."""
    return ALL


def letters(given: Given, header: str = "") -> list[str]:
    """The bodies of the dead letters, or a header of them."""
    name = {"member": "%DLQ%g"}.get("member" if given.consumer.spec.membership else "", "ActiveMQ.DLQ")
    reader = given.world.connect(f"reader {len(given.client.log)}")
    reader.consume(Address(DestinationKind.QUEUE, name), kind=ConsumerKind.BROWSER)
    given.world.run()
    return [
        each.message.headers()[header] if header else each.message.body.decode() for each in reader.take()
    ]  # fmt: skip


def in_flight(given: Given) -> list[Any]:
    """What a consumer has."""
    return [message for part in given.consumer.parts for message in part.in_flight.values()]
