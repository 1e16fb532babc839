"""Frames that are passed on and not read in full: a server's as they came, a client's with some headers changed.

A process of a cluster stands between a client and the owner of a destination. What the owner says it cuts at the ends
of frames only, so that frames of several owners do not mix.
"""

from collections.abc import Mapping

from quire.errors import ProtocolViolation
from quire.protocols.stomp.encoder import encode_frame
from quire.protocols.stomp.frames import Head, content_length
from quire.protocols.stomp.versions import Version

MAX_HEAD = 1 << 20
"""The largest head that a server may send, in bytes."""

_MESSAGE = 77  # M
_LENGTH = b"\ncontent-length:"


class ServerFrames:
    """Cuts the bytes of one direction of a connection into whole frames.

    Attributes:
        one_by_one: whether MESSAGE frames are handed out one by one; else those that follow each other are one piece.
        buffered: how many bytes are kept of a frame that is not whole yet.
    """

    def __init__(self) -> None:
        self.one_by_one = False
        self.buffered = 0
        self._parts: list[bytes] = []
        self._missing = 0  # so many bytes at least are missing; -1 for a NUL

    def receive(self, data: bytes) -> list[bytes]:
        """Take what came; the pieces that are whole. Each begins with a command.

        Raises:
            ProtocolViolation: the input is none of a server.
        """
        if self._parts:
            self._parts.append(data)
            self.buffered += len(data)
            if self._missing > len(data):
                self._missing -= len(data)
                return []
            if self._missing < 0 and b"\0" not in data:
                return []
            data = b"".join(self._parts)
        pieces, position = self._cut(data)
        self._parts = [data[position:]] if position < len(data) else []
        self.buffered = len(data) - position
        return pieces

    def _cut(self, data: bytes) -> tuple[list[bytes], int]:
        """The pieces that are whole, and where the rest begins."""
        pieces: list[bytes] = []
        position, size, run = 0, len(data), -1  # where the run of MESSAGE frames begins that is under way
        while position < size:
            if data[position] == 10:  # between frames
                position += 1
                continue
            stop = self._end(data, position)
            if stop < 0:
                break
            if data[position] == _MESSAGE and not self.one_by_one:
                run = position if run < 0 else run
            else:
                if run >= 0:
                    pieces.append(data[run:position])
                    run = -1
                pieces.append(data[position:stop])
            position = stop
        if run >= 0:
            pieces.append(data[run:position])
        return pieces, position

    def _end(self, data: bytes, position: int) -> int:
        """Where the frame ends that begins at a position; -1 if more has to come."""
        head = data.find(b"\n\n", position)
        if head < 0:
            self._missing = 1
            if len(data) - position > MAX_HEAD:
                raise ProtocolViolation("the head of a frame of a server has no end", command="MESSAGE")
            return -1
        found = data.find(_LENGTH, position, head)
        if found < 0:
            stop = data.find(b"\0", head + 2)
            self._missing = -1
            return stop + 1 if stop >= 0 else -1
        start = found + len(_LENGTH)
        stop = head + 2 + content_length(data[start : data.find(b"\n", start)].decode("ascii", "replace"))
        if stop < len(data):
            return stop + 1
        self._missing = stop + 1 - len(data)
        return -1


def header_of(frame: bytes, name: bytes) -> bytes | None:
    """The raw value of a header of a frame; None if it does not have it. Only the first one is found."""
    start = frame.find(b"\n" + name + b":", 0, frame.find(b"\n\n"))
    if start < 0:
        return None
    start += len(name) + 2
    return frame[start : frame.find(b"\n", start)]


def head_lines(head: Head, version: Version, changes: Mapping[str, str | None] | None = None) -> bytes:
    """The lines of a client's head, without its receipt, as they are passed on.

    Args:
        changes: headers that get another value or are added; None leaves one out.
    """
    if head.base is not None and not changes:
        return b"\n".join(head.lines[:-1]) + b"\n"
    fields = head.fields
    if changes:
        kept = [(name, value) for name, value in fields if name not in changes]
        fields = (*kept, *[(name, value) for name, value in changes.items() if value is not None])
    lines = encode_frame(head.command, fields, version=version)[:-2]
    return lines if head.content_length < 0 else lines + b"content-length:%d\n" % head.content_length


def passed_frame(lines: bytes, receipt: bytes | None = None, body: bytes | bytearray = b"") -> bytes:
    """A frame with such lines.

    Args:
        receipt: the raw value of the receipt that is asked for.
    """
    if receipt is None:
        return b"".join((lines, b"\n", body, b"\0"))
    return b"".join((lines, b"receipt:", receipt, b"\n\n", body, b"\0"))
