"""The delivery ledger's blocks: what happened to many messages, packed into one body.

A block is a list of runs. A run is one event that happened to some messages at one time: they were committed, given to
a consumer, acknowledged. Sequences stand in it as ranges, ids and times of sending as runs of their own, so that a
message costs a few bytes and, mostly, no work: ids and times are looked at where a run begins and where it ends.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec

from quire.message import Message, timestamp_of, unescape

STREAM = "$quire.ledger"
"""The name of the stream that has the ledger."""


class LedgerEvent(IntEnum):
    COMMIT = 1
    """It is stored. Its sending is told with it."""
    DISPATCH = 2
    """It was given to a consumer."""
    ACKNOWLEDGE = 3
    """The consumer is done with it."""
    REDELIVER = 4
    """It came back, and will be given out again."""
    DEAD_LETTER = 5
    """It became a dead letter."""
    EXPIRE = 6
    """Its time was over."""
    REMOVE = 7
    """An operator removed or moved it."""
    RETURN = 8
    """It came back, and no application has seen it: the next dispatch has no flag."""

    @property
    def word(self) -> str:
        """How rows say it."""
        return self.name.lower().replace("_", "-")


SEND = "send"
"""The event of the row that says when a message was sent; it comes with its commit."""


class Ids(msgspec.Struct, array_like=True, frozen=True):
    """The ids of the messages of a run, in order."""

    prefix: str = ""  # what all of them begin with
    numbers: list[int] = []  # how they go on: the first one of neighbours and how many they are, in turn
    others: list[str] = []  # all of them, written out, if they are not of that form

    def all(self) -> Iterator[str]:
        return iter(self.others) if self.others else (f"{self.prefix}{number}" for number in unpacked(self.numbers))


class Run(msgspec.Struct, array_like=True, frozen=True):
    """One event of some messages."""

    destination: str  # of the messages: ``queue://orders``
    event: int  # what happened
    time: int  # when, in milliseconds since the epoch
    who: str  # the producer or the consumer; empty if unknown
    subscriber: str  # the durable subscription or the consumer group it is about; empty for all of a topic or a stream
    lane: int  # the partition of a stream; 0 otherwise
    ranges: list[int]  # their sequences: the first one of neighbours and how many they are, in turn
    flagged: list[int] = []  # the sequences that were dispatched with the flag that says redelivered, likewise
    ids: Ids = Ids()  # of committed ones
    sent: list[int] = []  # when committed ones were sent: a time and of how many, in turn

    def consumer(self) -> str | None:
        """Who had the messages, if known: the durable subscription or group and, after a slash, the consumer."""
        return "/".join([part for part in (self.subscriber, self.who) if part]) or None


class Row(NamedTuple):
    """One event of one message."""

    destination: str  # as ``Run``
    event: str  # its word
    lane: int  # as ``Run``
    sequence: int  # the message's
    message_id: str | None  # of sends and commits; None otherwise
    producer: str | None  # of sends and commits, if known
    consumer: str | None  # of the others, as ``Run`` says it
    time: int  # in milliseconds since the epoch
    flagged: bool  # whether it was dispatched with the flag that says redelivered


def ranges_of(sequences: list[int]) -> list[int]:
    """Pack different sequences: the first one of neighbours and how many they are, in turn, ascending."""
    if not sequences:
        return []
    lowest = min(sequences)
    if max(sequences) - lowest == len(sequences) - 1:  # as mostly, and this is asked for often
        return [lowest, len(sequences)]
    packed: list[int] = []
    first = after = -1
    for sequence in sorted(sequences):
        if sequence != after:
            if first >= 0:
                packed += (first, after - first)
            first = sequence
        after = sequence + 1
    packed += (first, after - first)
    return packed


def unpacked(ranges: list[int]) -> Iterator[int]:
    """The sequences that ``ranges_of`` packed."""
    for first, count in zip(ranges[::2], ranges[1::2], strict=True):
        yield from range(first, first + count)


def encode_block(runs: list[Run]) -> bytes:
    return msgspec.msgpack.encode(runs)


_decoder = msgspec.msgpack.Decoder(list[Run])


def decode_block(body: bytes) -> list[Run]:
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a block of the ledger: {error}") from error


def rows(runs: list[Run]) -> Iterator[Row]:
    """One row for each event of each message, in the order they happened to it."""
    for run in runs:
        if run.event == LedgerEvent.COMMIT:
            yield from _committed(run)
            continue
        word, flagged = LedgerEvent(run.event).word, set(unpacked(run.flagged))
        who = run.consumer()
        for sequence in unpacked(run.ranges):
            yield Row(run.destination, word, run.lane, sequence, None, None, who, run.time, sequence in flagged)


def _committed(run: Run) -> Iterator[Row]:
    who = run.who or None
    times = (time for time, count in zip(run.sent[::2], run.sent[1::2], strict=True) for _ in range(count))
    for sequence, id, sent in zip(unpacked(run.ranges), run.ids.all(), times, strict=True):
        for word, time in ((SEND, sent), (LedgerEvent.COMMIT.word, run.time)):
            yield Row(run.destination, word, run.lane, sequence, id, who, None, time, False)


# What a commit tells of its messages.


def ids_of(messages: list[Message]) -> Ids:
    """The ids of messages, packed.

    A broker numbers its messages in ascending order. So if the numbers of the first and the last one of a run are as
    far apart as they are, all between them are neighbours, and nothing else is looked at.
    """
    start = messages[0].content.rfind(b"-", 0, messages[0].content.index(b"\n")) + 1
    prefix = messages[0].content[:start]
    first, last = _number(messages[0], prefix), _number(messages[-1], prefix)
    if first is None or last is None:
        return Ids(others=[message.id for message in messages])
    numbers: list[int | None] = list(range(first, last + 1))
    if last - first != len(messages) - 1:
        numbers = [_number(message, prefix) for message in messages]
    if None in numbers:
        return Ids(others=[message.id for message in messages])
    return Ids(unescape(prefix[11:]).decode("utf-8", "replace"), ranges_of([n for n in numbers if n is not None]))


def _number(message: Message, prefix: bytes) -> int | None:
    """The number at the end of a message's id; None if the id does not begin so, or does not end in one."""
    content = message.content
    digits = content[len(prefix) : content.index(b"\n")]
    return int(digits) if content.startswith(prefix) and digits.isdigit() else None


def sent_of(messages: list[Message]) -> list[int]:
    """When messages were sent: a time and of how many, in turn. Times ascend: mostly all are the same."""
    first, last = timestamp_of(messages[0]), timestamp_of(messages[-1])
    if first == last:
        return [first, len(messages)]
    packed: list[int] = []
    for message in messages:
        time = timestamp_of(message)
        if packed and packed[-2] == time:
            packed[-1] += 1
        else:
            packed += (time, 1)
    return packed
