"""The frames of a link between two processes of a cluster: a kind, the id of a virtual connection, its payload."""

import struct
from enum import IntEnum
from typing import NamedTuple, TypeVar

import msgspec

from quire.errors import LimitExceeded, ProtocolViolation

HEAD = struct.Struct(">BII")
"""How a frame begins: its kind, the id of its virtual connection (0 for the link itself), the length of its payload."""

MAX_PAYLOAD = 64 * 1024
"""The largest payload, in bytes: data of a virtual connection is cut to this size, so that all have their turns."""

MAX_EARLY_PAYLOAD = 1024
"""The same before both sides have shown that they are of the cluster."""

_COUNT = struct.Struct(">I")
T = TypeVar("T", bound=msgspec.Struct)


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    READY = 4
    OPEN = 5
    DATA = 6
    CREDIT = 7
    CLOSE = 8
    BEAT = 9


KINDS = {int(kind): kind for kind in Kind}
"""All kinds, by number."""


class LinkFrame(NamedTuple):
    """One frame."""

    kind: Kind
    id: int
    payload: bytes


class Opening(msgspec.Struct, frozen=True):
    """What the entry says of the client for which it opens a virtual connection.

    Attributes:
        protocol: what is spoken on it: ``stomp`` or ``openwire``.
        user: the user that the client has logged in as; empty while there are no users.
        roles: its roles that count.
        peer: the address of the client, as operators see it.
        door: by which protocol it has come to the entry, as the audit log has it.
    """

    protocol: str
    user: str
    roles: list[str]
    peer: str
    door: str


class Closing(msgspec.Struct, frozen=True):
    """Why a virtual connection or a link ends; without a code it ends as it should."""

    code: str = ""
    text: str = ""


def encode(kind: Kind, id: int = 0, payload: bytes = b"") -> bytes:
    """Write a frame."""
    return HEAD.pack(kind, id, len(payload)) + payload


def encode_credit(id: int, size: int) -> bytes:
    """Write a CREDIT frame: so many bytes more may be sent."""
    return encode(Kind.CREDIT, id, _COUNT.pack(size))


def encode_struct(kind: Kind, id: int, content: msgspec.Struct) -> bytes:
    """Write a frame whose payload is a structure."""
    return encode(kind, id, msgspec.msgpack.encode(content))


def read_credit(payload: bytes) -> int:
    """Read the payload of a CREDIT frame.

    Raises:
        ProtocolViolation: it is none.
    """
    if len(payload) != _COUNT.size:
        raise ProtocolViolation("a link frame CREDIT has the wrong length", command="CREDIT")
    count: int = _COUNT.unpack(payload)[0]
    return count


def read_struct(payload: bytes, kind: type[T]) -> T:
    """Read a payload that is a structure.

    Raises:
        ProtocolViolation: it is none of this kind.
    """
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a ValidationError is a DecodeError
        raise ProtocolViolation(f"a link frame has no {kind.__name__}: {error}", command=kind.__name__) from None


class LinkDecoder:
    """Takes the bytes of one direction of a link apart.

    Attributes:
        most: the largest payload that may come.
    """

    def __init__(self) -> None:
        self.most = MAX_EARLY_PAYLOAD
        self._data = b""

    @property
    def buffered(self) -> int:
        """Bytes kept of a frame that is not whole yet."""
        return len(self._data)

    def receive(self, data: bytes) -> None:
        """Take what came over the link."""
        self._data = self._data + data if self._data else data

    def frames(self) -> "list[LinkFrame]":
        """The whole frames that have come.

        Raises:
            ProtocolViolation: the input is no frame. What came before the fault is lost: the link has to end.
            LimitExceeded: a payload is larger than it may be.
        """
        frames: list[LinkFrame] = []
        data, position = self._data, 0
        while len(data) - position >= HEAD.size:
            number, id, length = HEAD.unpack_from(data, position)
            if (kind := KINDS.get(number)) is None:
                raise ProtocolViolation(f"a link has no frame of kind {number}", command=str(number))
            if length > self.most:
                raise LimitExceeded(f"a link frame has {length} bytes, the limit is {self.most}", limit=self.most)
            end = position + HEAD.size + length
            if end > len(data):
                break
            frames.append(LinkFrame(kind, id, data[position + HEAD.size : end]))
            position = end
            if kind is Kind.READY or kind is Kind.PROOF:  # what follows may be larger
                break
        self._data = data[position:]
        return frames
