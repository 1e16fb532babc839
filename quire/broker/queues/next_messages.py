"""What a queue has to give next: in time, not delayed, up to the dispatch mark; and what has to wait."""

import heapq

from quire.broker.core.core import Core
from quire.broker.queues.dispatched import Dispatched
from quire.broker.queues.queue_lane import END, RECALL_LIMIT, QueueLane
from quire.message import Message


class NextMessages:
    """The next messages of one queue."""

    __slots__ = ("_core", "_planned", "_queue")

    def __init__(self, core: Core, queue: Dispatched) -> None:
        self._core = core
        self._queue = queue
        self._planned: list[int] = []

    def run(self, limit: int) -> list[Message]:
        """The next messages in order, up to the dispatch mark."""
        for lane in self._queue.lanes:
            if lane.delayed and len(lane.returned) < RECALL_LIMIT:
                refused = self.recall_due(lane) is None
                if refused and not lane.returned:  # what came back holds memory: it goes on, to release it
                    continue
            if (
                lane.returned
                and lane.returned[0].sequence > lane.scanned
                and self.first_of_window(lane) <= lane.scanned
            ):
                continue
            is_held = False
            while not is_held and (run := lane.take(limit)):
                run, is_held = self.in_time(lane, run)
                if run:
                    mark = lane.mark
                    if mark.reach(run[-1].sequence, self._queue.window):
                        self._queue.commits.hurry()
                    return lane.cut(run, mark.stored + 1) if run[-1].sequence > mark.stored else run
            self.wait_if_refused(lane)
            if lane.is_scanning:
                return []
        return []

    def wait_if_refused(self, lane: QueueLane) -> None:
        """Try again when memory is released, if a lane's next message found none."""
        if lane.cursor.blocked_since is not None:
            lane.memory.wait(self._queue.memory_released)

    def first_of_window(self, lane: QueueLane) -> int:
        """The first sequence of a lane's window, which is paged in; ``END`` if there is none.

        What came back from further on makes room for it. As long as it cannot, the lane waits where it was scanned to.
        """
        first = lane.first_of_window()
        if first == END and lane.returned and lane.cursor.blocked_since is not None:
            lane.read_returned_again(self._queue.locator.unsettled())
            first = lane.first_of_window()
            if first == END and lane.cursor.blocked_since is not None:
                self.wait_if_refused(lane)
                return lane.scanned
        return first

    def in_time(self, lane: QueueLane, run: list[Message]) -> tuple[list[Message], bool]:
        """Take out of a run what has expired or is to be delivered later, and what such a message holds back.

        Returns:
            The others, and whether the next ones are held back.
        """
        if any([message.expiration or message.not_before for message in run]):
            run = self.without_late_ones(lane, run)
        if lane.delayed and run and run[-1].sequence > (barrier := self.barrier(lane)):
            return lane.cut(run, barrier), True
        return run, False

    def without_late_ones(self, lane: QueueLane, run: list[Message]) -> list[Message]:
        """What of a run is neither expired nor to be delivered later."""
        now = self._core.wall.past_ms()
        expired = [message for message in run if message.expiration and message.expiration <= now]
        run = [message for message in run if not message.expiration or message.expiration > now]
        if expired:
            self._queue.dead_letter(expired, "expired", "expired before it could be delivered")
        steady = self._core.wall.steady_ms()
        if delayed := [message for message in run if message.not_before > steady]:
            self.delay(lane, delayed)
        return [message for message in run if message.not_before <= steady]

    # What has to wait.

    def is_held(self, lane: QueueLane) -> bool:
        """Whether a message that waits for its redelivery holds back all later ones of its lane."""
        return bool(lane.delayed) and (self._queue.policy.blocking_redelivery or self.keeps_order)

    def barrier(self, lane: QueueLane) -> int:
        """The sequence of the message that holds back all later ones; ``END`` if none does."""
        return lane.delayed.lowest if self.is_held(lane) else END

    @property
    def keeps_order(self) -> bool:
        """Whether one consumer has all messages and relies on their order."""
        policy = self._queue.policy
        return (
            policy.strict_order_dispatch
            or policy.all_consumers_exclusive_by_default
            or any([s.exclusive for s in self._queue.subscriptions])
        )

    def delay(self, lane: QueueLane, messages: list[Message]) -> None:
        """Let messages wait until they may be delivered."""
        lane.delay(messages, self._queue.group_header)
        self.wake_when_due(lane)

    def wake_when_due(self, lane: QueueLane) -> None:
        """Dispatch when the first delayed message is due, unless that is planned already."""
        now, earliest = self._core.wall.steady_ms(), lane.delayed.earliest
        if earliest > now and (not self._planned or earliest < self._planned[0]):
            heapq.heappush(self._planned, earliest)
            self._core.scheduler.call_later((earliest - now) / 1000, self._some_are_due)

    def _some_are_due(self) -> None:
        heapq.heappop(self._planned)
        self._queue.wake()

    def recall_due(self, lane: QueueLane) -> int | None:
        """Bring delayed messages back that are due, some at a time.

        Returns:
            How many of them wait no more; None if they wait for memory.
        """
        now = self._core.wall.steady_ms()
        if lane.delayed.earliest > now:
            return 0
        sequences, sizes = lane.delayed.due(now, RECALL_LIMIT, self._queue.locator.unsettled())
        if not sequences:
            return 0
        messages, count = self.recall(lane, sequences, sizes, lane.delayed.kept)
        lane.delayed.drop(count)
        lane.come_back(messages)
        if lane.delayed:
            self.wake_when_due(lane)
        return count or None

    def recall(
        self, lane: QueueLane, sequences: list[int], sizes: list[int], kept: dict[int, Message]
    ) -> tuple[list[Message], int]:
        """Bring messages back that were set aside, as ``QueueLane.recall``; they go before the window, for memory too.

        If memory refuses them all the same, dispatch is tried again when some is released.
        """
        messages, count = lane.recall(sequences, sizes, kept)
        if not count and lane.cursor.window:
            lane.give_up_window(self._queue.locator.out_sequences())
            messages, count = lane.recall(sequences, sizes, kept)
        if not count:
            lane.memory.wait(self._queue.memory_released)
        return messages, count
