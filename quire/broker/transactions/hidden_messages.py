"""Messages of a queue that a prepared transaction has acknowledged: hidden until its outcome is known.

A durable subscription is such a queue too. They are counted in its depth. They take no memory but their sequences, and
no cursor admits them.
"""

from typing import Self

from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.queues.queue_lane import QueueLane
from quire.message import Message
from quire.store.base import Delivery


class HiddenMessages:
    """The hidden messages of one transaction in one queue."""

    def __init__(self, queue: LaneDispatch, messages: list[Message]) -> None:
        self.queue = queue
        self._messages = messages

    @classmethod
    def take(cls, queue: LaneDispatch, messages: list[Message]) -> Self:
        """Hide messages of a queue."""
        for message in messages:
            queue.lane_of(message).cursor.set_aside(message)
        queue.dispatcher.groups.settled(messages)
        hidden = cls(queue, [_without_content(message) for message in messages])
        hidden._exclude()
        queue.wake()
        return hidden

    @classmethod
    def find(cls, queue: LaneDispatch, sequences_by_lane: dict[int, list[int]]) -> Self:
        """Hide messages of a queue after a restart.

        Args:
            sequences_by_lane: which, by lane id. Those that are not there are left out.
        """
        messages = []
        for lane in queue.lanes:
            messages += _find(lane, sequences_by_lane.get(lane.id, []))
        hidden = cls(queue, messages)
        hidden._exclude()
        return hidden

    def sequences_by_lane(self) -> dict[int, list[int]]:
        """What ``find`` finds again after a restart: the persistent ones."""
        persistent = [message for message in self._messages if message.persistent]
        owned = {lane.id: [message.sequence for message in self._own(lane, persistent)] for lane in self.queue.lanes}
        return {lane: sequences for lane, sequences in owned.items() if sequences}

    def _exclude(self) -> None:
        for lane in self.queue.lanes:
            lane.cursor.excluded |= {message.sequence for message in self._own(lane, self._messages)}

    def remove(self) -> None:
        """They are done with: remove them with the open commit."""
        if is_there(self.queue):
            self.queue.withdrawal.settle_hidden(self._messages)

    def note_return(self, cause: str) -> None:
        """They are going to come back: store that with the open commit. Then ``show`` them."""
        if is_there(self.queue):
            for message in self._messages:
                message.deliveries += 1
                self.queue.note_delivery(message, Delivery(message.deliveries, message.failures, 0, cause))

    def show(self) -> None:
        """They wait again, before later ones, in their order."""
        if is_there(self.queue):
            self.queue.redelivered += len(self._messages)
            self.queue.withdrawal.show(self._messages)

    def _own(self, lane: QueueLane, messages: list[Message]) -> list[Message]:
        return messages if len(self.queue.lanes) == 1 else lane.own(messages)


def is_there(queue: LaneDispatch) -> bool:
    """Whether a queue was not deleted meanwhile, with all its messages."""
    return not queue.is_deleted


def _without_content(message: Message) -> Message:
    hidden = Message(message.sequence, b"", message.expiration, message.priority, message.persistent)
    hidden.size, hidden.stored = message.size, message.stored
    hidden.deliveries, hidden.failures = message.deliveries, message.failures
    return hidden


def _find(lane: QueueLane, sequences: list[int]) -> list[Message]:
    found = []
    for sequence in sequences:
        links, states = lane.reader.links(lane.id, sequence, 1), lane.reader.deliveries(lane.id, sequence, 1)
        if links and links[0].sequence == sequence:
            message = Message(sequence, b"", priority=lane.priority)
            message.size = links[0].size
            if states and states[0][0] == sequence:
                message.deliveries, message.failures = states[0][1].deliveries, states[0][1].failures
            found.append(message)
    return found
