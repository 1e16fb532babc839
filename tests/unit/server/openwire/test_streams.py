"""Streams over OpenWire: groups and readers, what they acknowledge, what comes again."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from quire.broker.streams.groups.group import Group
from quire.cursors.ack_set import AckSet
from quire.errors import StoreFull
from quire.protocols.openwire.commands import (
    OFFSET,
    PARTITION,
    ActiveMQDestination,
    ActiveMQQueue,
    ActiveMQTopic,
    ConsumerControl,
    ConsumerId,
    DestinationInfo,
    MessageDispatch,
    MessagePull,
    RemoveSubscriptionInfo,
)
from quire.protocols.openwire.negotiation import WireFormat
from quire.protocols.openwire.primitives import Tag, Typed, read_map, write_map
from quire.server.openwire.dispatch_frames import number_of, part_and_sequence, part_of, place_properties
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import OpenWireClient, Rig, counters, id_of, properties, texts

S = ActiveMQTopic("stream://s")


def rig(partitions: int = 2, **policy: Any) -> Rig:
    """A broker whose streams have some partitions, and whose groups wait for no further members."""
    return Rig(settings(policy={"partitions": partitions, "rebalance_initial_delay": 0.0, **policy}))


def read(dispatches: list[MessageDispatch]) -> list[str]:
    """The texts of messages, sorted: the order of partitions is not said."""
    return sorted([text for text in texts(dispatches) if text is not None])


def member(client: OpenWireClient, group: str = "g", prefetch: int = 100, **fields: Any) -> ConsumerId:
    """A member of a group that begins with the first message."""
    return client.consumer(S, prefetch, subscription_name=group, **{"retroactive": True, **fields})


def settled(broker: Rig) -> None:
    """Let a rebalance come to its end."""
    broker.run()
    broker.advance(1.0)
    broker.run()


def given(client: OpenWireClient) -> list[MessageDispatch]:
    """The messages that have come."""
    return client.take(MessageDispatch)


def group_of(broker: Rig, name: str = "g") -> Group:
    """A group of the stream."""
    return broker.broker.stream("s").groups[name]


def reset(group: Group) -> bool:
    """Go back to the start; there is nothing more to do."""
    group.restart({0: AckSet()})
    return False


def place(dispatch: MessageDispatch) -> tuple[int, int]:
    """Partition and offset, as the client reads them."""
    assert dispatch.message is not None
    assert dispatch.message.marshalled_properties is not None
    said = read_map(dispatch.message.marshalled_properties)
    return said[PARTITION], said[OFFSET]


def test_a_group_gets_each_message_and_its_progress_is_what_was_acknowledged() -> None:
    broker = rig()
    client = broker.client()
    member(client)
    client.send("a", "b", "c", "d", destination=S)
    settled(broker)
    dispatches = given(client)
    assert read(dispatches) == ["a", "b", "c", "d"]
    assert sorted(map(place, dispatches)) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert {dispatch.destination for dispatch in dispatches} == {S}
    assert group_of(broker).lag == 4
    for dispatch in dispatches:
        client.acks([dispatch])
    assert group_of(broker).lag == 0
    assert not client.errors()


def test_a_member_without_a_client_id_is_taken() -> None:
    client = rig().client(client_id="x")
    client.session.session.client_id = ""
    member(client)


def test_a_reader_begins_at_the_end_and_a_retroactive_one_at_the_start() -> None:
    broker = rig(partitions=1)
    client = broker.client()
    client.send("old", destination=S)
    late, early = client.consumer(S), client.consumer(S, retroactive=True)
    client.send("new", destination=S)
    dispatches = given(client)
    by_consumer = {id: texts([d for d in dispatches if d.consumer_id == id]) for id in (late, early)}
    assert by_consumer == {late: ["new"], early: ["old", "new"]}
    assert not broker.broker.stream("s").groups


@pytest.mark.parametrize(("start", "expected"), [("earliest", ["0", "1", "2"]), ("offset=3", ["2"]), ("latest", [])])
def test_the_name_of_a_stream_says_where_to_start(start: str, expected: list[str]) -> None:
    broker = rig(partitions=1)
    client = broker.client()
    client.send("0", "1", "2", destination=S)
    named = ActiveMQTopic(f"stream://s?start={start}")
    client.consumer(named)
    client.consumer(named, subscription_name="g")
    settled(broker)
    dispatches = given(client)
    assert read(dispatches) == sorted(expected * 2)
    assert {dispatch.destination for dispatch in dispatches} <= {S}


@pytest.mark.parametrize(
    ("destination", "fields", "code"),
    [
        (ActiveMQTopic("stream://s?start=never"), {}, "invalid-argument"),
        (ActiveMQTopic("stream://s?begin=earliest"), {}, "invalid-destination"),
        (ActiveMQTopic("stream://s,stream://t"), {}, "invalid-argument"),
        (ActiveMQTopic("t,stream://s"), {}, "invalid-argument"),
        (ActiveMQTopic("stream://s.*"), {}, "invalid-argument"),
        (ActiveMQTopic("stream://"), {}, "invalid-destination"),
        (ActiveMQQueue("stream://s"), {}, "invalid-argument"),
        (S, {"no_local": True}, "invalid-argument"),
        (S, {"browser": True, "subscription_name": "g"}, "invalid-argument"),
        (S, {"subscription_name": "a,b"}, "invalid-header"),
        (S, {"selector": "x >"}, "invalid-selector"),
    ],
)
def test_what_makes_no_sense_with_a_stream_is_refused(
    destination: ActiveMQDestination, fields: dict[str, Any], code: str
) -> None:
    broker = rig()
    client = broker.client()
    assert client.refused(client.consumer_info(destination, **fields))[1] == code
    assert not client.session.subscriptions
    assert not broker.broker.groups.readers


@drawn(st.integers(1, 2**40), st.integers(0, 2**30), st.integers(0, 999))
def test_a_number_says_the_part_and_the_offset(offset: int, subscription: int, partition: int) -> None:
    number = number_of(offset, subscription)
    assert 0 < number < 2**63
    assert part_and_sequence(number) == (part_of(subscription), offset)
    said = read_map((2).to_bytes(4, "big") + place_properties(partition, offset))
    assert said == {PARTITION: partition, OFFSET: offset}


# Sends.


@pytest.mark.parametrize("sent", [{}, {"persistent": False}])
def test_a_message_goes_to_the_partition_that_its_properties_say(sent: dict[str, Any]) -> None:
    broker = rig(partitions=4)
    client = broker.client()
    for number in (3, 0, 3):
        said = properties(partition=Typed(Tag.INT, number))
        client.send(str(number), destination=S, marshalled_properties=said, **sent)
    assert [partition.count for partition in broker.broker.stream("s").partitions] == [1, 0, 0, 2]


def test_messages_of_one_key_go_to_one_partition() -> None:
    broker = rig(partitions=4)
    client = broker.client()
    keyed = write_map({"partition-key": Typed(Tag.STRING, "k")})
    client.send("a", "b", "c", destination=S, marshalled_properties=keyed)
    assert sorted([partition.count for partition in broker.broker.stream("s").partitions]) == [0, 0, 0, 3]


@pytest.mark.parametrize("name", ["stream://s", "t,stream://s"])
def test_the_time_of_a_message_in_a_stream_is_the_brokers(name: str) -> None:
    broker = rig(partitions=1)
    client = broker.client()
    id = member(client)
    settled(broker)
    client.send("x", destination=ActiveMQTopic(name), timestamp=1)
    (dispatch,) = given(client)
    assert dispatch.consumer_id == id
    assert dispatch.message is not None
    assert dispatch.message.timestamp == broker.clock.now_ms()


def test_a_partition_that_is_not_there_is_an_error() -> None:
    client = rig().client()
    message = client.message("x", S, marshalled_properties=properties(partition=Typed(Tag.INT, 7)))
    assert client.refused(message)[1] == "invalid-header"


def test_what_a_message_says_of_its_own_place_is_replaced() -> None:
    broker = rig(partitions=1)
    client = broker.client()
    member(client)
    said = {PARTITION: Typed(Tag.STRING, "x"), "a": Typed(Tag.INT, 1)}
    client.send("x", "y", destination=S, marshalled_properties=properties(**said))
    settled(broker)
    dispatches = given(client)
    assert [place(dispatch) for dispatch in dispatches] == [(0, 1), (0, 2)]
    assert dispatches[0].message is not None
    assert dispatches[0].message.marshalled_properties is not None
    assert read_map(dispatches[0].message.marshalled_properties)["a"] == 1


@pytest.mark.parametrize("version", [1, 9, 12])
def test_clients_of_any_version_are_given_messages_with_their_place(version: int) -> None:
    broker = rig(partitions=1)
    client = broker.client(format=WireFormat(version=version))
    id = member(client)
    client.send("x", destination=S, marshalled_properties=properties(a=Typed(Tag.INT, 1)))
    settled(broker)
    (dispatch,) = given(client)
    assert place(dispatch) == (0, 1)
    assert dispatch.consumer_id == id
    client.acks([dispatch])
    assert group_of(broker).lag == 0


def test_a_stream_is_not_deleted_by_a_client_nor_a_topic_of_its_name() -> None:
    broker = rig()
    client = broker.client()
    client.send("x", destination=S)
    client.send("x", destination=ActiveMQTopic("s"))
    assert client.refused(DestinationInfo(destination=S, operation_type=1))[1] == "invalid-destination"
    assert broker.broker.stream("s").count == 1
    assert "s" in broker.broker.destinations.topics


def test_a_producer_of_a_stream_makes_it() -> None:
    broker = rig()
    broker.client().producer(S)
    assert "s" in broker.broker.destinations.streams
    assert "stream://s" not in broker.broker.destinations.topics


def test_a_reply_may_be_expected_in_a_stream() -> None:
    broker = rig()
    client = broker.client()
    client.consumer()
    client.send("x", reply_to=S)
    (dispatch,) = given(client)
    assert dispatch.message is not None
    assert dispatch.message.reply_to == S


# Acknowledgements.


def test_a_range_covers_what_was_given_out_in_between_whatever_its_partition() -> None:
    broker = rig()
    client = broker.client()
    member(client)
    settled(broker)
    client.send(*map(str, range(6)), destination=S)
    dispatches = given(client)
    client.acks(dispatches[:4])
    assert group_of(broker).lag == 2
    client.acks(dispatches[4:])
    assert group_of(broker).lag == 0
    assert not client.errors()


def test_a_range_begins_with_its_first_message() -> None:
    broker = rig()
    client = broker.client()
    member(client)
    settled(broker)
    client.send(*map(str, range(6)), destination=S)
    dispatches = given(client)
    client.acks(dispatches[2:5])
    client.remove(dispatches[0].consumer_id)
    member(client)
    settled(broker)
    assert read(given(client)) == read([dispatches[number] for number in (0, 1, 5)])


def test_an_acknowledgement_of_an_assignment_that_has_ended_does_not_count() -> None:
    broker = rig(partitions=1)
    client = broker.client()
    id = member(client)
    client.send("x", destination=S)
    settled(broker)
    (before,) = given(client)
    group = group_of(broker)
    broker.broker.core.steps.add(partial(reset, group), "a reset")
    settled(broker)
    (now,) = given(client)
    client.acks([before])
    assert (group.fenced, group.lag) == (1, 1)
    client.acks([now])
    assert group.lag == 0
    assert now.consumer_id == id


def test_a_message_that_comes_again_is_no_duplicate_to_the_client_and_shows_its_id() -> None:
    broker = rig(partitions=1, consume_timeout=5.0, retry_delays="1s")
    client = broker.client()
    member(client)
    client.send("x", destination=S)
    settled(broker)
    (first,) = given(client)
    broker.advance(5.0)
    settled(broker)
    (second,) = given(client)
    settled(broker)
    broker.advance(5.0)
    settled(broker)
    (third,) = given(client)
    known = [(id_of(d).producer_id, id_of(d).producer_sequence_id) for d in (first, second, third)]
    assert len(set(known)) == 3
    assert {str(id_of(dispatch)) for dispatch in (first, second, third)} == {str(id_of(first))}
    assert [place(dispatch) for dispatch in (first, second, third)] == [(0, 1)] * 3
    assert counters([first, second, third]) == [0, 1, 2]
    assert third.message is not None
    assert third.message.marshalled_properties is not None
    assert "redeliveryDelay" in read_map(third.message.marshalled_properties)
    client.acks([third])
    assert group_of(broker).lag == 0


def test_a_message_that_the_client_cannot_take_becomes_a_dead_letter() -> None:
    broker = rig(partitions=1)
    client = broker.client(format=WireFormat(max_frame_size=2000))
    member(client)
    broker.client().send("x" * 3000, "y", destination=S)
    settled(broker)
    assert texts(given(client)) == ["y"]
    assert broker.depth("%DLQ%g") == 1


# Transactions.


# Credit.


def pulled(client: OpenWireClient, consumer: ConsumerId, timeout: int) -> list[str | None]:
    """What a pull brings at once; None for nothing."""
    client.tell(MessagePull(consumer_id=consumer, destination=S, timeout=timeout))
    client._rig.run()
    return texts(given(client))


def test_a_member_without_prefetch_asks_for_each_message() -> None:
    broker = rig()
    client = broker.client()
    id = member(client, prefetch=0)
    settled(broker)
    assert pulled(client, id, -1) == [None]
    client.send("a", "b", destination=S)
    assert not given(client)
    assert {*pulled(client, id, -1), *pulled(client, id, 0)} == {"a", "b"}
    assert pulled(client, id, 500) == []
    broker.advance(1.0)
    broker.run()
    assert texts(given(client)) == [None]
    assert pulled(client, id, 0) == []
    client.send("c", destination=S)
    assert texts(given(client)) == ["c"]


def test_a_failover_client_gives_its_member_the_prefetch_afterwards() -> None:
    broker = rig(partitions=1)
    client = broker.client()
    id = member(client, prefetch=0)
    client.send("a", "b", destination=S)
    settled(broker)
    assert not given(client)
    client.tell(ConsumerControl(consumer_id=id, destination=S, prefetch=10))
    broker.run()
    assert texts(given(client)) == ["a", "b"]
    client.tell(ConsumerControl(consumer_id=id, destination=S, prefetch=0))
    client.send("c", destination=S)
    assert not given(client)
    assert pulled(client, id, 0) == ["c"]


# Leaving.


def left(broker: Rig, client: OpenWireClient) -> list[tuple[str, int]]:
    """What a new member is given, and how often each was delivered before."""
    member(client)
    settled(broker)
    dispatches = given(client)
    return sorted([(read([dispatch])[0], dispatch.redelivery_counter) for dispatch in dispatches])


@pytest.mark.parametrize(
    ("last", "expected"),
    [(-1, [("a", 0), ("b", 0), ("c", 0)]), (0, [("a", 1), ("b", 0), ("c", 0)]), (-2, [("a", 1), ("b", 1), ("c", 1)])],
)
def test_what_the_application_has_not_seen_is_not_redelivered(last: int, expected: list[tuple[str, int]]) -> None:
    broker = rig(partitions=1)
    client = broker.client()
    id = member(client)
    client.send("a", "b", "c", destination=S)
    settled(broker)
    dispatches = given(client)
    client.remove(id, last if last < 0 else id_of(dispatches[last]).broker_sequence_id)
    assert left(broker, client) == expected


def test_the_number_of_another_consumer_says_nothing() -> None:
    broker = rig(partitions=1)
    client = broker.client()
    id = member(client)
    client.send("a", destination=S)
    settled(broker)
    given(client)
    client.remove(id, 1 << 30 | 77)
    assert left(broker, client) == [("a", 1)]


def test_messages_of_a_partition_that_comes_back_are_told_apart() -> None:
    """Clients take a message whose id comes twice for a duplicate, and what another member gave back may be one."""
    broker = rig(partitions=2)
    one, other = broker.client(), broker.client()
    member(one)
    settled(broker)
    id = member(other)
    settled(broker)
    other.remove(id)
    settled(broker)
    one.send("a", "b", destination=S)
    dispatches = given(one)
    producers = [id_of(dispatch).producer_id for dispatch in dispatches]
    assert {producer.connection_id for producer in producers if producer} == {one.id, "redelivered"}
    one.acks(dispatches)
    assert (group_of(broker).lag, one.errors()) == (0, [])


# Unsubscribing.


def test_a_group_is_removed_by_its_full_name() -> None:
    broker = rig()
    client = broker.client()
    id = member(client)
    removal = RemoveSubscriptionInfo(client_id=client.id, subscription_name="stream://s?group=g")
    assert client.refused(removal)[1] == "destination-in-use"
    client.remove(id)
    client.done(removal)
    assert not broker.broker.stream("s").groups
    assert client.refused(removal)[1] == "unknown-consumer-group"


# Browsing.


@pytest.mark.parametrize("kind", [ActiveMQTopic, ActiveMQQueue])
@pytest.mark.parametrize("prefetch", [2, 500])
def test_a_browser_is_shown_everything_and_takes_nothing(kind: type[ActiveMQDestination], prefetch: int) -> None:
    broker = rig()
    client = broker.client()
    client.send(*map(str, range(5)), destination=S, marshalled_properties=properties(a=Typed(Tag.INT, 1)))
    client.consumer(kind("stream://s"), prefetch, browser=True)
    shown: list[MessageDispatch] = []
    while new := given(client):
        shown += new
        client.send("later", destination=S)
        if new[-1].message is not None:
            client.acks(new)
    assert [place(dispatch) for dispatch in shown[:-1]] == [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    assert texts(shown)[-1] is None
    assert not client.errors()


@pytest.mark.parametrize("fails", [False, True])
def test_a_browser_is_shown_nothing_that_was_sent_after_it(*, fails: bool) -> None:
    broker = rig(partitions=1)
    client, other = broker.client(), broker.client()
    client.send("0", destination=S)
    other.tell(other.message("1", S))
    client.tell(client.consumer_info(S, browser=True))
    other.tell(other.message("later", S))
    broker.run_turns()
    broker.commit(StoreFull("full") if fails else None)
    broker.run()
    assert texts(given(client)) == (["0", None] if fails else ["0", "1", None])


def test_a_browser_with_a_selector_is_shown_what_matches() -> None:
    broker = rig(partitions=1)
    client = broker.client()
    for number in range(5):
        client.send(str(number), destination=S, marshalled_properties=properties(a=Typed(Tag.INT, number)))
    client.consumer(S, 1, browser=True, selector="a > 2")
    (first,) = given(client)
    client.acks([first])
    assert texts([first, *given(client)]) == ["3", "4"]


def test_a_browser_of_an_empty_stream_ends_at_once() -> None:
    client = rig().client()
    client.consumer(S, browser=True)
    assert texts(given(client)) == [None]
