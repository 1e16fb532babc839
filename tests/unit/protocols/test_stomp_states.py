"""The table of states, and the headers each command needs."""

import pytest

from quire.errors import InvalidHeader, ProtocolViolation
from quire.protocols.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, Head, Version
from quire.protocols.stomp.heads import State, check_required, next_state

COMMANDS = CLIENT_COMMANDS | SERVER_COMMANDS
V1_0, V1_1, V1_2 = Version


def test_a_whole_conversation() -> None:
    state = State.CONNECTING
    for command, expected in [
        (b"CONNECT", State.NEGOTIATING),
        (b"CONNECTED", State.CONNECTED),
        (b"SUBSCRIBE", State.CONNECTED),
        (b"MESSAGE", State.CONNECTED),
        (b"ACK", State.CONNECTED),
        (b"DISCONNECT", State.DISCONNECTING),
        (b"MESSAGE", State.DISCONNECTING),
        (b"RECEIPT", State.DISCONNECTING),
    ]:
        state = next_state(state, command)
        assert state is expected


@pytest.mark.parametrize(
    ("state", "allowed"),
    [
        (State.CONNECTING, {b"CONNECT", b"STOMP", b"ERROR"}),
        (State.NEGOTIATING, {b"CONNECTED", b"ERROR"}),
        (State.CONNECTED, COMMANDS - {b"CONNECT", b"STOMP", b"CONNECTED"}),
        (State.DISCONNECTING, {b"MESSAGE", b"RECEIPT", b"ERROR"}),
        (State.CLOSED, set[bytes]()),
    ],
)
def test_what_may_come_when(state: State, allowed: set[bytes]) -> None:
    for command in allowed:
        assert (next_state(state, command) is State.CLOSED) is (command == b"ERROR")
    for command in COMMANDS - allowed:
        with pytest.raises(ProtocolViolation) as raised:
            next_state(state, command)
        assert raised.value.data == {"state": state.value, "command": command.decode()}


@pytest.mark.parametrize(
    ("command", "version", "needed"),
    [
        (b"SEND", V1_0, ["destination"]),
        (b"SUBSCRIBE", V1_0, ["destination"]),
        (b"SUBSCRIBE", V1_1, ["destination", "id"]),
        (b"SUBSCRIBE", V1_2, ["destination", "id"]),
        (b"UNSUBSCRIBE", V1_0, ["destination"]),
        (b"UNSUBSCRIBE", V1_0, ["id"]),
        (b"UNSUBSCRIBE", V1_1, ["id"]),
        (b"ACK", V1_0, ["message-id"]),
        (b"ACK", V1_1, ["message-id", "subscription"]),
        (b"NACK", V1_1, ["message-id", "subscription"]),
        (b"ACK", V1_2, ["id"]),
        (b"NACK", V1_2, ["id"]),
        (b"BEGIN", V1_2, ["transaction"]),
        (b"COMMIT", V1_2, ["transaction"]),
        (b"ABORT", V1_0, ["transaction"]),
        (b"CONNECTED", V1_1, ["version"]),
        (b"MESSAGE", V1_0, ["destination", "message-id"]),
        (b"MESSAGE", V1_2, ["destination", "message-id", "subscription"]),
        (b"RECEIPT", V1_2, ["receipt-id"]),
    ],
)
def test_required_headers(command: bytes, version: Version, needed: list[str]) -> None:
    check_required(Head(command, tuple((name, "x") for name in needed)), version)
    for missing in needed:
        with pytest.raises(InvalidHeader) as raised:
            check_required(Head(command, tuple((name, "x") for name in needed if name != missing)), version)
        assert raised.value.data["command"] == command.decode()


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("command", [b"CONNECT", b"STOMP", b"DISCONNECT", b"ERROR"])
def test_commands_that_need_nothing(command: bytes, version: Version) -> None:
    check_required(Head(command), version)


def test_1_0_has_no_nack() -> None:
    with pytest.raises(ProtocolViolation, match=r"STOMP 1\.0 has no command NACK"):
        check_required(Head(b"NACK", (("message-id", "1"),)), V1_0)
