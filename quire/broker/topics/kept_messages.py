"""What a topic keeps for retroactive consumers: its newest messages, by its subscription recovery policy.

They are records like others, so they outlive the broker. What is remembered here is where they begin, how many there
are and their size; with the policy ``timed`` also when they came, in a bounded number of steps.
"""

from collections import deque

from quire.broker.topics.topic_records import Place, RecordOwner
from quire.message import Message

STEP = 1000
"""How many messages are let go at once, beside as many as just came."""

TIME_STEPS = 100
"""Into how many steps the duration of the policy ``timed`` is divided."""


class KeptMessages:
    """The kept messages of one topic.

    Args:
        first: the first sequence that is kept, as it was stored; 0 for none.

    Attributes:
        first: the first sequence that is kept; without a policy nothing is, whatever this is.
        count: how many are kept; exact.
        bytes: their sizes.
    """

    def __init__(self, topic: RecordOwner, first: int, count: int, bytes: int) -> None:
        self.first = first or topic.next_sequence
        self.count = count
        self.bytes = bytes
        self._topic = topic
        self._times: deque[tuple[int, int]] = deque()  # until when messages up to a sequence are kept
        self._late = 0  # the last sequence that was kept for long enough, with that policy
        self._is_timed = self._is_trimming = False
        self._fresh = 0  # how many have come since it was trimmed last
        self._was_keeping = self.is_keeping
        if count:
            self._note_time(topic.next_sequence - 1)
            self._trim_soon()

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
            self._trim_soon()

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
            self._fresh += len(share)
            self._note_late()
            if self._has_too_many(self.first, self.count, self.bytes):
                self._trim_soon()

    def _note_time(self, last: int) -> None:
        """Messages up to a sequence have come; those that come soon after are let go together with them."""
        policy = self._topic.policy
        if policy.subscription_recovery_policy == "timed":
            until = self._topic.core.wall.steady_ms() + round(policy.recovery_duration * 1000)
            step = policy.recovery_duration * 1000 / TIME_STEPS
            if self._times and self._times[-1][0] // step == until // step:
                self._times.pop()
            self._times.append((until, last))
            self._wait()

    def _wait(self) -> None:
        """Trim when the first of them are to go."""
        if self._times and not self._is_timed:
            self._is_timed = True
            core = self._topic.core
            delay = max(self._times[0][0] - core.wall.steady_ms(), 1) / 1000
            core.scheduler.call_later(delay, self._time_is_up)

    def _time_is_up(self) -> None:
        self._is_timed = False
        self._note_late()
        self._trim_soon()
        self._wait()

    # What goes.

    def _trim_soon(self) -> None:
        """Let go in steps what the policy does not keep any more."""
        if not self._is_trimming:
            self._is_trimming = True
            self._topic.core.steps.add(self._step, f"letting go of what topic {self._topic.destination.name} kept")

    def _step(self) -> bool:
        """Let go of some; whether there is more."""
        more = self._topic.is_there and self._trim(STEP + self._fresh)
        self._fresh, self._is_trimming = 0, more
        return more

    def _trim(self, limit: int) -> bool:
        """Let go what the policy does not keep any more; whether there may be more of it."""
        self._note_late()
        gone = self._surplus(limit)
        if gone:
            self.first = gone[-1].sequence + 1
            self.count -= len(gone)
            self.bytes -= sum([place.size for place in gone])
            self._topic.write_counts()
            self._topic.remove_records({place.sequence: place.lane for place in gone})
        return len(gone) >= limit and self._has_too_many(self.first, self.count, self.bytes)

    def _surplus(self, limit: int) -> list[Place]:
        """The first messages that the policy does not keep any more; nothing changes before all is read."""
        found: list[Place] = []
        position, count, size = self.first, self.count, self.bytes
        while len(found) < limit and self._has_too_many(position, count, size):
            places = self._topic.records.places(position, min(limit - len(found), STEP))
            for place in places:
                if not self._has_too_many(place.sequence, count, size):
                    return found
                found.append(place)
                count, size = count - 1, size - place.size
            if not places:
                break
            position = places[-1].sequence + 1
        return found

    def _note_late(self) -> None:
        now = self._topic.core.wall.steady_ms()
        while self._times and self._times[0][0] <= now:
            self._late = self._times.popleft()[1]

    def _has_too_many(self, first: int, count: int, size: int) -> bool:
        """Whether the policy does not keep the first message any more, of so many that have a size together."""
        policy = self._topic.policy
        if not count:
            return False
        match policy.subscription_recovery_policy:
            case "last-image":
                return count > 1
            case "fixed-count":
                return count > policy.recovery_count
            case "fixed-size":
                return size > policy.recovery_size
            case "timed":
                return first <= self._late
            case _:
                return True

    def expired(self, messages: list[Message]) -> None:
        """Messages that no subscription needs have expired and are removed with the open commit."""
        kept = self.share(messages)
        self.count -= len(kept)
        self.bytes -= sum([message.size for message in kept])
        self._topic.write_counts()

    def window(self) -> tuple[int, int]:
        """The first and the last sequence that a retroactive consumer gets; the first is above if there is none."""
        if not self.is_keeping:
            return 1, 0
        self._trim(self.count)
        return self.first, self._topic.announced
