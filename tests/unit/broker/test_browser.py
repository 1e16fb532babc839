"""SUBSCRIBE with ``browser:true``: a queue's messages are shown, and none is taken."""

import pytest

from quire.broker.queues.browsing import PIECE, PIECE_BYTES
from quire.errors import StoreError
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.unit.broker.harness import DamagedStore, bodies, consumer, filled, is_flagged, numbers, settings


def browsing(
    stepped: SteppedBroker, ack: str = "auto", version: str = "1.2", headers: dict[str, str] | None = None
) -> SteppedClient:
    """A client that browses the queue ``q``."""
    client = stepped.connect(version)
    client.subscribe("q", ack, headers={"browser": "true", **(headers or {})})
    stepped.run()
    return client


def shown(client: SteppedClient) -> list[bytes]:
    """What a client was shown; the end must have come, and nothing after it."""
    *messages, end = client.take("MESSAGE")
    assert is_end(end)
    assert not any(is_end(message) for message in messages)
    return bodies(messages)


def is_end(frame: Frame) -> bool:
    return frame.headers.get("browser") == "end"


def test_a_browser_is_shown_everything_and_then_told_that_this_was_all() -> None:
    stepped = filled(3)
    client = browsing(stepped)
    *messages, end = client.take("MESSAGE")
    assert bodies(messages) == numbers(0, 1, 2)
    assert (end.headers["browser"], end.headers["subscription"], end.body) == ("end", "0", b"")
    assert end.headers["destination"] == "/queue/q"
    assert (stepped.queue("q").depth, stepped.queue("q").subscriptions) == (3, [])


def test_an_empty_queue_has_an_end_only() -> None:
    assert shown(browsing(filled(0))) == []


def test_browsing_moves_no_cursor_and_keeps_nothing_in_memory() -> None:
    stepped = filled(50)
    cursor = stepped.queue("q").lanes[0].cursor
    assert len(shown(browsing(stepped))) == 50
    assert (cursor.position, stepped.broker.core.memory.used, stepped.queue("q").dispatched) == (0, 0, 0)
    frames = consumer(stepped).take("MESSAGE")
    assert bodies(frames) == numbers(*range(50))
    assert not any(is_flagged(frame) for frame in frames)


def test_messages_in_flight_are_shown_too() -> None:
    stepped = filled(3)
    consumer(stepped, prefetchSize="2")
    assert shown(browsing(stepped)) == numbers(0, 1, 2)


def test_messages_that_are_not_persistent_are_shown_in_their_order() -> None:
    stepped = filled(1)
    producer = stepped.connect()
    producer.send("q", b"1", {"persistent": "false"})
    producer.send("q", b"2")
    stepped.run()
    assert shown(browsing(stepped)) == numbers(0, 1, 2)


def test_what_comes_after_the_browser_is_not_shown() -> None:
    stepped = filled(2)
    client = stepped.connect()
    client.subscribe("q", "client", headers={"browser": "true", "activemq.prefetchSize": "1"})
    stepped.run()
    stepped.connect().send("q", b"late")
    stepped.run()
    got = []
    while messages := client.take("MESSAGE"):
        got += messages
        client.ack(messages[-1])
        stepped.run()
    assert bodies(got) == [b"0", b"1", b""]


def test_what_comes_later_is_not_shown_with_the_last_piece() -> None:
    stepped = filled(3)
    client = browsing(stepped, "client", headers={"activemq.prefetchSize": "2"})
    messages = client.take("MESSAGE")
    stepped.connect().send("q", b"late")
    stepped.run()
    client.ack(messages[-1])
    stepped.run()
    assert (bodies(messages), shown(client)) == (numbers(0, 1), [b"2"])


def test_what_its_own_connection_sent_before_is_shown() -> None:
    stepped = filled(1)
    stepped.connect().send("q", b"1")
    stepped.turn()
    client = stepped.connect()
    client.send("q", b"2")
    client.subscribe("q", "auto", headers={"browser": "true"})
    stepped.run()
    assert shown(client) == numbers(0, 1, 2)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_what_comes_after_it_in_the_same_commit_is_not_shown(*, prioritized: bool, persistent: str) -> None:
    stepped = filled(1, policy={"prioritized_messages": prioritized})
    stepped.connect().send("q", b"1")
    stepped.run_turns()
    client = stepped.connect()
    client.send("q", b"2", {"persistent": persistent})
    client.subscribe("q", "auto", headers={"browser": "true"})
    client.send("q", b"later", {"persistent": persistent, "priority": "9"})
    stepped.run_turns()
    stepped.connect().send("q", b"later", {"persistent": persistent})
    stepped.run()
    assert shown(client) == numbers(0, 1, 2)
    assert stepped.queue("q").depth == 5


def test_there_is_no_cap() -> None:
    stepped = filled(3 * PIECE + 1)
    assert shown(browsing(stepped)) == numbers(*range(3 * PIECE + 1))


def test_a_turn_shows_a_bounded_piece() -> None:
    stepped = filled(2 * PIECE)
    client = stepped.connect()
    client.subscribe("q", "auto", headers={"browser": "true"})
    stepped.turn()
    stepped.turn()
    assert len(client.take("MESSAGE")) == PIECE


def test_a_selector_is_honoured_and_costs_no_message_more() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    for number in range(3 * PIECE):
        producer.send("q", b"%d" % number, {"color": "red" if number % 100 == 7 else "blue"})
    stepped.run()
    client = browsing(stepped, headers={"selector": "color = 'red'"})
    assert shown(client) == numbers(*range(7, 3 * PIECE, 100))
    narrow = browsing(stepped, "client-individual", headers={"selector": "color = 'red'", "activemq.prefetchSize": "1"})
    got = []
    while messages := narrow.take("MESSAGE"):
        got += bodies(messages)
        narrow.ack(messages[0])
        stepped.run()
    assert got == [*numbers(*range(7, 3 * PIECE, 100)), b""]


def test_a_selector_that_matches_everything_leaves_nothing_out_whatever_the_prefetch() -> None:
    stepped = filled(50)
    client = browsing(stepped, "client", headers={"selector": "JMSPriority = 4", "activemq.prefetchSize": "3"})
    got = []
    while messages := client.take("MESSAGE"):
        got += bodies(messages)
        client.ack(messages[-1])
        stepped.run()
    assert got == [*numbers(*range(50)), b""]


def test_expired_messages_are_not_shown() -> None:
    stepped = SteppedBroker(settings(broker={"expiry_interval": 10_000.0}))
    producer = stepped.connect()
    producer.send("q", b"short", {"expires": str(stepped.clock.now_ms() + 1000)})
    producer.send("q", b"long", {"expires": str(stepped.clock.now_ms() + 5000)})
    stepped.run()
    stepped.advance(2)
    assert shown(browsing(stepped)) == [b"long"]


def test_a_prioritized_queue_is_shown_in_the_order_it_delivers() -> None:
    stepped = SteppedBroker(settings(policy={"prioritized_messages": True}))
    producer = stepped.connect()
    for number in range(9):
        persistent = {"persistent": "false"} if number % 2 else {}
        producer.send("q", b"%d" % number, {"priority": str(number % 3 * 4), **persistent})
    stepped.run()
    client = browsing(stepped)
    assert shown(client) == numbers(2, 5, 8, 1, 4, 7, 0, 3, 6)
    assert consumer(stepped).messages() == numbers(2, 5, 8, 1, 4, 7, 0, 3, 6)


@pytest.mark.parametrize("ack", ["client", "client-individual"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_with_acknowledgements_the_prefetch_bounds_what_is_not_acknowledged(ack: str, version: str) -> None:
    stepped = filled(5)
    client = browsing(stepped, ack, version, {"activemq.prefetchSize": "2"})
    got = []
    while messages := client.take("MESSAGE"):
        assert len(messages) <= 2 + any([is_end(message) for message in messages])
        got += messages
        for message in messages:
            client.ack(message)
        stepped.run()
    assert bodies(got) == [*numbers(0, 1, 2, 3, 4), b""]
    assert client.errors() == []
    assert stepped.queue("q").depth == 5


def test_bodies_of_messages_that_are_not_acknowledged_are_not_kept() -> None:
    stepped = SteppedBroker()
    for _ in range(10):
        stepped.connect().send("q", b"x" * 10_000)
    stepped.run()
    client = browsing(stepped, "client")
    (subscription,) = client.session.subscriptions.values()
    assert len(client.take("MESSAGE")) == 10 + 1
    assert sum([message.size for message in subscription.in_flight.values()]) < 1000


def test_no_prefetch_is_larger_than_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.queues.browsing.MAX_WINDOW", 2)
    client = browsing(filled(5), "client", headers={"activemq.prefetchSize": "1000000"})
    assert client.messages() == numbers(0, 1)


def test_without_acknowledgement_the_default_prefetch_is_the_end_of_it() -> None:
    stepped = SteppedBroker(settings(policy={"queue_browser_prefetch": 3}))
    for number in range(5):
        stepped.connect().send("q", b"%d" % number)
    stepped.run()
    assert browsing(stepped, "client").messages() == numbers(0, 1, 2)


def test_a_browser_that_pulls_is_shown_what_it_asks_for() -> None:
    stepped = filled(3)
    client = browsing(stepped, "auto", headers={"activemq.prefetchSize": "0"})
    assert client.messages() == []
    client.send("", b"", {"destination": "/pull/0", "quantity": "2"})
    stepped.run()
    assert client.messages() == numbers(0, 1)


def test_what_is_shown_cannot_be_rejected() -> None:
    stepped = filled(1)
    client = browsing(stepped, "client-individual")
    client.nack(client.take("MESSAGE")[0])
    assert client.errors() == ["invalid-header"]
    stepped.run()
    (message,) = consumer(stepped).take("MESSAGE")
    assert not is_flagged(message)


def test_acknowledging_in_a_transaction_takes_nothing() -> None:
    stepped = filled(2)
    client = browsing(stepped, "client-individual")
    first, second, _ = client.take("MESSAGE")
    for message, end in ((first, "COMMIT"), (second, "ABORT")):
        client.frame("BEGIN", {"transaction": "t"})
        client.ack(message, {"transaction": "t"})
        client.frame(end, {"transaction": "t"})
    stepped.run()
    assert client.errors() == []
    assert stepped.queue("q").depth == 2


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_acknowledging_the_end_does_nothing(version: str) -> None:
    stepped = filled(0)
    client = browsing(stepped, "client", version)
    (end,) = client.take("MESSAGE")
    client.ack(end, {"receipt": "r"})
    stepped.run()
    assert (client.receipts(), client.errors()) == (["r"], [])


def test_a_receiver_that_does_not_read_is_shown_nothing_more() -> None:
    stepped = filled(3 * PIECE)
    client = stepped.connect()
    client.subscribe("q", "auto", headers={"browser": "true"})
    stepped.turn()
    stepped.turn()
    client.connection.is_writable = client.session.writable = False  # as a transport does whose buffer is full
    stepped.run()
    assert len(client.take("MESSAGE")) == PIECE
    client.connection.is_writable = True
    client.session.output_drained()
    stepped.run()
    assert len(client.take("MESSAGE")) == 2 * PIECE + 1


def test_large_messages_make_small_pieces() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    for number in range(6):
        producer.send("q", b"%d" % number * (PIECE_BYTES // 4))
    stepped.run()
    client = stepped.connect()
    client.subscribe("q", "auto", headers={"browser": "true"})
    stepped.turn()
    stepped.turn()
    assert len(client.take("MESSAGE")) == 3
    stepped.run()
    assert len(client.take("MESSAGE")) == 3 + 1


def test_a_browser_may_leave_before_it_has_begun() -> None:
    stepped = filled(1)
    client = stepped.connect()
    client.subscribe("q", "auto", headers={"browser": "true"})
    client.frame("UNSUBSCRIBE", {"id": "0"})
    stepped.run()
    assert client.take("MESSAGE") == []


def test_a_browser_may_leave_at_any_time() -> None:
    stepped = filled(3 * PIECE)
    client = stepped.connect()
    client.subscribe("q", "auto", headers={"browser": "true"})
    stepped.turn()
    stepped.turn()
    client.frame("UNSUBSCRIBE", {"id": "0", "receipt": "r"})
    stepped.run()
    assert len(client.take("MESSAGE")) == PIECE
    assert client.receipts() == ["r"]
    client.vanish()
    stepped.run()
    assert stepped.queue("q").depth == 3 * PIECE


def test_a_queue_that_is_deleted_meanwhile_has_an_end() -> None:
    stepped = filled(4)
    client = browsing(stepped, "client", headers={"activemq.prefetchSize": "1"})
    (first,) = client.take("MESSAGE")
    stepped.broker.destinations.delete_queue(stepped.queue("q"))
    client.ack(first)
    stepped.run()
    assert shown(client) == []


def test_a_damaged_message_is_left_out_and_counted() -> None:
    store = DamagedStore(2)
    stepped = SteppedBroker(settings(), store)
    producer = stepped.connect()
    for number in range(4):
        producer.send("q", b"%d" % number)
    stepped.run()
    *messages, end = browsing(stepped).take("MESSAGE")
    assert bodies(messages) == numbers(0, 2, 3)
    assert (end.headers["browser"], end.headers["damaged"]) == ("end", "1")


def test_a_store_that_cannot_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stepped = filled(2)

    def unreadable(*_: object) -> None:
        raise StoreError("the disk is gone")

    monkeypatch.setattr(stepped.store, "links", unreadable)
    assert browsing(stepped).errors() == ["store-failed"]


def test_browsing_needs_a_version_that_names_subscriptions() -> None:
    assert browsing(filled(1), version="1.0").errors() == ["invalid-header"]


@pytest.mark.parametrize("destination", ["/topic/t", "/queue/a,/queue/b", "/queue/a.*"])
def test_only_one_queue_can_be_browsed(destination: str) -> None:
    client = browsing(filled(1), headers={"destination": destination})
    assert client.errors() == ["invalid-header"]


@pytest.mark.parametrize("by_remote_name", [False, True])
def test_a_temporary_queue_is_browsed_by_its_own_connection_only(by_remote_name: bool) -> None:
    stepped = SteppedBroker()
    owner, other = stepped.connect(), stepped.connect()
    for body in numbers(0, 1):
        owner.send("", body, {"destination": "/temp-queue/replies"})
    stepped.run()
    (name,) = stepped.broker.routing.temporaries.queues
    remote = f"/remote-temp-queue/{name}"
    destination = remote if by_remote_name else "/temp-queue/replies"
    owner.subscribe("", "auto", headers={"browser": "true", "destination": destination})
    other.subscribe("", "auto", headers={"browser": "true", "destination": remote})
    stepped.run()
    frames = owner.take("MESSAGE")
    assert (bodies(frames), is_end(frames[-1])) == ([*numbers(0, 1), b""], True)
    assert {frame.headers["destination"] for frame in frames[:-1]} == {"/temp-queue/replies"}
    assert other.errors() == ["invalid-destination"]
    owner.subscribe("", "auto", id="1", headers={"destination": "/temp-queue/replies"})
    stepped.run()
    assert owner.messages() == numbers(0, 1)


def test_a_temporary_queue_that_ends_while_it_is_browsed_ends_the_browser() -> None:
    stepped = SteppedBroker()
    owner = stepped.connect()
    owner.send("", b"1", {"destination": "/temp-queue/replies"})
    owner.subscribe("", "auto", headers={"browser": "true", "destination": "/temp-queue/replies"})
    owner.vanish()
    stepped.run()
    assert stepped.broker.routing.temporaries.queues == {}


def test_browsing_takes_the_output_of_one_connection_only() -> None:
    stepped = filled(10)
    slow = stepped.connect()
    slow.connection.is_writable = slow.session.writable = False
    slow.subscribe("q", "auto", headers={"browser": "true"})
    assert shown(browsing(stepped)) == numbers(*range(10))
    assert consumer(stepped).messages() == numbers(*range(10))
