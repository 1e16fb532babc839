"""Pages of the messages of a queue or a durable subscription. Nothing is consumed, and no cursor moves."""

from typing import TYPE_CHECKING, Annotated

from quire.broker.queues.browsing import BrowsedMessage, described, read
from quire.errors import InvalidArgument
from quire.management.described import Status, doc
from quire.management.message_transfer import BUDGET, STEP, STEP_BYTES, matches
from quire.selectors import selector
from quire.units import parse_number

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.queues.lane_dispatch import LaneDispatch
    from quire.message import Message

MAX_PAGE = 1000
"""How many entries one page may have."""


class BrowsePage(Status, frozen=True):
    """A part of a queue, or of a durable subscription."""

    messages: Annotated[list[BrowsedMessage], doc("In order.")]
    next: Annotated[str | None, doc("The after of the next page; null at the end.")]
    total: Annotated[int, doc("How many messages there are, whatever the page chooses.")]


class MessagePages:
    """Reads pages."""

    def __init__(self, broker: "Broker") -> None:
        self._core = broker.core

    def read(
        self, source: "LaneDispatch", after: str | None = None, limit: int = 100, wanted: str | None = None, *,
        id: str | None = None, preview: int | None = None,
    ) -> BrowsePage:  # fmt: skip
        """A page of messages, including those in flight; shorter for large messages, a selector or an id.

        Args:
            source: the queue or the durable subscription.
            after: the ``next`` of the page before; None for the first one.
            limit: how many messages at the most.
            wanted: only messages that this selector matches.
            id: only the message with this message id.
            preview: how many bytes of a body are shown; None for all.
        """
        check_limit(limit)
        first = parse_number(after or "0")
        if first is None:
            raise InvalidArgument(f"after is {str(after)[:60]!r}: give the next of an earlier page", argument="after")
        chooses = wanted is not None or id is not None
        messages, following = read(self._core, source, first, STEP_BYTES, STEP if chooses else limit)
        if chooses:
            messages, following = self._chosen(source, messages, following, limit, wanted, id)
        found = described(source, messages, preview)
        return BrowsePage(found, None if following is None else str(following), source.depth)

    def _chosen(
        self, source: "LaneDispatch", messages: "list[Message]", following: int | None, limit: int,
        wanted: str | None, id: str | None,
    ) -> "tuple[list[Message], int | None]":  # fmt: skip
        """Those messages of a page that are wanted, and where to go on: the time of one page is bounded."""
        chooser, clock, found = None if wanted is None else selector(wanted), self._core.clock, list["Message"]()
        end = clock.monotonic() + BUDGET
        for index, message in enumerate(messages):
            if len(found) == limit or (index and clock.monotonic() >= end):
                return found, message.sequence
            if (id is None or message.id == id) and (chooser is None or matches(chooser, source, message)):
                found.append(message)
        return found, following


def check_limit(limit: int) -> None:
    """Refuse a size of a page that is out of range."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidArgument(f"limit is {limit}: 1 to {MAX_PAGE}", argument="limit")
