"""A stream browser: a consumer that is shown all messages of a stream, one partition after the other."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from quire.broker.core.subscription import AckMode, Session
from quire.broker.queues.browsed import LEAST_PIECE, PIECE, PIECE_BYTES, Browsed
from quire.errors import StoreCorrupt
from quire.selectors import Selector, at_most
from quire.store.positions import sound_page

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
        self._ranges: list[tuple[int, int, int]] = []  # from where to where each partition is shown; the first is last
        for partition in reversed(stream.partitions):
            self._go_on(partition.index, 1, partition.next_sequence)

    def _show(self, room: int) -> bool:
        """Read a piece and show what of it is wanted; False at the end of the stream."""
        if not self._ranges or self._stream.is_deleted:
            return False
        index, first, until = self._ranges.pop()
        selector, lane = self.subscription.selector, self._stream.partitions[index].lane
        limit = at_most(min(PIECE, room if selector is None else max(room, LEAST_PIECE)), [selector])
        try:
            with self.core.store.snapshot() as reader:
                messages, is_done = sound_page(reader, lane, first, until, PIECE_BYTES, limit)
        except StoreCorrupt as damage:
            self._damaged += 1
            self._go_on(index, damage.data["sequence"] + 1, until)
            return True
        wanted = [message for message in messages if selector is None or selector.matches(message)]
        if len(wanted) > room:
            self._go_on(index, wanted[room].sequence, until)
        elif not is_done:
            self._go_on(index, messages[-1].sequence + 1, until)
        for message in wanted[:room]:
            message.sequence = self._number_of(message.sequence, index)
        self._give(wanted[:room])
        return True

    def _go_on(self, index: int, first: int, until: int) -> None:
        if first < until:
            self._ranges.append((index, first, until))
