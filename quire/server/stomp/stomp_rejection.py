"""What a NACK frame asks for."""

from collections.abc import Mapping
from typing import NamedTuple

from quire.broker.routing.route import whole_number
from quire.broker.streams.groups.retries import LEVELS_MS, level_ms

MAX_DELAY = 365 * 86_400_000
"""The longest delay a client may ask for, in milliseconds."""

MAX_EXTENSION = 7 * 86_400_000
"""By how much a lease may be extended at once, in milliseconds."""

DEAD_LETTER = -1
"""The delay level that makes a dead letter at once (RocketMQ's)."""


class Rejection(NamedTuple):
    """A NACK frame, understood.

    Attributes:
        delay_ms: how long the message is to wait, in milliseconds; None for what the policy says.
        dead_letter: whether it is to become a dead letter at once.
        extend_ms: instead of being rejected, the lease on it is to end in so many milliseconds from now; None if not.
    """

    delay_ms: int | None = None
    dead_letter: bool = False
    extend_ms: int | None = None


def read_rejection(headers: Mapping[str, str]) -> Rejection:
    """Understand the headers.

    Raises:
        InvalidHeader: a value cannot be read.
    """
    if "extend" in headers:
        return Rejection(extend_ms=whole_number(headers, "extend", 0, 1000, MAX_EXTENSION))
    level = whole_number(headers, "delay-level", 0, DEAD_LETTER, len(LEVELS_MS))
    if level > 0:
        return Rejection(level_ms(level))
    delay = whole_number(headers, "redelivery-delay", -1, 0, MAX_DELAY)
    return Rejection(None if delay < 0 else delay, dead_letter=level == DEAD_LETTER)
