"""What a topic keeps for retroactive consumers: the newest messages of its lane, by its subscription recovery policy.

They are records like others, so they outlive the broker. What is remembered here is where they begin, how many there
are and their size; with the policy ``timed`` also when they came, in a bounded number of steps.
"""

from collections import deque
from typing import TYPE_CHECKING

from quire.message import Message
from quire.store.base import Link

if TYPE_CHECKING:
    from quire.broker.topics.topic import Topic

STEP = 1000
"""How many messages are let go at once, beside as many as just came."""

TIME_STEPS = 100
"""Into how many steps the duration of the policy ``timed`` is divided."""


class KeptMessages:
    """The kept messages of one topic.

    Args:
        topic: the topic.
        first: the first sequence that is kept, as it was stored; 0 for none.
        count: how many are kept.
        bytes: their sizes.

    Attributes:
        first: the first sequence that is kept; without a policy nothing is, whatever this is.
        count: how many are kept; exact.
        bytes: their sizes.
    """

    def __init__(self, topic: "Topic", first: int, count: int, bytes: int) -> None:
        self.first = first or topic.next_sequence
        self.count = count
        self.bytes = bytes
        self._topic = topic
        self._times: deque[tuple[int, int]] = deque()  # until when messages up to a sequence are kept
        self._late = 0  # the last sequence that was kept for long enough, with that policy
        self._is_timed = False
        self._was_keeping = self.is_keeping
        if count:
            self._note_time(topic.next_sequence - 1)
            topic.broker.after_commit(self.trim)

    @property
    def is_keeping(self) -> bool:
        """Whether the policy asks for it."""
        return self._topic.policy.subscription_recovery_policy != "none"

    def policy_changed(self) -> None:
        """Another policy applies from now on."""
        if self.is_keeping and not self._was_keeping and not self.count:
            self.first = self._topic.filled_to + 1
        self._was_keeping = self.is_keeping
        self._times.clear()
        if self.count:
            self._note_time(self._topic.announced)
            self.trim()

    def done_of(self, sequences: list[int]) -> list[int]:
        """Those of some sequences that are not kept."""
        return [sequence for sequence in sequences if sequence < self.first] if self.is_keeping else sequences

    def share(self, stored: list[Message]) -> list[Message]:
        """Those of some stored messages that are kept."""
        return [message for message in stored if message.sequence >= self.first] if self.is_keeping else []

    def committed(self, stored: list[Message]) -> None:
        """Messages were stored: keep them, and let older ones go."""
        if share := self.share(stored):
            self.count += len(share)
            self.bytes += sum([message.size for message in share])
            self._note_time(share[-1].sequence)
            self.trim(len(share))

    def _note_time(self, last: int) -> None:
        """Messages up to a sequence have come; those that come soon after are let go together with them."""
        policy = self._topic.policy
        if policy.subscription_recovery_policy == "timed":
            until = self._topic.broker.clock.now_ms() + round(policy.recovery_duration * 1000)
            step = policy.recovery_duration * 1000 / TIME_STEPS
            if self._times and self._times[-1][0] // step == until // step:
                self._times.pop()
            self._times.append((until, last))
            self._wait()

    def _wait(self) -> None:
        """Trim when the first of them are to go."""
        if self._times and not self._is_timed:
            self._is_timed = True
            broker = self._topic.broker
            delay = max(self._times[0][0] - broker.clock.now_ms(), 1) / 1000
            broker.scheduler.call_later(delay, self._time_is_up)

    def _time_is_up(self) -> None:
        self._is_timed = False
        self.trim()
        self._wait()

    # What goes.

    def trim(self, more: int = 0) -> None:
        """Let go what the policy does not keep any more; if that is much, the rest of it after the open commit.

        Args:
            more: how many messages may go beside the usual number.
        """
        self._note_late()
        limit = STEP + more
        gone: list[int] = []
        while len(gone) < limit and self._has_too_many(self.first):
            links = self._topic.broker.store.links(self._topic.lane, self.first, min(limit - len(gone), STEP))
            before = len(gone)
            for link in links:
                if not self._has_too_many(link.sequence):
                    break
                self._pass(link)
                gone.append(link.sequence)
            if len(gone) - before < len(links) or not links:
                break
        if gone:
            self._topic.write_counts()
            self._topic.let_go(gone)
        if len(gone) >= limit and self._has_too_many(self.first):
            self._topic.broker.after_commit(self.trim)

    def _pass(self, link: Link) -> None:
        """The first message is kept no more."""
        self.first = link.sequence + 1
        self.count -= 1
        self.bytes -= link.size

    def _note_late(self) -> None:
        now = self._topic.broker.clock.now_ms()
        while self._times and self._times[0][0] <= now:
            self._late = self._times.popleft()[1]

    def _has_too_many(self, first: int) -> bool:
        """Whether the policy does not keep the first message any more."""
        policy = self._topic.policy
        if not self.count:
            return False
        match policy.subscription_recovery_policy:
            case "last-image":
                return self.count > 1
            case "fixed-count":
                return self.count > policy.recovery_count
            case "fixed-size":
                return self.bytes > policy.recovery_size
            case "timed":
                return first <= self._late
            case _:
                return True

    def expired(self, messages: list[Message]) -> None:
        """Messages that nobody else needs have expired and are removed with the open commit."""
        kept = self.share(messages)
        self.count -= len(kept)
        self.bytes -= sum([message.size for message in kept])
        self._topic.write_counts()

    def window(self) -> tuple[int, int]:
        """The first and the last sequence that a retroactive consumer gets; the first is above if there is none."""
        if not self.is_keeping:
            return 1, 0
        self.trim(self.count)
        return self.first, self._topic.announced
