"""A stream: where a message goes, what is stored, how partitions come and the stream goes."""

import pytest

from quire.broker.streams.stream import Stream
from quire.errors import InvalidArgument, StoreFull
from quire.store.base import IDENTITY, StoredDestination, WriteBatch
from quire.store.memory import MemoryStore
from quire.testing.stepped import SteppedBroker
from tests.unit.broker.harness import settings
from tests.unit.broker.streams.member_rig import StreamRig, numbers, places


def counts(stream: Stream) -> list[int]:
    return [partition.count for partition in stream.partitions]


# Where a message goes.


def test_a_key_is_always_in_the_same_partition() -> None:
    rig = StreamRig(partitions=8)
    for _ in range(3):
        for key in ("a", "b", "ümlaut", "colon:", ""):
            rig.send(key, partition_key=key)
    by_key: dict[bytes, set[str]] = {}
    for message in rig.member().take():
        by_key.setdefault(message.body, set()).add(message.headers["partition"])
    assert [len(partitions) for partitions in by_key.values()] == [1] * 5
    again = rig.crashed()
    assert {again.stream.partition_of(key.decode()).index for key in by_key} == {
        int(partition) for partitions in by_key.values() for partition in partitions
    }


def test_the_partition_of_a_key_is_the_same_in_every_process() -> None:
    stream = StreamRig(partitions=16).stream
    assert [stream.partition_of(key).index for key in ("", "a", "order-1", "ü")] == [0, 3, 15, 5]


def test_many_keys_are_spread_over_all_partitions() -> None:
    stream = StreamRig(partitions=4).stream
    found = [stream.partition_of(f"key-{number}").index for number in range(4000)]
    assert all(900 < found.count(index) < 1100 for index in range(4))


def test_the_policy_says_which_header_is_the_key() -> None:
    rig = StreamRig(partitions=8, partition_key_header="shop:id")
    for number in range(10):
        rig.send("x", **{"shop:id": "seven", "partition-key": str(number)})
    assert sorted(counts(rig.stream)) == [0] * 7 + [10]


def test_a_message_may_name_its_partition() -> None:
    rig = StreamRig(partitions=3)
    rig.send("1", "2", partition="2", partition_key="whatever")
    assert counts(rig.stream) == [0, 0, 2]


def test_without_either_the_partitions_take_turns() -> None:
    rig = StreamRig(partitions=3)
    rig.send(*numbers(1, 9))
    assert counts(rig.stream) == [3, 3, 3]


@pytest.mark.parametrize("number", ["3", "-1", "x", "", "1.0", "٣", "99999999999999999999"])
def test_a_partition_that_is_not_there_is_an_error(number: str) -> None:
    rig = StreamRig(partitions=3)
    rig.post("1", partition=number)
    rig.run()
    (error,) = rig.producer.take("ERROR")
    assert error.headers["code"] == "invalid-header"
    assert b"s has partitions 0 to 2" in error.body
    assert rig.stream.count == 0


def test_a_producer_learns_of_partitions_that_were_added() -> None:
    rig = StreamRig(partitions=1)
    rig.send("1", "2", partition_key="k")
    rig.broker.destinations.add_partitions(rig.stream, 4)
    rig.send("3", partition="3")
    rig.send(*numbers(1, 8))
    assert (counts(rig.stream)[1:], rig.producer.errors()) == ([2, 2, 3], [])


# In other company.


def test_a_composite_destination_may_have_a_stream() -> None:
    rig = StreamRig(partitions=4)
    for number in range(4):
        rig.post("x", "/stream/s,/queue/q,/stream/t", partition_key=f"key-{number}")
        rig.post("x", "/queue/q,/stream/s", partition="1")
    rig.run()
    expected = [4 * (index == 1) for index in range(4)]
    for number in range(4):
        expected[rig.stream.partition_of(f"key-{number}").index] += 1
    assert (counts(rig.stream), rig.broker.queue("q").depth, rig.broker.stream("t").count) == (expected, 8, 4)


def test_a_configured_composite_may_forward_to_a_stream() -> None:
    composite = {"queue": "in", "forward_to": ["stream://s"]}
    rig = StreamRig(stepped=SteppedBroker(settings(policy={"partitions": 2}, composites=[composite])))
    for _ in range(2):
        rig.post("1", "/queue/in", partition="1")
    rig.run()
    assert counts(rig.stream) == [0, 2]


@pytest.mark.parametrize("others_come", [False, True])
def test_a_transaction_sends_to_the_partitions_that_its_messages_say(others_come: bool) -> None:
    rig = StreamRig(partitions=4)
    rig.producer.frame("BEGIN", {"transaction": "t"})
    rig.post("1", transaction="t", partition="3")
    rig.post("2", transaction="t", partition_key="k")
    rig.run()
    if others_come:
        rig.broker.queue("another")
    assert rig.stream.count == 0
    rig.producer.frame("COMMIT", {"transaction": "t"})
    rig.run()
    expected = [int(index == 3) for index in range(4)]
    expected[rig.stream.partition_of("k").index] += 1
    assert counts(rig.stream) == expected


def test_a_transaction_that_is_rolled_back_uses_no_offset() -> None:
    rig = StreamRig()
    rig.producer.frame("BEGIN", {"transaction": "t"})
    rig.post("1", transaction="t")
    rig.producer.frame("ABORT", {"transaction": "t"})
    rig.send("2")
    assert places(rig.member().take()) == ["1.0"]


def test_acknowledgements_and_sends_are_in_one_transaction() -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1")
    (message,) = member.take()
    member.client.frame("BEGIN", {"transaction": "t"})
    member.ack(message, transaction="t")
    member.client.frame("SEND", {"destination": "/stream/s", "transaction": "t"}, b"2")
    member.client.frame("COMMIT", {"transaction": "t"})
    rig.stepped.turn()
    batch = rig.stepped.writer.batch
    assert batch is not None
    assert len(batch.lanes[rig.stream.partitions[0].lane].appends) == 1
    assert f"group/{rig.group().number}/0/a/0" in batch.marks
    rig.run()
    assert (member.bodies(), rig.lag) == (["2"], 1)


def test_a_message_may_be_scheduled() -> None:
    rig = StreamRig(partitions=3)
    rig.send("1", partition="2", AMQ_SCHEDULED_DELAY="2000")
    rig.send("2", partition_key="k", AMQ_SCHEDULED_DELAY="2000")
    assert rig.stream.count == 0
    rig.pass_time(4)
    expected = [int(index == 2) for index in range(3)]
    expected[rig.stream.partition_of("k").index] += 1
    assert counts(rig.stream) == expected


def test_a_numbered_send_counts_once() -> None:
    rig = StreamRig()
    for number in ("1", "1", "2"):
        rig.send(number, producer_id="p", producer_sequence=number)
    assert rig.member().bodies() == ["1", "2"]


# What is stored.


def test_a_non_persistent_message_is_stored() -> None:
    rig = StreamRig()
    rig.send("1", persistent="false")
    assert rig.crashed().member().bodies() == ["1"]


def test_a_message_does_not_expire() -> None:
    rig = StreamRig()
    rig.send("1", expires=str(rig.stepped.clock.now_ms() + 1000))
    rig.stepped.advance(100)
    rig.run()
    assert rig.member().bodies() == ["1"]


def test_a_priority_changes_no_order() -> None:
    rig = StreamRig()
    rig.send("1", priority="1")
    rig.send("2", priority="9")
    assert rig.member().bodies() == ["1", "2"]


def test_figures_are_exact_over_a_restart() -> None:
    rig = StreamRig(partitions=2)
    rig.send("x" * 100, partition="0")
    rig.send("x" * 300, "y", partition="1")
    figures = [(partition.count, partition.bytes, partition.head) for partition in rig.stream.partitions]
    assert ([figure[0] for figure in figures], rig.stream.count, rig.stream.enqueued) == ([1, 2], 3, 3)
    assert rig.stream.stored_bytes == rig.broker.core.stored_bytes == sum(figure[1] for figure in figures)
    rig = rig.crashed()
    assert figures == [(partition.count, partition.bytes, partition.head) for partition in rig.stream.partitions]
    assert rig.stream.stored_bytes == rig.broker.core.stored_bytes


def test_a_stream_has_as_many_partitions_as_its_policy_said_when_it_was_made() -> None:
    rig = StreamRig(partitions=3)
    again = StreamRig(stepped=rig.stepped.reopen(settings(policy={"partitions": 7})))
    assert (len(again.stream.partitions), len(again.broker.stream("new").partitions)) == (3, 7)


# Partitions come.


def test_groups_begin_at_the_first_record_of_a_new_partition() -> None:
    rig = StreamRig()
    rig.send("1")
    members = [rig.member(), rig.member(group="late", start="latest")]
    for member in members:
        member.take()
    rig.broker.destinations.add_partitions(rig.stream, 2)
    rig.send("2", partition="1")
    rig.pass_time(1)
    assert [member.bodies() for member in members] == [["2"], ["2"]]


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_crash_while_partitions_are_added_leaves_all_or_nothing(is_stored: bool) -> None:
    rig = StreamRig()
    rig.member().vanish()
    rig.broker.destinations.add_partitions(rig.stream, 3)
    rig.stepped.turn()
    if is_stored:
        rig.stepped.writer.apply()
    rig = rig.crashed()
    count = 3 if is_stored else 1
    assert (len(rig.stream.partitions), len(rig.group().partitions)) == (count, count)
    rig.send(*numbers(1, 3))
    assert sorted(rig.member().bodies()) == ["1", "2", "3"]


def test_partitions_are_added_though_the_commit_fails() -> None:
    rig = StreamRig()
    rig.member().vanish()
    rig.broker.destinations.add_partitions(rig.stream, 2)
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(2)
    rig.send("1", partition="1")
    rig = rig.crashed()
    assert (len(rig.stream.partitions), rig.member().bodies()) == (2, ["1"])


@pytest.mark.parametrize("count", [0, 1, 1001])
def test_there_are_never_fewer_partitions_and_no_more_than_the_limit(count: int) -> None:
    rig = StreamRig(partitions=2)
    with pytest.raises(InvalidArgument):
        rig.broker.destinations.add_partitions(rig.stream, count)
    assert len(rig.stream.partitions) == 2


# The stream goes.


def test_a_stream_is_deleted_with_its_groups_and_all_they_remember() -> None:
    rig = StreamRig(partitions=2)
    member = rig.member()
    rig.send(*numbers(1, 10))
    messages = member.take()
    member.ack(*messages[::3])
    member.nack(messages[1])
    member.vanish()
    rig.broker.destinations.delete_stream(rig.stream)
    rig.pass_time(2)
    store = rig.stepped.store
    assert [key for key, _ in store.marks("") if key.startswith(("group/", "stream/"))] == []
    assert (store.destinations(), rig.broker.core.stored_bytes, rig.broker.core.memory.used) == ([], 0, 0)


def test_a_stream_of_the_same_name_begins_anew() -> None:
    rig = StreamRig()
    rig.member().vanish()
    rig.send("1")
    rig.broker.destinations.delete_stream(rig.stream)
    rig.send("2")
    assert rig.stream.groups == {}
    assert places(rig.member().take()) == ["1.0"]
    rig = rig.crashed()
    assert (rig.lag, rig.member().bodies()) == (1, ["2"])


@pytest.mark.parametrize("commits", range(4))
def test_a_crash_while_a_stream_is_deleted_leaves_nothing_for_long(commits: int) -> None:
    rig = StreamRig()
    member = rig.member()
    rig.send("1", "2")
    member.nack(member.take()[0])
    member.vanish()
    rig.broker.destinations.delete_stream(rig.stream)
    for _ in range(commits):
        rig.stepped.turn()
        if rig.stepped.writer.batch is not None:
            rig.stepped.commit()
    stepped = rig.stepped.reopen()
    stepped.run()
    if commits == 0:
        assert stepped.broker.stream("s").groups.keys() == {"g"}
        return
    assert [key for key, _ in stepped.store.marks("") if key.startswith(("group/", "stream/"))] == []
    assert stepped.store.destinations() == []


# Dead letters.


def test_dead_letters_are_in_an_ordinary_queue_and_say_where_they_come_from() -> None:
    rig = StreamRig(partitions=2, retry_maximum=0)
    member = rig.member()
    rig.send("1", "2", partition="1", colour="red")
    member.nack(member.take()[1])
    client = rig.stepped.connect()
    client.subscribe("%DLQ%g")
    rig.run()
    (letter,) = client.take("MESSAGE")
    facts = {name: letter.headers[name] for name in ("group", "partition", "offset", "original-destination", "colour")}
    assert facts == {
        "group": "g", "partition": "1", "offset": "2", "original-destination": "/stream/s", "colour": "red",
    }  # fmt: skip
    assert letter.headers["dlqDeliveryFailureCause"].startswith("delivery failed 1 times, the maximum is 0")
    client.ack(letter)
    rig.run()
    assert (rig.broker.queue("%DLQ%g").depth, rig.lag) == (0, 1)


def test_a_dead_letter_and_the_end_of_its_message_are_in_one_commit() -> None:
    rig = StreamRig(retry_maximum=0)
    member = rig.member()
    rig.send("1")
    member.client.nack(member.take()[0])
    rig.stepped.turn()
    assert (rig.crashed().lag, rig.stepped.writer.batch is not None) == (1, True)
    rig.stepped.writer.apply()
    rig = rig.crashed()
    assert (rig.lag, rig.broker.queue("%DLQ%g").depth) == (0, 1)


def test_a_dead_letter_outlives_a_commit_that_fails() -> None:
    rig = StreamRig(retry_maximum=0)
    member = rig.member()
    rig.send("1")
    member.client.nack(member.take()[0])
    rig.stepped.turn()
    rig.stepped.commit(StoreFull("full"))
    rig.pass_time(2)
    assert (rig.lag, rig.broker.queue("%DLQ%g").depth) == (0, 1)
    rig = rig.crashed()
    assert (rig.lag, rig.broker.queue("%DLQ%g").depth) == (0, 1)


# Which one it is.


def test_a_stream_that_is_made_again_has_another_identity_and_a_restart_changes_none() -> None:
    rig = StreamRig(partitions=2)
    first = rig.stream.stored.settings[IDENTITY]
    rig.broker.destinations.add_partitions(rig.stream, 3)
    again = rig.crashed()
    assert again.stream.stored.settings[IDENTITY] == first
    name = again.stream.destination.name
    again.broker.destinations.delete_stream(again.stream)
    assert again.broker.destinations.create_stream(name).stored.settings[IDENTITY] != first


def test_a_stream_of_an_older_version_gets_an_identity_that_it_keeps() -> None:
    store = MemoryStore()
    store.open()
    batch = WriteBatch()
    batch.destinations[1] = StoredDestination(1, "stream", "events", {}, (1,))
    store.apply(batch)
    found = []
    for _ in range(2):
        stepped = SteppedBroker(settings(), store)
        stepped.run()
        known = [stepped.broker.destinations.streams["events"].stored, *store.destinations()]
        found += [stored.settings[IDENTITY] for stored in known]
    assert found == found[:1] * 4
