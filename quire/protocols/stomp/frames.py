"""Commands, and the head of a frame: its command and headers, read once and shared by all frames that have the same.

CONNECT and CONNECTED agree on a version of STOMP and on heart-beats. Frames are written by the rules of that version.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from quire.errors import InvalidHeader, ProtocolViolation, QuireError, UnsupportedVersion
from quire.message import escape

CLIENT_COMMANDS = frozenset({
    b"CONNECT", b"STOMP", b"SEND", b"SUBSCRIBE", b"UNSUBSCRIBE", b"ACK", b"NACK", b"BEGIN", b"COMMIT", b"ABORT",
    b"DISCONNECT",
})  # fmt: skip
"""The commands that a client sends."""

SHORT_COMMANDS = {b"SUB": b"SUBSCRIBE", b"UNSUB": b"UNSUBSCRIBE"}
"""Commands that ActiveMQ takes for others, and old clients send."""

SERVER_COMMANDS = frozenset({b"CONNECTED", b"MESSAGE", b"RECEIPT", b"ERROR"})
"""The commands that a server sends."""

BODY_COMMANDS = frozenset({b"SEND", b"MESSAGE", b"ERROR"})
"""The commands whose frames may have a body (STOMP 1.2, "Body")."""

UNESCAPED_COMMANDS = frozenset({b"CONNECT", b"STOMP", b"CONNECTED"})
"""The commands whose headers know no escapes, so that 1.0 understands them (STOMP 1.2, "Value Encoding")."""

_MAX_DIGITS = 18


class Head:
    """A frame's command and headers. Never changed once it is made, and equal only to itself.

    Attributes:
        content_length: the size of the body in octets; -1 when the body ends at the first NUL. The header counts where
            there may be a body: an ACK may have all headers of its MESSAGE (ActiveMQ, RabbitMQ).
        base: the head that this one is like, but for values (``SimilarHeads``); None if it was read in full.
    """

    __slots__ = ("_fields", "_headers", "base", "command", "content_length", "lines")

    base: "Head | None"
    lines: list[bytes]  # those of a head with a base, raw; they mean the same unescaped

    def __init__(self, command: bytes, fields: tuple[tuple[str, str], ...] = ()) -> None:
        headers = dict(fields)
        if len(headers) != len(fields):
            headers = dict(reversed(fields))
        self.command = command
        self.base = None
        self._fields: tuple[tuple[str, str], ...] | None = fields
        self._headers: dict[str, str] | None = headers
        text = headers.get("content-length") if command in BODY_COMMANDS else None
        self.content_length = -1 if text is None else content_length(text)

    @classmethod
    def similar(cls, base: "Head", lines: list[bytes], content_length: int) -> "Head":
        """A head that is like another one but for values. Headers are read from its raw lines when asked for."""
        head = cls.__new__(cls)
        head.command = base.command
        head.base = base
        head.lines = lines
        head.content_length = content_length
        head._fields = head._headers = None
        return head

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """All headers in their order, unescaped."""
        if self._fields is None:
            parts = [line.partition(b":") for line in self.lines[1:-1]]
            self._fields = tuple([(name.decode(), value.decode()) for name, _, value in parts])
        return self._fields

    @property
    def headers(self) -> dict[str, str]:
        """The headers by name; of a repeated one the first counts (STOMP 1.2, "Repeated Header Entries")."""
        if self._headers is None:
            self._headers = dict(self.fields)
        return self._headers

    def __repr__(self) -> str:
        return f"<Head {self.command.decode('ascii', 'replace')} {list(self.headers)}>"


class AckRun(Head):
    """The head of a run of ACK frames that have the header ``id`` and nothing else."""

    __slots__ = ("ids",)

    def __init__(self, ids: list[bytes]) -> None:
        self.command = b"ACK"
        self.content_length = -1
        self.base = None
        self._fields, self._headers = (), {}
        self.ids = ids  # theirs; raw and unescaped they are the same


def content_length(text: str) -> int:
    # Blanks around the number are common, and ActiveMQ takes them.
    digits = text.strip(" ")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        raise ProtocolViolation(
            f"content-length is {text[:60]!r}, not a number of octets", header="content-length", value=text[:60]
        )
    return int(digits)


class Version(StrEnum):
    V1_0 = "1.0"
    V1_1 = "1.1"
    V1_2 = "1.2"


def negotiate(head: Head) -> Version:
    """Choose the version of a connection (STOMP 1.2, "Protocol Negotiation"); without ``accept-version`` it is 1.0."""
    accepted = head.headers.get("accept-version", Version.V1_0)
    offered = {version.strip() for version in accepted.split(",")}
    common = [version for version in Version if version in offered]
    if not common:
        raise UnsupportedVersion(
            f"accept-version is {accepted[:60]!r}; the broker speaks {', '.join(Version)}",
            offered=accepted[:60],
            supported=list(Version),
        )
    return max(common)


def agreed(head: Head) -> Version:
    """Read the version that the server chose."""
    version = head.headers.get("version", Version.V1_0)
    try:
        return Version(version)
    except ValueError:
        raise ProtocolViolation(f"the server chose version {version[:60]!r}", version=version[:60]) from None


def heart_beat(head: Head) -> tuple[int, int]:
    """Read the ``heart-beat`` header of CONNECT or CONNECTED (STOMP 1.2, "Heart-beating").

    It says how often the sender of the frame can send, and how often it wants to receive, in milliseconds; 0 for never,
    as without the header.
    """
    text = head.headers.get("heart-beat", "0,0")
    numbers = [number.strip() for number in text.split(",")]
    if len(numbers) != 2 or not all(number.isascii() and number.isdecimal() and len(number) < 12 for number in numbers):
        raise InvalidHeader(
            f"heart-beat is {text[:60]!r}: write two numbers of milliseconds, as 10000,10000",
            header="heart-beat",
            value=text[:60],
        )
    return int(numbers[0]), int(numbers[1])


_MAX_SHORT_TEXT = 200
_LINE_END = re.compile(r"[\r\n]")

# What an older version needs of text with the escapes of 1.2: a pattern, and what to put for what it finds.
_FROM_1_2 = {
    Version.V1_1: (re.compile(rb"\\."), {rb"\r": b"\r"}),
    # Found as a whole and left alone: a name. A colon in it would end it early and make another header of it.
    Version.V1_0: (re.compile(rb"^[^:\n]*:|\\.", re.MULTILINE), {rb"\c": b":", rb"\\": b"\\"}),
}


def encode_frame(
    command: bytes,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes = b"",
    version: Version = Version.V1_2,
) -> bytes:
    """Write a frame, with the escapes of a version; CONNECT, STOMP and CONNECTED have none ("Value Encoding")."""
    fields = headers.items() if isinstance(headers, Mapping) else headers
    kept = [field for field in fields if field[0] != "content-length"]
    text = "\n".join([f"{name}:{value}" for name, value in kept])
    # Counting tells at once whether there is anything to escape; mostly there is not.
    if (
        "\\" in text
        or "\r" in text
        or text.count(":") != len(kept)
        or text.count("\n") >= len(kept)
        or "\n:" in "\n" + text
    ):
        lines = [_line(name, value, command, version) for name, value in kept]
    else:
        lines = [text.encode()]
    if body:
        lines.append(b"content-length:%d" % len(body))
    return b"\n".join([command, *lines, b"\n"]) + body + b"\0"


def encode_receipts(ids: list[bytes]) -> bytes:
    if not ids:
        return b""
    return b"RECEIPT\nreceipt-id:" + b"\n\n\0RECEIPT\nreceipt-id:".join(ids) + b"\n\n\0"


def content_for(content: bytes, version: Version) -> bytes:
    r"""Fit a stored message into a MESSAGE frame of a version.

    Args:
        content: header lines with the escapes of 1.2, an empty line, the body (``quire.message``).

    Returns:
        The content, in 1.1 with carriage returns instead of ``\r``, in 1.0 without escapes. What 1.0 cannot say keeps
        its escape, for nothing else would be safe: line ends, and colons in names.
    """
    if version is Version.V1_2:
        return content
    end = content.index(b"\n\n")
    if content.find(b"\\", 0, end) < 0:
        return content
    pattern, replacements = _FROM_1_2[version]
    return pattern.sub(lambda found: replacements.get(found[0], found[0]), content[:end]) + content[end:]


def error_frame(error: QuireError, version: Version, receipt: bytes | None) -> bytes:
    """Write the ERROR frame of an error; the raw ``receipt`` is that of the frame that caused it."""
    text = str(error)
    short = " ".join(text[:_MAX_SHORT_TEXT].split())
    headers = {"message": f"{error.code}: {short}", "code": error.code, "content-type": "text/plain"}
    if isinstance(error, UnsupportedVersion):
        headers["version"] = ",".join(Version)
    frame = encode_frame(b"ERROR", headers, f"{text}\n{error.entry.advice}\n".encode(), version)
    return frame if receipt is None else frame.replace(b"\n", b"\nreceipt-id:" + receipt + b"\n", 1)


def _line(name: str, value: str, command: bytes, version: Version) -> bytes:
    if not name:
        raise InvalidHeader(f"a header of a {command.decode()} frame has no name", header=name)
    if version is not Version.V1_0 and command not in UNESCAPED_COMMANDS:
        return _escape(name, version) + b":" + _escape(value, version)
    if ":" in name or _LINE_END.search(name + value):
        raise InvalidHeader(f"{name[:60]!r} cannot be written in a {command.decode()} frame", header=name[:60])
    return f"{name}:{value}".encode()


def _escape(text: str, version: Version) -> bytes:
    if version is Version.V1_1:
        # 1.1 has no escape for a carriage return and sends it as it is.
        return b"\r".join(escape(part.encode()) for part in text.split("\r"))
    return escape(text.encode())
