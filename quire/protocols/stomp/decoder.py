"""The decoder: from a stream's bytes, cut anywhere, to events.

``receive`` takes bytes, ``next_events`` hands out what is whole, ``BATCH`` events at a time, and raises what is wrong
with the input; nothing else comes out. So who asks decides how much is decoded before others have their turn.

The walk of a frame. ``next_events`` completes what was left over of the bytes before, and ``_decode`` runs over the
rest: one ``find`` for the end of the head, one look into the table of known heads, one slice for the body. A head is
known by its lines *without* the receipt's, so the headers of a producer's SEND frames that differ in receipt and body
only are read once. Everything else (a new head, carriage returns, odd receipts) goes through ``_read_head``, which is
slower and checks everything.
"""

import re
from typing import NamedTuple

from quire.errors import LimitExceeded, ProtocolViolation, QuireError, UnsupportedVersion
from quire.protocols.stomp.frames import (
    BODY_COMMANDS,
    CLIENT_COMMANDS,
    SHORT_COMMANDS,
    UNESCAPED_COMMANDS,
    AckRun,
    Head,
    Version,
    agreed,
    negotiate,
)
from quire.protocols.stomp.heads import BLANKS, SimilarHeads, parse_head

Event = tuple[Head, bytes | None, bytes | bytearray]
"""A frame: its head, the raw value of a client's ``receipt`` or None, its body. Several, if it is an ``AckRun``."""

BATCH = 128
"""How many events are decoded at once, at the most."""

_HEAD_END = re.compile(rb"\n\r?\n")
_BETWEEN = re.compile(rb"[\r\n\0]*")
# Ids in printable ASCII without a backslash: they mean the same raw and unescaped. Any other id is a frame of its own.
# The end-of-lines behind the frames of a run are the same, so one split finds the ids. An id has none of the octets of
# what ends it, so going back finds nothing and is short. `re` keeps about 200 octets for each frame, hence the limit.
_ACK_FRAMES = re.compile(rb"ACK\nid:[!-\[\]-~]{1,100}(\n\n\0\n*)(?:ACK\nid:[!-\[\]-~]{1,100}\1){0,999}")
_ACK_START = b"ACK\nid:"
_MAX_ACK_LINE = 103
# Values which mean the same raw and unescaped, in any version.
_PLAIN = re.compile(rb"[!-\[\]-~]*")
_RECEIPT = re.compile(rb"\nreceipt:[^\n]*")

_HEAD_LINES = 8
_KNOWN_HEADS = 64
_KNOWN_SIZE = 1024


class Limits(NamedTuple):
    """What a peer may send at the most (STOMP 1.2, "Size Limits"), in octets; a receipt counts as no header."""

    max_headers: int = 1000
    max_line: int = 10 * 1024
    max_body: int = 100 * 1024 * 1024

    @property
    def max_head(self) -> int:
        return _HEAD_LINES * self.max_line


class Decoder:
    """Decodes one direction of one connection. End-of-lines between frames (heart-beats) and NULs are passed over."""

    def __init__(self, limits: Limits, commands: frozenset[bytes] = CLIENT_COMMANDS) -> None:
        self.limits = limits
        self._commands = commands
        self._version = Version.V1_2
        self._ack_runs = self._takes_ack_runs()
        self._heads: dict[bytes, Head] = {}
        self._similar = SimilarHeads()
        self._known_size = min(_KNOWN_SIZE, limits.max_line)
        # What is to be decoded: ``_data`` from ``_position`` on. It is empty once all of it is.
        self._data = b""
        self._position = 0
        self._fault: QuireError | None = None
        # What waits for more bytes: the start of a head, or a frame whose body is under way.
        self._partial_head = b""
        self._partial: tuple[Head, bytes | None] | None = None
        self._partial_body = bytearray()

    @property
    def version(self) -> Version:
        """The version whose rules hold.

        1.2 at first. The decoder sets it by itself at CONNECT and CONNECTED, so that frames right behind them are read
        rightly; the session may set it otherwise.
        """
        return self._version

    @version.setter
    def version(self, version: Version) -> None:
        if version is not self._version:
            self._version = version
            self._heads.clear()
            self._similar.clear()
            self._ack_runs = self._takes_ack_runs()

    @property
    def buffered(self) -> int:
        return len(self._partial_head) + len(self._partial_body)

    def receive(self, data: bytes) -> None:
        self._data = self._data[self._position :] + data if self._data else data
        self._position = 0

    def next_events(self) -> list[Event]:
        """The next events, ``BATCH`` at the most; none if that takes more octets.

        Raises:
            ProtocolViolation: the input is wrong. What came before the fault was handed out; nothing comes after it.
        """
        if self._fault is not None:
            raise self._fault
        events: list[Event] = []
        data, position, self._data = self._data, self._position, b""
        if not data:
            return events
        try:
            if self._partial is not None:
                data = self._continue_body(self._partial, data, events)
            elif self._partial_head:
                data = self._continue_head(data)
            if data:
                self._decode(data, position, events)
        except QuireError as fault:
            self._fault = fault
            self._partial, self._partial_head = None, b""
            self._partial_body = bytearray()
            self._heads.clear()
            self._similar.clear()
            if not events:
                raise
        return events

    # One loop without calls per frame, though long: this is the hottest code of the broker.
    def _decode(self, data: bytes, position: int, events: list[Event]) -> None:  # noqa: C901
        size, known_size = len(data), self._known_size
        find, plain, known = data.find, _PLAIN.fullmatch, self._heads.get
        for _ in range(BATCH):
            if position >= size:
                return
            first = data[position]
            if first != 83:  # S: SEND. Anything else has time.
                if first == 65 and self._ack_runs and (run := _ACK_FRAMES.match(data, position)):
                    events.append((_ack_run(run), None, b""))
                    position = run.end()
                    continue
                if first == 10 or first == 13 or first == 0:
                    position = _end_between(data, position)
                    continue
            end = find(b"\n\n", position, position + known_size)
            # Without an end (-1) the block is empty, and nothing is known by that.
            block, line, tail = data[position : end + 1].partition(b"\nreceipt:")
            receipt = None
            if line:
                receipt, _, tail = tail.partition(b"\n")
                block += b"\n" + tail
            head = known(block) or (self._similar.find(block) if end > 0 and first == 83 else None)
            if head is None or not (receipt is None or receipt.isalnum() or plain(receipt)):
                found = self._read_head(data, position)
                if found is None:
                    return
                head, receipt, start = found
            else:
                start = end + 2
            stop = start + head.content_length if head.content_length >= 0 else find(b"\0", start)
            if not start <= stop < size:
                self._begin_body(head, receipt, data[start:])
                return
            if data[stop] or stop - start > self.limits.max_body:
                raise self._bad_end(head, stop - start)
            events.append((head, receipt, data[start:stop]))
            position = stop + 1
        if position < size:
            self._data, self._position = data, position

    def _read_head(self, data: bytes, position: int) -> tuple[Head, bytes | None, int] | None:
        """Read any head: itself, its receipt, where the body starts. Without an end it is kept, and there is None."""
        found = _HEAD_END.search(data, position, position + self.limits.max_head)
        if found is None:
            self._keep_head(data[position:], 0)
            return None
        block, start = data[position : found.start() + 1], found.end()
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        self._check_lines(block)
        block, receipt = self._cut_receipt(block)
        head = self._heads.get(block) or self._new_head(block)
        if not self._may_have_body(head) and data[start : start + 1] not in (b"", b"\0"):
            raise _unwanted_body(head)
        return head, receipt, start

    def _continue_head(self, data: bytes) -> bytes:
        """Put the start of a head in front; what is to be decoded, or nothing if the head still has no end."""
        kept = len(self._partial_head)
        data = self._partial_head + data
        # Only the new part is searched: a head that comes octet by octet must not cost its length squared.
        if _HEAD_END.search(data, max(kept - 2, 0)) is None:
            self._keep_head(data, kept)
            return b""
        self._partial_head = b""
        return data

    def _keep_head(self, data: bytes, checked: int) -> None:
        """Keep a head without an end, within the limits: one that never ends must not be collected for ever."""
        if len(data) >= self.limits.max_head:
            raise LimitExceeded(f"the head is longer than {self.limits.max_head} octets", max_head=self.limits.max_head)
        self._check_lines(data, checked)
        self._partial_head = data

    def _check_lines(self, block: bytes, checked: int = 0) -> None:
        # Beside the headers that count: the command, and one receipt.
        if block.count(b"\n") > self.limits.max_headers + 2:
            raise self._too_many_headers()
        limit = self.limits.max_line
        start = block.rfind(b"\n", 0, checked) + 1
        if len(block) - start > limit and any(len(line.rstrip(b"\r")) > limit for line in block[start:].split(b"\n")):
            raise LimitExceeded(f"a line of the head is longer than {limit} octets", max_line=limit)

    def _cut_receipt(self, block: bytes) -> tuple[bytes, bytes | None]:
        """Take the receipt's line out of a client's head, and repetitions of it, of which only the first counts."""
        start, line, tail = block.partition(b"\nreceipt:")
        if not line or self._commands is not CLIENT_COMMANDS:
            return block, None
        receipt, _, tail = tail.partition(b"\n")
        block = start + b"\n" + tail
        if not _PLAIN.fullmatch(receipt):
            parse_head(block.partition(b"\n")[0] + b"\nreceipt:" + receipt + b"\n", self._version)
            if self._version is Version.V1_0:
                receipt = receipt.strip(BLANKS)
        return _RECEIPT.sub(b"", block) if b"\nreceipt:" in block else block, receipt

    def _new_head(self, block: bytes) -> Head:
        command, _, lines = block.partition(b"\n")
        if block.count(b"\n") > self.limits.max_headers + 1:
            raise self._too_many_headers()
        if command in SHORT_COMMANDS:
            command = SHORT_COMMANDS[command]
            block = command + b"\n" + lines
        if command not in self._commands:
            name = command[:20].decode("ascii", "backslashreplace")
            raise ProtocolViolation(f"{name!r} is no command that may come here", command=name)
        head = parse_head(block, self._version)
        if head.content_length > self.limits.max_body:
            raise self._too_large(head.content_length)
        if command in UNESCAPED_COMMANDS:
            return self._opened(head, block)
        # Only SEND comes again and again with the same head. The bounds keep a hostile stream of ever new heads small.
        if command == b"SEND" and len(block) <= self._known_size:
            if len(self._heads) >= _KNOWN_HEADS:
                self._heads.clear()
            self._heads[block] = head
            if self._version is not Version.V1_0:
                self._similar.note(head, block)
        return head

    def _opened(self, head: Head, block: bytes) -> Head:
        """Go over to the version that CONNECT or CONNECTED leads to."""
        try:
            self.version = agreed(head) if head.command == b"CONNECTED" else negotiate(head)
        except UnsupportedVersion:
            # The session negotiates too, and answers.
            return head
        return parse_head(block, Version.V1_0) if self._version is Version.V1_0 else head

    def _begin_body(self, head: Head, receipt: bytes | None, part: bytes) -> None:
        self._partial = head, receipt
        self._grow_body(head, part)

    def _grow_body(self, head: Head, part: bytes) -> None:
        size = len(self._partial_body) + len(part)
        if head.content_length < 0 and size > self.limits.max_body:
            raise self._too_large(size)
        self._partial_body += part

    def _continue_body(self, partial: tuple[Head, bytes | None], data: bytes, events: list[Event]) -> bytes:
        """Add to the body under way; what comes after its frame."""
        head, receipt = partial
        if not self._may_have_body(head) and data[:1] not in (b"", b"\0"):
            raise _unwanted_body(head)
        body = self._partial_body
        stop = head.content_length - len(body) if head.content_length >= 0 else data.find(b"\0")
        if not 0 <= stop < len(data):
            self._grow_body(head, data)
            return b""
        if data[stop] or len(body) + stop > self.limits.max_body:
            raise self._bad_end(head, len(body) + stop)
        body += data[:stop]
        events.append((head, receipt, body))  # as it is: a large one is copied once, into what is made of it
        self._partial, self._partial_body = None, bytearray()
        return data[stop + 1 :]

    def _takes_ack_runs(self) -> bool:
        # Before 1.2 an ACK that has an id only lacks the header it needs.
        in_limits = self.limits.max_line >= _MAX_ACK_LINE and self.limits.max_headers > 0
        return b"ACK" in self._commands and self._version is Version.V1_2 and in_limits

    def _may_have_body(self, head: Head) -> bool:
        # 1.0 does not say which frames have bodies.
        return head.command in BODY_COMMANDS or self._version is Version.V1_0

    def _bad_end(self, head: Head, size: int) -> QuireError:
        if size > self.limits.max_body:
            return self._too_large(size)
        name = head.command.decode()
        return ProtocolViolation(f"{name}: no NUL after the {size} octets of content-length", command=name, size=size)

    def _too_large(self, size: int) -> LimitExceeded:
        limit = self.limits.max_body
        return LimitExceeded(f"the body has {size} octets or more, the limit is {limit}", size=size, max_body=limit)

    def _too_many_headers(self) -> LimitExceeded:
        limit = self.limits.max_headers
        return LimitExceeded(f"the frame has more than {limit} headers", max_headers=limit)


def _ack_run(run: re.Match[bytes]) -> AckRun:
    end = run[1]
    return AckRun(run.string[run.start() + len(_ACK_START) : run.end() - len(end)].split(end + _ACK_START))


def _end_between(data: bytes, position: int) -> int:
    # A carriage return alone is taken for an end-of-line here: between frames it can mean nothing else. Some clients
    # write one more NUL behind a frame (ActiveMQ and RabbitMQ pass over it).
    found = _BETWEEN.match(data, position)
    return found.end() if found else position


def _unwanted_body(head: Head) -> ProtocolViolation:
    name = head.command.decode()
    return ProtocolViolation(f"a {name} frame has no body", command=name)
