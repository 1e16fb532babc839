"""Messages of OpenWire that are passed on to another shard as the frames they came in.

A client and Quire always agree on the loose encoding, without a cache, and with the size before each frame. So a frame
means the same on every connection of that version.
"""

import struct
from collections.abc import Callable

from quire.errors import QuireError
from quire.protocols.openwire.codec import Decoder
from quire.protocols.openwire.commands import Command
from quire.protocols.openwire.loose_reader import LooseReader
from quire.protocols.openwire.messages import ActiveMQBlobMessage, ActiveMQMessage, Message
from quire.protocols.openwire.plain_frames import PlainAck, PlainMessage, PlainReader
from quire.protocols.openwire.structures import ActiveMQDestination, LocalTransactionId, ProducerId, TransactionId
from quire.protocols.openwire.wire_format import WireFormat

OWN, SEVERAL = -2, -3
"""What a route says instead of a shard: this process has the destination; it has parts on several shards."""

KNOWN = 1024
"""How many pairs of a producer and a destination are remembered."""

KNOWN_SIZE = 512
"""How many octets such a pair may have to be remembered."""

HEAD = 4096
"""What is looked at of a large message."""

SIZE = struct.Struct(">i")
"""The size before a frame."""

_COMMAND = struct.Struct(">xi?")
_START = 6  # behind the type, the id of the command, and whether it wants a response
_PRODUCER_TYPE, _LOCAL_TYPE = ProducerId.TYPE, LocalTransactionId.TYPE
_new = object.__new__


class Route:
    """Where the messages of a producer to a destination go.

    Attributes:
        shard: the number of the shard, ``OWN`` or ``SEVERAL``.
    """

    __slots__ = ("destination", "producer_id", "shard")

    def __init__(self, producer_id: ProducerId, destination: ActiveMQDestination, shard: int) -> None:
        self.producer_id = producer_id
        self.destination = destination
        self.shard = shard


class RelayedMessage(PlainMessage):
    """A message that is for another shard, or for several: of its fields only those are read that are named here.

    Attributes:
        frame: the whole, without its size.
        transaction_id: the transaction that it is part of.
    """

    __slots__ = ("frame", "route")

    frame: bytes | memoryview
    route: Route


class RelayReader(PlainReader):
    """Reads the frames of one connection: messages for other shards stay as they are.

    Args:
        whole: reads any frame.
        route: says where a producer's messages to a destination go.
    """

    def __init__(
        self, reader: LooseReader, whole: Callable[[bytes], Command],
        route: Callable[[ProducerId, ActiveMQDestination], Route],
    ) -> None:  # fmt: skip
        super().__init__(reader)
        self._whole = whole
        self._route = route
        self._routes: dict[bytes, Route] = {}
        self._last_transaction: tuple[bytes, TransactionId | None] = (b"", None)

    def forget(self) -> None:
        """The map of the cluster has changed: ask for all routes again."""
        self._routes.clear()

    def read(self, frame: bytes) -> PlainMessage | PlainAck | None:
        """What a frame is; None if it is not plain, or wrong."""
        if ActiveMQMessage.TYPE <= frame[0] <= ActiveMQBlobMessage.TYPE:
            relayed = self._relayed(frame, frame)
            if relayed is not None:
                return relayed
        return super().read(frame)

    def read_large(self, frame: memoryview) -> PlainMessage | None:
        """What a frame is whose body is not copied; None if it is no plain message."""
        if ActiveMQMessage.TYPE <= frame[0] <= ActiveMQBlobMessage.TYPE:
            relayed = self._relayed(bytes(frame[:HEAD]), frame)
            if relayed is not None:
                return relayed
        return super().read_large(frame)

    def _relayed(self, head: bytes, frame: bytes | memoryview) -> RelayedMessage | None:
        """The message, if it is not for this process alone; None for one that is, and for what is wrong."""
        try:
            if head[_START] != 1 or head[_START + 1] != _PRODUCER_TYPE:
                return None
            end = _START + 21 + (head[9] << 8 | head[10])  # the producer
            end += 5 + (head[end + 3] << 8 | head[end + 4])  # the destination
            route = self._routes.get(head[_START:end])
            if route is None:
                route = self._found(head[_START:end], frame)
            if route.shard == OWN:
                return None
            relayed = _new(RelayedMessage)
            relayed.command_id, relayed.response_required = _COMMAND.unpack_from(head)
            relayed.frame, relayed.route = frame, route
            relayed.transaction_id = self._transaction_of(head, end, frame) if head[end] else None
        except (IndexError, struct.error, QuireError):  # the reader of all frames says what is wrong
            return None
        return relayed

    def _found(self, sender: bytes, frame: bytes | memoryview) -> Route:
        message = self._whole(bytes(frame))
        assert isinstance(message, Message)
        assert message.producer_id is not None
        route = self._route(message.producer_id, message.destination or ActiveMQDestination())
        if len(sender) <= KNOWN_SIZE:
            if len(self._routes) >= KNOWN:
                self._routes.clear()
            self._routes[sender] = route
        return route

    def _transaction_of(self, head: bytes, at: int, frame: bytes | memoryview) -> TransactionId | None:
        octets = b""
        if head[at + 1] == _LOCAL_TYPE:
            octets = head[at : at + 15 + (head[at + 13] << 8 | head[at + 14])]
            if octets == self._last_transaction[0]:
                return self._last_transaction[1]
        message = self._whole(bytes(frame))
        assert isinstance(message, Message)
        if octets:
            self._last_transaction = octets, message.transaction_id
        return message.transaction_id


class RelayDecoder(Decoder):
    """Decodes what a client of a process in a cluster sends.

    Args:
        route: says where a producer's messages to a destination go.
    """

    def __init__(self, max_frame_size: int, route: Callable[[ProducerId, ActiveMQDestination], Route]) -> None:
        self._find_route = route
        super().__init__(max_frame_size, plain=True)

    def use(self, format: WireFormat) -> None:
        """Set the format of the next frames."""
        super().use(format)
        if self._plain is not None:
            assert isinstance(self._reader, LooseReader)
            self._plain = RelayReader(self._reader, self.read_whole, self._find_route)

    def forget_routes(self) -> None:
        """The map of the cluster has changed."""
        if isinstance(self._plain, RelayReader):
            self._plain.forget()
