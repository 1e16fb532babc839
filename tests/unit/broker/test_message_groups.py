"""Message groups over STOMP: who has one, when it begins anew, when it changes hands."""

from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import bodies, consumer, filled, settings

FIRST = "JMSXGroupFirstForConsumer"


def send(stepped: SteppedBroker, body: bytes, group: str = "g", sequence: str = "") -> None:
    headers = {"JMSXGroupID": group} | ({"JMSXGroupSeq": sequence} if sequence else {})
    stepped.connect().send("q", body, headers)
    stepped.run()


def taken(client: SteppedClient, *, acknowledged: bool = True) -> list[tuple[bytes, bool]]:
    """What came, and whether it was the first one of its group."""
    frames = client.take("MESSAGE")
    for frame in frames if acknowledged else []:
        client.ack(frame)
    return [(frame.body, frame.headers.get(FIRST) == "true") for frame in frames]


def test_a_group_stays_with_its_consumer_and_says_where_it_begins() -> None:
    stepped = filled(0)
    one, other = consumer(stepped), consumer(stepped)
    for body in (b"1", b"2", b"3"):
        send(stepped, body)
    assert taken(one) == [(b"1", True), (b"2", False), (b"3", False)]
    assert taken(other) == []


def test_groups_are_dealt_out_to_those_who_have_the_fewest() -> None:
    stepped = filled(0)
    clients = [consumer(stepped) for _ in range(3)]
    for number in range(9):
        send(stepped, b"%d" % number, f"g{number}")
    assert [len(taken(client)) for client in clients] == [3, 3, 3]


def test_sequence_one_begins_the_group_anew_with_somebody_who_has_fewer() -> None:
    stepped = filled(0)
    one = consumer(stepped)
    for number in range(3):
        send(stepped, b"%d" % number, f"g{number}")
    taken(one)
    other = consumer(stepped)
    send(stepped, b"stays", "g0")
    send(stepped, b"anew", "g1", "1")
    assert taken(one) == [(b"stays", False)]
    assert taken(other) == [(b"anew", True)]


def test_a_negative_sequence_closes_the_group() -> None:
    stepped = filled(0)
    one = consumer(stepped)
    send(stepped, b"1")
    send(stepped, b"last", sequence="-1")
    assert taken(one) == [(b"1", True), (b"last", False)]
    assert stepped.queue("q").groups.owner("g") is None
    send(stepped, b"new")
    assert taken(one) == [(b"new", True)]


def test_a_group_whose_owner_is_full_waits_and_others_pass() -> None:
    stepped = filled(0)
    full, free = consumer(stepped, prefetchSize="1"), consumer(stepped)
    send(stepped, b"g1", "g")
    send(stepped, b"g2", "g")
    send(stepped, b"h1", "h")
    (message,) = full.take("MESSAGE")
    assert free.messages() == [b"h1"]
    full.ack(message)
    stepped.run()
    assert full.messages() == [b"g2"]


def test_when_its_owner_leaves_a_group_goes_on_with_somebody_else_in_order() -> None:
    stepped = filled(0)
    one, other = consumer(stepped), consumer(stepped)
    for body in (b"1", b"2"):
        send(stepped, body)
    one.vanish()
    stepped.run()
    send(stepped, b"3")
    assert taken(other) == [(b"1", True), (b"2", False), (b"3", False)]


def test_a_newcomer_gets_its_share_if_the_policy_says_so() -> None:
    stepped = SteppedBroker(settings(policy={"rebalance_message_groups": True}))
    one = consumer(stepped)
    for number in range(4):
        send(stepped, b"%d" % number, f"g{number}")
    taken(one)
    stepped.run()
    other = consumer(stepped)
    for number in range(4):
        send(stepped, b"%d" % number, f"g{number}")
    assert (len(taken(one)), len(taken(other))) == (2, 2)


def test_a_busy_group_changes_hands_when_its_messages_are_settled() -> None:
    stepped = SteppedBroker(settings(policy={"rebalance_message_groups": True}))
    one = consumer(stepped)
    for number in range(2):
        send(stepped, b"%d" % number, f"g{number}")
    frames = one.take("MESSAGE")
    other = consumer(stepped)
    send(stepped, b"next", "g0")
    assert other.messages() == []
    for frame in frames:
        one.ack(frame)
    stepped.run()
    assert bodies(other.take("MESSAGE")) == [b"next"]


def test_a_rejected_message_holds_back_its_group_and_nobody_else() -> None:
    stepped = SteppedBroker(settings(policy={"initial_redelivery_delay": 5.0}))
    client = consumer(stepped, prefetchSize="1")
    send(stepped, b"g1", "g")
    send(stepped, b"g2", "g")
    send(stepped, b"h1", "h")
    client.nack(client.take("MESSAGE")[0])
    stepped.run()
    assert taken(client) == [(b"h1", True)]
    stepped.run()
    assert client.take("MESSAGE") == []
    stepped.advance(5)
    stepped.run()
    (again,) = client.take("MESSAGE")
    assert (again.body, again.headers["redelivered"]) == (b"g1", "true")


def test_an_exclusive_consumer_that_comes_and_goes_without_a_message_leaves_groups_to_their_owners() -> None:
    stepped = filled(0)
    owner = consumer(stepped)
    send(stepped, b"g1", "g")
    send(stepped, b"h1", "h")
    settled, in_flight = owner.take("MESSAGE")
    owner.ack(settled)
    stepped.run()
    consumer(stepped, exclusive="true").vanish()
    stepped.run()
    other = consumer(stepped)
    owner.ack(in_flight)
    stepped.run()
    send(stepped, b"g2", "g")
    send(stepped, b"h2", "h")
    assert taken(owner) == [(b"g2", False), (b"h2", False)]
    assert taken(other) == []


def test_an_exclusive_consumer_takes_a_group_with_its_next_message_when_the_last_one_is_settled() -> None:
    stepped = filled(0)
    owner = consumer(stepped)
    send(stepped, b"g1", "g")
    send(stepped, b"h1", "h")
    settled, in_flight = owner.take("MESSAGE")
    owner.ack(settled)
    stepped.run()
    exclusive = consumer(stepped, exclusive="true")
    send(stepped, b"g2", "g")
    send(stepped, b"h2", "h")
    assert taken(exclusive) == [(b"g2", True)]
    owner.ack(in_flight)
    stepped.run()
    assert taken(exclusive) == [(b"h2", True)]
    exclusive.vanish()
    stepped.run()
    send(stepped, b"g3", "g")
    assert taken(owner)[-1] == (b"g3", True)


def test_what_a_full_exclusive_consumer_leaves_of_a_group_waits_for_the_owner_again() -> None:
    stepped = filled(0)
    owner = consumer(stepped, prefetchSize="1")
    send(stepped, b"g1", "g")
    owner.ack(owner.take("MESSAGE")[0])
    send(stepped, b"h1", "h")
    stepped.connect().send("q", b"of no group")
    send(stepped, b"g2", "g")
    exclusive = consumer(stepped, exclusive="true", prefetchSize="1")
    assert exclusive.messages() == [b"of no group"]
    exclusive.vanish()
    other = consumer(stepped)
    assert other.messages() == [b"of no group"]
    owner.ack(owner.take("MESSAGE")[0])
    stepped.run()
    assert taken(owner) == [(b"g2", False)]
