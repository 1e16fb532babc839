"""What a member of a group still has when it comes back: it is in its hands again, without a delivery."""

from quire.broker.commit import QueuePart
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.subscription import Subscription
from quire.errors import StoreCorrupt
from quire.message import Message


def hand_over(lane: QueueLane, part: QueuePart, consumer: Subscription, sequences: list[int]) -> list[Message]:
    """Put messages into a consumer's in-flight table.

    Args:
        lane: the lane they are in.
        part: what its owner has in the open commit.
        consumer: who says that it has them.
        sequences: as ``Queue.take_out`` gave them.

    Returns:
        The messages of them that are there.
    """
    found: list[Message] = []
    for sequence in sequences:
        try:
            found += lane.reader.load(lane.id, [sequence])
        except StoreCorrupt:  # dispatch will come to it, and say so
            continue
    cursor = lane.cursor
    cursor.excluded -= set(sequences)
    part.excluded -= set(sequences)
    cursor.skipped |= {message.sequence for message in found if message.sequence > cursor.position}
    cursor.hold(found)
    for message in found:
        message.redelivered = True
    consumer.in_flight.update([(message.sequence, message) for message in found])
    return found
