"""Moving messages to another queue, and dead letters back: no crash and no failure loses or doubles any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.queues.browsing import entries
from quire.errors import InvalidArgument, InvalidSelector, QuireError, StoreFull, UnknownMessage
from quire.management.queues import Management
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, letter, numbers, settings
from tests.unit.management.managed import KINDS, browse, browsed, mixed, only, send, total

# Move.


@given(kinds=KINDS, limit=st.integers(1, 15))
def test_move_takes_from_all_three_in_order_and_keeps_what_they_are(kinds: list[str], limit: int) -> None:
    stepped = mixed(kinds)
    stepped.queue("r")
    moved = total(stepped, Management(stepped.broker).move("q", "r", only(limit=limit)))
    assert moved == min(limit, len(kinds))
    assert browsed(stepped, "r") == numbers(*range(moved))
    assert browsed(stepped) == numbers(*range(moved, len(kinds)))
    persistent = [message.persistent for message in entries(stepped.broker.core, stepped.queue("r"), 0, 100)]
    assert persistent == [kind == "stored" for kind in kinds[:moved]]
    client = consumer(stepped, "r", "auto")
    assert client.messages() == numbers(*range(moved))


def test_move_takes_messages_by_id_and_by_sequence() -> None:
    stepped = SteppedBroker()
    ids = [send(stepped, b"%d" % number) for number in range(5)]
    moved = total(stepped, Management(stepped.broker).move("q", "r", only(ids[3], "2")))
    assert moved == 2
    assert browsed(stepped, "r") == numbers(1, 3)
    assert browsed(stepped) == numbers(0, 2, 4)
    assert browse(stepped.broker, "r").messages[1].id == ids[3]


def test_move_says_which_messages_it_did_not_find() -> None:
    stepped = filled(3)
    with pytest.raises(UnknownMessage) as raised:
        total(stepped, Management(stepped.broker).move("q", "r", only("1", "77")))
    assert raised.value.data == {"done": 1, "missing": ["77"]}
    assert browsed(stepped, "r") == numbers(0)


def test_move_leaves_what_is_in_flight() -> None:
    stepped = filled(5)
    consumer(stepped, prefetchSize="2")
    assert total(stepped, Management(stepped.broker).move("q", "r", only(limit=2))) == 2
    assert browsed(stepped, "r") == numbers(2, 3)
    with pytest.raises(UnknownMessage):
        total(stepped, Management(stepped.broker).move("q", "r", only("1")))


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
    next(iter(Management(stepped.broker).move("q", "r")))
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
    next(iter(management.move("q", "r")))
    management.confirm(told.append)
    stepped.turn()
    stepped.commit(StoreFull("full"))
    assert [error.code for error in told if error] == ["store-full"]
    stepped.advance(2)
    stepped.run()
    assert browsed(stepped) == []
    assert browsed(stepped, "r") == numbers(*range(len(kinds) + 1))
    assert stepped.broker.core.stored_bytes == stepped.queue("r").bytes
    total(stepped, management.purge("r"))
    assert (stepped.broker.core.memory.used, stepped.spool.used) == (0, 0)


# Choose.


@given(kinds=KINDS, limit=st.integers(1, 15))
def test_transfer_goes_on_behind_its_limit(kinds: list[str], limit: int) -> None:
    stepped = mixed(kinds)
    after, moved = None, []
    for _ in range(len(kinds) // limit + 1):
        transfer = Management(stepped.broker).move("q", "r", only(limit=limit, after=after))
        moved.append(total(stepped, transfer))
        after = transfer.next
        if after is None:
            break
    assert after is None
    assert sum(moved) == len(kinds)
    assert browsed(stepped, "r") == numbers(*range(len(kinds))) if kinds else "r" not in stepped.broker.queues


def test_going_on_ends_at_what_was_last_when_the_first_one_began() -> None:
    stepped = filled(3)
    management = Management(stepped.broker)
    first = management.move("q", "r", only(limit=1))
    total(stepped, first)
    send(stepped, b"later")
    second = management.move("q", "r", only(after=first.next))
    assert (total(stepped, second), second.next) == (2, None)
    assert browsed(stepped) == [b"later"]


@pytest.mark.parametrize("after", ["", "5", "5-", "-5", "a-b", "1-2-3", "²-³", "9" * 20 + "-1"])
def test_after_that_nobody_said_is_refused(after: str) -> None:
    with pytest.raises(InvalidArgument):
        Management(filled(1).broker).purge("q", only(after=after))


@given(kinds=KINDS, wanted=st.sets(st.integers(0, 12)))
def test_selector_chooses_wherever_messages_are(kinds: list[str], wanted: set[int]) -> None:
    stepped = SteppedBroker()
    for number in range(len(kinds)):
        send(stepped, b"%d" % number, headers={"n": str(number)}, persistent=kinds[number] == "stored")
    chosen = [number for number in range(len(kinds)) if number in wanted]
    text = " OR ".join([f"n = {number}" for number in sorted(wanted)]) or "n = -1"
    stepped.queue("q")
    assert total(stepped, Management(stepped.broker).copy("q", "r", only(selector=text))) == len(chosen)
    assert total(stepped, Management(stepped.broker).purge("q", only(selector=text))) == len(chosen)
    assert browsed(stepped) == numbers(*[number for number in range(len(kinds)) if number not in wanted])
    assert not chosen or browsed(stepped, "r") == numbers(*chosen)


def test_selector_sees_what_may_have_been_delivered_before_a_crash() -> None:
    stepped = filled(2)
    consumer(stepped, prefetchSize="1")
    stepped = stepped.reopen()
    send(stepped, b"new")
    management = Management(stepped.broker)
    assert [m.body for m in browse(management.broker, "q", wanted="JMSRedelivered = TRUE").messages] == ["0", "1"]
    assert total(stepped, management.purge("q", only(selector="JMSRedelivered = TRUE"))) == 2
    assert browsed(stepped) == [b"new"]


def test_browse_with_a_selector_is_cut_by_its_limit_and_goes_on() -> None:
    stepped = SteppedBroker()
    for number in range(6):
        send(stepped, b"%d" % number, headers={"odd": str(number % 2)})
    management = Management(stepped.broker)
    first = browse(management.broker, "q", limit=2, wanted="odd = 1")
    assert [message.body for message in first.messages] == ["1", "3"]
    second = browse(management.broker, "q", first.next, 2, "odd = 1")
    assert ([message.body for message in second.messages], second.next) == (["5"], None)


def test_selector_that_cannot_be_read_changes_nothing() -> None:
    stepped = filled(1)
    with pytest.raises(InvalidSelector):
        Management(stepped.broker).purge("q", only(selector="a ="))
    with pytest.raises(InvalidSelector):
        browse(stepped.broker, "q", wanted="a =")
    assert browsed(stepped) == numbers(0)


# Copy.


def test_copy_leaves_everything_and_takes_what_is_in_flight_too() -> None:
    stepped = filled(3)
    client = consumer(stepped, prefetchSize="2")
    assert total(stepped, Management(stepped.broker).copy("q", "r")) == 3
    assert browsed(stepped) == browsed(stepped, "r") == numbers(0, 1, 2)
    original, copied = (browse(stepped.broker, name).messages[0].id for name in ("q", "r"))
    assert original == copied
    client.ack(client.take("MESSAGE")[0])
    assert total(stepped, Management(stepped.broker).copy("q", "s")) == 2  # what is acknowledged is not there


def test_copy_that_fails_is_tried_again() -> None:
    stepped = filled(2)
    next(iter(Management(stepped.broker).copy("q", "r")))
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(2)
    stepped.run()
    assert browsed(stepped.reopen(), "r") == numbers(0, 1)


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
    assert [message.body for message in browse(management.broker, "ActiveMQ.DLQ").messages] == [
        "a",
        "b",
        "no dead letter",
    ]
    assert total(stepped, management.redrive("ActiveMQ.DLQ", only(limit=1))) == 1
    assert (browsed(stepped, "a"), browsed(stepped, "b")) == ([b"a"], [])
    assert total(stepped, management.redrive("ActiveMQ.DLQ")) == 1
    assert browsed(stepped, "b") == [b"b"]
    assert browsed(stepped, "ActiveMQ.DLQ") == [b"no dead letter"]
    assert "original-destination" not in browse(management.broker, "b").messages[0].headers


def test_redrive_may_choose_and_send_somewhere_else() -> None:
    stepped = SteppedBroker()
    for number in range(4):
        letter(stepped, "/queue/a", body=b"%d" % number, n=str(number))
    management = Management(stepped.broker)
    assert total(stepped, management.redrive("ActiveMQ.DLQ", only(selector="n > 1"), "queue://b")) == 2
    assert total(stepped, management.redrive("ActiveMQ.DLQ", only(selector="n = 0"))) == 1
    assert (browsed(stepped, "a"), browsed(stepped, "b")) == (numbers(0), numbers(2, 3))
    assert "dlqDeliveryFailureCause" not in browse(management.broker, "b").messages[0].headers
    with pytest.raises(InvalidArgument):
        management.redrive("ActiveMQ.DLQ", to="/queue/ActiveMQ.DLQ")


@pytest.mark.parametrize("origin", ["", "/queue/", "/queue/ActiveMQ.DLQ", "/temp-queue/x", "/nowhere"])
def test_redrive_leaves_messages_without_a_usable_origin(origin: str) -> None:
    stepped = SteppedBroker()
    letter(stepped, origin, body=b"x")
    assert total(stepped, Management(stepped.broker).redrive("ActiveMQ.DLQ")) == 0
    assert browsed(stepped, "ActiveMQ.DLQ") == [b"x"]
