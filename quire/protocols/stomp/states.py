"""The states of a STOMP connection, and what each command needs.

Both sides watch the same conversation: every frame, sent or received, is one step in ``_STEPS``, from a state and a
command to the next state. So the broker and the client use one table, and neither has flags of its own that could
disagree with it. Two rules keep it so. Nothing about which frame may come when stands outside this module. And the
module does not know which side it serves: who may send what is the decoder's matter (its ``commands``), so a step needs
no direction.

ERROR leads to CLOSED from everywhere, because the server closes the connection behind it (STOMP 1.2, "ERROR"). After
DISCONNECT the server may still send what was under way and the receipt; the client sends nothing more. What can be told
only by looking at more than one frame's command, such as transactions and subscriptions, is the session's.
"""

from enum import StrEnum

from quire.errors import InvalidHeader, ProtocolViolation
from quire.protocols.stomp.frames import CLIENT_COMMANDS, Head, Version


class State(StrEnum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    """Nothing was sent yet."""
    NEGOTIATING = "negotiating"
    """CONNECT was sent; CONNECTED or ERROR answers it."""
    CONNECTED = "connected"
    DISCONNECTING = "disconnecting"
    """DISCONNECT was sent; its receipt may follow."""
    CLOSED = "closed"
    """ERROR was sent, or the connection is gone."""


_OPENING = frozenset({b"CONNECT", b"STOMP"})
_WORK = (CLIENT_COMMANDS - _OPENING - {b"DISCONNECT"}) | {b"MESSAGE", b"RECEIPT"}

_STEPS: dict[State, dict[bytes, State]] = {
    State.CONNECTING: {b"ERROR": State.CLOSED} | dict.fromkeys(_OPENING, State.NEGOTIATING),
    State.NEGOTIATING: {b"CONNECTED": State.CONNECTED, b"ERROR": State.CLOSED},
    State.CONNECTED: dict.fromkeys(_WORK, State.CONNECTED)
    | {b"DISCONNECT": State.DISCONNECTING, b"ERROR": State.CLOSED},
    State.DISCONNECTING: {
        b"MESSAGE": State.DISCONNECTING,
        b"RECEIPT": State.DISCONNECTING,
        b"ERROR": State.CLOSED,
    },
    State.CLOSED: {},
}

_SINCE_1_0: dict[bytes, tuple[str, ...]] = {
    b"CONNECT": (),
    b"STOMP": (),
    b"SEND": ("destination",),
    b"SUBSCRIBE": ("destination",),
    b"UNSUBSCRIBE": (),
    b"ACK": ("message-id",),
    b"BEGIN": ("transaction",),
    b"COMMIT": ("transaction",),
    b"ABORT": ("transaction",),
    b"DISCONNECT": (),
    b"CONNECTED": (),
    b"MESSAGE": ("destination", "message-id"),
    b"RECEIPT": ("receipt-id",),
    b"ERROR": (),
}
_SINCE_1_1 = _SINCE_1_0 | {
    b"SUBSCRIBE": ("destination", "id"),
    b"UNSUBSCRIBE": ("id",),
    b"ACK": ("message-id", "subscription"),
    b"NACK": ("message-id", "subscription"),
    b"CONNECTED": ("version",),
    b"MESSAGE": ("destination", "message-id", "subscription"),
}
# CONNECT must have accept-version and host; ActiveMQ and RabbitMQ do without, and so do many clients. Absent, they mean
# 1.0 and the one host there is.
_REQUIRED = {
    Version.V1_0: _SINCE_1_0,
    Version.V1_1: _SINCE_1_1,
    Version.V1_2: _SINCE_1_1 | {b"ACK": ("id",), b"NACK": ("id",)},
}


def next_state(state: State, command: bytes) -> State:
    """Make a step.

    Args:
        state: before the frame.

    Returns:
        The state after it.

    Raises:
        ProtocolViolation: the frame may not come now; ``data`` has ``state`` and ``command``.
    """
    try:
        return _STEPS[state][command]
    except KeyError:
        name = command.decode("ascii", "backslashreplace")
        raise ProtocolViolation(f"{name} may not come while {state}", state=str(state), command=name) from None


def check_required(head: Head, version: Version) -> None:
    """Check that a frame has the headers its command needs (STOMP 1.2, "Frames and Headers"; 1.0 and 1.1 likewise).

    Raises:
        ProtocolViolation: the version does not have the command (NACK in 1.0).
    """
    name = head.command.decode("ascii", "backslashreplace")
    required = _REQUIRED[version].get(head.command)
    if required is None:
        raise ProtocolViolation(f"STOMP {version} has no command {name}", command=name)
    for header in required:
        if header not in head.headers:
            raise InvalidHeader(f"{name} without the header {header}", command=name, header=header)
    if head.command == b"UNSUBSCRIBE" and not ("id" in head.headers or "destination" in head.headers):
        raise InvalidHeader("UNSUBSCRIBE without the header id or destination", command=name, header="id")
