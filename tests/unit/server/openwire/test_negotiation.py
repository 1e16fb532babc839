"""How both sides agree on the format of frames, and what the broker says first."""

import pytest

from quire.errors import ERRORS
from quire.protocols.openwire.commands import (
    BrokerInfo,
    ConnectionControl,
    KeepAliveInfo,
    MessageDispatch,
    Response,
    SessionInfo,
    WireFormatInfo,
)
from quire.protocols.openwire.negotiation import WireFormat, format_of, properties_of
from tests.unit.broker.harness import settings
from tests.unit.server.openwire.rig import JAVA, Rig


def test_the_broker_says_what_it_can_do_before_the_client_says_anything() -> None:
    rig = Rig()
    client = rig.socket()
    rig.run()
    (info,) = client.received()
    assert isinstance(info, WireFormatInfo)
    offered = format_of(info)
    assert (offered.version, offered.inactivity_ms, offered.max_frame_size) == (12, 30_000, 100 * 2**20)
    assert properties_of(info)["ProviderName"] == "Quire"
    for other in ("TightEncodingEnabled", "CacheEnabled", "SizePrefixDisabled"):
        assert properties_of(info)[other] is False


def test_the_broker_introduces_itself_before_the_client_says_who_it_is() -> None:
    client = Rig().negotiated()
    info, broker = client.received()[:2]
    assert isinstance(info, WireFormatInfo)
    assert isinstance(broker, BrokerInfo)
    assert broker.broker_name == "quire"
    assert broker.peer_broker_infos is None
    assert not broker.fault_tolerant_configuration


def test_a_connection_is_answered_with_a_control_only_if_it_is_manageable() -> None:
    rig = Rig()
    managed, plain = rig.negotiated(), rig.negotiated()
    for client, manageable in ((managed, True), (plain, False)):
        client.received().clear()
        client.request(client.connection_info(manageable=manageable))
        rig.run()
    assert {type(command) for command in managed.received()} - {KeepAliveInfo} == {Response, ConnectionControl}
    (control,) = managed.take(ConnectionControl)
    assert (control.connected_brokers, control.rebalance_connection, control.close) == ("", False, False)
    assert [type(command) for command in plain.received()] == [Response]


@pytest.mark.parametrize("version", [1, 2, 3, 5, 6, 9, 10, 11, 12])
def test_clients_of_all_versions_send_and_consume(version: int) -> None:
    rig = Rig()
    client = rig.client(format=WireFormat(version=version))
    assert client.session.protocol == f"openwire {version}"
    client.consumer()
    client.send("a", "b")
    dispatches = client.take(MessageDispatch)
    client.acks(dispatches)
    assert client.errors() == []
    assert (len(dispatches), rig.depth()) == (2, 0)


@pytest.mark.parametrize("format", [JAVA, WireFormat(), WireFormat(version=10)])
def test_the_broker_sends_no_stack_traces(format: WireFormat) -> None:
    assert Rig().client(format=format).session.format.stack_traces is False


def test_the_smaller_frame_size_of_both_holds() -> None:
    rig = Rig(settings(openwire={"max_frame_size": 5000}))
    small = rig.client(format=WireFormat(max_frame_size=3000))
    large = rig.client(format=WireFormat(max_frame_size=10**9))
    assert (small.session.format.max_frame_size, large.session.format.max_frame_size) == (3000, 5000)
    for client, limit in ((small, 3000), (large, 5000)):
        client.feed((limit + 1).to_bytes(4, "big"))
        rig.run()
        assert client.errors() == ["limit-exceeded"]
        assert client.connection.closed


def test_a_version_that_does_not_exist_is_refused_and_closed() -> None:
    rig = Rig()
    client = rig.socket()
    client.tell(WireFormatInfo(version=0))
    rig.run()
    assert client.errors() == ["unsupported-version"]


def test_a_second_wire_format_is_refused() -> None:
    rig = Rig()
    client = rig.client()
    client.tell(WireFormatInfo(version=12))
    rig.run()
    assert client.errors() == ["protocol-violation"]


def test_other_commands_before_the_connection_are_refused() -> None:
    rig = Rig()
    client = rig.negotiated()
    assert client.refused(SessionInfo(session_id=client.session_id)) == ("java.io.IOException", "protocol-violation")


def test_bytes_that_are_no_frame_end_the_connection() -> None:
    rig = Rig()
    client = rig.socket()
    client.feed(b"CONNECT\naccept-version:1.2\n\n\0")
    rig.run()
    assert len(client.errors()) == 1
    assert client.connection.closed


# Signs of life.


def test_a_silent_connection_is_ended_and_gets_signs_of_life_before() -> None:
    rig = Rig()
    client = rig.client(format=WireFormat(inactivity_ms=6000))
    for _ in range(5):
        rig.advance(1)
        rig.run()
    assert len(client.take(KeepAliveInfo)) == 2
    assert not client.connection.closed
    for _ in range(2):
        rig.advance(1)
        rig.run()
    assert client.errors() == ["connection-timeout"]
    assert client.connection.closed


def test_any_frame_of_the_client_is_a_sign_of_life() -> None:
    rig = Rig()
    client = rig.client(format=WireFormat(inactivity_ms=6000))
    for _ in range(10):
        rig.advance(4)
        client.tell(KeepAliveInfo())
        rig.run()
    assert not client.connection.closed
    assert client.take(Response) == []


def test_a_sign_of_life_that_wants_an_answer_gets_one_that_wants_none() -> None:
    rig = Rig()
    client = rig.client()
    client.tell(KeepAliveInfo(response_required=True))
    rig.run()
    (answer,) = client.received()
    assert isinstance(answer, KeepAliveInfo)
    assert not answer.response_required


@pytest.mark.parametrize(("own", "peer"), [(0.0, 30_000), (30.0, 0)])
def test_either_side_can_switch_signs_of_life_off(own: float, peer: int) -> None:
    rig = Rig(settings(openwire={"max_inactivity": own}))
    client = rig.client(format=WireFormat(inactivity_ms=peer))
    rig.advance(3600)
    rig.run()
    assert client.received() == []
    assert not client.connection.closed


# A connection that does not come.


def test_a_client_must_say_who_it_is_in_time() -> None:
    rig = Rig(settings(openwire={"connect_timeout": 5.0}))
    silent, negotiated, connected = rig.socket(), rig.negotiated(), rig.client()
    rig.advance(5)
    rig.run()
    assert (silent.errors(), negotiated.errors(), connected.errors()) == (["connection-timeout"],) * 2 + ([],)
    assert (silent.connection.closed, negotiated.connection.closed, connected.connection.closed) == (True, True, False)


def test_every_error_has_a_class_that_a_java_client_has() -> None:
    names = {entry.openwire for entry in ERRORS.values()}
    assert names <= {
        "JMSException", "InvalidDestinationException", "InvalidSelectorException", "ResourceAllocationException",
        "TransactionRolledBackException", "IllegalStateException", "JMSSecurityException", "java.io.IOException",
    }  # fmt: skip
