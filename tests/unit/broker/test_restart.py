"""What may have been delivered before a crash comes back flagged, and nothing else does."""

import pytest

from quire.cursors.lane import STEP as MARK_STEP
from quire.cursors.lane import DispatchMark
from quire.errors import BrokerStopping, StoreFull
from quire.testing.faults import StoreOnTop
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import bodies, consumer, filled, is_flagged, numbers, settings


def test_what_was_dispatched_before_a_crash_comes_back_flagged() -> None:
    stepped = filled(5)
    first = consumer(stepped, prefetchSize="3")
    first.ack(first.take("MESSAGE")[0])
    stepped.run()
    again = stepped.reopen()
    messages = consumer(again).take("MESSAGE")
    assert bodies(messages) == numbers(1, 2, 3, 4)
    assert all(is_flagged(message) for message in messages)
    assert {message.headers["JMSXDeliveryCount"] for message in messages} == {"2"}


def test_messages_sent_after_the_restart_are_not_flagged() -> None:
    stepped = filled(2)
    consumer(stepped)
    again = stepped.reopen()
    again.connect().send("q", b"new")
    again.run()
    flags = {message.body: is_flagged(message) for message in consumer(again).take("MESSAGE")}
    assert flags == {b"0": True, b"1": True, b"new": False}


def test_nothing_is_flagged_when_nobody_has_consumed() -> None:
    again = filled(3).reopen()
    assert not any(is_flagged(message) for message in consumer(again).take("MESSAGE"))


def test_nothing_is_dispatched_before_the_mark_that_will_flag_it_is_stored() -> None:
    stepped = filled(3)
    receiver = stepped.connect()
    receiver.subscribe("q")
    stepped.run_turns()
    assert stepped.writer.batch is not None
    assert receiver.messages() == []
    # Something else wakes the queue while the mark is under way.
    stepped.connect().subscribe("q", id="1")
    stepped.run_turns()
    assert [message for client in stepped.clients for message in client.messages()] == []
    stepped.commit()
    stepped.run()
    assert sorted(message for client in stepped.clients for message in client.messages()) == numbers(0, 1, 2)


def test_a_mark_that_could_not_be_stored_is_asked_for_again() -> None:
    stepped = filled(3)
    receiver = stepped.connect()
    receiver.subscribe("q")
    stepped.run_turns()
    stepped.commit(StoreFull("no space"))
    stepped.run()
    assert receiver.messages() == []
    stepped.advance(1)
    stepped.run()
    assert receiver.messages() == numbers(0, 1, 2)
    assert all(is_flagged(message) for message in consumer(stepped.reopen()).take("MESSAGE"))


@pytest.mark.slow
def test_the_mark_is_written_once_in_many_messages() -> None:
    stepped = filled(2 * MARK_STEP)
    receiver = consumer(stepped, ack="auto", prefetchSize="10000")
    assert len(receiver.messages()) == 2 * MARK_STEP
    mark = stepped.store.lane_state(stepped.queue("q").lanes[0].id).dispatch_mark
    assert 2 * MARK_STEP <= mark <= 3 * MARK_STEP
    assert stepped.broker.core.commits_done < 20


@pytest.mark.parametrize("prefetch", [1, 10])
def test_after_a_crash_only_what_consumers_might_have_been_given_is_flagged(prefetch: int) -> None:
    stepped = filled(100)
    receiver = consumer(stepped, prefetchSize=str(prefetch))
    given = receiver.take("MESSAGE")
    assert len(given) == prefetch
    came_again = consumer(stepped.reopen()).take("MESSAGE")
    flagged = [is_flagged(message) for message in came_again]
    assert prefetch <= flagged.count(True) <= 2 * prefetch
    assert flagged == sorted(flagged, reverse=True)


def test_a_consumer_that_is_as_fast_as_commits_makes_the_mark_run_ahead_with_it() -> None:
    mark, commits = DispatchMark(0), 0
    for sequence in range(1, 10_001):
        mark.reach(sequence, 1)
        if sequence > mark.stored:
            commits += 1
            stored = mark.take()
            assert stored is not None
            mark.stored = stored
    assert commits < 20
    assert mark.stored <= 10_000 + MARK_STEP


def test_a_clean_stop_leaves_no_flags() -> None:
    stepped = filled(3)
    consumer(stepped).take("MESSAGE")
    stepped.stop(BrokerStopping("going down"))
    again = stepped.reopen()
    assert again.store.lane_state(again.queue("q").lanes[0].id).dispatch_mark == 0
    # They came back from a consumer, and so they say; but only once, not because of the stop.
    assert [m.headers["JMSXDeliveryCount"] for m in consumer(again).take("MESSAGE")] == ["2", "2", "2"]


def test_a_clean_stop_keeps_the_flags_of_an_earlier_crash() -> None:
    stepped = filled(3)
    consumer(stepped)
    crashed = stepped.reopen()
    crashed.stop(BrokerStopping("going down"))
    assert all(is_flagged(message) for message in consumer(crashed.reopen()).take("MESSAGE"))


def test_a_clean_stop_tells_clients_and_counts_no_failure() -> None:
    stepped = filled(1)
    receiver = consumer(stepped)
    stepped.stop(BrokerStopping("going down"))
    assert receiver.errors() == ["broker-stopping"]
    assert receiver.connection.closed
    ((_, state),) = stepped.store.deliveries(stepped.queue("q").lanes[0].id, 0, 10)
    assert (state.deliveries, state.failures) == (1, 0)


def test_an_unconfirmed_message_may_be_lost_and_a_confirmed_one_is_not() -> None:
    stepped = filled(0)
    producer = stepped.connect()
    producer.send("q", b"kept", {"receipt": "r"})
    stepped.run()
    producer.send("q", b"lost", {"receipt": "s"})
    stepped.turn()
    assert producer.receipts() == ["r"]
    assert consumer(stepped.reopen()).messages() == [b"kept"]


def test_a_commit_that_was_done_but_not_announced_counts() -> None:
    stepped = filled(2)
    first = consumer(stepped)
    first.ack(first.take("MESSAGE")[0])
    stepped.connect().send("q", b"2")
    stepped.turn()
    stepped.writer.apply()
    assert consumer(stepped.reopen()).messages() == numbers(1, 2)


def test_a_start_reads_as_much_however_many_messages_there_are() -> None:
    def reads(count: int) -> int:
        made: list[None] = []
        SteppedBroker(settings(), StoreOnTop(filled(count).store, lambda: made.append(None)))
        return len(made)

    assert reads(3) == reads(3000)
