"""What a header's name in a selector stands for in a message.

A header is looked for in the message's content, from its start to the empty line: no other header is parsed, and the
body is never looked at.

A message of a JMS client has types: they are looked up once the header is found. In all others a text counts as what it
is compared with.
"""

import re
from collections.abc import Callable

from quire.message import PROPERTY_TYPES, Message, escape, property_types, unescape
from quire.selectors.values import Text, Value, number_in

_OF_THE_RECORD: dict[str, Callable[[Message], Value]] = {
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.sent_persistent else "NON_PERSISTENT",
    "JMSExpiration": lambda message: message.expiration,
    "JMSPriority": lambda message: message.priority,
    "JMSRedelivered": lambda message: message.redelivered,
}
_OF_THE_CONTENT = {
    "JMSCorrelationID": "correlation-id",
    "JMSMessageID": "message-id",
    "JMSReplyTo": "reply-to",
    "JMSTimestamp": "timestamp",
    "JMSType": "type",
}
_WHOLE_NUMBERS = {"JMSTimestamp", "JMSXGroupSeq"}
_TYPES_LINE = b"\n" + PROPERTY_TYPES + b":"

_is_of_jms = re.compile(rb"message-id:.*\\c-?\d+\\c-?\d+\\c-?\d+\n").match
"""Whether an OpenWire client made the id in a content: a session, a producer and a number are at its end."""


def _double(text: str) -> float | None:
    try:
        return float(text)  # it may be infinite, or no number
    except ValueError:
        return None


_READERS: dict[bytes, Callable[[str], Value]] = {
    b"boolean": lambda text: text == "true",
    **dict.fromkeys((b"byte", b"short", b"int", b"long"), number_in),
    **dict.fromkeys((b"float", b"double"), _double),
}


def message_header(name: str, *, converts: bool = False) -> Callable[[Message], Value]:
    """How to read a header of any message.

    Args:
        name: as a selector has it: a header field of JMS, or the name of a STOMP header.
        converts: whether a text counts as what it is compared with, in messages that have types too.

    Returns:
        A function from a message to the value; None if the message has no such header. A property whose line was
        changed since, so that it does not read as its type, is a text.
    """
    if (of_the_record := _OF_THE_RECORD.get(name)) is not None:
        return of_the_record
    # A name that is no UTF-8 (a lone surrogate) can be written in a selector, but is in no message.
    key = _OF_THE_CONTENT.get(name, name).encode("utf-8", "surrogatepass")
    line = (b"" if key == b"message-id" else b"\n") + escape(key) + b":"  # that one is the first
    size, is_number = len(line), name in _WHOLE_NUMBERS
    property = b"" if name in _OF_THE_CONTENT else key

    def read(message: Message) -> Value:
        content = message.content
        head = content.index(b"\n\n")
        if (start := content.find(line, 0, head)) < 0:
            return None
        start += size
        found = content[start : content.index(b"\n", start)]
        text = (unescape(found) if b"\\" in found else found).decode("utf-8", "replace")
        types = content.find(_TYPES_LINE, 0, head)
        if types >= 0:
            types += len(_TYPES_LINE)
            kinds = property_types(unescape(content[types : content.index(b"\n", types)]))
            if (typed := _READERS.get(kinds.get(property, b"string"))) and (value := typed(text)) is not None:
                return value
        elif not _is_of_jms(content):
            return text
        if is_number:
            return number_in(text)
        return text if converts else Text(text)

    return read
