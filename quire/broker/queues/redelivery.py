"""The way back into its queue of a message that a consumer did not acknowledge.

It is counted and flagged. Then it goes out again before later ones, or waits for its time, or goes to the tail, or
becomes a dead letter: that is for the policy to say.
"""

from collections.abc import Callable
from typing import Protocol

from quire.broker.core.core import Core
from quire.broker.queues.dispatched import Dispatched
from quire.broker.queues.dispatcher import Dispatcher
from quire.broker.queues.queue_lane import by_lane
from quire.broker.queues.redelivery_delay import RetryDelays, redelivery_delay_ms
from quire.message import Message
from quire.store.base import Delivery


class Returning(Dispatched, Protocol):
    """A queue that messages come back to."""

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether a message that fails here stays here."""

    @property
    def retry_delays(self) -> RetryDelays | None:
        """How long a message that failed waits for its next delivery; None for what the policy says."""


class Redelivery:
    """The way back into one queue.

    Args:
        relocate: where messages that failed and need not be delivered at once go; None if they stay.
    """

    __slots__ = ("_core", "_dispatcher", "_queue", "_relocate")

    def __init__(
        self,
        core: Core,
        queue: Returning,
        dispatcher: Dispatcher,
        relocate: Callable[[list[Message], str], bool] | None,
    ) -> None:
        self._core = core
        self._queue = queue
        self._dispatcher = dispatcher
        self._relocate = relocate

    def take(self, messages: list[Message], failed: int, cause: str, *, at_once: bool, delay_ms: int | None) -> None:
        """Take messages back.

        Args:
            failed: how many of the first of them count as failed deliveries.
            at_once: whether those that failed need not wait for the delay of their policy.
        """
        maximum = -1 if self._queue.is_dead_letter_queue else self._queue.policy.maximum_redeliveries
        messages, failed = count_deliveries(messages, failed, cause, maximum, self._queue.dead_letter)
        for index, message in enumerate(messages):
            message.not_before = self._next_delivery(message, delay_ms) if index < failed and not at_once else 0
        if any([message.not_before for message in messages]):
            self._core.note_delay()
        if not at_once and self._relocate is not None and self._relocate(messages[:failed], cause):
            messages = messages[failed:]
        state = Delivery(0, 0, 0, cause)
        for message in messages:
            known = (message.deliveries, message.failures, message.not_before)
            if known != state[:3]:  # mostly it is that of the message before
                state = Delivery(*known, cause)
            self._queue.commits.note_delivery(message, state)
        self._return(messages)

    def take_unseen(self, messages: list[Message]) -> None:
        """Take messages back that no application has seen."""
        for message in messages:
            message.not_before = 0
        self._return(messages)

    def _next_delivery(self, message: Message, delay_ms: int | None) -> int:
        """The steady time before which a message that failed is not delivered again."""
        if delay_ms is None and (delays := self._queue.retry_delays) is not None:
            delay_ms = delays.delay_ms(message.failures)
        elif delay_ms is None:
            delay_ms = redelivery_delay_ms(self._queue.policy, message.failures, self._core.random)
        return self._core.wall.steady_ms() + delay_ms if delay_ms else 0

    def show(self, messages: list[Message]) -> None:
        """Put hidden messages back. What the cursor does not come to again is recalled, before later ones."""
        sequences = {message.sequence for message in messages}
        for lane in self._queue.lanes:
            own = messages if len(self._queue.lanes) == 1 else lane.own(messages)
            lane.cursor.excluded -= sequences
            lane.cursor.skipped -= sequences
            lane.come_back([message for message in own if not message.stored])
            lane.recall_later([m for m in own if m.stored and m.sequence <= lane.cursor.position])
        if not self._queue.subscriptions:
            self._dispatcher.rest()

    def _return(self, messages: list[Message]) -> None:
        """Put messages where they wait for their next delivery: before all others, or beside them until their time."""
        for lane, own in by_lane(self._queue.lanes, messages):
            if now := [message for message in own if not message.not_before]:
                lane.come_back(now)
            if later := [message for message in own if message.not_before]:
                self._dispatcher.next.delay(lane, later)


def count_deliveries(
    messages: list[Message], failed: int, cause: str, maximum: int,
    dead_letter: Callable[[list[Message], str, str], None],
) -> tuple[list[Message], int]:  # fmt: skip
    """Count a delivery of each message, and of the first ones a failure. Those that failed too often are dead letters.

    Args:
        maximum: how many failures are allowed; -1 for any number.

    Returns:
        The others, and how many of the first of them failed.
    """
    poison: list[Message] = []
    for index, message in enumerate(messages):
        message.redelivered = True
        message.deliveries += 1
        message.failures += index < failed
        if 0 <= maximum < message.failures:
            poison.append(message)
    if not poison:
        return messages, failed
    text = f"delivery failed {poison[0].failures} times, the maximum is {maximum}: {cause}"
    dead_letter(poison, "failed", text)
    sequences = {message.sequence for message in poison}
    failed -= len([message for message in messages[:failed] if message.sequence in sequences])
    return [message for message in messages if message.sequence not in sequences], failed
