"""The six rules that every session keeps, and how it comes and goes."""

from dataclasses import replace
from typing import Any

import pytest

from quire.broker.routing.addresses import Address
from quire.broker.schedule import Timing
from quire.destination import DestinationKind
from quire.errors import DestinationInUse, InvalidArgument, InvalidHeader, QuireError
from quire.sessions.base import ConsumerKind, LeavingKind, Settlement, SettlementKind, Traits
from quire.settings.users import read_rules
from tests.conformance.sessions.rig import QUEUE, STREAM, TOPIC, Client, Suite, World, content
from tests.unit.server.rights import deny_writes, end_proofs

TX = b"lt"


class Rules(Suite):
    # Rule 1: False means that nothing was done; the same is handed in again when it goes on.

    def full(self, **store: Any) -> World:
        """A world whose store has room for about three messages."""
        return self.world(store={"limit": 3000}, producer={"hold_limit": 30.0})

    def test_a_send_that_has_to_wait_is_taken_when_consumers_have_made_room(self) -> None:
        world = self.full()
        consumer, producer = world.connect(), world.connect("producer")
        consumer.consume(prefetch=1)
        producer.send("/queue/q", b"1" * 2000, b"2" * 2000, token="two")
        world.run()
        producer.send("/queue/q", b"3", token="three")
        world.run()
        assert (producer.is_held, producer.tokens, world.depth()) == (True, ["two"], 2)
        for _ in range(2):
            consumer.these(*consumer.take())
            world.run()
        assert (producer.is_held, producer.tokens, consumer.bodies()) == (False, ["two", "three"], ["3"])

    def test_settling_credit_and_pulls_pass_a_send_that_waits(self) -> None:
        world = self.full()
        client = world.connect()
        consumer = client.consume(prefetch=0)
        client.send("/queue/q", b"1" * 2000, b"2" * 2000, b"3" * 2000)
        world.run()
        client.send("/queue/q", b"4", token="four")
        world.run()
        client.session.pull(consumer, 1, 0)
        world.run()
        client.these(*client.take())
        world.run()
        assert client.is_held
        client.session.credit(consumer, 1)
        world.run()
        client.these(*client.take())
        world.run()
        assert (client.is_held, client.tokens, len(client.bodies())) == (False, ["four"], 1)

    def test_a_send_that_waits_too_long_ends_its_session(self) -> None:
        world = self.full()
        producer = world.connect()
        producer.send("/queue/q", b"1" * 4000)
        world.run()
        producer.send("/queue/q", b"2")
        world.run()
        world.advance(31)
        assert (producer.ended_by, world.depth()) == ("producer-held", 1)

    def test_open_transactions_that_fill_the_store_are_not_waited_for(self) -> None:
        world = self.full()
        producer = world.connect()
        producer.begin(TX)
        producer.send("/queue/q", b"1" * 4000, tx=TX)
        world.run()
        producer.send("/queue/q", b"2", tx=TX, token="second")
        world.run()
        assert (producer.is_held, producer.errors) == (False, [("second", "transaction-too-large")])

    def test_what_is_not_stored_is_not_held_for_the_store(self) -> None:
        world = self.full()
        producer = world.connect()
        producer.send("/queue/q", b"1" * 4000)
        world.run()
        producer.send("/queue/q", b"2", persistent=False, token="second")
        world.run()
        assert producer.tokens == ["second"]

    def test_what_is_sent_later_is_held_as_what_is_stored(self) -> None:
        world = self.full()
        producer = world.connect()
        producer.send("/queue/q", b"1" * 4000)
        world.run()
        producer.send("/queue/q", b"2", persistent=False, traits=Traits(timing=Timing(delay=1000)))
        world.run()
        assert producer.is_held

    def test_the_end_of_a_large_transaction_waits_until_all_of_it_is_found(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", *[b"%d" % number for number in range(1500)])
        consumer = client.consume(prefetch=2000)
        world.run()
        client.begin(TX)
        client.these(*client.take(), tx=TX)
        client.unsubscribe(consumer)
        world.run()
        client.end(TX, token="commit")
        assert client.is_held
        world.run()
        assert (client.tokens, client.is_held, world.depth()) == (["commit"], False, 0)

    def test_the_deletion_of_a_destination_is_handed_in_until_it_is_done(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", *[b"%d" % number for number in range(1500)])
        world.run()
        client.call("delete", [QUEUE], token="deleted")
        assert client.is_held
        world.run()
        assert (client.tokens, "q" in world.broker.broker.queues) == (["deleted"], False)

    # Rule 2: errors that are known at once, and those that come later.

    def test_a_consumer_that_is_refused_leaves_nothing(self) -> None:
        world = self.world()
        client = world.connect()
        with pytest.raises(InvalidArgument):
            client.consume(Address(DestinationKind.QUEUE, ">"), kind=ConsumerKind.BROWSER)
        with pytest.raises(InvalidHeader):
            client.consume(TOPIC, kind=ConsumerKind.DURABLE, name="d")
        world.run()
        assert (dict(client.session.parts), world.broker.broker.queues) == ({}, {})

    def test_a_consumer_whose_name_is_taken_leaves_nothing(self) -> None:
        world = self.world()
        client = world.connect(client_id="c")
        client.consume(TOPIC, kind=ConsumerKind.DURABLE, name="d")
        with pytest.raises(DestinationInUse):
            client.consume(TOPIC, id="again", kind=ConsumerKind.DURABLE, name="d")
        client.session.drained()
        client.leave()
        world.run()
        assert (dict(client.session.parts), client.gone) == ({}, [0])

    def test_an_unknown_message_is_an_error_and_the_others_are_settled(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", "1", "2", "3")
        client.consume()
        world.run()
        first, second, third = client.take()
        client.these(second)
        world.run()
        client.these(first, second, third, token="all")
        world.run()
        assert (client.errors, world.depth()) == ([("all", "unknown-message")], 0)
        assert client.failures[0].data == {"sequence": second.message.sequence}

    # Rule 3: tokens.

    def test_the_token_of_a_send_comes_when_it_is_durable(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", "1", token="sent")
        world.run_turns()
        assert client.tokens == []
        world.run()
        assert client.tokens == ["sent"]

    def test_tokens_come_in_the_order_in_which_they_were_given(self) -> None:
        world = self.world()
        client = world.connect()
        client.consume()
        client.send("/queue/q", "1", "2", token="sent")
        client.begin(TX, token="begun")
        client.send("/topic/t", "3", tx=TX, token="held")
        client.end(TX, token="committed")
        world.run()
        client.these(*client.take(), token="settled")
        client.say(lambda: client.session.begin(b"lu", "again"), "again")
        world.run()
        assert client.tokens == ["sent", "begun", "held", "committed", "settled", "again"]

    def test_a_chunk_of_input_asks_for_one_confirmation(self) -> None:
        world = self.world()
        client = world.connect()
        client.session.takes_input()
        for token in ("1", "2"):
            client.session.confirm(token)
        client.session.took_input(False)
        client.session.confirm("3")
        world.run()
        assert client.tokens == ["1", "2", "3"]

    @pytest.mark.parametrize("sent", [True, False])
    def test_a_door_says_whether_it_gave_messages_to_a_target_itself(self, sent: bool) -> None:
        world = self.world()
        client = world.connect()
        route = client.session.route("/queue/q")
        client.session.takes_input()
        route.target.send(content("1"))
        route.receipts.append("token")
        client.session.took_input(sent)
        world.fail()
        assert client.ended_by == ("store-full" if sent else "")
        world.recover()
        assert client.tokens == ([] if sent else ["token"])

    def test_the_sender_of_a_failed_commit_is_ended_and_hears_of_none_of_it(self) -> None:
        world = self.world()
        producer, other = world.connect("producer"), world.connect("other")
        producer.send("/queue/q", "1", token="sent")
        other.session.confirm("other's")
        world.fail()
        assert (producer.ended_by, producer.tokens, other.tokens) == ("store-full", [], [])
        world.recover()
        assert (producer.tokens, other.ended_by, other.tokens, world.depth()) == ([], "", ["other's"], 0)

    def test_tokens_of_a_failed_commit_come_before_later_ones(self) -> None:
        world = self.world()
        producer, client = world.connect("producer"), world.connect()
        producer.send("/queue/q", "1")
        world.run()
        client.consume()
        world.run()
        client.these(*client.take(), token="settled")
        world.run_turns()
        client.session.confirm("next")
        world.fail()
        client.session.confirm("last")
        world.recover()
        assert (client.tokens, world.depth()) == (["settled", "next", "last"], 0)

    def test_persistent_sends_are_refused_while_the_store_fails(self) -> None:
        world = self.world()
        producer, other = world.connect(), world.connect("other")
        producer.send("/queue/q", "1")
        world.fail()
        other.send("/queue/q", "2", token="refused")
        other.send("/queue/q", "3", persistent=False)
        world.run_turns()
        assert other.errors == [("refused", "store-full")]
        world.recover()
        assert world.depth() == 1

    def test_a_plain_consumer_is_confirmed_at_once_and_before_its_first_message(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", "1")
        world.run()
        client.consume(token="subscribed")
        world.run()
        assert [what for what, _ in client.log] == ["part", "confirmed", "deliver"]

    def test_a_list_is_confirmed_when_it_is_subscribed_to_everything(self) -> None:
        world = self.world()
        client = world.connect()
        names = [Address(DestinationKind.QUEUE, f"q{number}") for number in range(99)]
        for address in [*names, *[Address(DestinationKind.QUEUE, f"r{number}") for number in range(99)]]:
            client.call("create", address)
        world.run()
        client.tokens.clear()
        client.consume(Address(DestinationKind.QUEUE, ">"), token="subscribed")
        assert client.tokens == []
        world.run()
        assert (client.tokens, len(client.session.parts)) == (["subscribed"], 198)

    def test_a_new_durable_subscription_is_confirmed_when_its_name_is_stored(self) -> None:
        world = self.world()
        client = world.connect(client_id="c")
        durable: dict[str, Any] = {"kind": ConsumerKind.DURABLE, "name": "d"}
        consumer = client.consume(TOPIC, token="new", **durable)
        world.run_turns()
        assert client.tokens == []
        world.run()
        assert client.tokens == ["new"]
        client.unsubscribe(consumer)
        world.run()
        client.consume(TOPIC, id="again", token="known", **durable)
        world.run()
        assert client.tokens == ["new", "known"]

    def test_a_new_group_is_confirmed_when_it_is_stored(self) -> None:
        world = self.world(policy={"partitions": 2})
        world.broker.broker.stream("s")
        world.run()
        client = world.connect()
        client.member(token="new", events=True)
        world.run_turns()
        assert client.tokens == []
        world.run()
        other = world.connect("other")
        other.member(token="known", events=True)
        world.advance(60)
        assert (client.tokens, other.tokens) == (["new"], ["known"])
        assert other.log.index(("confirmed", "known")) < other.log.index(("event", "assigned"))

    def test_a_member_that_comes_back_hears_first_that_it_is_there(self) -> None:
        world = self.world(policy={"partitions": 1})
        world.broker.broker.stream("s")
        world.run()
        first = world.connect("first")
        first.member("g", "a")
        world.run()
        first.leave(LeavingKind.LOST)
        again = world.connect("again")
        again.member("g", "a", token="back", events=True)
        world.run()
        assert again.log.index(("confirmed", "back")) < again.log.index(("event", "assigned"))

    # Rule 4 and 5.

    def test_verbs_take_effect_in_their_order(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", "1", "2")
        client.consume(kind=ConsumerKind.BROWSER, id="browser")
        client.send("/queue/q", "3")
        world.run()
        assert (client.bodies(), client.shown) == (["1", "2"], [0])

    def test_a_part_is_there_before_its_first_message_and_has_what_the_door_gave_it(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/topic/t", "0")
        consumer = client.consume(QUEUE, TOPIC)
        client.send("/queue/q", "1")
        client.send("/topic/t", "2")
        world.run()
        deliveries = client.take()
        assert sorted([each.message.body for each in deliveries]) == [b"1", b"2"]
        for part, _, _ in deliveries:
            assert part.consumer is consumer
            assert part.writer == f"writer of {part.number}"
            assert client.session.parts[part.number] is part
        assert {str(part.destination) for part in consumer.parts} == {"queue://q", "topic://t"}

    def test_a_number_is_never_used_again(self) -> None:
        world = self.world()
        client = world.connect()
        numbers = []
        for round in range(3):
            consumer = client.consume(QUEUE, TOPIC, id=str(round))
            world.run()
            numbers += [part.number for part in consumer.parts]
            client.unsubscribe(consumer)
            world.run()
        assert len(set(numbers)) == 6
        assert sorted(client.gone) == sorted(numbers)

    def test_what_is_not_writable_is_given_nothing_until_it_is(self) -> None:
        world = self.world()
        client = world.connect()
        client.consume()
        client.consume(QUEUE, TOPIC, id="list")
        client.session.writable = False
        client.send("/queue/q", "1")
        client.send("/topic/t", "2")
        world.run()
        assert client.bodies() == []
        client.session.drained()
        world.run()
        assert sorted(client.bodies()) == ["1", "2"]

    # Rule 6: a transaction in which something failed that nobody waits for.

    def failing(self, world: World, token: str | None) -> Any:
        """A client with a transaction in which an acknowledgement failed."""
        client = world.connect()
        client.send("/queue/q", "1")
        client.consume()
        world.run()
        (first,) = client.take()
        client.these(first)
        world.run()
        client.begin(TX)
        client.send("/queue/other", "2", tx=TX)
        client.these(first, tx=TX, token=token)
        client.end(TX, token="commit")
        world.run()
        return client

    def test_a_transaction_in_which_something_failed_unheard_does_not_commit(self) -> None:
        world = self.world()
        client = self.failing(world, None)
        assert client.codes == ["unknown-message", "transaction-rolled-back"]
        assert client.failures[1].data["cause"] == "unknown-message"
        assert world.depth("other") == 0
        client.end(TX, token="again")
        world.run()
        assert client.codes[2:] == ["unknown-transaction"]

    def test_a_failure_whose_client_waits_for_it_spoils_no_transaction(self) -> None:
        world = self.world()
        client = self.failing(world, "ack")
        assert (client.errors, client.tokens) == ([("ack", "unknown-message")], ["commit"])
        assert world.depth("other") == 1

    def test_a_refused_send_spoils_its_transaction(self) -> None:
        world = self.world(transaction={"max_messages": 1})
        client = world.connect()
        client.begin(TX)
        client.send("/queue/q", "1", "2", tx=TX)
        client.end(TX)
        world.run()
        assert (client.codes, world.depth()) == (["transaction-too-large", "transaction-rolled-back"], 0)

    def test_a_door_spoils_a_transaction(self) -> None:
        world = self.world()
        client = world.connect()
        client.begin(TX)
        client.send("/queue/q", "1", tx=TX)
        client.session.spoil(TX, InvalidHeader("it cannot be read", header="x"))
        client.session.spoil(b"lunknown", InvalidHeader("it cannot be read", header="x"))
        client.end(TX)
        world.run()
        assert (client.codes, client.failures[0].data["cause"], world.depth()) == (
            ["transaction-rolled-back"], "invalid-header", 0
        )  # fmt: skip

    # How it comes.

    def test_one_connection_has_a_client_id(self) -> None:
        world = self.world()
        first = world.connect("first", client_id="c")
        second = world.newcomer("second")
        second.open(client_id="c", token="opened")
        world.run()
        assert (second.errors, second.session.client_id) == ([("opened", "invalid-header")], None)
        assert second.failures[0].data["header"] == "client-id"
        first.leave()
        world.run()
        second.open(client_id="c", token="again")
        world.run()
        assert (second.tokens, second.session.client_id) == (["again"], "c")

    def test_a_client_id_is_waited_for_while_its_connection_may_be_over(self) -> None:
        world = self.world()
        first, second = world.connect("first", client_id="c"), world.newcomer("second")
        first.has_ended = True
        second.open(client_id="c", token="opened")
        assert second.is_held
        world.advance(0.1)
        first.leave(LeavingKind.LOST)
        world.advance(1)
        assert (second.tokens, first.ended_by) == (["opened"], "")

    def test_a_connection_that_is_over_loses_its_client_id_in_the_end(self) -> None:
        world = self.world()
        first, second = world.connect("first", client_id="c"), world.newcomer("second")
        first.has_ended = True
        second.open(client_id="c", token="opened")
        for _ in range(10):
            world.advance(0.2)
        assert (second.tokens, first.ended_by) == (["opened"], "invalid-header")

    def test_a_connection_of_which_nothing_is_known_keeps_its_client_id(self) -> None:
        world = self.world()
        first, second = world.connect("first", client_id="c"), world.newcomer("second")
        first.has_ended = None
        second.open(client_id="c", token="opened")
        assert second.is_held
        for _ in range(10):
            world.advance(0.2)
        assert (second.errors, first.ended_by) == ([("opened", "invalid-header")], "")

    def test_a_client_that_connects_again_takes_its_session_over(self) -> None:
        world = self.world()
        old = world.connect("old", client_id="c", takeover="key")
        old.send("/queue/q", "1", "2")
        old.consume()
        address = old.session.temporary(DestinationKind.QUEUE)
        world.run()
        assert len(old.take()) == 2
        new = world.connect("new", client_id="c", takeover="key")
        assert (old.is_closed, new.session.client_id, dict(old.session.parts)) == (True, "c", {})
        new.consume()
        world.run()
        assert new.bodies() == ["1", "2"]
        with pytest.raises(QuireError):
            new.consume(address, id="temporary")

    def test_the_key_of_a_session_that_went_is_free(self) -> None:
        world = self.world()
        old = world.connect("old", takeover="key")
        old.leave()
        new = world.connect("new", takeover="key")
        last = world.connect("last", takeover="key")
        assert (old.is_closed, new.is_closed, last.is_closed) == (False, True, False)

    def test_nobody_takes_over_the_session_of_another_user(self) -> None:
        world = self.world()
        world.secure()
        old = world.connect("old", "allowed", takeover="key")
        new = world.newcomer("new", "other")
        new.open(takeover="key", token="opened")
        world.run()
        assert (new.errors, old.is_closed) == ([("opened", "access-refused")], False)

    def test_advisories_tell_of_a_connection_unless_it_is_not_announced(self) -> None:
        world = self.world()
        listener = world.connect("listener")
        listener.consume(Address(DestinationKind.TOPIC, "ActiveMQ.Advisory.Connection"))
        world.run()
        one, _ = world.connect("one", client_id="one"), world.connect("two", client_id="two", announced=False)
        one.leave()
        world.run()
        told = [(each.message.body.count(b"started"), each.message.body.count(b"one")) for each in listener.take()]
        assert told == [(1, 2), (0, 2)]

    # How it goes.

    def test_who_leaves_has_its_token_when_all_it_sent_is_durable(self) -> None:
        world = self.world()
        client = world.connect()
        client.send("/queue/q", "1")
        client.leave(token="bye")
        world.run_turns()
        assert client.tokens == []
        world.run()
        assert (client.tokens, world.depth()) == (["bye"], 1)

    def test_who_leaves_while_the_store_fails_has_its_token_when_it_does_not(self) -> None:
        world = self.world()
        producer, client = world.connect("producer"), world.connect()
        producer.send("/queue/q", "1")
        world.fail()
        client.leave(token="bye")
        world.run_turns()
        assert client.tokens == []
        world.recover()
        world.advance(1)
        assert client.tokens == ["bye"]

    def test_who_leaves_in_a_commit_that_fails_has_its_token_later(self) -> None:
        world = self.world()
        producer, client = world.connect("producer"), world.connect()
        producer.send("/queue/q", "1")
        client.leave(token="bye")
        world.fail()
        assert client.tokens == []
        world.recover()
        world.advance(1)
        assert client.tokens == ["bye"]

    def test_leaving_twice_is_leaving_once(self) -> None:
        world = self.world()
        client = world.connect(client_id="c")
        client.leave()
        other = world.connect("other", client_id="c")
        client.leave(LeavingKind.LOST)
        world.run()
        third = world.newcomer("third")
        third.open(client_id="c", token="opened")
        world.run()
        assert (other.session.client_id, third.codes) == ("c", ["invalid-header"])

    @pytest.mark.parametrize(
        ("kind", "loss_counts", "failures"),
        [
            (LeavingKind.CLEAN, True, [0, 0]),
            (LeavingKind.LOST, True, [1, 0]),
            (LeavingKind.LOST, False, [0, 0]),
            (LeavingKind.BLAMELESS, True, [0, 0]),
        ],
    )
    def test_the_oldest_message_of_a_lost_connection_counts_as_failed_if_its_consumer_says_so(
        self, kind: LeavingKind, loss_counts: bool, failures: list[int]
    ) -> None:
        world = self.world()
        client, other = world.connect(), world.connect("other")
        client.send("/queue/q", "1", "2")
        client.consume(loss_counts=loss_counts)
        world.run()
        client.leave(kind)
        other.consume()
        world.run()
        assert [each.message.failures for each in other.take()] == failures

    def test_a_session_that_ends_by_the_broker_has_failed_nothing(self) -> None:
        world = self.world()
        client, other = world.connect(), world.connect("other")
        client.send("/queue/q", "1")
        client.consume()
        world.run()
        client.session.discard()  # type: ignore[attr-defined]
        other.consume()
        world.run()
        assert [each.message.failures for each in other.take()] == [0]

    def test_what_belongs_to_a_session_goes_with_it(self) -> None:
        world = self.world()
        client, listener = world.connect(client_id="c"), world.connect("listener")
        listener.consume(Address(DestinationKind.TOPIC, "ActiveMQ.Advisory.Producer.Queue.q"))
        temporary = client.session.temporary(DestinationKind.QUEUE)
        client.call("producer", "p", QUEUE, True)
        client.begin(TX)
        client.send("/queue/q", "1", tx=TX)
        world.run()
        client.leave()
        world.run()
        assert [each.message.body.count(b"stopped") for each in listener.take()] == [0, 1]
        assert (world.broker.broker.core.transaction_bytes, world.depth()) == (0, 0)
        dropped = world.broker.broker.routing.temporaries
        listener.send(str(temporary), "late")
        world.run()
        assert (dropped.dropped, dropped.queues) == (1, {})

    # Rights.

    def test_rights_are_asked_when_a_route_and_a_consumer_are_made(self) -> None:
        world = self.world()
        world.secure()
        client = world.connect(user="read")
        world.broker.broker.queue("q")
        client.send("/queue/q", "1", token="sent")
        client.consume(token="subscribed")
        world.run()
        assert (client.errors, client.tokens) == ([("sent", "access-refused")], ["subscribed"])
        writer = world.connect("writer", "write")
        with pytest.raises(QuireError):
            writer.consume()

    def test_a_transaction_that_may_not_be_sent_any_more_does_not_commit(self) -> None:
        world = self.world()
        world.secure()
        client = world.connect(user="allowed")
        client.begin(TX)
        client.send("/queue/q", "1", tx=TX)
        version = client.session.version
        deny_writes(world.broker)
        world.run()
        client.end(TX)
        world.run()
        assert (client.codes, client.failures[0].data["cause"]) == (["transaction-rolled-back"], "access-refused")
        assert client.session.version != version

    def test_a_session_ends_when_its_login_does(self) -> None:
        world = self.world()
        world.secure()
        expired, revoked = world.connect("expired", "expired"), world.connect("revoked", "revoked")
        end_proofs(world.broker)
        world.run()
        assert (expired.ended_by, revoked.ended_by) == ("not-authenticated", "not-authenticated")

    def test_a_consumer_ends_that_may_not_read_any_more(self) -> None:
        world = self.world()
        world.secure()
        client = world.connect(user="other")
        client.consume(id="one")
        client.consume(Address(DestinationKind.QUEUE, "r"), id="two")
        client.consume(client.session.temporary(DestinationKind.QUEUE), id="three")
        world.run()
        deny_reads(world, "q")
        world.run()
        assert (client.consumers_ended, len(client.session.parts)) == ([("one", "access-refused")], 2)

    def test_a_consumer_of_a_temporary_destination_stays_whatever_the_rules_say(self) -> None:
        world = self.world()
        world.secure()
        client = world.connect(user="read")
        client.consume(client.session.temporary(DestinationKind.QUEUE))
        deny_reads(world, ">")
        world.run()
        assert client.consumers_ended == []

    def test_a_pattern_gets_what_may_be_read_later(self) -> None:
        world = self.world()
        world.secure()
        client, other = world.connect(user="none"), world.connect("other", "other")
        client.consume(Address(DestinationKind.QUEUE, ">"))
        other.send("/queue/q", "1")
        world.run()
        assert client.bodies() == []
        allow_reads(world, "q")
        world.run()
        assert client.bodies() == ["1"]

    def test_services_are_for_those_who_may_use_them(self) -> None:
        world = self.world(policy={"partitions": 1})
        world.secure()
        owner, client = world.connect("owner", "allowed"), world.connect(user="read")
        owner.send("/queue/q", "1")
        member = owner.member("g", address=Address(DestinationKind.STREAM, "q"))
        world.run()
        owner.unsubscribe(member)
        client.call("delete", [QUEUE], token="delete")
        client.call("create", Address(DestinationKind.QUEUE, "new"), token="create")
        client.call("remove-group", "q", "g", token="remove")
        client.call("producer", "p", QUEUE, True, token="producer")
        world.run()
        assert client.errors == [(token, "access-refused") for token in ("delete", "create", "remove", "producer")]
        owner.call("delete", [QUEUE], token="deleted")
        owner.call("remove-group", "q", "g", token="removed")
        world.run()
        assert (owner.errors, owner.tokens) == ([], ["deleted", "removed"])

    # A chunk of input says who sends.

    def test_who_wants_none_of_its_own_messages_gets_none(self) -> None:
        world = self.world()
        client, other = world.connect(), world.connect("other")
        client.consume(TOPIC, no_local=True)
        client.send("/topic/t", "own")
        other.send("/topic/t", "other's")
        world.run()
        assert client.bodies() == ["other's"]

    def test_repeated_sends_of_a_producer_are_dropped_and_confirmed(self) -> None:
        world = self.world()
        client = world.connect()
        for token in ("first", "again"):
            client.send("/queue/q", "1", token=token, producer="p", producer_sequence=1)
        world.run()
        assert (client.tokens, world.depth()) == (["first", "again"], 1)

    def test_a_message_of_a_group_says_that_it_is_the_first(self) -> None:
        world = self.world()
        client = world.connect()
        client.consume()
        client.send("/queue/q", "1", "2", traits=Traits(grouped=True), headers={"JMSXGroupID": "g"})
        world.run()
        assert [(each.message.body, each.first) for each in client.take()] == [(b"1", True), (b"2", False)]

    # How large messages may be.

    def limited(self, **changes: Any) -> tuple[World, Client]:
        """A world in which messages to ``small`` have 10 bytes at the most."""
        policies = [{"destination": "small", "max_message_size": 10}, *changes.pop("policies", [])]
        world = self.world(policies=policies, **changes)
        return world, world.connect()

    def test_a_message_that_is_too_large_for_its_destination_is_refused(self) -> None:
        world, client = self.limited()
        client.send("/queue/small", b"x" * 10, token="fits", headers={"name": "long" * 100})
        client.send("/queue/small", b"x" * 11, token="large")
        client.send("/queue/q", b"x" * 11, token="other")
        world.run()
        assert (sorted(client.tokens), client.errors) == (["fits", "other"], [("large", "message-too-large")])
        assert client.failures[0].data == {"destination": "queue://small", "size": 11, "limit": 10}
        assert (world.depth("small"), world.depth()) == (1, 1)

    def test_in_a_transaction_the_send_is_refused_and_not_the_commit(self) -> None:
        world, client = self.limited()
        client.begin(TX)
        client.send("/queue/small", "fits", tx=TX)
        client.send("/queue/small", b"x" * 11, tx=TX, token="large")
        world.run()
        assert client.errors == [("large", "message-too-large")]
        client.end(TX)
        world.run()
        assert (client.tokens, world.depth("small")) == (["end"], 1)

    @pytest.mark.parametrize("destination", ["/queue/q,/queue/small", "/queue/all", "/topic/VirtualTopic.t"])
    def test_what_goes_to_several_is_refused_whole(self, destination: str) -> None:
        forward = {"forward_to": [{"destination": "q"}, {"destination": "small"}]}
        policies = [{"destination": "Consumer.c.VirtualTopic.t", "max_message_size": 10}]
        world, client = self.limited(composites=[{"queue": "all", **forward}], policies=policies)
        listener = world.connect("listener")
        listener.consume(Address(DestinationKind.QUEUE, "Consumer.c.VirtualTopic.t"))
        listener.consume(Address(DestinationKind.TOPIC, "VirtualTopic.t"), id="topic")
        world.run()
        client.send(destination, b"x" * 11, token="large")
        world.run()
        assert (client.errors, world.depth(), listener.bodies()) == ([("large", "message-too-large")], 0, [])
        client.begin(TX)
        client.send(destination, b"x" * 11, tx=TX)
        client.end(TX)
        world.run()
        assert (client.codes[-1], world.depth(), listener.bodies()) == ("transaction-rolled-back", 0, [])

    def test_what_is_sent_later_is_refused_now(self) -> None:
        world, client = self.limited()
        later = Traits(timing=Timing(delay=1000))
        client.send("/queue/small", b"x" * 11, traits=later, token="large")
        client.send("/queue/small", "fits", traits=later, token="fits")
        world.run()
        assert (client.errors, client.tokens) == ([("large", "message-too-large")], ["fits"])
        world.advance(2)
        assert world.depth("small") == 1

    def test_a_dead_letter_may_be_too_large_where_it_comes(self) -> None:
        world, client = self.limited(policies=[{"destination": "q", "dead_letter_queue": "small"}])
        client.send("/queue/q", b"x" * 11)
        client.consume()
        world.run()
        client.these(*client.take(), how=Settlement(SettlementKind.DEAD))
        world.run()
        assert (client.errors, world.depth(), world.depth("small")) == ([], 0, 1)

    def test_a_message_is_sent_later(self) -> None:
        world = self.world()
        client = world.connect()
        client.consume()
        route = client.session.route("/queue/q", Traits(timing=Timing(delay=1000)))
        assert not route.is_plain
        client.send("/queue/q", "1", traits=Traits(timing=Timing(delay=1000)), token="scheduled")
        world.run()
        assert (client.tokens, client.bodies()) == (["scheduled"], [])
        world.advance(1.1)
        assert client.bodies() == ["1"]

    def test_what_is_sent_to_a_stream_goes_where_it_is_said(self) -> None:
        world = self.world(policy={"partitions": 3, "partition_key_header": "key"})
        client = world.connect()
        client.send("/stream/s", "1", headers={"partition": "2"})
        client.send("/stream/s", "2", traits=Traits(partition="2", by_content=False))
        client.send("/stream/s", *"345", traits=Traits(by_content=False))
        client.send("/stream/s", "6", traits=Traits(partition="7", by_content=False), token="wrong")
        world.run()
        counts = [partition.count for partition in world.broker.broker.stream("s").partitions]
        assert (counts, client.errors) == ([1, 1, 3], [("wrong", "invalid-header")])

    def test_a_route_says_what_becomes_of_messages(self) -> None:
        world = self.world()
        client = world.connect()
        address = client.session.temporary(DestinationKind.TOPIC)
        world.run()
        routes = [client.session.route(text) for text in ("/queue/q", str(STREAM), str(address), "/queue/q,/queue/r")]
        assert [route.persistent for route in routes] == [None, True, False, None]
        assert [route.is_plain for route in routes] == [True] * 4

    # Services.

    def test_a_destination_is_created_and_a_producer_makes_its_own(self) -> None:
        world = self.world()
        client, listener = world.connect(), world.connect("listener")
        listener.consume(Address(DestinationKind.TOPIC, "ActiveMQ.Advisory.Producer.Topic.t"))
        world.run()
        client.call("create", QUEUE, token="created")
        client.call("producer", "p", TOPIC, True, token="came")
        client.call("producer", "p", TOPIC, True, token="repeated")
        client.call("producer", "p", TOPIC, False, token="went")
        client.call("producer", "unknown", TOPIC, False, token="unknown")
        world.run()
        assert client.tokens == ["created", "came", "repeated", "went", "unknown"]
        assert len(listener.take()) == 2
        assert ("q" in world.broker.broker.queues, "t" in world.broker.broker.destinations.topics) == (True, True)

    def test_a_destination_with_a_consumer_is_not_deleted(self) -> None:
        world = self.world()
        client = world.connect()
        client.consume()
        client.call("delete", [QUEUE])
        client.call("delete", [Address(DestinationKind.STREAM, "s")])
        world.run()
        assert client.codes == ["destination-in-use", "invalid-destination"]

    def test_a_durable_subscription_is_removed_if_nobody_consumes_it(self) -> None:
        world = self.world()
        client = world.connect(client_id="c")
        consumer = client.consume(TOPIC, kind=ConsumerKind.DURABLE, name="d")
        world.run()
        client.call("remove-durable", "c", "d", token="used")
        client.call("remove-durable", "c", "e", token="unknown")
        world.run()
        assert client.errors == [("used", "destination-in-use"), ("unknown", "unknown-subscription")]
        client.unsubscribe(consumer)
        client.call("remove-durable", "c", "d", token="removed")
        world.run()
        assert (client.tokens, list(world.broker.broker.durables)) == (["removed"], [])

    def test_a_group_is_not_removed_by_mistake(self) -> None:
        world = self.world(policy={"partitions": 1})
        client = world.connect(client_id="c")
        consumer = client.member("g")
        world.run()
        client.unsubscribe(consumer)
        client.call("remove-durable", "c", "g", "stream://")
        client.call("remove-durable", "c", "g", token="plain")
        client.call("remove-group", "s", "g", token="removed")
        world.run()
        assert (client.codes, client.tokens) == (["invalid-argument", "unknown-subscription"], ["removed"])
        assert "stream://s?group=g" in str(client.failures[0])

    # Temporary destinations.

    def test_a_temporary_destination_is_its_sessions_own(self) -> None:
        world = self.world()
        client, other = world.connect(), world.connect("other")
        address = client.session.temporary(DestinationKind.QUEUE, "name")
        world.run()
        client.send(str(address), "0")
        world.run()
        assert client.session.temporary(DestinationKind.QUEUE, "name") == address
        client.consume(address)
        with pytest.raises(QuireError):
            other.consume(address)
        with pytest.raises(QuireError):
            client.consume(address, QUEUE, id="list")
        other.send(str(address), "1")
        world.run()
        assert client.bodies() == ["0", "1"]

    def test_a_temporary_destination_in_use_is_not_dropped(self) -> None:
        world = self.world()
        client = world.connect()
        address = client.session.temporary(DestinationKind.QUEUE)
        consumer = client.consume(address)
        world.run()
        client.call("drop-temporary", address, token="used")
        client.unsubscribe(consumer)
        client.call("drop-temporary", address, token="dropped")
        client.call("drop-temporary", address, token="again")
        world.run()
        assert (client.errors, client.tokens) == ([("used", "destination-in-use")], ["dropped", "again"])

    def test_how_many_temporary_destinations_there_may_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("quire.sessions.session.MAX_TEMPORARIES", 3)
        world = self.world()
        client = world.connect()
        for _ in range(3):
            client.session.temporary(DestinationKind.QUEUE)
            world.run()
        with pytest.raises(QuireError, match="3 temporary"):
            client.session.temporary(DestinationKind.QUEUE)


def deny_reads(world: World, name: str) -> None:
    """Nobody may read a destination any more."""
    change_rules(world, {"subject": "*", "deny": ["read"], "destination": name})


def allow_reads(world: World, name: str) -> None:
    """Everybody may read a destination from now on."""
    change_rules(world, {"subject": "*", "allow": ["read"], "destination": name})


def change_rules(world: World, rule: dict[str, Any]) -> None:
    """There is one more rule."""
    accounts = world.broker.security.accounts
    rules = read_rules([rule], "test")
    accounts.take(replace(accounts.settings, rules=(*accounts.settings.rules, *rules)), accounts.state)
