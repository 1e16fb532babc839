"""Messages that a bulk writer sends, understood and checked: from rows to what is in their destinations."""

from typing import TYPE_CHECKING, NamedTuple

from quire.broker.routing.routing import Target
from quire.errors import ProducerHeld

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class Row(NamedTuple):
    """One message that is to be sent.

    Attributes:
        destination: where it goes, as a destination header says it.
        lines: its header lines and the empty line, without those that the broker writes.
        body: its body.
        expiration: milliseconds since the epoch; 0 for never.
        priority: 0 to 9.
        persistent: whether it must survive the broker.
    """

    destination: str
    lines: bytes
    body: bytes
    expiration: int
    priority: int
    persistent: bool


def target_of(broker: "Broker", row: Row) -> Target:
    """Where a row goes; its destination is created if it is not there.

    Raises:
        InvalidDestination: it cannot be sent to.
        InvalidHeader: the headers of the schedule cannot be read.
    """
    return broker.routing.target_of(row.destination, b"\n" + row.lines)


def send(broker: "Broker", rows: list[Row], targets: list[Target], *, decided: bool = False) -> None:
    """Send rows in order, in the open commit.

    Args:
        broker: the broker.
        rows: understood and checked.
        targets: where each of them goes.
        decided: whether they are sent for certain: if the commit fails, they are in the next one. Otherwise they are
            refused then.
    """
    stamp = b"\ntimestamp:%d\n" % broker.clock.now_ms()
    prefix, next_id, join = broker.id_prefix, broker.next_message_id, b"".join
    for (_, lines, body, expiration, priority, persistent), target in zip(rows, targets, strict=True):
        content = join((prefix, b"%d" % next_id(), stamp, lines, body))
        if decided:
            target.bring(content, expiration, priority, persistent)
        else:
            target.send(content, expiration, priority, persistent)


def check_room(broker: "Broker") -> None:
    """See that there is room for persistent messages.

    Raises:
        StoreError: the store takes no writes.
        ProducerHeld: the store's limit is reached, or its disk is nearly full.
    """
    if broker.store_error is not None:
        raise broker.store_error
    if cause := broker.hold_cause(stored=True):
        raise ProducerHeld(f"no room for more messages: {cause}", cause=str(cause))
