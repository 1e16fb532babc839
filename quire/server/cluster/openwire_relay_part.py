"""One shard, as the relay of one OpenWire client sees it: what it is told, and what it answers."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from quire.cluster.virtual_connection import VirtualConnection
from quire.errors import QuireError
from quire.protocols.openwire.codec import Decoder, Encoder
from quire.protocols.openwire.commands import (
    BrokerInfo,
    Command,
    ConnectionControl,
    ConnectionErrorCommand,
    ConnectionInfo,
    ConsumerControl,
    DataArrayResponse,
    ExceptionResponse,
    IntegerResponse,
    KeepAliveInfo,
    MessageDispatch,
    Response,
    ShutdownInfo,
    WireFormatInfo,
)
from quire.protocols.openwire.negotiation import info_of
from quire.protocols.openwire.structures import BaseCommand, ProducerId
from quire.protocols.openwire.wire_format import WireFormat
from quire.server.cluster.openwire_relay_frames import SIZE, Route

Answered = Callable[[Response], None]
"""Takes the response to a command."""

_RESPONSES = frozenset(kind.TYPE for kind in (Response, ExceptionResponse, DataArrayResponse, IntegerResponse))
_OF_THE_CONNECTION = frozenset(
    kind.TYPE for kind in (BrokerInfo, ConnectionControl, KeepAliveInfo, ShutdownInfo, WireFormatInfo)
)
_CORRELATION = 6  # behind the type, the id of the command, and whether it wants a response


class Receiver(Protocol):
    """Who takes what comes from a shard."""

    def passed(self, frames: bytes) -> None:
        """Whole frames are for the client as they are."""

    def dispatched(self, part: "Part", frame: bytes) -> bytes | None:
        """What the client gets instead of a message for a consumer that several shards have; None for all others."""

    def controlled(self, part: "Part", control: ConsumerControl) -> None:
        """A shard has changed a consumer, or ended it."""

    def charge(self, size: int) -> None:
        """So many more bytes of unfinished frames are held."""

    def unwritten(self) -> None:
        """Something has gathered for a shard: ``flush`` is to write it at the end of the turn."""

    def drained(self) -> None:
        """A shard takes more again."""

    def ended(self, part: "RemotePart", error: QuireError | None) -> None:
        """A shard has closed the client's connection, or cannot be reached any more."""


class Part(ABC):
    """One shard.

    Args:
        shard: its number.
        format: how frames look, here and at the client.

    Attributes:
        asked: who waits for an answer, by the id of the command.
        spread: how many consumers of the client this shard has in common with others.
    """

    def __init__(self, receiver: Receiver, shard: int, format: WireFormat, max_frame_size: int) -> None:
        self.shard = shard
        self.asked: dict[int, Answered] = {}
        self.spread = 0
        self._receiver = receiver
        self._decoder = Decoder(max_frame_size)
        self._decoder.use(format)

    @abstractmethod
    def tell(self, command: BaseCommand) -> bool:
        """Send a command; False if it has to wait: then nothing was done."""

    def read(self, frame: bytes) -> Command:
        """The command of a frame without its size."""
        return self._decoder.read_whole(frame)

    def take_frames(self, data: bytes) -> int:
        """Take the frames that are whole in some octets. Returns how many octets they had."""
        position = start = 0
        while position + SIZE.size <= len(data):
            (size,) = SIZE.unpack_from(data, position)
            end = position + SIZE.size + size
            if end > len(data):
                break
            instead = self._instead(data, position + SIZE.size, end)
            if instead is not None:
                if start < position:
                    self._receiver.passed(data[start:position])
                if instead:
                    self._receiver.passed(instead)
                start = end
            position = end
        if start < position:
            self._receiver.passed(data[start:position])
        return position

    def _instead(self, data: bytes, start: int, end: int) -> bytes | None:
        """What the client gets instead of a frame: nothing, or another one; None if it gets the frame."""
        kind = data[start]
        if kind == MessageDispatch.TYPE:
            return self._receiver.dispatched(self, data[start:end]) if self.spread else None
        if kind in _RESPONSES:
            (number,) = SIZE.unpack_from(data, start + _CORRELATION)
            answered = self.asked.pop(number, None)
            if answered is None:
                return None
            response = self.read(data[start:end])
            assert isinstance(response, Response)
            answered(response)
            return b""
        if kind == ConsumerControl.TYPE:
            control = self.read(data[start:end])
            assert isinstance(control, ConsumerControl)
            self._receiver.controlled(self, control)
        return None


class OwnPart(Part):
    """The shard of this process, if it has one: the client's session itself.

    Args:
        take: has the session take a command; False if it has to wait.
    """

    def __init__(
        self, receiver: Receiver, shard: int, format: WireFormat, max_frame_size: int,
        take: Callable[[BaseCommand], bool],
    ) -> None:  # fmt: skip
        super().__init__(receiver, shard, format, max_frame_size)
        self._take = take

    def tell(self, command: BaseCommand) -> bool:
        """Have the session take a command; False if it has to wait."""
        return self._take(command)


class RemotePart(Part):
    """Another shard, at the other end of a virtual connection.

    Args:
        info: how the client has introduced itself.
        provider_version: of the client, which says in which package it has the classes of JMS.

    Attributes:
        connection: the virtual connection; set before anything is flushed.
        is_used: whether the client has more here than consumers of advisories.
        error: the last one that the shard has told the client, which answers no command; None for none.
        routes: those that messages have gone by.
        producers: those that the shard knows.
    """

    connection: VirtualConnection

    def __init__(
        self, receiver: Receiver, shard: int, format: WireFormat, max_frame_size: int, info: ConnectionInfo,
        provider_version: str,
    ) -> None:  # fmt: skip
        super().__init__(receiver, shard, format, max_frame_size)
        self.is_used = False
        self.error: ConnectionErrorCommand | None = None
        self.routes: set[Route] = set()
        self.producers: set[ProducerId] = set()
        self._info = info
        self._encoder = Encoder()
        self._encoder.use(format)
        silent = replace(format, inactivity_ms=0, initial_delay_ms=0)
        greeting = info_of(silent, provider_name="Quire", provider_version=provider_version)
        self._output: list[bytes | memoryview] = [Encoder().encode(greeting)]
        self._rest = bytearray()
        self._untaken = 0

    def introduce(self, number: int, answered: Answered) -> None:
        """Open the client's connection at the shard.

        Args:
            number: the id of the command.
        """
        self.asked[number] = answered
        self._receiver.unwritten()
        self.tell(replace(self._info, password=None, manageable=False, command_id=number, response_required=True))

    # Output.

    def tell(self, command: BaseCommand) -> bool:
        """Send a command."""
        if not self._output:
            self._receiver.unwritten()
        self._output.append(self._encoder.encode(command))
        return True

    def pass_on(self, frame: bytes | memoryview) -> None:
        """Send a frame as it came, without its size."""
        if not self._output:
            self._receiver.unwritten()
        self._output += (SIZE.pack(len(frame)), frame)

    def flush(self) -> None:
        """Write what has gathered."""
        if self._output:
            output, self._output = self._output, []
            self.connection.write(b"".join(output))

    # The virtual connection calls these.

    def data_came(self, data: bytes) -> None:
        """Octets have come. Those of an unfinished frame count as taken: else it might never be finished."""
        rest, held = self._rest, len(self._rest)
        if held:
            rest += data
            if len(rest) < SIZE.size or len(rest) < SIZE.size + SIZE.unpack_from(rest)[0]:
                self._hold(len(data), len(data))
                return
            data = bytes(rest)
            rest.clear()
        taken = self.take_frames(data)
        rest += memoryview(data)[taken:]
        self._untaken += taken - held
        self._hold(len(rest), len(rest) - held)

    def drained(self) -> None:
        """The shard takes more again."""
        self._receiver.drained()

    def ended(self, error: QuireError | None) -> None:
        """The shard has closed the connection, or cannot be reached any more."""
        self._hold(0, -len(self._rest))
        self._rest.clear()
        self._receiver.ended(self, error)

    def _hold(self, taken: int, grown: int) -> None:
        if taken:
            self.connection.taken(taken)
        if grown:
            self._receiver.charge(grown)

    def say_taken(self) -> None:
        """The client has taken what was passed on."""
        if self._untaken:
            size, self._untaken = self._untaken, 0
            self.connection.taken(size)

    def close(self, error: QuireError | None) -> None:
        """The client is gone; with an error that is no fault of its own."""
        self._hold(0, -len(self._rest))
        self._rest.clear()
        self.flush()
        self.connection.close(error)

    def _instead(self, data: bytes, start: int, end: int) -> bytes | None:
        kind = data[start]
        if kind == ConnectionErrorCommand.TYPE:
            error = self.read(data[start:end])
            assert isinstance(error, ConnectionErrorCommand)
            self.error = error
        return b"" if kind in _OF_THE_CONNECTION else super()._instead(data, start, end)
