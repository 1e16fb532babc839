"""Messages that are acknowledged although they are not in flight: they may still wait in their queue.

They are found without their contents, and hidden until they are settled: no consumer gets them meanwhile.
"""

from quire.broker.core.subscription import Source
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.transactions.hidden_messages import is_there
from quire.message import Message

RUN = 1000
"""So many messages are looked for at once."""


def find_waiting(source: Source, sequences: list[int]) -> list[Message]:
    """Find messages in a queue, or a durable subscription, that may wait in it. Nothing is changed.

    Raises:
        StoreError: they cannot be read.
    """
    if not isinstance(source, LaneDispatch):
        return []
    sequences = [sequence for sequence in sequences if sequence <= source.locator.last]
    found = _unstored(source, sequences)
    wanted = set(sequences).difference([message.sequence for message in found])
    for lane in source.lanes:
        found += lane.without_contents(sorted(wanted))
    return found


def _unstored(queue: LaneDispatch, sequences: list[int]) -> list[Message]:
    """Those of some messages that are nowhere but in memory."""
    if not sequences:
        return []
    found: list[Message] = []
    wanted, start = set(sequences), sequences[0]
    while start <= sequences[-1] and (run := queue.locator.unstored_from(start, RUN, in_flight=False)):
        found += [message for message in run if message.sequence in wanted]
        start = run[-1].sequence + 1
    return found


def take_waiting(source: Source, found: list[Message]) -> list[Message]:
    """Hide messages: they are taken out of where they wait, until ``settle_waiting`` or ``put_back``."""
    if not found or not isinstance(source, LaneDispatch):
        return []
    there = {message.sequence: message for message in found}
    taken = [there[sequence] for sequence in source.withdrawal.hide(list(there))]
    for message in taken:
        if not message.stored:
            source.lane_of(message).cursor.hold([message])
    return taken


def settle_waiting(source: Source, taken: list[Message]) -> bool:
    """Remove what ``take_waiting`` gave, as if it were acknowledged in flight; False if its queue was deleted."""
    if not isinstance(source, LaneDispatch) or not is_there(source):
        return False
    source.withdrawal.settle_hidden([message for message in taken if message.stored])
    source.acknowledge([message for message in taken if not message.stored])
    return True


def put_back(source: Source, taken: list[Message]) -> None:
    """What ``take_waiting`` gave waits again, as before."""
    if isinstance(source, LaneDispatch) and is_there(source):
        source.withdrawal.show(taken)
