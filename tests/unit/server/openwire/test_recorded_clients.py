"""What real clients sent to ActiveMQ is sent to the broker: all of it is answered, and nothing is left over."""

from typing import Any

import pytest

from quire.protocols.openwire.commands import (
    ConsumerInfo,
    ExceptionResponse,
    Message,
    MessageAck,
    MessageDispatch,
    MessageId,
    Response,
    ShutdownInfo,
    WireFormatInfo,
)
from quire.protocols.openwire.negotiation import format_of
from tests.unit.protocols.test_openwire_recordings import agreed, decoded, streams
from tests.unit.server.openwire.rig import OpenWireClient, Rig

VERSIONS = ["5.17.2", "5.19.9", "6.3.1"]


class Replay:
    """A recorded client: what it sends, and what its acknowledgements name in the recording."""

    def __init__(self, rig: Rig, name: str) -> None:
        both = streams(name)
        format = agreed(*both)
        self.rig = rig
        self.commands: list[Any] = decoded(both[0], format)
        answers = decoded(both[1], format)
        self.named = [number_of(command) for command in answers if is_message(command)]
        self.given: list[MessageId] = []
        self.client = OpenWireClient(rig, name)
        rig.clients.append(self.client)  # type: ignore[arg-type]

    def run(self) -> None:
        """Send everything, each command when the broker is at rest."""
        client, waits = self.client, []
        for command in self.commands:
            if isinstance(command, WireFormatInfo):
                client.negotiate(format_of(command), self.client.connection.peer.partition("-")[0])
                continue
            if isinstance(command, MessageAck):
                self.translate(command)
            client.tell(command)
            if command.response_required:
                waits.append(command.command_id)
            self.rig.run()
            self.given += [number_of(dispatch) for dispatch in client.take(MessageDispatch) if is_message(dispatch)]
        answers = client.take(Response)
        assert not [answer for answer in answers if isinstance(answer, ExceptionResponse)]
        assert [answer.correlation_id for answer in answers] == waits
        assert client.errors() == []

    def translate(self, ack: MessageAck) -> None:
        """Let an acknowledgement name the messages of this broker in place of those of the recording."""
        for name in ("first_message_id", "last_message_id"):
            if (id := getattr(ack, name)) is not None:
                place = [number.broker_sequence_id for number in self.named].index(id.broker_sequence_id)
                setattr(ack, name, self.given[place])

    @property
    def queue(self) -> str:
        """The queue it is about."""
        named = [command.destination for command in self.commands if isinstance(command, ConsumerInfo | Message)]
        (queue,) = {found.physical_name for found in named if found is not None and found.TYPE == 100}
        return queue


def is_message(command: Any) -> bool:
    """Whether a command is the dispatch of a message of a queue."""
    return isinstance(command, MessageDispatch) and command.message is not None and "Advisory" not in str(command)


def number_of(dispatch: Any) -> MessageId:
    id: MessageId = dispatch.message.message_id
    return id


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["", "transacted-"])
def test_a_recorded_producer_and_a_recorded_consumer_find_each_other(version: str, kind: str) -> None:
    rig = Rig()
    producer, consumer = (Replay(rig, f"{version}-{kind}{role}") for role in ("producer", "consumer"))
    assert producer.queue == consumer.queue
    producer.run()
    sent = [command for command in producer.commands if isinstance(command, Message)]
    assert rig.depth(producer.queue) == len(sent) > 0
    consumer.run()
    assert len(consumer.given) == len(sent)
    assert rig.depth(producer.queue) == 0
    for replay in (producer, consumer):
        assert isinstance(replay.commands[-1], ShutdownInfo)
        assert replay.client.connection.closed
    assert rig.by_id == {}


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_recording_may_come_in_pieces_of_any_size(size: int) -> None:
    rig = Rig()
    client = rig.socket()
    info, *others = Replay(rig, "6.3.1-producer").commands
    client.negotiate(format_of(info), "6.3.1")
    data = client.encoded(*others)
    for start in range(0, len(data), size):
        client.feed(data[start : start + size])
    rig.run()
    assert client.errors() == []
    assert client.connection.closed
    assert sum(queue.depth for queue in rig.broker.destinations.queues.values()) > 0
