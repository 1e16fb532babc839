"""OpenWire as a transport sees it."""

from quire.errors import TooManyConnections
from quire.protocols.openwire.codec import Decoder
from quire.protocols.openwire.commands import ConnectionErrorCommand, WireFormatInfo
from quire.server.openwire.openwire_door import OpenWireDoors
from quire.testing.stepped import RecordingConnection
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import Rig, thrown


def test_a_connection_that_is_refused_is_told_why_before_anything_is_agreed() -> None:
    rig = Rig(settings(openwire={"max_connections": 3}))
    doors = OpenWireDoors(rig.broker, rig.gate, rig.session_of)
    assert doors.max_connections == 3
    decoder = Decoder(10_000)
    decoder.receive(doors.refusal(TooManyConnections("3 clients are connected")))
    (error,) = decoder.next_commands()
    assert isinstance(error, ConnectionErrorCommand)
    assert thrown(error) == ("ResourceAllocationException", "too-many-connections")


def test_every_connection_has_a_session_that_begins_with_what_the_broker_can_do() -> None:
    rig = Rig()
    doors = OpenWireDoors(rig.broker, rig.gate, rig.session_of)
    connections = [RecordingConnection("a"), RecordingConnection("b")]
    sessions = [doors.session(connection) for connection in connections]
    assert sessions[0] is not sessions[1]
    rig.run()
    for connection in connections:
        decoder = Decoder(10_000)
        decoder.receive(bytes(connection.output))
        assert isinstance(decoder.next_commands()[0], WireFormatInfo)
