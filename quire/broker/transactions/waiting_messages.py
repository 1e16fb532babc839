"""Messages that are acknowledged although they are not in flight: they may still wait in their queue."""

from quire.broker.queues.queue import Queue
from quire.broker.subscription import Source
from quire.errors import StoreCorrupt
from quire.message import Message

RUN = 1000
"""So many messages are read at once."""


def find_waiting(source: Source, sequences: list[int]) -> list[Message]:
    """Find messages in a queue, or a durable subscription, that may wait in it. Nothing is changed.

    Args:
        source: where they were consumed from. What a plain subscription of a topic got back is delivered again.
        sequences: which.

    Raises:
        StoreError: they cannot be read.
    """
    if not isinstance(source, Queue):
        return []
    last, wanted = source.last, set(sequences)
    found = [message for message in source.unstored() if message.sequence in wanted]
    wanted.difference_update([message.sequence for message in found])
    stored = sorted([sequence for sequence in wanted if sequence <= last])
    for start in range(0, len(stored), RUN):
        found += _load(source, stored[start : start + RUN])
    return [message for message in found if message.sequence <= last]


def take_waiting(source: Source, found: list[Message]) -> list[Message]:
    """Take messages out of where they wait, as if they were in flight.

    Args:
        source: where they were consumed from.
        found: what ``find_waiting`` has just found there.

    Returns:
        Those that nobody has, to be acknowledged. The others are with a consumer again, or are gone.
    """
    if not found or not isinstance(source, Queue):
        return []
    there = {message.sequence: message for message in found}
    taken = [there[sequence] for sequence in source.take_out(list(there))]
    for message in taken:
        source.lane_of(message).cursor.hold([message])
    return taken


def _load(queue: Queue, sequences: list[int]) -> list[Message]:
    """Those of some messages that are stored. One that is damaged stays where it is, and dispatch tells of it."""
    try:
        found = []
        for lane in queue.lanes:
            found += lane.reader.load(lane.id, sequences)
            if not queue.broker.spool.is_empty(lane.id):
                found += queue.broker.spool.load(lane.id, sequences)
    except StoreCorrupt:
        if len(sequences) == 1:
            return []
        half = len(sequences) // 2
        return _load(queue, sequences[:half]) + _load(queue, sequences[half:])
    return found
