"""The message record: what the broker keeps of a message, in memory and in every store.

A message's *content* is one run of bytes: header lines as STOMP 1.2 writes them (``name:value`` with its escapes, a
line feed each), an empty line, the body. The first header is always ``message-id``, the second ``timestamp``. Content
travels from the producer's socket to the consumer's unparsed; headers are parsed only on demand. The
destination is not part of the content, so that moving a message to another queue does not change it.
"""

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote

MESSAGE_OVERHEAD = 384
"""What a resident message takes beyond its content, in bytes: the record, its places in tables, the allocator's share.
Measured with 1 KiB messages; every memory limit counts it."""

MAX_VALUE = 512 * 2**20
"""The largest message, and the largest prepared transaction, in bytes. SQLite takes values of 10^9 bytes, PostgreSQL
takes less than 1 GiB."""

PROPERTY_TYPES = b"property-types"
"""The header that has the Java types of the properties behind it; one that is not named there is a string."""

_TYPES_LINE = b"\n" + PROPERTY_TYPES + b":"

KNOWN_TYPES = 4096
"""How many values of that header are remembered."""

_ESCAPES = {b"\\r": b"\r", b"\\n": b"\n", b"\\c": b":", b"\\\\": b"\\"}


def escape(text: bytes) -> bytes:
    """Escape a header name or value as STOMP 1.2 does (specification, "Value Encoding")."""
    return text.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b":", b"\\c").replace(b"\r", b"\\r")


def unescape(text: bytes) -> bytes:
    r"""Undo ``escape``."""
    if b"\\" not in text:
        return text
    if b"\\\\" not in text and text.count(b"\\") == text.count(b"\\c"):  # ids with colons, the usual case
        return text.replace(b"\\c", b":")
    plain = bytearray()
    position = 0
    while (found := text.find(b"\\", position)) >= 0:
        plain += text[position:found]
        try:
            plain += _ESCAPES[text[found : found + 2]]
        except KeyError:
            raise ValueError(f"undefined escape {text[found : found + 2]!r}") from None
        position = found + 2
    return bytes(plain + text[position:])


class Message:
    """One message of a lane.

    Attributes:
        persistent: whether it must survive the broker.
        stored: whether it can be read again, from the store or (not persistent) from the spool; otherwise it is only in
            memory.
        deadline: when the lease of a consumer group's member on it ends, on the monotonic clock; set with each lease.
    """

    __slots__ = (
        "content", "deadline", "deliveries", "expiration", "failures", "not_before", "persistent", "priority",
        "redelivered", "sequence", "size", "stored",
    )  # fmt: skip

    deadline: float

    def __init__(
        self, sequence: int, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True
    ) -> None:
        self.sequence = sequence  # its place in its lane, never used again; 0 while it has none
        self.content = content  # header lines, an empty line, the body (see the module's text)
        self.size = len(content)  # ``len(content)``, in bytes; known from the index before the content is read
        self.expiration = expiration  # when it expires, in milliseconds since the epoch; 0 for never
        self.priority = priority  # 0 to 9; 4 is normal (JMS 2.0, section 3.4.10)
        self.persistent = self.stored = persistent
        self.deliveries = 0  # how often it was given to a consumer and came back
        self.failures = 0  # how many of those deliveries count against the maximum of redeliveries
        self.redelivered = False  # whether a consumer may have seen it before
        self.not_before = 0  # do not deliver it before this time of ``WallClock.steady_ms``; 0 for at once

    @property
    def id(self) -> str:
        """The message id: the value of the first header."""
        return unescape(self.content[11 : self.content.index(b"\n")]).decode("utf-8", "replace")

    @property
    def sent_persistent(self) -> bool:
        """Whether its delivery mode is PERSISTENT: what a temporary destination has may be so, and is not stored."""
        if self.persistent:
            return True
        content = self.content
        head = content.index(b"\n\n") + 1
        properties = content.find(_TYPES_LINE, 0, head)  # a property may be called persistent too
        return content.find(b"\npersistent:true\n", 0, properties + 1 or head) >= 0

    def header(self, name: bytes) -> str | None:
        """The value of one header, unescaped, without parsing the others; None if the message does not have it."""
        content = self.content
        start = content.find(b"\n" + name + b":", 0, content.index(b"\n\n"))
        if start < 0:
            return None
        start += len(name) + 2
        return unescape(content[start : content.index(b"\n", start)]).decode("utf-8", "replace")

    def headers(self) -> dict[str, str]:
        """All headers, unescaped; of a repeated header the first counts (STOMP 1.2, "Repeated Header Entries")."""
        headers: dict[str, str] = {}
        for line in self.content[: self.content.index(b"\n\n")].split(b"\n"):
            name, _, value = line.partition(b":")
            headers.setdefault(unescape(name).decode("utf-8", "replace"), unescape(value).decode("utf-8", "replace"))
        return headers

    @property
    def body(self) -> bytes:
        return self.content[self.content.index(b"\n\n") + 2 :]

    def __repr__(self) -> str:
        return f"<Message {self.sequence} {self.size} bytes deliveries={self.deliveries}>"


def timestamp_of(message: Message) -> int:
    """When the broker took a message, in milliseconds since the epoch: the second header line of its content."""
    content = message.content
    start = content.index(b"\n") + len(b"\ntimestamp:")
    return int(content[start : content.index(b"\n", start)])


@lru_cache(KNOWN_TYPES)
def property_types(text: bytes) -> Mapping[bytes, bytes]:
    """The types of properties by their names, of the value of ``PROPERTY_TYPES``."""
    types = {}
    for entry in text.split(b",") if text else []:
        name, _, kind = entry.partition(b"=")
        types[unquote(name.decode("utf-8", "replace")).encode() if b"%" in name else name] = kind
    return types


def header_lines(headers: dict[str, str]) -> bytes:
    """Write headers as content has them: escaped, a line each, without the empty line."""
    plain = "".join([f"{name}:{value}\n" for name, value in headers.items()])
    one_each = plain.count(":") == plain.count("\n") == len(headers)
    if one_each and "\\" not in plain and "\r" not in plain:  # nothing to escape, as nearly always
        return plain.encode()
    return b"".join(escape(name.encode()) + b":" + escape(value.encode()) + b"\n" for name, value in headers.items())


def long_header(lines: bytes, most: int) -> str | None:
    """The name of the first header whose line has more bytes than that, or None; from what ``header_lines`` wrote."""
    for line in lines.split(b"\n") if len(lines) > most else ():
        if len(line) > most:
            return unescape(line.partition(b":")[0]).decode()[:60]
    return None


def with_headers(content: bytes, added: dict[str, str]) -> bytes:
    """Content with headers added or replaced, the body untouched (a dead letter's cause, say)."""
    end = content.index(b"\n\n")
    names = {escape(name.encode()) for name in added}
    kept = [line for line in content[:end].split(b"\n") if line.partition(b":")[0] not in names]
    return b"\n".join(kept) + b"\n" + header_lines(added) + content[end + 1 :]
