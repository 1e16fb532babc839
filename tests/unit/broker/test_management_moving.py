"""Moving messages to another queue, and dead letters back: no crash and no failure loses or doubles any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.browsing import entries
from quire.broker.management import Draft, Management
from quire.errors import InvalidArgument, QuireError, StoreFull, UnknownMessage
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, numbers, settings
from tests.unit.broker.managed import KINDS, browsed, mixed, send, total

# Move.


@given(kinds=KINDS, limit=st.integers(1, 15))
def test_move_takes_from_all_three_in_order_and_keeps_what_they_are(kinds: list[str], limit: int) -> None:
    stepped = mixed(kinds)
    stepped.queue("r")
    moved = total(stepped, Management(stepped.broker).move("q", "r", limit=limit))
    assert moved == min(limit, len(kinds))
    assert browsed(stepped, "r") == numbers(*range(moved))
    assert browsed(stepped) == numbers(*range(moved, len(kinds)))
    persistent = [message.persistent for message in entries(stepped.broker, stepped.queue("r"), 0, 100)]
    assert persistent == [kind == "stored" for kind in kinds[:moved]]
    client = consumer(stepped, "r", "auto")
    assert client.messages() == numbers(*range(moved))


def test_move_takes_messages_by_id_and_by_sequence() -> None:
    stepped = SteppedBroker()
    ids = [send(stepped, b"%d" % number) for number in range(5)]
    moved = total(stepped, Management(stepped.broker).move("q", "r", ids=[ids[3], "2"]))
    assert moved == 2
    assert browsed(stepped, "r") == numbers(1, 3)
    assert browsed(stepped) == numbers(0, 2, 4)
    assert Management(stepped.broker).browse("r").messages[1].id == ids[3]


def test_move_says_which_messages_it_did_not_find() -> None:
    stepped = filled(3)
    with pytest.raises(UnknownMessage) as raised:
        total(stepped, Management(stepped.broker).move("q", "r", ids=["1", "77"]))
    assert raised.value.data == {"moved": 1, "missing": ["77"]}
    assert browsed(stepped, "r") == numbers(0)


def test_move_leaves_what_is_in_flight() -> None:
    stepped = filled(5)
    consumer(stepped, prefetchSize="2")
    assert total(stepped, Management(stepped.broker).move("q", "r", limit=2)) == 2
    assert browsed(stepped, "r") == numbers(2, 3)
    with pytest.raises(UnknownMessage):
        total(stepped, Management(stepped.broker).move("q", "r", ids=["1"]))


def test_move_to_itself_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        list(Management(filled(1).broker).move("q", "q"))


def test_move_of_nothing_creates_no_queue() -> None:
    stepped = SteppedBroker()
    stepped.queue("q")
    assert total(stepped, Management(stepped.broker).move("q", "r")) == 0
    assert "r" not in stepped.broker.queues


@pytest.mark.parametrize("durable", [True, False])
def test_crash_leaves_moved_messages_in_one_of_both_queues(durable: bool) -> None:
    stepped = filled(4)
    stepped.queue("r")
    stepped.run()
    next(Management(stepped.broker).move("q", "r"))
    stepped.turn()
    if durable:
        stepped.writer.apply()
    stepped = stepped.reopen()
    assert (browsed(stepped), browsed(stepped, "r"))[durable] == numbers(0, 1, 2, 3)
    assert (browsed(stepped), browsed(stepped, "r"))[not durable] == []


@given(kinds=KINDS)
def test_commit_that_fails_loses_no_moved_message(kinds: list[str]) -> None:
    stepped = mixed([*kinds, "stored"])
    stepped.queue("r")
    stepped.run()
    told: list[QuireError | None] = []
    management = Management(stepped.broker)
    next(management.move("q", "r"))
    management.confirm(told.append)
    stepped.turn()
    stepped.commit(StoreFull("full"))
    assert [error.code for error in told if error] == ["store-full"]
    stepped.advance(2)
    stepped.run()
    assert browsed(stepped) == []
    assert browsed(stepped, "r") == numbers(*range(len(kinds) + 1))
    assert stepped.broker.stored_bytes == stepped.queue("r").bytes
    total(stepped, management.purge("r"))
    assert (stepped.broker.memory.used, stepped.spool.used) == (0, 0)


# Redrive.


def test_redrive_sends_dead_letters_back_where_they_came_from() -> None:
    stepped = SteppedBroker(settings(policy={"maximum_redeliveries": 0}))
    for name in ("a", "b"):
        send(stepped, name.encode(), name)
        client = consumer(stepped, name)
        client.nack(client.take("MESSAGE")[0])
        stepped.run()
        client.vanish()
    send(stepped, b"no dead letter", "ActiveMQ.DLQ")
    management = Management(stepped.broker)
    assert [message.body for message in management.browse("ActiveMQ.DLQ").messages] == ["a", "b", "no dead letter"]
    assert total(stepped, management.redrive("ActiveMQ.DLQ", limit=1)) == 1
    assert (browsed(stepped, "a"), browsed(stepped, "b")) == ([b"a"], [])
    assert total(stepped, management.redrive("ActiveMQ.DLQ")) == 1
    assert browsed(stepped, "b") == [b"b"]
    assert browsed(stepped, "ActiveMQ.DLQ") == [b"no dead letter"]
    assert "original-destination" not in management.browse("b").messages[0].headers


@pytest.mark.parametrize("origin", ["", "/topic/x", "/queue/", "/queue/ActiveMQ.DLQ"])
def test_redrive_leaves_messages_without_a_usable_origin(origin: str) -> None:
    stepped = SteppedBroker()
    list(Management(stepped.broker).send("ActiveMQ.DLQ", Draft(b"x", {"original-destination": origin})))
    stepped.run()
    assert total(stepped, Management(stepped.broker).redrive("ActiveMQ.DLQ")) == 0
    assert browsed(stepped, "ActiveMQ.DLQ") == [b"x"]
