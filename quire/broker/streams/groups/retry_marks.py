"""The marks of a group's retries: ``group/NUMBER/r/LANE/OFFSET/RETRY``, whose value is the size of the body.

They find the retries of a message, and those of a partition in the order of its messages, without a look at any link.
"""

from collections.abc import Iterator

from quire.broker.streams.groups.group_definition import prefix_of
from quire.broker.streams.groups.retry_records import RetryMessage
from quire.store.base import Store

STEP = 1000
"""How many marks of a partition are read at once."""

RETRIES_OF_ONE = 10
"""How many retries of a message are looked for: there is one, unless a reset made the group get the message again."""


class RetryMarks:
    """The marks of one retry lane, as the store has them. All that reads them may raise ``StoreError``."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self._prefix = f"{prefix_of(number)}r/"

    def key(self, retry: RetryMessage) -> str:
        """The key of the mark of a retry."""
        return f"{self._prefix}{retry.origin_lane}/{retry.origin_sequence:016x}/{retry.sequence:016x}"

    def of_message(self, lane: int, sequence: int) -> list[RetryMessage]:
        """The retries of a message, without their content."""
        prefix = f"{self._prefix}{lane}/{sequence:016x}/"
        return self._read(prefix, prefix, RETRIES_OF_ONE)

    def of_partition(self, lane: int, start: int = 0, limit: int = STEP) -> list[RetryMessage]:
        """The retries of a partition's messages, without their content, in the order of these messages.

        Args:
            start: the offset of the first message.
        """
        prefix = f"{self._prefix}{lane}/"
        return self._read(prefix, f"{prefix}{start:016x}", limit)

    def sequences(self, lane: int) -> Iterator[int]:
        """The sequences of all retries of a partition's messages; there may be very many."""
        prefix = start = f"{self._prefix}{lane}/"
        while keys := [key for key, _ in self._store.marks(prefix, start, STEP)]:
            yield from [int(key[-16:], 16) for key in keys]
            start = f"{keys[-1]}!"  # behind it, and before any other

    def origins(self, lane: int, first: int, last: int, limit: int) -> set[int]:
        """The offsets of messages that have a retry: the lowest ones in a range.

        Args:
            first: the first offset to look at.
            last: the last one.
            limit: how many at the least, if there are as many.
        """
        found: set[int] = set()
        while len(found) < limit:
            retries = self.of_partition(lane, first, limit)
            found |= {retry.origin_sequence for retry in retries if retry.origin_sequence <= last}
            if len(retries) < limit or retries[-1].origin_sequence >= last:
                break
            first = retries[-1].origin_sequence + 1
        return found

    def _read(self, prefix: str, start: str, limit: int) -> list[RetryMessage]:
        found: list[RetryMessage] = []
        for key, size in self._store.marks(prefix, start, limit):
            lane, offset, sequence = key.removeprefix(self._prefix).split("/")
            found.append(RetryMessage(int(sequence, 16), b"", int(lane), int(offset, 16)))
            found[-1].size = int(size)
        return found
