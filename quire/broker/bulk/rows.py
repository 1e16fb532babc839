"""Messages that a bulk writer sends, understood and checked: from rows to what is in their destinations."""

from typing import NamedTuple

from quire.broker.core.core import Core, Target
from quire.broker.routing.routing import Routing


class Row(NamedTuple):
    """One message that is to be sent.

    Attributes:
        destination: where it goes, as a destination header says it.
        lines: its header lines and the empty line, without those that the broker writes.
        expiration: milliseconds since the epoch; 0 for never.
    """

    destination: str
    lines: bytes
    body: bytes
    expiration: int
    priority: int
    persistent: bool


def target_of(routing: Routing, row: Row) -> Target:
    return routing.target_of(row.destination, b"\n" + row.lines)


def send(core: Core, rows: list[Row], targets: list[Target], *, decided: bool = False) -> None:
    """Send rows in order, in the open commit.

    Args:
        decided: whether they are sent for certain: if the commit fails, they are in the next one. Otherwise they are
            refused then.
    """
    stamp = b"\ntimestamp:%d\n" % core.clock.now_ms()
    prefix, next_id, join = core.id_prefix, core.next_message_id, b"".join
    for (_, lines, body, expiration, priority, persistent), target in zip(rows, targets, strict=True):
        content = join((prefix, b"%d" % next_id(), stamp, lines, body))
        if decided:
            target.transfer(content, expiration, priority, persistent)
        else:
            target.send(content, expiration, priority, persistent)
