"""What the headers of a SEND frame mean: where it goes, how, and what of them is stored."""

from quire.broker.broker import Broker
from quire.broker.routing import Target
from quire.errors import InvalidHeader
from quire.message import header_lines
from quire.protocols.stomp.frames import Head

_NOT_STORED = frozenset({
    "destination", "transaction", "receipt", "message-id", "timestamp", "subscription", "ack", "redelivered",
    "JMSXDeliveryCount", "producer-id", "producer-sequence",
})  # fmt: skip
"""Headers that are about this hop, or that only the broker may write."""

MAX_PRODUCER_ID = 200
"""The longest producer id, in characters: it is a key in every store."""


class Route:
    """A SEND's head, understood once.

    Attributes:
        destination: where it goes, as the client says it.
        target: what takes it.
        lines: the header lines that are stored, and the empty line.
        expiration: milliseconds since the epoch; 0 for never.
        priority: 0 to 9.
        persistent: whether it must survive the broker; yes, unless the client says no.
        transaction: the transaction's name, or None.
        producer: the id of a producer that numbers its sends, or None.
        producer_sequence: the number.
    """

    __slots__ = (
        "destination", "expiration", "lines", "persistent", "priority", "producer", "producer_sequence", "target",
        "transaction",
    )  # fmt: skip

    def __init__(self, target: Target, head: Head) -> None:
        headers = head.headers
        stored = {name: value for name, value in head.headers.items() if name not in _NOT_STORED}
        self.destination = headers["destination"]
        self.target = target
        self.lines = header_lines(stored) + b"\n"
        self.expiration = whole_number(headers, "expires", 0, 0, 1 << 62)
        self.priority = whole_number(headers, "priority", 4, 0, 9)
        self.persistent = headers.get("persistent", "true").strip().lower() != "false"
        self.transaction = headers.get("transaction")
        self.producer = headers.get("producer-id")
        self.producer_sequence = 0
        if self.producer is not None:
            if len(self.producer) > MAX_PRODUCER_ID:
                raise InvalidHeader(f"producer-id is longer than {MAX_PRODUCER_ID} characters", header="producer-id")
            if "producer-sequence" not in headers:
                raise InvalidHeader("producer-id needs producer-sequence, a number", header="producer-sequence")
            self.producer_sequence = whole_number(headers, "producer-sequence", 0, 1, 1 << 62)


def route_of(broker: Broker, head: Head) -> Route:
    """Understand a SEND's head; its destination is created if it is not there.

    Raises:
        InvalidDestination: it is no destination, or has no valid name.
        InvalidHeader: a value cannot be read.
    """
    target = broker.target(head.headers["destination"])
    if "JMSXGroupID" in head.headers:
        target.expect_groups()
    return Route(target, head)


def whole_number(headers: dict[str, str], name: str, default: int, least: int, most: int) -> int:
    """A header that is a whole number.

    Raises:
        InvalidHeader: it is none, or out of its range.
    """
    text = headers.get(name)
    if text is None:
        return default
    digits = text.strip()
    if not digits.removeprefix("-").isdecimal() or len(digits) > 20 or not least <= int(digits) <= most:
        raise InvalidHeader(f"{name} is {text[:60]!r}: a whole number from {least} to {most}", header=name)
    return int(digits)
