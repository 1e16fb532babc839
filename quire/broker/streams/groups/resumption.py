"""What a member of a group still has when it comes back: it is in its hands again, without a delivery."""

from collections.abc import Callable

from quire.broker.core.subscription import Subscription
from quire.broker.queues.queue_lane import QueueLane
from quire.broker.queues.queue_part import QueuePart
from quire.errors import StoreError
from quire.message import Message


def resume_messages(
    lane: QueueLane, parts: list[QueuePart], consumer: Subscription, sequences: list[int],
    take_out: Callable[[list[int]], list[int]],
) -> list[Message]:  # fmt: skip
    """Put messages into a consumer's in-flight table.

    They are read before they are taken from where they wait: what cannot be read goes on waiting there.

    Args:
        parts: what its owner has in commits, the open one last.
    """
    found = {message.sequence: message for message in _read(lane, parts, sequences)}
    taken = [found[sequence] for sequence in take_out(list(found))]
    free = {message.sequence for message in taken}
    cursor = lane.cursor
    cursor.excluded -= free
    parts[-1].excluded -= free
    cursor.skipped |= {sequence for sequence in free if sequence > cursor.position}
    cursor.hold(taken)
    for message in taken:
        message.redelivered = True
    consumer.in_flight.update([(message.sequence, message) for message in taken])
    return taken


def _read(lane: QueueLane, parts: list[QueuePart], sequences: list[int]) -> list[Message]:
    """Read messages, with what is on its way to the store of their deliveries."""
    found: list[Message] = []
    for sequence in sequences:
        try:
            found += lane.reader.load(lane.id, [sequence])
        except StoreError:  # dispatch will come to it, and say so
            continue
    states = {sequence: state for part in parts for sequence, (_, state) in part.deliveries.items()}
    for message in found:
        if state := states.get(message.sequence):
            message.deliveries, message.failures = state.deliveries, state.failures
    return found
