"""A stream browser: a consumer that is shown all messages of a stream, one partition after the other."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.broker.core.subscription import AckMode, Session
from quire.broker.queues.browsed import LEAST_PIECE, PIECE, PIECE_BYTES, Browsed
from quire.broker.streams.range_reads import read_range
from quire.errors import StoreCorrupt
from quire.selectors import Selector

if TYPE_CHECKING:
    from quire.broker.streams.stream import Stream


class StreamBrowser(Browsed):
    """One browser of one stream.

    Args:
        number_of: the number by which the client knows a message, of its offset and its partition.
    """

    def __init__(
        self, stream: "Stream", session: Session, number_of: Callable[[int, int], int], *, id: str, number: int,
        prefetch: int, selector: Selector | None, ended: Callable[[int], None],
    ) -> None:  # fmt: skip
        super().__init__(
            stream.core, stream.destination, stream.policy, session, id=id, number=number, ack=AckMode.INDIVIDUAL,
            prefetch=prefetch, selector=selector, ended=ended,
        )  # fmt: skip
        self._stream = stream
        self._number_of = number_of
        self._ranges: list[tuple[int, int, int]] = []

    def _note_end(self) -> None:
        """Note from where to where each partition is shown; the first of them is last."""
        self._ranges = [
            (partition.index, partition.head, partition.announced + 1)
            for partition in reversed(self._stream.partitions)
            if partition.head
        ]

    def _show(self, room: int) -> bool:
        """Read a piece and show what of it is wanted; False at the end of the stream."""
        if not self._ranges or self._stream.is_deleted:
            return False
        index, first, until = self._ranges.pop()
        selector, lane = self.subscription.selector, self._stream.partitions[index].lane
        limit = min(PIECE, room if selector is None else max(room, LEAST_PIECE))
        try:
            found = read_range(self.core.store, lane, first, until, max_messages=limit, max_bytes=PIECE_BYTES)
        except StoreCorrupt as damage:
            self._damaged += 1
            self._go_on(index, damage.data["sequence"] + 1, until)
            return True
        wanted = [message for message in found.messages if selector is None or selector.matches(message)]
        self._go_on(index, wanted[room].sequence if len(wanted) > room else found.next, until)
        for message in wanted[:room]:
            message.sequence = self._number_of(message.sequence, index)
        self._give(wanted[:room])
        return True

    def _go_on(self, index: int, first: int, until: int) -> None:
        if first < until:
            self._ranges.append((index, first, until))
