"""The decoder and the encoder of one connection: bytes to commands, and commands to bytes.

Both begin with ``FIRST``, the format of the ``WireFormatInfo`` of both sides; ``use`` sets what was agreed.
"""

import struct

from quire.errors import InvalidArgument, LimitExceeded, ProtocolViolation, QuireError
from quire.protocols.openwire.commands import Command, PartialCommand, WireFormatInfo
from quire.protocols.openwire.loose import LooseReader, LooseWriter, ReceivedObjects, SentObjects, TooShort
from quire.protocols.openwire.negotiation import FIRST, WireFormat
from quire.protocols.openwire.plain_frames import PlainReader
from quire.protocols.openwire.structures import TYPES, BaseCommand
from quire.protocols.openwire.tight import TightReader, TightWriter

BATCH = 64
"""How many commands are decoded at once, at the most."""

LARGE = 1 << 20
"""The body of a plain message in a frame with more octets than this is not copied."""

_SIZE = struct.Struct(">i")
_COMMANDS = frozenset(
    type_id for type_id, kind in TYPES.items() if issubclass(kind, BaseCommand | WireFormatInfo | PartialCommand)
)
# A frame without its size is tried again when more octets come. This many octets may be tried in vain for each octet
# that is there, so that a frame in tiny pieces does not cost its length squared.
_TRIES = 64
_FREE_TRIES = 1024 * 1024


class Decoder:
    """Decodes one direction of one connection.

    Args:
        max_frame_size: of a frame without its size prefix, in octets; what is agreed may be less.
        plain: whether ``PlainMessage`` and ``PlainAck`` are handed out for what is so.
    """

    def __init__(self, max_frame_size: int, *, plain: bool = False) -> None:
        self._max_frame_size = max_frame_size
        self._hands_out_plain = plain
        self._plain: PlainReader | None = None
        # What is to be decoded: ``_data`` from ``_position`` on. It grows in place if a frame is not whole.
        self._data: bytes | bytearray = b""
        self._position = 0
        self._needed = 0
        self._tried = 0
        self._fault: QuireError | None = None
        self.use(FIRST)

    @property
    def buffered(self) -> int:
        """Octets that are not decoded yet."""
        return len(self._data) - self._position

    def use(self, format: WireFormat) -> None:
        """Set the format of the next frames."""
        self._prefixed = format.size_prefix
        self._limit = min(self._max_frame_size, format.max_frame_size)
        self._received = ReceivedObjects(format.cache_size) if format.cache_size else None
        kind = TightReader if format.tight else LooseReader
        self._reader: TightReader | LooseReader = kind(format.version, format.stack_traces, self._received)
        self._plain = None
        if self._hands_out_plain and isinstance(self._reader, LooseReader) and PlainReader.reads(format):
            self._plain = PlainReader(self._reader)

    def receive(self, data: bytes) -> None:
        """Take what came over the connection: any number of octets."""
        if self._fault is not None:
            return
        if not self.buffered:
            self._data, self._position = data, 0
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(memoryview(self._data)[self._position :])
        else:
            del self._data[: self._position]
        self._position = 0
        self._data += data

    def next_commands(self) -> list[Command]:
        """The next commands, ``BATCH`` at the most; none if that takes more octets.

        A ``WireFormatInfo`` is the last of those handed out together: ``use`` sets how the frames behind it look.

        Raises:
            ProtocolViolation: the input is wrong. What came before the fault was handed out; nothing comes after it.
            LimitExceeded: a frame is too large.
        """
        if self._fault is not None:
            raise self._fault
        commands: list[Command] = []
        try:
            while len(commands) < BATCH:
                command = self._next_prefixed() if self._prefixed else self._next_unprefixed()
                if command is None:
                    break
                commands.append(command)
                if type(command) is WireFormatInfo:
                    break
        except QuireError as fault:
            self._fault = fault
            self._data, self._position = b"", 0
            if not commands:
                raise
        if not self.buffered:
            # A connection that rests holds nothing.
            self._data, self._position = b"", 0
        return commands

    def _next_prefixed(self) -> Command | None:
        while True:
            data, start = self._data, self._position + _SIZE.size
            if len(data) < start:
                return None
            (size,) = _SIZE.unpack_from(data, self._position)
            if not 0 < size <= self._limit:
                raise self._bad_size(size)
            end = start + size
            if len(data) < end:
                return None
            if size > LARGE and isinstance(data, bytearray) and data[start]:
                return self._next_large(data, start, end)
            frame = data[start:end] if isinstance(data, bytes) else bytes(memoryview(data)[start:end])
            self._position = end
            # A frame of type 0 holds nothing.
            if frame[0]:
                return (self._plain and self._plain.read(frame)) or self.read_whole(frame)

    def _next_large(self, data: bytearray, start: int, end: int) -> Command:
        """A frame that gathered in a buffer; the buffer is the frame's from now on, so that the body is not copied."""
        self._data, self._position = bytes(memoryview(data)[end:]), 0
        frame = memoryview(data)[start:end]
        return (self._plain and self._plain.read_large(frame)) or self.read_whole(bytes(frame))

    def read_whole(self, frame: bytes) -> Command:
        """The command of a frame without its size.

        Raises:
            ProtocolViolation: it is wrong.
        """
        command: Command
        _check_type(frame[0])
        if self._received is not None:
            self._received.begin_frame()
        try:
            command, end = self._reader.read(frame, 0)
        except (IndexError, struct.error) as error:
            raise _cut(frame[0]) from error
        if end > len(frame):
            raise _cut(frame[0])
        if end < len(frame):
            name, rest = _name(frame[0]), len(frame) - end
            raise ProtocolViolation(f"{rest} octets are left over behind {name}", command=name, octets=rest)
        return command

    def _next_unprefixed(self) -> Command | None:
        if self.buffered <= self._needed:
            return None
        if not isinstance(self._data, bytes):
            self._data, self._position = bytes(memoryview(self._data)[self._position :]), 0
        data = self._data
        while self._position < len(data) and not data[self._position]:
            self._position += 1
        if not self.buffered:
            return None
        _check_type(data[self._position])
        command, end = self._try_to_read(data)
        size = end - self._position
        if size > self._limit:
            raise self._bad_size(size)
        if end <= len(data):
            self._position, self._needed, self._tried = end, 0, 0
            return command
        self._needed = size - 1
        self._tried += self.buffered
        if self._tried > _TRIES * self.buffered + _FREE_TRIES:
            raise LimitExceeded("a frame without its size comes in too small pieces", octets=self.buffered)
        return None

    def _try_to_read(self, data: bytes) -> tuple[Command | None, int]:
        """Read a frame that may not be whole; the position of its end, beyond the data if it is not."""
        if self._received is not None:
            self._received.begin_frame()
        command, end = None, len(data) + 1
        try:
            command, end = self._reader.read(data, self._position)
        except TooShort as error:
            end = error.end
        except (IndexError, struct.error):
            pass
        if end > len(data) and self._received is not None:
            self._received.undo_frame()
        return command, end

    def _bad_size(self, size: int) -> QuireError:
        if size <= 0:
            return ProtocolViolation(f"the size of a frame is {size}", size=size)
        text = f"a frame has {size} octets, the limit is {self._limit}"
        return LimitExceeded(text, size=size, max_frame_size=self._limit)


class Encoder:
    """Encodes one direction of one connection. Frames must be sent in the order they were encoded in."""

    def __init__(self) -> None:
        self.use(FIRST)

    def use(self, format: WireFormat) -> None:
        """Set the format of the next frames."""
        self._format = format
        self._sent = SentObjects(format.cache_size) if format.cache_size else None
        kind = TightWriter if format.tight else LooseWriter
        self._writer: TightWriter | LooseWriter = kind(format.version, format.stack_traces, self._sent)

    def encode(self, command: Command) -> bytes:
        """The frame of a command.

        Raises:
            InvalidArgument: a number does not fit into its field, or the version lacks the command.
            LimitExceeded: a string or the frame is too large.
        """
        if self._sent is None:
            return self._encode(command)
        self._sent.begin_frame()
        try:
            return self._encode(command)
        except Exception:
            self._sent.undo_frame()
            raise

    def _encode(self, command: Command) -> bytes:
        try:
            frame = self._writer.write(command)
        except struct.error as error:
            raise InvalidArgument(f"{type(command).__name__}: {error}", command=type(command).__name__) from error
        size, limit = len(frame), self._format.max_frame_size
        if size > limit:
            raise LimitExceeded(f"the frame has {size} octets, the limit is {limit}", size=size, max_frame_size=limit)
        return _SIZE.pack(size) + frame if self._format.size_prefix else frame


def _check_type(type_id: int) -> None:
    if type_id not in _COMMANDS:
        raise ProtocolViolation(f"{type_id} is the type of no command", type_id=type_id)


def _name(type_id: int) -> str:
    return TYPES[type_id].__name__


def _cut(type_id: int) -> ProtocolViolation:
    name = _name(type_id)
    return ProtocolViolation(f"the frame of {name} ends too soon", command=name)
