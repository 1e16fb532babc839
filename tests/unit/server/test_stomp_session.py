"""A STOMP connection's life: receipts, errors, and what one connection's end means for others."""

import pytest

from quire.clock import ManualClock
from quire.server.connection import INPUT_BUDGET
from quire.testing.stepped import SteppedBroker, SteppedClient
from tests.unit.broker.harness import consumer, filled, numbers, settings


def test_every_frame_may_ask_for_a_receipt() -> None:
    stepped = filled(2)
    client = stepped.connect()
    client.frame("SUBSCRIBE", {"destination": "/queue/q", "id": "0", "ack": "client-individual", "receipt": "1"})
    stepped.run()
    first, second = client.take("MESSAGE")
    client.frame("BEGIN", {"transaction": "t", "receipt": "2"})
    client.send("q", b"", {"transaction": "t", "receipt": "3"})
    client.frame("COMMIT", {"transaction": "t", "receipt": "4"})
    client.frame("BEGIN", {"transaction": "u", "receipt": "5"})
    client.frame("ABORT", {"transaction": "u", "receipt": "6"})
    client.ack(first, {"receipt": "7"})
    client.nack(second, {"receipt": "8"})
    client.frame("UNSUBSCRIBE", {"id": "0", "receipt": "9"})
    client.frame("DISCONNECT", {"receipt": "10"})
    stepped.run()
    assert client.receipts() == [str(number) for number in range(1, 11)]
    assert client.connection.closed


def test_the_receipt_of_a_subscription_comes_before_its_first_message() -> None:
    stepped = filled(1)
    client = stepped.connect()
    client.take("CONNECTED")
    client.subscribe("q", headers={"receipt": "r"})
    stepped.run()
    output = bytes(client.connection.output)
    assert 0 <= output.index(b"RECEIPT") < output.index(b"MESSAGE\n")


def test_the_receipt_of_disconnect_comes_when_everything_before_is_stored() -> None:
    stepped = filled(0)
    client = stepped.connect()
    client.send("q", b"1")
    stepped.turn()
    client.send("q", b"2")
    client.frame("DISCONNECT", {"receipt": "bye"})
    stepped.turn()
    stepped.commit()
    stepped.run_turns()
    assert client.receipts() == []
    assert not client.connection.closed
    stepped.commit()
    stepped.run_turns()
    assert client.receipts() == ["bye"]
    assert client.connection.closed


def test_a_receipt_is_written_back_as_it_came() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    client.take("CONNECTED")
    client.feed(b"SEND\ndestination:/queue/q\nreceipt:a\\cb\\\\ \xc3\xa4\n\n\0")
    stepped.run()
    assert b"receipt-id:a\\cb\\\\ \xc3\xa4\n" in client.connection.output


ERRORS = [
    (b"SEND\n\n\0", "invalid-header"),
    (b"SEND\ndestination:/queue/\n\n\0", "invalid-destination"),
    (b"SEND\ndestination:/nowhere/t\n\n\0", "invalid-destination"),
    (b"SEND\ndestination:/queue/q\npriority:high\n\n\0", "invalid-header"),
    (b"SEND\ndestination:/queue/q\nexpires:soon\n\n\0", "invalid-header"),
    (b"SUBSCRIBE\ndestination:/queue/q\n\n\0", "invalid-header"),
    (b"SUBSCRIBE\nid:0\ndestination:/queue/q\nbrowser:yes\n\n\0", "invalid-header"),
    (b"UNSUBSCRIBE\nid:0\n\n\0", "unknown-subscription"),
    (b"CONNECT\naccept-version:1.2\nhost:/\n\n\0", "protocol-violation"),
    (b"NONSENSE\n\n\0", "protocol-violation"),
    (b"MESSAGE\n\n\0", "protocol-violation"),
    (b"SEND\ndestination:/queue/q\nno colon\n\n\0", "protocol-violation"),
    (b"SEND\ndestination:/queue/q\ncontent-length:1\n\nxx\0", "protocol-violation"),
    (b"DISCONNECT\n\n\0SEND\ndestination:/queue/q\n\n\0", "protocol-violation"),
    (b"SEND\ndestination:/queue/q\ncontent-length:999999999999\n\n", "limit-exceeded"),
]


@pytest.mark.parametrize(("data", "code"), ERRORS)
def test_what_is_wrong_gets_an_error_and_a_close_and_nobody_else_notices(data: bytes, code: str) -> None:
    stepped = filled(1)
    other = consumer(stepped)
    client = stepped.connect()
    client.feed(data)
    stepped.run()
    assert client.errors() == [code]
    assert client.connection.closed
    stepped.connect().send("q", b"1")
    stepped.run()
    assert other.messages() == numbers(0, 1)
    assert other.errors() == []


def test_an_error_names_the_receipt_of_the_frame_and_says_what_to_do() -> None:
    client = SteppedBroker().connect()
    client.send("", b"", {"receipt": "r-1"})
    (error,) = client.take("ERROR")
    assert error.headers["receipt-id"] == "r-1"
    assert error.headers["message"].startswith("invalid-destination: ")
    assert b"Correct the destination's name." in error.body


def test_nothing_before_connect_is_done() -> None:
    stepped = SteppedBroker()
    for data in (b"SEND\ndestination:/queue/q\n\n\0", b"ACK\nid:1\n\n\0", b"DISCONNECT\n\n\0"):
        client = SteppedClient(stepped, "early")
        client.feed(data)
        assert client.connection.closed
        assert len(client.errors()) == 1
    assert not stepped.broker.queues


def test_what_came_before_an_error_is_done() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    client.feed(b"SEND\ndestination:/queue/q\n\nbefore\0NONSENSE\n\n\0SEND\ndestination:/queue/q\n\nafter\0")
    stepped.run()
    assert consumer(stepped).messages() == [b"before"]


def test_a_session_that_fails_gives_its_messages_back() -> None:
    stepped = filled(2)
    first = consumer(stepped)
    second = consumer(stepped)
    first.feed(b"NONSENSE\n\n\0")
    stepped.run()
    assert second.messages() == numbers(0, 1)


def test_frames_may_come_octet_by_octet() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    for octet in b"SEND\ndestination:/queue/q\nreceipt:r\ncontent-length:3\n\na\0b\0":
        client.feed(bytes([octet]))
    stepped.run()
    assert client.receipts() == ["r"]
    assert consumer(stepped).messages() == [b"a\0b"]


UNFINISHED = b"SEND\ndestination:/queue/q\nreceipt:r\n\n" + b"x" * 1000


def short_of_memory() -> SteppedBroker:
    """A broker that takes three unfinished frames, and not four."""
    limited = settings(memory={"limit": 1500}, stomp={"max_body": 2000}, openwire={"max_frame_size": 2000})
    stepped = SteppedBroker(limited)
    assert stepped.broker.core.partial_limit == 3500
    return stepped


def test_unfinished_frames_of_all_connections_together_have_a_limit() -> None:
    stepped = short_of_memory()
    slow = [stepped.connect() for _ in range(3)]
    for client in slow:
        client.feed(UNFINISHED)
    one_more = stepped.connect()
    one_more.feed(UNFINISHED)
    (error,) = one_more.take("ERROR")
    assert error.headers["code"] == "limit-exceeded"
    assert "the limit is 3500" in error.headers["message"]
    for client in slow:
        client.feed(b"\0")
        stepped.run()
        assert (client.receipts(), client.errors()) == (["r"], [])
    assert stepped.broker.core.partial_bytes == 0


def test_unfinished_frames_of_lost_connections_do_not_count() -> None:
    stepped = short_of_memory()
    for _ in range(5):
        client = stepped.connect()
        client.feed(UNFINISHED)
        assert client.errors() == []
        assert stepped.broker.core.partial_bytes == 1000
        client.vanish()
        assert stepped.broker.core.partial_bytes == 0


@pytest.mark.parametrize("data", [b"NONSENSE\n\n\0" + UNFINISHED, b"ACK\nid:1\n\n\0" + UNFINISHED])
def test_unfinished_frames_behind_an_error_do_not_count_once_the_connection_is_gone(data: bytes) -> None:
    stepped = short_of_memory()
    client = stepped.connect()
    client.feed(data)
    client.vanish()
    assert stepped.broker.core.partial_bytes == 0


def test_receipts_count_for_the_size_of_the_open_commit() -> None:
    stepped = SteppedBroker()
    client = stepped.connect()
    client.frame("BEGIN", {"transaction": "t", "receipt": "x" * 1000})
    client.frame("ABORT", {"transaction": "t", "receipt": "y" * 500})
    assert stepped.broker.core.open_bytes == 1500
    stepped.run()
    assert stepped.broker.core.open_bytes == 0
    assert client.receipts() == ["x" * 1000, "y" * 500]


def test_short_commands_mean_subscribe_and_unsubscribe() -> None:
    stepped = filled(1)
    client = stepped.connect()
    client.feed(b"SUB\nid:0\ndestination:/queue/q\nack:client\n\n\0")
    stepped.run()
    assert client.messages() == [b"0"]
    client.feed(b"UNSUB\nid:0\n\n\0")
    stepped.run()
    assert client.errors() == []
    assert not stepped.queue("q").subscriptions


@pytest.mark.parametrize(("sent", "delivered"), [("99", "9"), ("-1", "0"), ("7", "7"), (None, "4")])
def test_every_message_says_its_priority_and_when_it_expires(sent: str | None, delivered: str) -> None:
    stepped = filled(0)
    stepped.connect().send("q", b"x", {} if sent is None else {"priority": sent})
    for version in ("1.0", "1.1", "1.2"):
        receiver = stepped.connect(version)
        receiver.subscribe("q", "client")
        stepped.run()
        (message,) = receiver.take("MESSAGE")
        assert (message.headers["priority"], message.headers["expires"]) == (delivered, "0")
        receiver.frame("DISCONNECT")
        stepped.run()


def test_a_large_message_is_written_by_itself_and_in_its_place() -> None:
    stepped = SteppedBroker()
    producer = stepped.connect()
    large = b"x" * (2 << 20)
    for body in (b"one", large, b"two"):
        producer.send("q", body)
    stepped.run()
    receiver = stepped.connect()
    receiver.subscribe("q", headers={"receipt": "r"})
    stepped.run()
    assert receiver.messages() == [b"one", large, b"two"]
    assert receiver.receipts() == ["r"]


def test_a_body_that_came_in_pieces_is_what_was_sent() -> None:
    stepped = SteppedBroker()
    producer, receiver = stepped.connect(), stepped.connect()
    receiver.subscribe("q")
    producer.feed(b"SEND\ndestination:/queue/q\ncontent-length:7\n\nabc")
    producer.feed(b"de")
    producer.feed(b"fg\0SEND\ndestination:/queue/q\n\nhij")
    producer.feed(b"k\0")
    stepped.run()
    assert receiver.messages() == [b"abcdefg", b"hijk"]


class SlowClock(ManualClock):
    """Between two looks at it a large part of the time passes that an input may take in a turn."""

    def monotonic(self) -> float:
        self.advance(INPUT_BUDGET / 2.5)
        return super().monotonic()


def slow() -> SteppedBroker:
    return SteppedBroker(settings(), clock=SlowClock())


def test_input_that_makes_many_destinations_is_taken_in_pieces_and_in_order() -> None:
    stepped = slow()
    producer = stepped.connect()
    count = 20
    frames = [b"SEND\ndestination:/queue/q%d\nreceipt:%d\n\n%d\0" % (number, number, number) for number in range(count)]
    producer.session.receive(b"".join(frames) + b"SEND\ndestination:/queue/q0\n\nlast\0")
    assert len(stepped.broker.queues) == 3
    assert producer.connection.paused
    producer.feed(b"SEND\ndestination:/queue/q0\nreceipt:end\n\nvery last\0")
    stepped.run()
    assert producer.receipts() == [*map(str, range(count)), "end"]
    assert not producer.connection.paused
    assert len(stepped.broker.queues) == count
    receiver = stepped.connect()
    receiver.subscribe("q0")
    stepped.run()
    assert receiver.messages() == [b"0", b"last", b"very last"]


def test_a_connection_that_is_lost_takes_its_put_off_input_with_it() -> None:
    stepped = slow()
    producer = stepped.connect()
    frames = [b"SEND\ndestination:/queue/q%d\n\n\0" % number for number in range(5)]
    producer.session.receive(b"".join(frames))
    producer.vanish()
    stepped.run()
    assert len(stepped.broker.queues) == 3


def test_a_long_chunk_of_input_is_taken_in_pieces_and_in_order() -> None:
    stepped = slow()
    client, other = stepped.connect(), stepped.connect()
    client.feed(b"SEND\ndestination:/queue/q\n\n0\0")
    stepped.run()
    client.feed(b"".join(b"SEND\ndestination:/queue/q\n\n%d\0" % number for number in range(1, 400)))
    other.send("q", b"between")
    assert client.session.held
    stepped.run()
    bodies = consumer(stepped).messages()
    assert bodies != [*numbers(*range(400)), b"between"]
    bodies.remove(b"between")
    assert bodies == numbers(*range(400))


def test_a_commit_of_many_destinations_is_full_until_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.broker.core.core.OPEN_PARTS", 2)
    stepped = filled(0)
    producer = stepped.connect()
    for number in range(3):
        assert not stepped.broker.core.is_full
        producer.send(f"q{number}", b"")
    assert stepped.broker.core.is_full
    stepped.run()
    assert not stepped.broker.core.is_full


def test_a_turn_decodes_a_bounded_number_of_new_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.protocols.stomp.decoder.BATCH", 5)
    stepped = slow()
    client = stepped.connect()
    before, processed = stepped.broker.core.next_message_id(), []
    client.feed(b"".join([b"SEND\ndestination:/queue/q\nn:%d\\c\n\n%d\0" % (n, n) for n in range(23)]) + b"SEND\nx")
    while stepped.is_turn_wanted:
        now = stepped.broker.core.next_message_id()
        processed.append(now - before - 1)
        before = now
        stepped.turn()
    assert max(processed) == 3
    client.feed(b":y\ndestination:/queue/q\n\n23\0")
    stepped.run()
    assert consumer(stepped).messages() == numbers(*range(24))
    assert client.connection.paused == set()


def test_what_comes_before_the_rest_is_decoded_waits_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.protocols.stomp.decoder.BATCH", 5)
    stepped = slow()
    client = stepped.connect()
    frames = [b"SEND\ndestination:/queue/q\nn:%d\\c\n\n%d\0" % (n, n) for n in range(20)]
    client.session.receive(b"".join(frames[:7]) + frames[7][:9])
    client.session.receive(frames[7][9:20])
    client.session.receive(frames[7][20:] + b"".join(frames[8:]))
    stepped.run()
    assert consumer(stepped).messages() == numbers(*range(20))
    assert client.connection.paused == set()


def test_an_error_behind_what_is_decoded_at_once_comes_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.protocols.stomp.decoder.BATCH", 5)
    stepped = slow()
    client = stepped.connect()
    frames = [b"SEND\ndestination:/queue/q\nn:%d\\c\n\n%d\0" % (n, n) for n in range(7)]
    client.feed(b"".join(frames) + b"WRONG\n\n\0" + frames[0])
    stepped.run()
    assert client.errors() == ["protocol-violation"]
    assert consumer(stepped).messages() == numbers(*range(7))
