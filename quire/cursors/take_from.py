"""Taking some messages out of many that are in order."""

from bisect import bisect_left, bisect_right
from collections import deque
from operator import attrgetter

from quire.message import Message

_sequence = attrgetter("sequence")


def take_from(messages: deque[Message], sequences: set[int]) -> list[Message]:
    """Take the messages of some sequences out of a queue of messages.

    It costs what lies between the first and the last of them, however many messages there are beside that.

    Args:
        messages: in ascending sequence.
        sequences: which; they need not be there.

    Returns:
        Those that were there, in order.
    """
    if not messages or not sequences:
        return []
    start = bisect_left(messages, min(sequences), key=_sequence)
    count = bisect_right(messages, max(sequences), start, key=_sequence) - start
    messages.rotate(-start)
    between = [messages.popleft() for _ in range(count)]
    messages.extendleft(reversed([message for message in between if message.sequence not in sequences]))
    messages.rotate(start)
    return [message for message in between if message.sequence in sequences]
