"""The heads of frames: how they are read, when they may come, and what each command needs.

Heads are read by the rules of the connection's version. One of a SEND frame that is like an earlier one but for some
values (a correlation id, the length of the body) is cut into lines and not read: the session takes over what its
headers mean from the earlier one. With more destinations than heads are kept, the destination may differ too.

Both sides watch the same conversation: every frame, sent or received, is one step in ``_STEPS``, from a state and a
command to the next state. So the broker and the client use one table, and neither has flags of its own that could
disagree with it. Two rules keep it so. Nothing about which frame may come when stands outside this module. And the
module does not know which side it serves: who may send what is the decoder's matter (its ``commands``), so a step needs
no direction.

ERROR leads to CLOSED from everywhere, because the server closes the connection behind it (STOMP 1.2, "ERROR"). After
DISCONNECT the server may still send what was under way and the receipt; the client sends nothing more. What can be told
only by looking at more than one frame's command, such as transactions and subscriptions, is the session's.
"""

import re
from enum import StrEnum

from quire.errors import InvalidHeader, ProtocolViolation
from quire.protocols.stomp.frames import BODY_COMMANDS, CLIENT_COMMANDS, UNESCAPED_COMMANDS, Head, Version

BLANKS = bytes(range(33))
"""What 1.0 trims off values: the octets up to the space. The specification is silent; ActiveMQ does so."""

_BLANKS_TEXT = BLANKS.decode()
_ESCAPE = re.compile(r"\\.?", re.DOTALL)
_ESCAPES_1_1 = {r"\n": "\n", r"\c": ":", r"\\": "\\"}
_ESCAPES_1_2 = {**_ESCAPES_1_1, r"\r": "\r"}


def parse_head(block: bytes, version: Version) -> Head:
    r"""Read a head. A header without a name is passed over where it is no part of a message (ActiveMQ, RabbitMQ).

    Raises:
        ProtocolViolation: a line without a colon or a name, an undefined escape, a bare carriage return in 1.2, text
            that is not UTF-8, or a bad ``content-length``. ``data`` has the ``command`` and the ``line``, from 1.
    """
    command = block.partition(b"\n")[0]
    try:
        text = block.decode()
    except UnicodeDecodeError as error:
        line = block.count(b"\n", 0, error.start) + 1
        raise _violation(command, line, f"octet {block[error.start]:#04x} is not UTF-8") from None
    if "\r" in text and version is Version.V1_2:
        raise _violation(command, text[: text.index("\r")].count("\n") + 1, r"write a carriage return as \r")
    lines = text[:-1].split("\n")[1:]
    parts = [line.partition(":") for line in lines]
    fields = [(name, value) for name, colon, value in parts if name and colon]
    if len(fields) != len(lines) and (command in BODY_COMMANDS or not all([colon for _, colon, _ in parts])):
        raise _no_header(command, lines)
    if version is Version.V1_0:
        fields = [(name, value.strip(_BLANKS_TEXT)) for name, value in fields]
    elif "\\" in text and command not in UNESCAPED_COMMANDS:
        fields = _unescaped(fields, version, command)
    return Head(command, tuple(fields))


def _no_header(command: bytes, lines: list[str]) -> ProtocolViolation:
    number, line = next((number, line) for number, line in enumerate(lines, 2) if line.find(":") < 1)
    return _violation(command, number, f"{line[:60]!r} is no header: write name:value")


def _unescaped(fields: list[tuple[str, str]], version: Version, command: bytes) -> list[tuple[str, str]]:
    escapes = _ESCAPES_1_1 if version is Version.V1_1 else _ESCAPES_1_2
    plain = []
    for number, field in enumerate(fields, 2):
        try:
            name, value = (_ESCAPE.sub(lambda found: escapes[found[0]], part) for part in field)
        except KeyError as error:
            raise _violation(command, number, f"{error.args[0]!r} is no escape of STOMP {version}") from None
        plain.append((name, value))
    return plain


def _violation(command: bytes, line: int, text: str) -> ProtocolViolation:
    name = command[:20].decode("ascii", "backslashreplace")
    return ProtocolViolation(f"{name}, line {line}: {text}", command=name, line=line)


_LENGTH = b"content-length:"
_MOST_DIGITS = 9
_MAX_KEPT = 64
"""The bound keeps what a hostile stream of ever new heads leaves behind small."""

_USES = 4096
"""So often heads of other destinations than those known are found; then those are learned that come from there on."""

_VALUES = re.compile(rb":[^\n]*")

Key = tuple[bytes, int]
"""By what a head is looked up: the line of its destination, and how many lines it has."""


class SimilarHeads:
    """The heads of one connection that others may be like. Not for 1.0, where blanks around values do not count."""

    def __init__(self) -> None:
        # A head, what each of its lines begins with, and which line says the length of the body (-1 if none does).
        self._known: dict[Key, tuple[Head, list[bytes], int]] = {}
        self._by_names: dict[bytes, tuple[Head, list[bytes], int]] = {}
        self._uses = 0

    def clear(self) -> None:
        self._known.clear()
        self._by_names.clear()
        self._uses = 0

    def note(self, head: Head, block: bytes) -> None:
        """A head was read in full: others may be like it."""
        if not _is_plain(block) or len(head.headers) != len(head.fields):
            return
        lines = block.split(b"\n")
        starts = [line[: line.find(b":") + 1] for line in lines]
        if len(self._known) >= _MAX_KEPT:
            self.clear()
        known = head, starts, starts.index(_LENGTH) if _LENGTH in starts else -1
        self._known[_key(block)] = self._by_names[_names(block)] = known

    def find(self, block: bytes) -> Head | None:
        """The head of some lines, if it is like one that is known; None if it is to be read in full."""
        known = self._known.get(_key(block)) or self._of_another_destination(block)
        if known is None or not _is_plain(block):
            return None
        base, starts, place = known
        lines = block.split(b"\n")
        if not all(map(bytes.startswith, lines, starts)):
            return None
        if place < 0:
            return Head.similar(base, lines, -1)
        digits = lines[place][len(_LENGTH) :]
        if not digits.isdigit() or len(digits) > _MOST_DIGITS:
            return None
        return Head.similar(base, lines, int(digits))

    def _of_another_destination(self, block: bytes) -> tuple[Head, list[bytes], int] | None:
        """One with the same headers in the same order, if there is no place for one of each destination."""
        if len(self._known) < _MAX_KEPT or self._uses >= _USES:
            return None
        self._uses += 1
        return self._by_names.get(_names(block))


def _key(block: bytes) -> Key:
    start = block.find(b"\ndestination:")
    return block[start : block.find(b"\n", start + 1)], block.count(b"\n")


def _names(block: bytes) -> bytes:
    return _VALUES.sub(b":", block)


def _is_plain(block: bytes) -> bool:
    """Whether all lines of a SEND frame mean the same raw and unescaped."""
    return block.startswith(b"SEND\n") and block.isascii() and b"\\" not in block and b"\r" not in block


class State(StrEnum):
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
    """Make a step: the state after a frame."""
    try:
        return _STEPS[state][command]
    except KeyError:
        name = command.decode("ascii", "backslashreplace")
        raise ProtocolViolation(f"{name} may not come while {state}", state=str(state), command=name) from None


def check_required(head: Head, version: Version) -> None:
    """Check that the version has a frame, and it the headers its command needs (STOMP 1.2, "Frames and Headers")."""
    name = head.command.decode("ascii", "backslashreplace")
    required = _REQUIRED[version].get(head.command)
    if required is None:
        raise ProtocolViolation(f"STOMP {version} has no command {name}", command=name)
    for header in required:
        if header not in head.headers:
            raise InvalidHeader(f"{name} without the header {header}", command=name, header=header)
    if head.command == b"UNSUBSCRIBE" and not ("id" in head.headers or "destination" in head.headers):
        raise InvalidHeader("UNSUBSCRIBE without the header id or destination", command=name, header="id")
