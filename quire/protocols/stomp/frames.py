"""Commands, and the head of a frame: its command and headers, read once and shared by all frames that have the same."""

from quire.errors import ProtocolViolation

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

    Args:
        command: the command, ``b"SEND"`` say.
        fields: all headers in their order, unescaped.

    Attributes:
        command: as given.
        fields: as given; a client's ``receipt`` is not among them, the decoder hands it out beside the head.
        headers: the same by name; of a repeated header the first counts (STOMP 1.2, "Repeated Header Entries").
        content_length: the size of the body in octets; -1 when the body ends at the first NUL.

    Raises:
        ProtocolViolation: ``content-length`` is no number of octets.
    """

    __slots__ = ("command", "content_length", "fields", "headers")

    def __init__(self, command: bytes, fields: tuple[tuple[str, str], ...] = ()) -> None:
        headers = dict(fields)
        if len(headers) != len(fields):
            headers = dict(reversed(fields))
        self.command = command
        self.fields = fields
        self.headers = headers
        self.content_length = _content_length(headers["content-length"]) if "content-length" in headers else -1

    def __repr__(self) -> str:
        return f"<Head {self.command.decode('ascii', 'replace')} {list(self.headers)}>"


ACK_RUN = Head(b"ACK")
"""The head of a run of ACK frames that have the header ``id`` and nothing else: the event's body is the list of ids."""


def _content_length(text: str) -> int:
    # Blanks around the number are common, and ActiveMQ takes them.
    digits = text.strip(" ")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS):
        raise ProtocolViolation(
            f"content-length is {text[:60]!r}, not a number of octets", header="content-length", value=text[:60]
        )
    return int(digits)
