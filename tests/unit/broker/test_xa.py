"""XA transactions: prepare, commit, rollback, and what becomes of messages meanwhile."""

import pytest

from quire.broker.transactions import xa as xa_module
from quire.errors import TransactionTooLarge, UnknownXid, WrongTransactionState
from tests.unit.broker.core_consumer import CoreConsumer
from tests.unit.broker.harness import consumer, filled, numbers
from tests.unit.broker.recipients import acknowledge
from tests.unit.broker.xa import XID, acknowledged, depths, send_in, start

# One phase.


def test_one_phase_is_a_local_transaction() -> None:
    stepped, receiver, branch = acknowledged(2)
    send_in(stepped, branch, "/queue/out", b"1")
    branch.end()
    branch.commit(one_phase=True)
    stepped.run()
    assert depths(stepped) == {"q": 1, "out": 1}
    assert list(receiver.subscription.in_flight) == [3]
    assert stepped.broker.xa.recover() == []


def test_a_branch_that_is_not_prepared_is_rolled_back_by_the_redelivery_policy() -> None:
    stepped, receiver, branch = acknowledged(2, policy={"initial_redelivery_delay": 1.0})
    send_in(stepped, branch, "/queue/out", b"1")
    branch.end()
    branch.roll_back()
    stepped.run()
    assert depths(stepped) == {"q": 3}
    receiver.leave()
    stepped.advance(1)
    again = CoreConsumer(stepped).take()
    assert [(message.body, message.failures) for message in again] == [(b"0", 1), (b"1", 1), (b"2", 0)]


def test_two_phases_need_a_prepare() -> None:
    _, _, branch = acknowledged(1)
    with pytest.raises(WrongTransactionState):
        branch.commit()


# Prepare.


def test_a_prepared_branch_holds_its_messages_back_and_hides_what_it_has_acknowledged() -> None:
    stepped, receiver, branch = acknowledged(2)
    send_in(stepped, branch, "/queue/out", b"1")
    branch.end()
    assert branch.prepare() is True
    stepped.run()
    assert depths(stepped) == {"q": 3}
    assert (stepped.queue("q").in_flight, stepped.broker.core.transaction_bytes) == (1, 0)
    receiver.leave()
    stepped.run()
    assert consumer(stepped).messages() == numbers(2)


def test_hidden_messages_take_no_memory() -> None:
    stepped, _, branch = acknowledged(2)
    stepped.run()
    before = stepped.queue("q").memory.used
    branch.prepare()
    stepped.run()
    assert stepped.queue("q").memory.used == before // 3


def test_what_is_prepared_is_durable_in_one_commit() -> None:
    stepped, _, branch = acknowledged(1)
    send_in(stepped, branch, "/queue/out", b"1")
    branch.prepare()
    stepped.turn()
    batch = stepped.writer.batch
    assert batch is not None
    assert list(batch.marks) == [f"xa/{XID}"]


def test_what_no_store_takes_as_one_value_is_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xa_module, "MAX_VALUE", 90)
    stepped, receiver, branch = acknowledged(1)
    for body in (b"1", b"2", b"3"):
        send_in(stepped, branch, "/queue/out", body)
    assert branch.transaction.size > 90
    with pytest.raises(TransactionTooLarge):
        branch.prepare()
    assert not branch.is_prepared
    branch.roll_back()
    stepped.run()
    assert (depths(stepped), stepped.broker.core.transaction_bytes) == ({"q": 2}, 0)
    receiver.leave()
    stepped.run()
    assert consumer(stepped).messages() == [b"0", b"1"]


def test_a_branch_in_which_nothing_was_done_is_over_when_it_is_prepared() -> None:
    stepped = filled(1)
    branch = start(stepped)
    assert branch.prepare() is False
    stepped.run()
    assert (stepped.broker.xa.recover(), stepped.store.marks("xa/")) == ([], [])
    with pytest.raises(UnknownXid):
        stepped.broker.xa.branch(XID)


def test_a_branch_is_prepared_once() -> None:
    stepped, receiver, branch = acknowledged(1)
    branch.prepare()
    with pytest.raises(WrongTransactionState):
        branch.prepare()
    with pytest.raises(WrongTransactionState):
        stepped.broker.xa.start(XID, receiver.session)
    with pytest.raises(WrongTransactionState):
        _ = branch.transaction


def test_what_was_rejected_in_a_branch_comes_back_when_it_is_prepared() -> None:
    stepped = filled(1)
    receiver = CoreConsumer(stepped)
    branch = start(stepped, receiver.session)
    branch.transaction.reject(receiver.subscription, [1])
    branch.prepare()
    stepped.run()
    assert [message.failures for message in receiver.take()] == [1, 1]  # the same message, twice


# Two phases.


def test_a_commit_of_what_is_prepared_does_everything_at_once() -> None:
    stepped, _, branch = acknowledged(2)
    send_in(stepped, branch, "/queue/out", b"1", expiration=stepped.clock.now_ms() + 60_000, priority=7)
    branch.prepare()
    stepped.run()
    branch.commit()
    stepped.turn()
    batch = stepped.writer.batch
    assert batch is not None
    assert sum(len(part.removals) for part in batch.lanes.values()) == 2
    assert sum(len(part.appends) for part in batch.lanes.values()) == 1
    assert batch.marks == {f"xa/{XID}": None}
    stepped.run()
    assert depths(stepped) == {"q": 1, "out": 1}
    assert stepped.broker.xa.recover() == []
    (message,) = CoreConsumer(stepped, "out").take()
    assert (message.body, message.priority, message.persistent) == (b"1", 7, True)
    assert message.expiration == stepped.clock.now_ms() + 60_000


def test_a_commit_counts_what_it_removes() -> None:
    stepped, _, branch = acknowledged(2)
    branch.prepare()
    stepped.run()
    branch.commit()
    stepped.run()
    queue = stepped.queue("q")
    assert (queue.dequeued, queue.depth, queue.bytes) == (2, 1, stepped.store.lane_state(queue.lanes[0].id).bytes)
    assert stepped.broker.core.stored_bytes == queue.bytes
    assert queue.lanes[0].cursor.excluded == set()


def test_a_rollback_of_what_is_prepared_brings_messages_back_in_order_before_later_ones() -> None:
    stepped, receiver, branch = acknowledged(3)
    receiver.take()
    send_in(stepped, branch, "/queue/out", b"never")
    branch.prepare()
    stepped.run()
    assert receiver.bodies() == numbers(3)
    stepped.connect().send("q", b"4")
    branch.roll_back()
    stepped.run()
    receiver.leave()
    stepped.run()
    again = CoreConsumer(stepped).take()
    assert [message.body for message in again] == numbers(0, 1, 2, 3, 4)
    assert [message.redelivered for message in again] == [True, True, True, True, False]
    assert depths(stepped) == {"q": 5}
    assert (stepped.broker.xa.recover(), stepped.store.marks("xa/")) == ([], [])


def test_a_rollback_of_what_is_prepared_is_no_failure_of_the_messages() -> None:
    stepped, receiver, branch = acknowledged(1, policy={"maximum_redeliveries": 0, "initial_redelivery_delay": 9.0})
    branch.prepare()
    branch.roll_back()
    stepped.run()
    receiver.leave()
    stepped.run()
    first = CoreConsumer(stepped).take()[0]
    assert (first.body, first.deliveries, first.failures) == (b"0", 1, 0)


def test_messages_come_back_to_a_consumer_that_is_still_there() -> None:
    stepped, receiver, branch = acknowledged(1)
    receiver.take()
    branch.prepare()
    stepped.run()
    assert receiver.bodies() == numbers(1)
    branch.roll_back()
    acknowledge(receiver.subscription, 2)
    stepped.run()
    assert receiver.bodies() == numbers(0)


def test_messages_come_back_that_the_cursor_has_not_come_to_again() -> None:
    stepped, receiver, branch = acknowledged(2)
    branch.prepare()
    receiver.leave()
    stepped.run()
    branch.roll_back()
    stepped.run()
    assert consumer(stepped).messages() == numbers(0, 1, 2)


def test_messages_come_back_when_the_cursor_has_gone_back_to_the_head_meanwhile() -> None:
    stepped = filled(3)
    red = CoreConsumer(stepped, wanted="color = 'red'")  # what is there is parked: nobody wants it
    receiver = CoreConsumer(stepped, prefetch=2)
    branch = start(stepped, receiver.session)
    acknowledge(receiver.subscription, *receiver.subscription.up_to(2), transaction=branch.transaction)
    branch.prepare()
    receiver.leave()
    stepped.run()
    queue = stepped.queue("q")
    queue.paused = True
    last = CoreConsumer(stepped)  # the cursor is at the head now, and looks at nothing yet
    branch.roll_back()
    stepped.run()
    queue.paused = False
    queue.wake()
    stepped.run()
    assert (last.bodies(), red.bodies()) == (numbers(0, 1, 2), [])


def test_hidden_messages_of_a_group_are_in_flight_no_more() -> None:
    stepped = filled(0)
    stepped.connect().send("q", b"1", {"JMSXGroupID": "g"})
    stepped.run()
    receiver = CoreConsumer(stepped)
    branch = start(stepped, receiver.session)
    acknowledge(receiver.subscription, 1, transaction=branch.transaction)
    branch.prepare()
    assert stepped.queue("q").groups.groups["g"].in_flight == 0
    branch.roll_back()
    stepped.run()
    assert receiver.bodies() == [b"1", b"1"]


def test_a_prepare_makes_room_for_more_if_the_acknowledgements_did_not() -> None:
    stepped, receiver, branch = acknowledged(1, policy={"use_prefetch_extension": False})
    stepped.run()
    assert receiver.bodies() == numbers(0)
    branch.prepare()
    stepped.run()
    assert receiver.bodies() == numbers(1)


def test_others_can_do_nothing_with_hidden_messages() -> None:
    stepped, receiver, branch = acknowledged(2)
    branch.prepare()
    receiver.leave()
    stepped.run()
    assert stepped.queue("q").take_out([1, 2, 3]) == [3]


def test_messages_of_a_prioritized_queue_come_back_by_priority() -> None:
    stepped = filled(0, policy={"prioritized_messages": True})
    client = stepped.connect()
    for priority in (1, 9, 5):
        client.send("q", b"%d" % priority, {"priority": str(priority)})
    stepped.run()
    receiver = CoreConsumer(stepped)
    branch = start(stepped, receiver.session)
    sequences = [message.sequence for message in receiver.take()]
    acknowledge(receiver.subscription, *sequences[:3], transaction=branch.transaction)
    branch.prepare()
    stepped.run()
    stepped = stepped.reopen()
    assert consumer(stepped).messages() == []
    stepped.broker.xa.branch(XID).roll_back()
    stepped.run()
    assert stepped.clients[0].messages() == [b"9", b"5", b"1"]


@pytest.mark.parametrize("limit", [64 << 20, 1000])
@pytest.mark.parametrize("outcome", ["commit", "roll_back"])
def test_messages_that_are_not_persistent_have_the_same_fate(outcome: str, limit: int) -> None:
    stepped = filled(0, memory={"limit": limit})  # the small one has room for one message: the others are spooled
    client = stepped.connect()
    for number in range(3):
        client.send("q", b"%d" % number * 400, {"persistent": "false"})
    stepped.run()
    receiver = CoreConsumer(stepped)
    branch = start(stepped, receiver.session)
    while came := receiver.take():
        for message in came:
            acknowledge(receiver.subscription, message.sequence, transaction=branch.transaction)
        if limit == 1000:
            break
        stepped.run()
    done = len(receiver.subscription.in_flight)
    branch.prepare()
    stepped.run()
    receiver.leave()
    stepped.run()
    getattr(branch, outcome)()
    stepped.run()
    again = consumer(stepped)
    got = []
    while messages := again.take("MESSAGE"):
        for frame in messages:
            got.append(int(frame.body[:1]))
            again.ack(frame)
        stepped.run()
    assert got == (list(range(done, 3)) if outcome == "commit" else [0, 1, 2])
    assert (stepped.queue("q").depth, stepped.broker.core.memory.used, stepped.spool.used) == (0, 0, 0)


@pytest.mark.parametrize("outcome", ["commit", "roll_back"])
@pytest.mark.parametrize("headers", [{}, {"persistent": "false"}])
def test_a_queue_that_was_deleted_meanwhile_is_left_alone(outcome: str, headers: dict[str, str]) -> None:
    stepped = filled(0)
    stepped.connect().send("q", b"0", headers)
    stepped.run()
    receiver = CoreConsumer(stepped)
    branch = start(stepped, receiver.session)
    acknowledge(receiver.subscription, 1, transaction=branch.transaction)
    send_in(stepped, branch, "/queue/out", b"1")
    branch.prepare()
    receiver.leave()
    stepped.run()
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.connect().send("q", b"new")
    stepped.run()
    getattr(branch, outcome)()
    stepped.run()
    assert depths(stepped)["q"] == 1
    last = consumer(stepped)
    for message in last.take("MESSAGE"):
        assert message.body == b"new"
        last.ack(message)
    stepped.run()
    assert (stepped.broker.xa.recover(), stepped.broker.core.memory.used) == ([], 0)


def test_a_numbered_send_that_came_another_way_is_not_sent_again() -> None:
    stepped = filled(0)
    branch = start(stepped)
    send_in(stepped, branch, "/queue/out", b"1", producer="p", producer_sequence=1)
    branch.prepare()
    stepped.run()
    stepped.connect().send("out", b"1", {"producer-id": "p", "producer-sequence": "1"})
    branch.commit()
    stepped.run()
    assert depths(stepped) == {"out": 1}
