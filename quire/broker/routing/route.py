"""What the headers of a send mean: where the message goes, how, and which of them are stored."""

from collections.abc import Mapping

from quire.broker.core.core import Target
from quire.broker.dead_letter import LETTER_HEADERS
from quire.broker.routing.routing import Routing
from quire.broker.schedule import SENDER, ScheduledSend, Timing
from quire.broker.streams.partition import Partition
from quire.broker.streams.stream import Rotation, Stream
from quire.errors import InvalidHeader
from quire.message import header_lines

OF_A_HOP = frozenset({
    "destination", "transaction", "receipt", "message-id", "timestamp", "subscription", "ack", "redelivered",
    "JMSXDeliveryCount", "producer-id", "producer-sequence", "priority", "expires", SENDER,
})  # fmt: skip
"""Headers that are about this hop, that each broker writes anew, or that the message's record has."""

NOT_STORED = OF_A_HOP | LETTER_HEADERS
"""The headers of a client's send that are not stored; another process of a cluster may write those of letters."""

MAX_PRODUCER_ID = 200
"""The longest producer id, in characters: it is a key in every store."""


class Route:
    """The headers of a send, understood once.

    Attributes:
        destination: where it goes, as any client would say it.
        lines: the header lines that are stored, and the empty line.
        persistent: whether it must survive the broker; yes, unless the client says no, or it goes to a temporary
            destination.
        stored: whether it goes to the store in any case: the schedule and streams keep everything there.
    """

    __slots__ = (
        "destination", "expiration", "lines", "persistent", "priority", "producer", "producer_sequence", "stored",
        "target", "transaction",
    )  # fmt: skip

    def __init__(
        self, target: Target, destination: str, headers: Mapping[str, str], sender: str
    ) -> None:  # fmt: skip
        stored = {name: value for name, value in headers.items() if name not in NOT_STORED}
        if sender and isinstance(target, ScheduledSend):
            target.check_room(sender)
            stored[SENDER] = sender
        self.destination = destination
        self.target = target
        self.lines = header_lines(stored) + b"\n"
        self.expiration = whole_number(headers, "expires", 0, 0, 1 << 62)
        self.priority = read_priority(headers)
        temporary = self.destination.startswith("/remote-temp-") and "," not in self.destination
        self.persistent = headers.get("persistent", "true").strip().lower() != "false" and not temporary
        self.stored = self.persistent or isinstance(target, ScheduledSend | Rotation | Partition)
        self.transaction = headers.get("transaction")
        self.producer, self.producer_sequence = read_producer(headers)


def route_of(routing: Routing, headers: Mapping[str, str], sender: str = "") -> Route:
    """Understand the headers of a send; its destination is created if it is not there.

    Args:
        sender: who sends it (``Accounts.remembered``), for what is sent later; empty if there are no users.
    """
    destination = headers["destination"]
    target = routing.scheduled(destination, Timing.of(headers), grouped="JMSXGroupID" in headers)
    if isinstance(target, Stream):
        target = target.route(headers)
    return Route(target, destination, headers, sender)


def read_producer(headers: Mapping[str, str]) -> tuple[str | None, int]:
    producer = headers.get("producer-id")
    if producer is None:
        return None, 0
    if len(producer) > MAX_PRODUCER_ID:
        raise InvalidHeader(f"producer-id is longer than {MAX_PRODUCER_ID} characters", header="producer-id")
    if "producer-sequence" not in headers:
        raise InvalidHeader("producer-id needs producer-sequence, a number", header="producer-sequence")
    return producer, whole_number(headers, "producer-sequence", 0, 1, 1 << 62)


def read_priority(headers: Mapping[str, str]) -> int:
    """The priority of a message: 0 to 9; a number beyond is taken for the nearest one (ActiveMQ)."""
    return min(max(whole_number(headers, "priority", 4, -(1 << 31), 1 << 31), 0), 9)


def whole_number(headers: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A header that is a whole number; InvalidHeader if it is none, or out of its range."""
    text = headers.get(name)
    if text is None:
        return default
    digits = text.strip()
    if not digits.removeprefix("-").isdecimal() or len(digits) > 20 or not least <= int(digits) <= most:
        raise InvalidHeader(f"{name} is {text[:60]!r}: a whole number from {least} to {most}", header=name)
    return int(digits)
