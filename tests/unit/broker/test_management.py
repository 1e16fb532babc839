"""What an operator can see and do: every step is small, nothing is lost, and the live cursor is left alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.broker.browsing import entries
from quire.broker.management import STEP, Draft, Management
from quire.errors import (
    BrokerStopping,
    DestinationExists,
    DestinationInUse,
    InvalidArgument,
    InvalidDestination,
    InvalidHeader,
    LimitExceeded,
    ProducerHeld,
    QuireError,
    StoreCorrupt,
    StoreFull,
    UnknownDestination,
    UnknownMessage,
)
from quire.message import MESSAGE_OVERHEAD, Message
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import consumer, filled, numbers, settings


class DamagedStore(MemoryStore):
    """A store in memory in which one record's content is damaged."""

    damaged = 0

    def load(self, lane: int, sequences: list[int]) -> list[Message]:
        if self.damaged in sequences:
            raise StoreCorrupt("damaged", lane=lane, sequence=self.damaged)
        return super().load(lane, sequences)


def total(stepped: SteppedBroker, steps: Iterator[int]) -> int:
    """Do all steps, each with its commit."""
    done = 0
    for count in steps:
        assert count <= STEP
        stepped.run()
        done += count
    return done


def bodies(stepped: SteppedBroker, name: str = "q") -> list[bytes]:
    """What is in a queue, as a browse sees it."""
    management, after, found = Management(stepped.broker), None, []
    while True:
        page = management.browse(name, after, 7)
        found += [message.body.encode() for message in page.messages]
        after = page.next
        if after is None:
            return found


def send(stepped: SteppedBroker, body: bytes, name: str = "q", **draft: Any) -> str:
    """Send a message and let it be committed."""
    ids = [id for step in Management(stepped.broker).send(name, Draft(body, {}, **draft)) for id in step]
    stepped.run()
    return ids[0]


# Look.


def test_status_tells_all_counts() -> None:
    stepped = filled(5)
    client = consumer(stepped, prefetchSize="2")
    first, second = client.take("MESSAGE")
    client.ack(first)
    client.nack(second)
    stepped.run()
    stepped.advance(30)
    stepped.run()
    status = Management(stepped.broker).queue("q")
    assert (status.name, status.depth, status.consumers) == ("q", 4, 1)
    assert (status.enqueued, status.dequeued, status.redelivered) == (5, 1, 1)
    assert status.in_flight == 2
    assert status.bytes == stepped.broker.stored_bytes
    assert status.resident_bytes == stepped.queue("q").memory.used
    assert status.oldest_message_age_seconds == 30.0
    assert status.blocked is None
    (subscription,) = status.subscriptions
    assert (subscription.prefetch, subscription.in_flight, subscription.connection) == (2, 2, "client-2")


def test_queues_are_listed_by_name() -> None:
    stepped = filled(1, "b")
    stepped.queue("a")
    assert [queue.name for queue in Management(stepped.broker).queues()] == ["a", "b"]


def test_oldest_age_follows_the_head() -> None:
    stepped = filled(1)
    management = Management(stepped.broker)
    stepped.advance(10)
    send(stepped, b"later")
    stepped.advance(1)
    assert management.queue("q").oldest_message_age_seconds == 11.0
    total(stepped, management.move("q", "r", limit=1))
    assert management.queue("q").oldest_message_age_seconds == 1.0
    assert management.queue("r").oldest_message_age_seconds == 11.0
    total(stepped, management.purge("q"))
    assert management.queue("q").oldest_message_age_seconds is None


@pytest.mark.parametrize("memory", [1 << 20, 1])
def test_oldest_age_knows_messages_that_are_not_persistent(memory: int) -> None:
    stepped = SteppedBroker(settings(memory={"limit": memory}))
    send(stepped, b"kept or spooled", persistent=False)
    stepped.advance(2)
    send(stepped, b"stored")
    assert Management(stepped.broker).queue("q").oldest_message_age_seconds == 2.0


def test_oldest_age_of_a_damaged_head_is_unknown() -> None:
    store = DamagedStore()
    store.open()
    stepped = SteppedBroker(store=store)
    send(stepped, b"damaged")
    store.damaged = 1
    assert Management(stepped.broker).queue("q").oldest_message_age_seconds is None


def test_queue_that_finds_no_memory_says_so() -> None:
    stepped = filled(2, memory={"limit": 2 * MESSAGE_OVERHEAD})
    consumer(stepped, prefetchSize="2")
    stepped.advance(3)
    blocked = Management(stepped.broker).queue("q").blocked
    assert blocked is not None
    assert (blocked.cause, blocked.age_seconds) == ("memory-limit", 3.0)


def test_queue_before_a_damaged_record_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = filled(1)

    def page(lane: int, *arguments: int) -> None:
        raise StoreCorrupt("damaged", lane=lane, sequence=1)

    monkeypatch.setattr(stepped.store, "page", page)
    consumer(stepped)
    stepped.advance(4)
    blocked = Management(stepped.broker).queue("q").blocked
    assert blocked is not None
    assert (blocked.cause, blocked.age_seconds) == ("damaged-record", 4.0)


def test_held_producer_is_told_of_with_its_limit() -> None:
    stepped = filled(1, store={"limit": 1}, producer={"hold_limit": 30.0})
    stepped.clients[0].send("q", b"too much")
    stepped.advance(5)
    (held,) = Management(stepped.broker).queue("q").producers_held
    assert (held.connection, held.cause, held.age_seconds, held.limit_seconds) == ("client-1", "store-limit", 5.0, 30.0)
    assert Management(stepped.broker).reader.held_producers() == [held]


def test_unknown_queue_is_an_error_everywhere() -> None:
    management = Management(SteppedBroker().broker)
    for call in (
        lambda: management.queue("q"), lambda: management.pause("q"), lambda: management.resume("q"),
        lambda: management.browse("q"), lambda: list(management.purge("q")), lambda: list(management.delete("q")),
        lambda: list(management.move("q", "r")), lambda: list(management.redrive("q")),
    ):  # fmt: skip
        with pytest.raises(UnknownDestination):
            call()


# Browse.


def test_browse_goes_from_page_to_page() -> None:
    stepped = filled(20)
    assert bodies(stepped) == numbers(*range(20))


def test_browse_says_of_each_message_what_there_is() -> None:
    stepped = SteppedBroker()
    draft = Draft(b"\xff", {"colour": "a:b"}, 7, stepped.clock.now_ms() + 60_000)
    ((id,),) = Management(stepped.broker).send("q", draft)
    stepped.run()
    consumer(stepped)
    (message,) = Management(stepped.broker).browse("q").messages
    assert (message.id, message.sequence, message.priority, message.in_flight) == (id, 1, 7, True)
    assert (message.body, message.body_encoding) == ("/w==", "base64")
    assert (message.timestamp, message.expiration) == (stepped.clock.now_ms(), draft.expiration)
    assert message.headers["colour"] == "a:b"
    assert not message.redelivered


def test_browse_tells_redelivered_messages() -> None:
    stepped = filled(1)
    consumer(stepped).vanish()
    stepped.run()
    (message,) = Management(stepped.broker).browse("q").messages
    assert (message.redelivered, message.deliveries) == (True, 1)


def test_browse_tells_what_may_have_been_delivered_before_a_crash() -> None:
    stepped = filled(1)
    consumer(stepped)
    (message,) = Management(stepped.reopen().broker).browse("q").messages
    assert message.redelivered


def test_browse_leaves_cursor_and_memory_alone() -> None:
    stepped = filled(50, memory={"limit": 10 * MESSAGE_OVERHEAD})
    client = consumer(stepped, prefetchSize="3")
    queue = stepped.queue("q")
    before = (queue.cursor.position, len(queue.cursor.window), queue.memory.used, stepped.is_turn_wanted)
    assert bodies(stepped) == numbers(*range(50))
    assert (queue.cursor.position, len(queue.cursor.window), queue.memory.used, stepped.is_turn_wanted) == before
    assert client.messages() == numbers(0, 1, 2)


@pytest.mark.parametrize(("after", "limit"), [("x", 1), ("-1", 1), ("²", 1), ("9" * 40, 1), (None, 0), (None, 1001)])
def test_browse_refuses_what_is_no_page(after: str | None, limit: int) -> None:
    with pytest.raises(InvalidArgument):
        Management(filled(1).broker).browse("q", after, limit)


def test_browse_ends_a_page_before_a_damaged_record_and_then_says_so() -> None:
    store = DamagedStore()
    store.open()
    stepped = SteppedBroker(store=store)
    for body in (b"1", b"2", b"3"):
        send(stepped, body)
    store.damaged = 3
    management = Management(stepped.broker)
    page = management.browse("q")
    assert [message.body for message in page.messages] == ["1", "2"]
    with pytest.raises(StoreCorrupt):
        management.browse("q", page.next)
    assert total(stepped, management.purge("q")) == 3


def test_browse_pages_are_cut_by_size() -> None:
    stepped = SteppedBroker()
    for _ in range(3):
        send(stepped, bytes(1 << 20))
    page = Management(stepped.broker).browse("q")
    assert len(page.messages) == 1
    assert page.next is not None


kinds = st.lists(st.sampled_from(["stored", "kept", "spooled"]), max_size=12)


def mixed(kinds: list[str]) -> SteppedBroker:
    """A queue whose messages are in the store, in memory and in the spool."""
    stepped = SteppedBroker(settings(memory={"limit": 100 * MESSAGE_OVERHEAD}))
    limit = stepped.broker.memory.limit
    for number, kind in enumerate(kinds):
        stepped.broker.memory.limit = 1 if kind == "spooled" else limit
        send(stepped, b"%d" % number, persistent=kind == "stored")
    stepped.broker.memory.limit = limit
    stepped.queue("q")
    return stepped


@given(kinds=kinds, page=st.integers(1, 5))
def test_browse_joins_what_is_stored_kept_and_spooled(kinds: list[str], page: int) -> None:
    stepped = mixed(kinds)
    management, after, found = Management(stepped.broker), None, []
    while True:
        messages, after = (answer := management.browse("q", after, page)).messages, answer.next
        assert len(messages) <= page
        found += [int(message.body) for message in messages]
        if after is None:
            break
    assert found == list(range(len(kinds)))


@given(kinds=kinds, limit=st.integers(1, 15))
def test_move_takes_from_all_three_in_order_and_keeps_what_they_are(kinds: list[str], limit: int) -> None:
    stepped = mixed(kinds)
    stepped.queue("r")
    moved = total(stepped, Management(stepped.broker).move("q", "r", limit=limit))
    assert moved == min(limit, len(kinds))
    assert bodies(stepped, "r") == numbers(*range(moved))
    assert bodies(stepped) == numbers(*range(moved, len(kinds)))
    persistent = [message.persistent for message in entries(stepped.broker, stepped.queue("r"), 0, 100)]
    assert persistent == [kind == "stored" for kind in kinds[:moved]]
    client = consumer(stepped, "r", "auto")
    assert client.messages() == numbers(*range(moved))


@given(kinds=kinds)
def test_purge_leaves_nothing_anywhere(kinds: list[str]) -> None:
    stepped = mixed(kinds)
    assert total(stepped, Management(stepped.broker).purge("q")) == len(kinds)
    queue = stepped.queue("q")
    assert (queue.depth, queue.bytes, stepped.broker.stored_bytes) == (0, 0, 0)
    assert (stepped.spool.used, stepped.broker.memory.used) == (0, 0)
    assert stepped.store.lane_state(queue.lane).count == 0


# Create, pause, delete.


def test_create_makes_a_queue_once() -> None:
    stepped = SteppedBroker()
    management = Management(stepped.broker)
    assert management.create("a/b").depth == 0
    with pytest.raises(DestinationExists):
        management.create("a/b")
    with pytest.raises(InvalidDestination):
        management.create("a\nb")
    stepped.run()
    assert list(stepped.reopen().broker.queues) == ["a/b"]


def test_pause_stops_deliveries_also_over_a_restart() -> None:
    stepped = filled(1)
    Management(stepped.broker).pause("q")
    stepped.run()
    stepped = stepped.reopen()
    stepped.advance(9)
    client = consumer(stepped)
    send(stepped, b"still taken")
    status = Management(stepped.broker).queue("q")
    assert status.paused
    assert status.blocked is not None
    assert (status.blocked.cause, status.blocked.age_seconds) == ("paused", 9.0)
    assert client.messages() == []
    assert not Management(stepped.broker).resume("q").paused
    stepped.run()
    assert client.messages() == [b"0", b"still taken"]
    assert not stepped.reopen().queue("q").paused


def test_pausing_twice_keeps_the_first_time() -> None:
    stepped = filled(1)
    management = Management(stepped.broker)
    management.pause("q")
    stepped.advance(5)
    blocked = management.pause("q").blocked
    assert blocked is not None
    assert blocked.age_seconds == 5.0


def test_paused_empty_queue_is_not_blocked() -> None:
    stepped = SteppedBroker()
    management = Management(stepped.broker)
    management.create("q")
    assert management.pause("q").blocked is None


def test_delete_is_refused_while_there_are_consumers() -> None:
    stepped = filled(3)
    consumer(stepped)
    with pytest.raises(DestinationInUse):
        total(stepped, Management(stepped.broker).delete("q"))
    assert stepped.queue("q").depth == 3


def test_delete_is_refused_when_a_consumer_comes_meanwhile() -> None:
    stepped = filled(3)
    steps = Management(stepped.broker).delete("q")
    next(steps)
    consumer(stepped)
    with pytest.raises(DestinationInUse):
        next(steps)
    assert "q" in stepped.broker.queues


def test_delete_by_force_tells_the_consumers() -> None:
    stepped = filled(3)
    client = consumer(stepped)
    assert total(stepped, Management(stepped.broker).delete("q", force=True)) == 3
    assert client.errors() == ["unknown-destination"]
    assert client.connection.closed
    assert list(stepped.reopen().broker.queues) == []


def test_deleted_queue_leaves_nothing_behind() -> None:
    stepped = mixed(["stored", "kept", "spooled"])
    steps = Management(stepped.broker).delete("q")
    next(steps)
    stepped.run()
    for persistent in (True, False):  # they come too late to be purged
        list(Management(stepped.broker).send("q", Draft(b"late", {}, persistent=persistent)))
        stepped.turn()
    assert list(steps) == [0]
    stepped.run()
    assert (stepped.broker.stored_bytes, stepped.broker.memory.used, stepped.spool.used) == (0, 0, 0)
    again = stepped.queue("q")
    assert again.depth == 0
    assert bodies(stepped) == []


# Purge.


def test_purge_leaves_what_is_in_flight() -> None:
    stepped = filled(10)
    client = consumer(stepped, prefetchSize="4")
    assert total(stepped, Management(stepped.broker).purge("q")) == 6
    for message in client.take("MESSAGE"):
        client.ack(message)
    stepped.run()
    assert stepped.queue("q").depth == 0
    assert client.messages() == []


def test_purge_ends_at_what_was_last_when_it_began() -> None:
    stepped = filled(3)
    steps = Management(stepped.broker).purge("q")
    assert next(steps) == 3
    send(stepped, b"later")
    assert list(steps) == []
    assert bodies(stepped) == [b"later"]


def test_purge_of_a_queue_that_is_deleted_meanwhile_ends() -> None:
    stepped = filled(3)
    management = Management(stepped.broker)
    steps = management.purge("q")
    next(steps)
    stepped.run()
    total(stepped, management.delete("q"))
    send(stepped, b"in the new one")
    assert list(steps) == []
    assert stepped.queue("q").depth == 1


# Move and redrive.


def test_move_takes_messages_by_id_and_by_sequence() -> None:
    stepped = SteppedBroker()
    ids = [send(stepped, b"%d" % number) for number in range(5)]
    moved = total(stepped, Management(stepped.broker).move("q", "r", ids=[ids[3], "2"]))
    assert moved == 2
    assert bodies(stepped, "r") == numbers(1, 3)
    assert bodies(stepped) == numbers(0, 2, 4)
    assert Management(stepped.broker).browse("r").messages[1].id == ids[3]


def test_move_says_which_messages_it_did_not_find() -> None:
    stepped = filled(3)
    with pytest.raises(UnknownMessage) as raised:
        total(stepped, Management(stepped.broker).move("q", "r", ids=["1", "77"]))
    assert raised.value.data == {"moved": 1, "missing": ["77"]}
    assert bodies(stepped, "r") == numbers(0)


def test_move_leaves_what_is_in_flight() -> None:
    stepped = filled(5)
    consumer(stepped, prefetchSize="2")
    assert total(stepped, Management(stepped.broker).move("q", "r", limit=2)) == 2
    assert bodies(stepped, "r") == numbers(2, 3)
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
    assert (bodies(stepped), bodies(stepped, "r"))[durable] == numbers(0, 1, 2, 3)
    assert (bodies(stepped), bodies(stepped, "r"))[not durable] == []


@given(kinds=kinds)
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
    assert bodies(stepped) == []
    assert bodies(stepped, "r") == numbers(*range(len(kinds) + 1))
    assert stepped.broker.stored_bytes == stepped.queue("r").bytes
    total(stepped, management.purge("r"))
    assert (stepped.broker.memory.used, stepped.spool.used) == (0, 0)


def test_commit_that_fails_loses_no_dead_letter() -> None:
    stepped = SteppedBroker()
    send(stepped, b"short-lived", expiration=stepped.clock.now_ms() + 1)
    stepped.advance(2)
    stepped.turn()
    stepped.commit(StoreFull("full"))
    stepped.advance(2)
    stepped.run()
    assert bodies(stepped, "ActiveMQ.DLQ") == [b"short-lived"]
    assert bodies(stepped) == []


def test_redrive_sends_dead_letters_back_where_they_came_from() -> None:
    stepped = SteppedBroker(settings(queue={"maximum_redeliveries": 0}))
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
    assert (bodies(stepped, "a"), bodies(stepped, "b")) == ([b"a"], [])
    assert total(stepped, management.redrive("ActiveMQ.DLQ")) == 1
    assert bodies(stepped, "b") == [b"b"]
    assert bodies(stepped, "ActiveMQ.DLQ") == [b"no dead letter"]
    assert "original-destination" not in management.browse("b").messages[0].headers


@pytest.mark.parametrize("origin", ["", "/topic/x", "/queue/", "/queue/ActiveMQ.DLQ"])
def test_redrive_leaves_messages_without_a_usable_origin(origin: str) -> None:
    stepped = SteppedBroker()
    list(Management(stepped.broker).send("ActiveMQ.DLQ", Draft(b"x", {"original-destination": origin})))
    stepped.run()
    assert total(stepped, Management(stepped.broker).redrive("ActiveMQ.DLQ")) == 0
    assert bodies(stepped, "ActiveMQ.DLQ") == [b"x"]


# Send.


def test_sent_message_reaches_a_consumer_as_a_client_s_own_would() -> None:
    stepped = SteppedBroker()
    client = consumer(stepped)
    list(Management(stepped.broker).send("q", Draft(b"a\0b", {"colour": "re:d"}, 7, persistent=False)))
    stepped.run()
    (frame,) = client.take("MESSAGE")
    assert frame.body == b"a\0b"
    assert (frame.headers["colour"], frame.headers["priority"], frame.headers["persistent"]) == ("re:d", "7", "false")


def test_many_are_sent_in_steps_with_an_id_each() -> None:
    stepped = SteppedBroker()
    ids = []
    for step in Management(stepped.broker).send("q", Draft(b"x", {}), 2500):
        assert len(step) <= STEP
        stepped.run()
        ids += step
    assert len(set(ids)) == 2500
    assert stepped.queue("q").depth == 2500


def test_confirmation_comes_when_the_message_is_durable() -> None:
    stepped = SteppedBroker()
    management = Management(stepped.broker)
    told: list[QuireError | None] = []
    list(management.send("q", Draft(b"x", {})))
    management.confirm(told.append)
    stepped.turn()
    assert told == []
    stepped.commit()
    assert told == [None]


def test_send_that_finds_no_room_is_refused() -> None:
    stepped = filled(1, store={"limit": 1})
    with pytest.raises(ProducerHeld):
        list(Management(stepped.broker).send("q", Draft(b"x", {})))
    list(Management(stepped.broker).send("q", Draft(b"x", {}, persistent=False)))


def test_send_is_refused_while_the_store_takes_no_writes() -> None:
    stepped = filled(1)
    stepped.broker.store_error = BrokerStopping("any error")
    with pytest.raises(BrokerStopping):
        list(Management(stepped.broker).send("q", Draft(b"x", {})))


@pytest.mark.parametrize("header", ["", "a\0", "destination", "message-id", "transaction", "producer-id"])
def test_headers_that_only_a_session_may_have_are_refused(header: str) -> None:
    with pytest.raises(InvalidHeader):
        list(Management(SteppedBroker().broker).send("q", Draft(b"x", {header: "1"})))


def test_send_has_the_limits_of_stomp() -> None:
    limits = {"max_headers": 1, "max_line": 10, "max_body": 5}
    management = Management(SteppedBroker(settings(stomp=limits)).broker)
    list(management.send("q", Draft(b"12345", {"a": "b"})))
    for draft in (Draft(b"123456", {}), Draft(b"", {"a": "b" * 9}), Draft(b"", {"a": "b", "c": "d"})):
        with pytest.raises(LimitExceeded):
            list(management.send("q", draft))


# At size.


@pytest.mark.slow
def test_two_hundred_thousand_messages_never_make_one_long_step() -> None:
    count = 200_000
    stepped = SteppedBroker()
    management = Management(stepped.broker)
    for _ in management.send("q", Draft(b"x", {}), count):
        stepped.run()
    seen, pages, after = 0, 0, None
    while True:
        page = management.browse("q", after, 1000)
        assert len(page.messages) <= 1000
        sequences = [message.sequence for message in page.messages]
        assert sequences == list(range(seen + 1, seen + len(sequences) + 1))
        seen, pages, after = seen + len(sequences), pages + 1, page.next
        if after is None:
            break
    assert (seen, pages) == (count, count // 1000)
    steps = 0
    for removed in management.purge("q"):
        assert removed <= STEP
        commits = stepped.broker.commits_done
        list(management.send("other", Draft(b"in between", {})))
        stepped.run()
        assert stepped.broker.commits_done <= commits + 2  # a sender waits for one step, not for the purge
        assert stepped.queue("other").depth == steps + 1
        steps += 1
    assert steps == count // STEP
    assert stepped.queue("q").depth == 0
