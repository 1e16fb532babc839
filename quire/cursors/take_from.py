"""Removing some messages from many that are in order."""

from bisect import bisect_left, bisect_right
from collections import deque
from operator import attrgetter

from quire.message import Message

_sequence = attrgetter("sequence")


def take_from(messages: deque[Message], sequences: set[int]) -> list[Message]:
    """Remove the messages with some sequences, and return them in order.

    The messages are in ascending sequence. It costs what lies between the first and the last one removed.
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
