"""Messages of a stream are found by id, key, time and offset; what became of them in each group."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.broker.streams.lookup import (
    NEIGHBOURHOOD,
    STEP,
    Found,
    GroupState,
    Lookup,
    MessageState,
    dead_letters,
    states_of,
)
from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.stream import Stream
from quire.errors import InvalidArgument, StoreCorrupt
from quire.store.lmdb import LmdbStore
from quire.testing.faults import tear
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.unit.broker.harness import settings

START = 1_700_000_000_000


@pytest.fixture
def stepped() -> SteppedBroker:
    return made()


@pytest.fixture
def torn(tmp_path: Path) -> Iterator[SteppedBroker]:
    """A broker whose stream has messages 1 to 9 in partition 0, of which 4 is damaged."""
    store = LmdbStore(tmp_path)
    store.open()
    stepped = made(store=store)
    for _ in range(9):
        send(stepped, partition=0)
    tear(store, stream_of(stepped).partitions[0].lane, 4)
    yield stepped
    store.close()


def made(store: LmdbStore | None = None, partitions: int = 2, **policy: object) -> SteppedBroker:
    stepped = SteppedBroker(settings(policy={"partitions": partitions, "retry_delays": "10s", **policy}), store)
    stepped.broker.stream("s")
    stepped.run()
    return stepped


def stream_of(stepped: SteppedBroker) -> Stream:
    return stepped.broker.stream("s")


def producer(stepped: SteppedBroker) -> SteppedClient:
    return stepped.clients[0] if stepped.clients else stepped.connect()


def send(stepped: SteppedBroker, partition: int = 0, count: int = 1, **headers: str) -> None:
    """Send messages, a millisecond apart, all in one commit."""
    client = producer(stepped)
    for _ in range(count):
        client.frame("SEND", {"destination": "/stream/s", "partition": str(partition), **headers}, b"body")
        stepped.clock.advance(0.001)
    stepped.run()


def found(steps: Iterator[list[Found]]) -> list[tuple[int, int]]:
    """Partition and offset of all that a search finds."""
    return [(one.partition, one.message.sequence) for step in steps for one in step]


def id_at(stepped: SteppedBroker, partition: int, offset: int) -> str:
    one = Lookup(stream_of(stepped)).at(partition, offset)
    assert one is not None
    return one.message.id


# By offset.


def test_a_message_is_found_at_its_offset(stepped: SteppedBroker) -> None:
    send(stepped, 1, 3)
    lookup = Lookup(stream_of(stepped))
    one = lookup.at(1, 2)
    assert one is not None
    assert (one.partition, one.message.sequence, one.message.body) == (1, 2, b"body")
    assert lookup.at(1, 4) is None
    assert lookup.at(0, 2) is None


@pytest.mark.parametrize("partition", [-1, 2])
def test_there_is_no_message_in_a_partition_that_is_not_there(stepped: SteppedBroker, partition: int) -> None:
    with pytest.raises(InvalidArgument, match="partitions are 0 to 1"):
        Lookup(stream_of(stepped)).at(partition, 1)


# By id.


def test_every_message_is_found_by_its_id(stepped: SteppedBroker) -> None:
    for number in range(60):
        send(stepped, number % 2)
    places = [(partition, offset) for partition in (0, 1) for offset in range(1, 31)]
    lookup = Lookup(stream_of(stepped))
    assert [found(lookup.by_id(id_at(stepped, *place))) for place in places] == [[place] for place in places]


def test_ids_of_earlier_lives_of_the_broker_are_found(stepped: SteppedBroker) -> None:
    send(stepped, 0, 30)
    stepped.advance(5)
    again = stepped.reopen()
    send(again, 0, 30)
    ids = [id_at(again, 0, offset) for offset in range(1, 61)]
    assert len(set(ids)) == 60
    assert [found(Lookup(stream_of(again)).by_id(id)) for id in ids] == [[(0, offset)] for offset in range(1, 61)]


def test_a_message_of_a_transaction_is_found_near_its_place(stepped: SteppedBroker) -> None:
    client = stepped.connect()
    send(stepped, 1, 20)
    client.frame("BEGIN", {"transaction": "t"})
    client.frame("SEND", {"destination": "/stream/s", "partition": "1", "transaction": "t"}, b"late")
    send(stepped, 1, NEIGHBOURHOOD - 1)
    client.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    offset = 20 + NEIGHBOURHOOD
    assert found(Lookup(stream_of(stepped)).by_id(id_at(stepped, 1, offset))) == [(1, offset)]


def test_a_message_of_a_longer_transaction_is_found_by_its_time_only(stepped: SteppedBroker) -> None:
    client = stepped.connect()
    send(stepped, 1, 20)
    client.frame("BEGIN", {"transaction": "t"})
    client.frame("SEND", {"destination": "/stream/s", "partition": "1", "transaction": "t"}, b"late")
    send(stepped, 1, NEIGHBOURHOOD + 20)
    client.frame("COMMIT", {"transaction": "t"})
    stepped.run()
    wanted = id_at(stepped, 1, 41 + NEIGHBOURHOOD)
    lookup = Lookup(stream_of(stepped))
    assert found(lookup.by_id(wanted)) == []
    all_of_it = lookup.by_time(START, START + 10_000)
    assert [one.message.sequence for step in all_of_it for one in step if one.message.id == wanted] == [
        41 + NEIGHBOURHOOD
    ]


def test_an_id_that_nothing_has_ends_without_a_message(stepped: SteppedBroker) -> None:
    send(stepped, 0, 10)
    start, number = id_at(stepped, 0, 10).rsplit("-", 1)
    assert found(Lookup(stream_of(stepped)).by_id(f"{start}-{int(number) + 1}")) == []
    assert found(Lookup(stream_of(stepped)).by_id("ID:00000000-1-1")) == []


def test_the_same_number_of_another_broker_is_another_id(stepped: SteppedBroker) -> None:
    send(stepped, 0, 3)
    _, rest = id_at(stepped, 0, 2).split("-", 1)
    assert found(Lookup(stream_of(stepped)).by_id(f"ID:00000000-{rest}")) == []


@pytest.mark.parametrize("message_id", ["", "42", "ID:host-1-2:3", "ID:0a1b2c3d-1-", "ID:0a1b2c3d-1-2 "])
def test_ids_that_are_not_the_brokers_are_refused_at_once(stepped: SteppedBroker, message_id: str) -> None:
    with pytest.raises(InvalidArgument, match="is no message id of this broker: look for the message by its time"):
        Lookup(stream_of(stepped)).by_id(message_id)


def test_a_search_by_id_passes_over_what_is_damaged_and_tells(torn: SteppedBroker) -> None:
    lookup = Lookup(stream_of(torn))
    assert found(lookup.by_id(id_at(torn, 0, 5))) == [(0, 5)]
    start, number = id_at(torn, 0, 5).rsplit("-", 1)
    assert found(lookup.by_id(f"{start}-{int(number) - 1}")) == []
    assert lookup.damaged == [(0, 4)]
    with pytest.raises(StoreCorrupt):
        lookup.at(0, 4)


# By key and by time.


def test_all_messages_with_a_key_in_a_time_range_are_found(stepped: SteppedBroker) -> None:
    for number in range(40):
        send(stepped, number % 2, key="a:b" if number % 4 == 0 else "other")
        stepped.advance(1)
    lookup = Lookup(stream_of(stepped))
    assert found(lookup.by_key("a:b", START, START + 100_000)) == [(0, offset) for offset in range(1, 21, 2)]
    assert found(lookup.by_key("a:b", START + 10_000, START + 20_000)) == [(0, 7), (0, 9)]
    assert found(lookup.by_key("a", START, START + 100_000)) == []


def test_the_header_that_determines_the_partition_is_a_key_too(stepped: SteppedBroker) -> None:
    for headers in ({"partition-key": "a"}, {"key": "a"}, {"partition-key": "b", "key": "a"}):
        send(stepped, 0, 1, **headers)
    lookup = Lookup(stream_of(stepped))
    assert found(lookup.by_key("a", START, START + 100_000)) == [(0, 1), (0, 2), (0, 3)]
    assert found(lookup.by_key("b", START, START + 100_000)) == [(0, 3)]


def test_a_time_range_has_what_was_sent_in_it(stepped: SteppedBroker) -> None:
    for _ in range(10):
        send(stepped, 1)
        stepped.advance(0.999)
    steps = Lookup(stream_of(stepped)).by_time(START + 2000, START + 5000)
    assert found(steps) == [(1, 3), (1, 4), (1, 5)]
    assert found(Lookup(stream_of(stepped)).by_time(START + 5000, START + 2000)) == []


def test_a_search_is_made_in_bounded_steps(stepped: SteppedBroker) -> None:
    send(stepped, 0, 2 * STEP + 1)
    steps = list(Lookup(stream_of(stepped)).by_time(START, START + 100_000))
    assert [len(step) for step in steps] == [0, STEP, STEP, 1, 0]


def test_a_search_passes_over_what_is_damaged_and_tells(torn: SteppedBroker) -> None:
    lookup = Lookup(stream_of(torn))
    offsets = [offset for _, offset in found(lookup.by_time(START, START + 100_000))]
    assert offsets == [1, 2, 3, 5, 6, 7, 8, 9]
    assert lookup.damaged == [(0, 4)]


def test_retention_between_two_steps_does_no_harm(stepped: SteppedBroker) -> None:
    send(stepped, 0, STEP + 10)
    steps = Lookup(stream_of(stepped)).by_time(START, START + 100_000)
    assert [len(next(steps)), len(next(steps))] == [0, STEP]
    partition = stream_of(stepped).partitions[0]
    partition.remove(stepped.store.links(partition.lane, 0, STEP + 5))
    stepped.run()
    assert [offset for _, offset in found(steps)] == [STEP + 6, STEP + 7, STEP + 8, STEP + 9, STEP + 10]


# What became of them.


def member(stepped: SteppedBroker, name: str = "m", group: str = "g", **headers: str) -> SteppedClient:
    """A member of a group that begins at the first record."""
    client = stepped.connect()
    wanted = {"destination": "/stream/s", "id": "0", "ack": "client-individual", "group": group, "start": "earliest"}
    client.frame("SUBSCRIBE", {**wanted, "member": name, **headers})
    stepped.run()
    return client


def given(client: SteppedClient) -> dict[int, Frame]:
    """The messages of partition 0 that a member was given, by offset."""
    frames = client.take("MESSAGE")
    return {int(frame.headers["offset"]): frame for frame in frames if frame.headers["partition"] == "0"}


def state(stepped: SteppedBroker, offset: int, group: str = "g") -> GroupState:
    return next(s for s in states_of(stream_of(stepped), 0, offset) if s.group == group)


def test_each_group_has_its_own_state(stepped: SteppedBroker) -> None:
    send(stepped, 0, 2)
    stepped.broker.groups.open(stream_of(stepped), "late")
    stepped.broker.groups.open(stream_of(stepped), "new", start=Start(StartKind.EARLIEST))
    client = member(stepped)
    client.ack(given(client)[1])
    stepped.run()
    assert {s.group: s.state for s in states_of(stream_of(stepped), 0, 1)} == {
        "late": MessageState.DONE,
        "new": MessageState.NEW,
        "g": MessageState.DONE,
    }


def test_without_groups_there_is_nothing_to_tell(stepped: SteppedBroker) -> None:
    send(stepped)
    assert states_of(stream_of(stepped), 0, 1) == []


def test_a_member_has_a_message_until_its_lease_ends(stepped: SteppedBroker) -> None:
    send(stepped)
    client = member(stepped, "first", **{"consume-timeout": "30s"})
    now = stepped.clock.now_ms()
    assert given(client).keys() == {1}
    expected = GroupState("g", MessageState.LEASED, member="first", until=now + 30_000, attempts=1)
    assert state(stepped, 1) == expected
    stepped.advance(10)
    assert state(stepped, 1) == expected


def test_what_is_acknowledged_is_settling_until_it_is_stored(stepped: SteppedBroker) -> None:
    send(stepped)
    client = member(stepped)
    client.ack(given(client)[1])
    assert state(stepped, 1).state is MessageState.SETTLING
    stepped.run()
    assert state(stepped, 1) == GroupState("g", MessageState.DONE)


def test_a_retry_waits_until_it_is_due_and_is_leased_again(stepped: SteppedBroker) -> None:
    send(stepped)
    client = member(stepped)
    client.nack(given(client)[1])
    assert state(stepped, 1) == GroupState("g", MessageState.WAITING)
    due = stepped.clock.now_ms() + 10_000
    stepped.run()
    waiting = state(stepped, 1)
    assert (waiting.state, waiting.attempts, waiting.due) == (MessageState.WAITING, 1, due)
    assert waiting.cause
    stepped.advance(10)
    stepped.run()
    leased = state(stepped, 1)
    assert (leased.state, leased.member, leased.attempts) == (MessageState.LEASED, "m", 2)
    client.ack(given(client)[1])
    stepped.run()
    assert state(stepped, 1) == GroupState("g", MessageState.DONE)


def test_a_retry_is_known_after_a_restart(stepped: SteppedBroker) -> None:
    send(stepped)
    client = member(stepped)
    client.nack(given(client)[1])
    due = stepped.clock.now_ms() + 10_000
    stepped.run()
    waiting = state(stepped.reopen(), 1)
    assert (waiting.state, waiting.attempts, waiting.due) == (MessageState.WAITING, 1, due)


def test_what_waits_at_its_place_says_so(stepped: SteppedBroker) -> None:
    stepped = made(suspend_time=5.0)
    send(stepped, 0, 2)
    client = member(stepped, order="orderly")
    client.nack(given(client)[1])
    due = stepped.clock.now_ms() + 5000
    stepped.run()
    waiting = state(stepped, 1)
    assert (waiting.state, waiting.attempts, waiting.due) == (MessageState.WAITING, 1, due)
    assert state(stepped, 2).state is MessageState.NEW


def test_after_a_crash_a_new_message_may_have_been_delivered(stepped: SteppedBroker) -> None:
    send(stepped, 0, 2)
    assert given(member(stepped)).keys() == {1, 2}
    again = stepped.reopen()
    assert state(again, 1) == GroupState("g", MessageState.NEW, may_be_delivered=True)


def test_what_retention_removed_is_gone(stepped: SteppedBroker) -> None:
    send(stepped, 0, 2)
    stepped.broker.groups.open(stream_of(stepped), "g", start=Start(StartKind.EARLIEST))
    partition = stream_of(stepped).partitions[0]
    partition.remove(stepped.store.links(partition.lane, 0, 1))
    stepped.run()
    assert state(stepped, 1) == GroupState("g", MessageState.GONE)
    assert state(stepped, 2) == GroupState("g", MessageState.NEW)


def test_dead_letters_are_found_in_the_queue_of_their_group(stepped: SteppedBroker) -> None:
    send(stepped, 0, 3)
    for group in ("g", "h"):
        client = member(stepped, group=group)
        frames = given(client)
        client.nack(frames[2 if group == "g" else 3], {"delay-level": "-1"})
        client.ack(frames[1])
    stepped.run()
    assert state(stepped, 2) == GroupState("g", MessageState.DONE)
    groups = stream_of(stepped).groups
    places = {(0, 1), (0, 2), (0, 3)}
    assert [
        set().union(*dead_letters(groups[name], stepped.broker.queues[f"%DLQ%{name}"], places)) for name in ("g", "h")
    ] == [{(0, 2)}, {(0, 3)}]
    queue = stepped.queue("%DLQ%g")
    stepped.broker.destinations.delete_queue(queue)
    assert list(dead_letters(groups["g"], queue, places)) == list(dead_letters(groups["g"], None, places)) == []


def test_dead_letters_are_searched_in_bounded_steps(stepped: SteppedBroker) -> None:
    stepped.broker.groups.open(stream_of(stepped), "g")
    letters = stepped.queue("%DLQ%g")
    for number in range(1, STEP + 3):
        head = b"message-id:%d\ntimestamp:0\ngroup:g\npartition:1\noffset:%d\n" % (number, number)
        letters.send(head + b"original-destination:/stream/s\n\n")
    letters.send(b"message-id:x\ntimestamp:0\n\n")
    stepped.run()
    steps = list(dead_letters(stream_of(stepped).groups["g"], letters, {(1, 1), (1, STEP + 2), (0, 5), (1, 5000)}))
    assert steps == [{(1, 1)}, {(1, STEP + 2)}]
