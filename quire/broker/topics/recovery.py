"""Gives a retroactive consumer what its topic keeps, before it gets what is sent from then on."""

import logging
from collections.abc import Callable

from quire.broker.topics.topic_records import RecordOwner
from quire.errors import StoreCorrupt
from quire.logs import event
from quire.message import MESSAGE_OVERHEAD, Message

PAGE_BYTES = 256 * 1024
"""How many bytes of messages are read at once."""


class Recovery:
    """A walk over the kept messages of a topic. Until it has passed them, they stay.

    Args:
        first: the first sequence.
        last: the last one.
        closed: called when the consumer has them all, or is gone.
    """

    def __init__(self, topic: RecordOwner, first: int, last: int, closed: Callable[["Recovery"], None]) -> None:
        self._topic = topic
        self._position = first
        self._last = last
        self._closed = closed

    @property
    def has_more(self) -> bool:
        """Whether there may be more messages."""
        return self._position <= self._last

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences whose records are not among those that are still to come."""
        return [sequence for sequence in sequences if not self._position <= sequence <= self._last]

    def fits(self, room: int) -> bool:
        """Whether the next message fits into so much memory, told from its indexed size."""
        places = self._topic.records.places(self._position, 1)
        return not places or places[0].size + MESSAGE_OVERHEAD <= room

    def read(self, limit: int, room: int) -> list[Message]:
        """The next messages, as many as fit but at least one, without those that are not kept any more.

        A damaged record is passed over, and the log says so.

        Args:
            room: how many bytes they may take together.

        Raises:
            StoreError: the store cannot be read.
        """
        try:
            page = self._topic.records.page(self._position, min(max(room, 0), PAGE_BYTES), limit)
        except StoreCorrupt as damage:
            return self._read_before(damage)
        messages = [message for message in page.messages if message.sequence <= self._last]
        past_end = page.end or len(messages) < len(page.messages)
        self._move(self._last + 1 if past_end else messages[-1].sequence + 1, messages)
        return self._young(messages)

    def _read_before(self, damage: StoreCorrupt) -> list[Message]:
        """What stands before a damaged record; if nothing does, the record is passed over."""
        sequence = damage.data["sequence"]
        places = self._topic.records.places(self._position, 1)
        if places and places[0].sequence < sequence:
            messages = self._topic.records.page(self._position, 0, 1).messages
            self._move(messages[0].sequence + 1, messages)
            return self._young(messages)
        name = self._topic.destination.name
        text = f"topic {name}: {damage} A retroactive consumer does not get this message. {damage.entry.advice}"
        event("topic.damaged", text, logging.ERROR, topic=name, **damage.data)
        self._move(sequence + 1, [])
        return []

    def _young(self, messages: list[Message]) -> list[Message]:
        """With the policy ``timed``, those that are not too old: records are let go in steps of time."""
        policy, now = self._topic.policy, self._topic.core.wall.past_ms()
        if policy.subscription_recovery_policy != "timed":
            return messages
        oldest = now - policy.recovery_duration * 1000
        return [message for message in messages if int(message.header(b"timestamp") or 0) > oldest]

    def _move(self, position: int, passed: list[Message]) -> None:
        self._position = position
        self._topic.remove_records({message.sequence: self._topic.lane_of(message.priority) for message in passed})

    @property
    def left(self) -> tuple[int, int]:
        """The first and the last sequence that are still to come."""
        return self._position, self._last

    def close(self) -> None:
        """The consumer has them all, or is gone: whatever was held for it is let go."""
        self._closed(self)
