"""What the MESSAGE frames of all consumers have in common, in pieces to be joined."""

from quire.broker.core.subscription import Subscription
from quire.message import Message, header_lines
from quire.protocols.stomp.encoder import content_for
from quire.protocols.stomp.versions import Version

NO_MESSAGE = "0"
"""What stands for both ids in a frame that is no message: no sequence and no message id is ever so."""

USUAL_STAMPS = b"expires:0\npriority:4\n"
"""The stamps of a message that never expires and has the usual priority."""


FIRST_OF_GROUP = b"JMSXGroupFirstForConsumer:true\n"
"""The header of a message that is the first one of its group for its consumer."""


def frame_start(id: str | None, destination: str, version: Version) -> bytes:
    """What all MESSAGE frames of a subscription begin with."""
    headers = {"destination": destination} if id is None else {"subscription": id, "destination": destination}
    return content_for(b"MESSAGE\n" + header_lines(headers) + b"\n\n", version)[:-2]


def old_message_frames(start: bytes, message: Message, content: bytes, extra: bytes, version: Version) -> list[bytes]:
    """The frame of 1.0 or 1.1 of one message."""
    flag = redelivery(message) if message.redelivered else b""
    return [start, stamps(message), extra, flag, content_for(content, version), b"\0"]


def marker(subscription: Subscription, headers: bytes, version: Version) -> bytes:
    """A MESSAGE frame that stands for no message."""
    id = NO_MESSAGE.encode() + b"\n"
    start: bytes = subscription.writer
    return start + (id if version is Version.V1_2 else b"") + b"message-id:" + id + headers + b"\n\0"


def stamps(message: Message) -> bytes:
    """The headers of a message that its record has: when it expires, and its priority."""
    if message.priority == 4 and not message.expiration:
        return USUAL_STAMPS
    return b"expires:%d\npriority:%d\n" % (message.expiration, message.priority)


def redelivery(message: Message) -> bytes:
    """The headers of a message that may have been delivered before (JMS 2.0, 3.5.11: the count is then at least 2)."""
    return b"redelivered:true\nJMSXDeliveryCount:%d\n" % (max(message.deliveries, 1) + 1)
