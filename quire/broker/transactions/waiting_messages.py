"""Messages that are acknowledged although they are not in flight: they may still wait in their queue."""

from quire.broker.management.browsing import read
from quire.broker.queues.queue import Queue
from quire.broker.subscription import Source
from quire.errors import StoreCorrupt
from quire.message import Message


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
    return [message for sequence in sequences for message in _find(source, sequence)]


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


def _find(queue: Queue, sequence: int) -> list[Message]:
    try:
        messages = read(queue.broker, queue, sequence, 0, 1).messages
    except StoreCorrupt:  # it stays where it is, and dispatch tells of it
        return []
    return [message for message in messages if message.sequence == sequence]
