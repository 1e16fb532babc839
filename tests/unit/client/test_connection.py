"""The client's connection over a channel that is only a script."""

from collections.abc import Callable

import pytest

from quire.client.connection import Connection, Frame
from quire.clock import ManualClock
from quire.errors import (
    BrokerUnreachable,
    InvalidDestination,
    LimitExceeded,
    ProducerHeld,
    ProtocolViolation,
    UnsupportedVersion,
)
from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.encoder import encode_frame, error_frame
from quire.protocols.stomp.versions import Version
from tests.fuzz.stomp_decoder import decode


class ScriptedBroker:
    """A channel whose other end answers each frame as told; without anything to read, time goes by.

    Attributes:
        sent: the frames that came: command, headers and body.
        answer: makes the answer to a frame from its command and its receipt.
        unread: what the client has not read yet.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.sent: list[tuple[bytes, dict[str, str], object]] = []
        self.answer: Callable[[bytes, bytes | None], bytes] = confirm
        self.unread = bytearray()
        self.closed = False
        self.broken = False
        self._clock = clock
        self._timeout = 0.0
        self._decoder = Decoder(Limits())

    def sendall(self, data: bytes) -> None:
        if self.broken:
            raise BrokenPipeError(32, "Broken pipe")
        for head, receipt, body in decode(self._decoder, data):
            self.sent.append((head.command, head.headers, body))
            self.unread += self.answer(head.command, receipt)

    def recv(self, size: int) -> bytes:
        if self.broken:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self.closed:
            return b""
        if not self.unread:
            self._clock.advance(self._timeout)
            raise TimeoutError
        # Seven octets at a time: no frame comes whole.
        data = bytes(self.unread[:7])
        del self.unread[:7]
        return data

    def settimeout(self, seconds: float) -> None:
        assert seconds > 0
        self._timeout = seconds

    def close(self) -> None:
        self.closed = True


def confirm(command: bytes, receipt: bytes | None) -> bytes:
    if command == b"CONNECT":
        return encode_frame(b"CONNECTED", {"version": "1.2"})
    return encode_frame(b"RECEIPT", {"receipt-id": receipt.decode()}) if receipt else b""


def message(number: int) -> bytes:
    headers = {"message-id": f"ID:{number}", "ack": str(number), "subscription": "1", "destination": "/queue/q"}
    return encode_frame(b"MESSAGE", headers, b"body\0%d" % number)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> ScriptedBroker:
    return ScriptedBroker(clock)


@pytest.fixture
def connection(broker: ScriptedBroker, clock: ManualClock) -> Connection:
    connection = Connection(broker, limit=10.0, clock=clock)
    connection.open("127.0.0.1", "", "")
    return connection


def test_open_offers_version_1_2_and_no_heart_beats(broker: ScriptedBroker, connection: Connection) -> None:
    assert broker.sent == [(b"CONNECT", {"accept-version": "1.2", "host": "127.0.0.1", "heart-beat": "0,0"}, b"")]


def test_open_sends_login_and_passcode_if_there_is_one(broker: ScriptedBroker, clock: ManualClock) -> None:
    Connection(broker, 10.0, clock).open("h", "user", "pass:word")
    assert broker.sent[0][1]["login"] == "user"
    assert broker.sent[0][1]["passcode"] == "pass:word"


def test_send_waits_for_its_receipt(broker: ScriptedBroker, connection: Connection) -> None:
    connection.send("/queue/q", b"a\0b", {"colour": "red:\n"})
    command, headers, body = broker.sent[-1]
    assert (command, body) == (b"SEND", b"a\0b")
    assert headers == {"destination": "/queue/q", "colour": "red:\n", "content-length": "3"}
    assert not broker.unread


def test_send_without_receipt_waits_for_nothing(broker: ScriptedBroker, connection: Connection) -> None:
    broker.answer = lambda command, receipt: pytest.fail("a receipt was asked for") if receipt else b""
    connection.send("/queue/q", b"", receipt=False)
    assert broker.sent[-1][0] == b"SEND"


def test_send_without_an_answer_ends_at_the_limit(
    broker: ScriptedBroker, connection: Connection, clock: ManualClock
) -> None:
    broker.answer = lambda command, receipt: b""
    with pytest.raises(BrokerUnreachable, match="did not answer within 10 s"):
        connection.send("/queue/q", b"")
    assert clock.monotonic() == 10.0


def test_receipt_of_something_else_is_no_answer(broker: ScriptedBroker, connection: Connection) -> None:
    broker.answer = lambda command, receipt: encode_frame(b"RECEIPT", {"receipt-id": "other"})
    with pytest.raises(BrokerUnreachable, match="did not answer"):
        connection.send("/queue/q", b"")


def test_subscribe_names_prefetch_and_acknowledgement(broker: ScriptedBroker, connection: Connection) -> None:
    subscription = connection.subscribe("/queue/q", prefetch=5)
    assert broker.sent[-1][1] == {
        "id": subscription,
        "destination": "/queue/q",
        "ack": "client-individual",
        "activemq.prefetchSize": "5",
    }


def test_messages_come_in_order_even_those_before_a_receipt(broker: ScriptedBroker, connection: Connection) -> None:
    broker.answer = lambda command, receipt: message(1) + message(2) + confirm(command, receipt)
    connection.subscribe("/queue/q")
    broker.unread += message(3)
    frames = [connection.receive(1.0) for _ in range(3)]
    assert [frame and frame.body for frame in frames] == [b"body\x001", b"body\x002", b"body\x003"]


def test_receive_of_nothing_ends_at_its_time(connection: Connection, clock: ManualClock) -> None:
    assert connection.receive(2.5) is None
    assert clock.monotonic() == 2.5
    assert connection.receive(0) is None


def test_ack_and_nack_name_the_message(broker: ScriptedBroker, connection: Connection) -> None:
    broker.answer = lambda command, receipt: b""
    frame = Frame("MESSAGE", {"ack": "a:7"}, b"")
    connection.nack(frame)
    connection.ack(frame)
    assert [command for command, _, _ in broker.sent[1:]] == [b"NACK", b"ACK"]
    assert broker.sent[1][1] == {"id": "a:7"}


def test_disconnect_waits_for_its_receipt_and_closes(broker: ScriptedBroker, connection: Connection) -> None:
    connection.disconnect()
    assert broker.sent[-1][0] == b"DISCONNECT"
    assert broker.closed


def test_leaving_the_context_closes_without_a_word(broker: ScriptedBroker, connection: Connection) -> None:
    with connection:
        pass
    assert broker.closed
    assert len(broker.sent) == 1


@pytest.mark.parametrize(
    "error",
    [
        ProducerHeld("the store is full"),
        InvalidDestination("'' is no name"),
        UnsupportedVersion("none in common"),
    ],
)
def test_error_frame_is_raised_as_the_error_it_was(
    broker: ScriptedBroker, connection: Connection, error: InvalidDestination
) -> None:
    broker.answer = lambda command, receipt: error_frame(error, Version.V1_2, receipt)
    with pytest.raises(type(error)) as caught:
        connection.send("/queue/q", b"")
    assert str(caught.value) == str(error)


def test_error_frame_of_another_broker_is_raised_too(broker: ScriptedBroker, connection: Connection) -> None:
    broker.unread += encode_frame(b"ERROR", {"message": "no such thing"}, b"details")
    with pytest.raises(ProtocolViolation, match="no such thing"):
        connection.receive(1.0)


def test_frames_before_a_broken_one_are_received(broker: ScriptedBroker, connection: Connection) -> None:
    broker.unread += message(1) + b"NONSENSE\n\n\0"
    frame = connection.receive(1.0)
    assert frame is not None
    with pytest.raises(ProtocolViolation):
        connection.receive(1.0)


def test_head_without_an_end_is_not_collected_for_ever(broker: ScriptedBroker, connection: Connection) -> None:
    broker.unread += b"MESSAGE\n" + b"a:b\n" * 10_010
    with pytest.raises(LimitExceeded):
        connection.receive(1.0)


def test_lost_connection_is_an_unreachable_broker(broker: ScriptedBroker, connection: Connection) -> None:
    broker.broken = True
    with pytest.raises(BrokerUnreachable, match="reset"):
        connection.receive(1.0)
    with pytest.raises(BrokerUnreachable, match="Broken pipe"):
        connection.send("/queue/q", b"")


def test_closed_connection_is_an_unreachable_broker(broker: ScriptedBroker, connection: Connection) -> None:
    broker.closed = True
    with pytest.raises(BrokerUnreachable, match="the broker closed the connection"):
        connection.receive(1.0)


def test_connection_may_have_a_client_id(broker: ScriptedBroker, clock: ManualClock) -> None:
    Connection(broker, 10.0, clock).open("h", "", "", "books")
    assert broker.sent[0][1]["client-id"] == "books"


def test_subscription_may_have_headers_but_not_another_id(broker: ScriptedBroker, connection: Connection) -> None:
    id = connection.subscribe("/topic/prices", headers={"selector": "eur > 5", "id": "mine"})
    headers = broker.sent[-1][1]
    assert (headers["selector"], headers["id"]) == ("eur > 5", id)
    assert id != "mine"
