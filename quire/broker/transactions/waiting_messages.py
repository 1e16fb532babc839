"""Messages that are acknowledged although they are not in flight: they may still wait in their queue."""

from quire.broker.management.browsing import read
from quire.broker.queues.queue import Queue
from quire.broker.subscription import Source
from quire.errors import StoreError
from quire.message import Message


def take_waiting(source: Source, sequences: list[int]) -> list[Message]:
    """Take messages out of a queue, or a durable subscription, that wait in it, as if they were in flight.

    Args:
        source: where they were consumed from. What a plain subscription of a topic got back is delivered again.
        sequences: which.

    Returns:
        Those that nobody has, to be acknowledged. The others are with a consumer again, or are gone.
    """
    if not isinstance(source, Queue):
        return []
    there = {message.sequence: message for sequence in sequences for message in _find(source, sequence)}
    taken = [there[sequence] for sequence in source.take_out(list(there))]
    for message in taken:
        source.lane_of(message).cursor.hold([message])
    return taken


def _find(queue: Queue, sequence: int) -> list[Message]:
    try:
        messages = read(queue.broker, queue, sequence, 0, 1).messages
    except StoreError:  # it stays where it is, and dispatch tells of it
        return []
    return [message for message in messages if message.sequence == sequence]
