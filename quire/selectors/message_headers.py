"""What a header's name in a selector stands for in a message.

A header is looked for in the message's content, from its start to the empty line: no other header is parsed, and the
body is never looked at.
"""

import re
from collections.abc import Callable

from quire.message import Message, escape, unescape
from quire.selectors.values import Value

_OF_THE_RECORD: dict[str, Callable[[Message], Value]] = {
    "JMSDeliveryMode": lambda message: "PERSISTENT" if message.persistent else "NON_PERSISTENT",
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


def message_header(name: str) -> Callable[[Message], Value]:
    """How to read a header of any message.

    Args:
        name: as a selector has it: a header field of JMS, or the name of a STOMP header.

    Returns:
        A function from a message to the value; None if the message has no such header.
    """
    return _OF_THE_RECORD.get(name) or _of_the_content(_OF_THE_CONTENT.get(name, name))


def _of_the_content(name: str) -> Callable[[Message], Value]:
    # A name that is no UTF-8 (a lone surrogate) can be written in a selector, but is in no message.
    line = re.escape(escape(name.encode("utf-8", "surrogatepass")))
    # As few lines as need be, none of them empty, then the header's: the first one of its name counts.
    find = re.compile(rb"(?:.+\n)*?" + line + rb":(.*)").match

    def read(message: Message) -> str | None:
        found = find(message.content)
        if found is None:
            return None
        text = found[1].decode("utf-8", "replace")
        return text if "\\" not in text else unescape(found[1]).decode("utf-8", "replace")

    return read
