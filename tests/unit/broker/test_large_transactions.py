"""Transactions that have acknowledged many messages whose consumer has gone: found in steps, done in one commit."""

import pytest

from quire.broker.transactions import transaction as transaction_module
from quire.broker.transactions.transaction import RUN
from quire.errors import StoreFull
from quire.store.memory import MemoryStore
from quire.testing.faults import FaultyStore, read_error
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, consumer, drain, is_flagged, numbers, settings
from tests.unit.broker.step_rig import CountingStore, Most, run_counted
from tests.unit.broker.xa import acknowledged

IN_T = {"transaction": "t"}
COMMIT = {**IN_T, "receipt": "done"}


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_module, "RUN", 2)
    monkeypatch.setattr("quire.broker.transactions.transaction.RUN", 2)


def left_behind(stepped: SteppedBroker, count: int, headers: dict[str, str] | None = None) -> SteppedClient:
    """Fill a queue, acknowledge all of it in a transaction, and end the consumer.

    Returns:
        The client, whose transaction is open.
    """
    producer = stepped.connect()
    for number in range(count):
        producer.send("q", b"%d" % number, headers)
    stepped.run()
    receiver = consumer(stepped, prefetchSize=str(count))
    receiver.frame("BEGIN", IN_T)
    for message in receiver.take("MESSAGE"):
        receiver.ack(message, IN_T)
    stepped.run()
    receiver.frame("UNSUBSCRIBE", {"id": "0"})
    stepped.run()
    return receiver


def is_half_found(stepped: SteppedBroker, receiver: SteppedClient) -> bool:
    """Begin a commit, and take some steps of it; whether it is under way."""
    receiver.frame("COMMIT", COMMIT)
    stepped.turn()
    return bool(stepped.is_turn_wanted and receiver.connection.paused)


@pytest.mark.slow
def test_a_turn_reads_a_bounded_number_of_links_and_no_bodies_and_all_is_in_one_commit() -> None:
    count = 5 * RUN
    store = CountingStore()
    stepped = SteppedBroker(settings(), store=store)
    receiver = left_behind(stepped, count)
    store.bytes = store.entries = 0
    receiver.frame("COMMIT", COMMIT)
    most = Most(bytes=store.bytes, entries=store.entries)
    run_counted(stepped, most)
    assert (most.bytes, most.entries, most.removals) == (0, RUN, count)
    assert (receiver.receipts(), stepped.queue("q").depth, stepped.broker.core.stored_bytes) == (["done"], 0, 0)
    assert stepped.queue("q").dequeued == count


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("headers", [{}, {"persistent": "false"}], ids=["persistent", "in memory"])
def test_nobody_is_given_what_was_found_and_before_the_commit_all_are_counted(headers: dict[str, str]) -> None:
    stepped = SteppedBroker(settings())
    receiver = left_behind(stepped, 7, headers)
    assert is_half_found(stepped, receiver)
    assert stepped.queue("q").depth == 7
    other = consumer(stepped)
    assert receiver.receipts() == ["done"]
    assert other.messages() == numbers(4, 5, 6)
    assert stepped.queue("q").depth == stepped.queue("q").in_flight == 3


@pytest.mark.usefixtures("small_runs")
def test_what_was_given_out_again_meanwhile_is_not_settled() -> None:
    stepped = SteppedBroker(settings())
    receiver = left_behind(stepped, 7)
    other = consumer(stepped, prefetchSize="3")
    receiver.frame("COMMIT", COMMIT)
    stepped.run()
    assert (receiver.receipts(), stepped.queue("q").depth) == (["done"], 3)
    assert drain(stepped, other) == numbers(0, 1, 2)


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("headers", [{}, {"persistent": "false"}], ids=["persistent", "in memory"])
@pytest.mark.parametrize("consumed", [False, True], ids=["offline", "consumed"])
def test_a_client_that_vanishes_meanwhile_has_committed_nothing(headers: dict[str, str], consumed: bool) -> None:
    stepped = SteppedBroker(settings())
    receiver = left_behind(stepped, 7, headers)
    assert is_half_found(stepped, receiver)
    if consumed:
        other = stepped.connect()
        other.subscribe("q", headers={"activemq.prefetchSize": "1"})
        stepped.turn()
        receiver.vanish()
        stepped.run()
    else:
        receiver.vanish()
        other = consumer(stepped, prefetchSize="1")
    assert stepped.queue("q").depth == 7
    assert sorted(drain(stepped, other)) == numbers(*range(7))
    assert (stepped.queue("q").depth, stepped.broker.core.memory.used) == (0, 0)


@pytest.mark.usefixtures("small_runs")
def test_a_client_that_vanishes_leaves_the_order_as_it_was() -> None:
    stepped = SteppedBroker(settings())
    receiver = left_behind(stepped, 7)
    assert is_half_found(stepped, receiver)
    receiver.vanish()
    again = consumer(stepped).take("MESSAGE")
    assert bodies(again) == numbers(*range(7))
    assert all(is_flagged(message) for message in again)


@pytest.mark.usefixtures("small_runs")
def test_a_transaction_whose_time_is_up_meanwhile_is_rolled_back() -> None:
    stepped = SteppedBroker(settings(transaction={"max_age": 10.0}))
    receiver = left_behind(stepped, 7)
    assert is_half_found(stepped, receiver)
    stepped.advance(10)
    stepped.run()
    assert receiver.errors() == ["transaction-timed-out"]
    assert consumer(stepped).messages() == numbers(*range(7))


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("consumed", [False, True], ids=["offline", "consumed"])
def test_a_commit_that_fails_gives_everything_back(consumed: bool) -> None:
    stepped = SteppedBroker(settings())
    receiver = left_behind(stepped, 7)
    other = consumer(stepped, prefetchSize="1") if consumed else None
    receiver.frame("COMMIT", COMMIT)
    stepped.run_turns()
    stepped.commit(StoreFull("full"))
    assert (receiver.errors(), stepped.queue("q").depth) == (["store-full"], 7)
    stepped.advance(1)
    stepped.run()
    other = other or consumer(stepped)
    assert sorted(drain(stepped, other)) == numbers(*range(7))
    assert (stepped.queue("q").depth, stepped.broker.core.stored_bytes, stepped.broker.core.memory.used) == (0, 0, 0)


@pytest.mark.usefixtures("small_runs")
@pytest.mark.parametrize("times", [1, 2], ids=["once", "again"])
def test_a_read_that_fails_is_tried_once_more_and_then_fails_the_commit(times: int) -> None:
    memory = MemoryStore()
    memory.open()
    store = FaultyStore(memory)
    stepped = SteppedBroker(settings(), store=store)
    receiver = left_behind(stepped, 7)
    assert is_half_found(stepped, receiver)
    store.at_read(1, read_error, times)
    stepped.run()
    assert (receiver.receipts(), receiver.errors()) == ((["done"], []) if times == 1 else ([], ["store-failed"]))
    assert sorted(consumer(stepped).messages()) == ([] if times == 1 else numbers(*range(7)))


@pytest.mark.usefixtures("small_runs")
def test_a_queue_that_is_deleted_meanwhile_is_left_alone() -> None:
    stepped = SteppedBroker(settings())
    receiver = left_behind(stepped, 7)
    assert is_half_found(stepped, receiver)
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    stepped.run()
    assert (receiver.receipts(), stepped.broker.core.stored_bytes) == (["done"], 0)


def test_what_a_prepared_transaction_acknowledged_late_stays_hidden() -> None:
    stepped, receiver, branch = acknowledged(3)
    receiver.leave()
    stepped.run()
    branch.end()
    branch.prepare()
    stepped.run()
    assert consumer(stepped).messages() == numbers(3)
    assert stepped.queue("q").depth == 4
    branch.commit()
    stepped.run()
    assert stepped.queue("q").depth == 1
