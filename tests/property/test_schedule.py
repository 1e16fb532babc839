"""Any history of scheduled messages, with failing commits and crashes: each is sent at each of its times, once."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.broker.schedule import KIND, ScheduledSend, Timing
from quire.errors import StoreFull, UnknownMessage
from quire.store.base import WriteBatch
from quire.testing.stepped import SteppedBroker

DELAYS = st.sampled_from([0, 250, 1000, 3000])
TIMINGS = st.builds(Timing, DELAYS, st.sampled_from([250, 500]), st.integers(0, 3))


class Step(NamedTuple):
    """What happens in one step, in this order.

    Attributes:
        schedules: messages that are scheduled.
        cancels: whether one of the messages that were listed some time is cancelled.
        quarters: how many quarters of a second go by.
        turns: whether there is a turn.
        cancels_late: as ``cancels``, after the turn.
        outcome: what becomes of the commit under way, if there is one.
    """

    schedules: list[Timing]
    cancels: bool
    quarters: int
    turns: bool
    cancels_late: bool
    outcome: str


OUTCOMES = ("commit", "commit", "commit", "commit unannounced", "wait", "fail", "crash before it", "crash after it")
SELDOM = st.sampled_from([False, False, False, True])
STEPS = st.lists(
    st.builds(
        Step, st.lists(TIMINGS, max_size=2), SELDOM, st.integers(0, 5), st.sampled_from([True, True, False]), SELDOM,
        st.sampled_from(OUTCOMES),
    ),
    min_size=4,
    max_size=16,
)  # fmt: skip


@dataclass
class History:
    """A broker, and what it was asked for.

    Attributes:
        stepped: the broker.
        asked: all that were scheduled, by number: when, and how.
        stored: the numbers of those whose commit the store has.
        listed: the numbers of those that the list has shown, by their id in the schedule.
        cancelled: the numbers of those that somebody tried to cancel.
    """

    stepped: SteppedBroker = field(default_factory=SteppedBroker)
    asked: list[tuple[int, Timing]] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    listed: dict[str, int] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)

    def schedule(self, timing: Timing) -> None:
        number = len(self.asked)
        now = self.stepped.clock.now_ms()
        self.asked.append((now, timing))
        send = ScheduledSend(
            self.stepped.broker.schedule, "/queue/q", timing.delay, timing.period, timing.repeat, timing.cron
        )
        send.send(b"message-id:ID\\c%d\ntimestamp:%d\n\n%d" % (number, now, number))

    def do(self, step: Step) -> None:
        for timing in step.schedules:
            self.schedule(timing)
        if step.cancels:
            self.cancel()
        self.stepped.advance(step.quarters / 4)
        if step.turns:
            self.stepped.turn()
        if step.cancels_late:
            self.cancel()
        if self.stepped.writer.batch is not None:
            self.end_commit(step.outcome)

    def end_commit(self, outcome: str) -> None:
        batch = self.stepped.writer.batch
        assert batch is not None
        if outcome in ("commit", "commit unannounced", "crash after it"):
            self.note_stored(batch)
        if outcome == "commit":
            self.stepped.commit()
        elif outcome == "commit unannounced":
            self.stepped.writer.apply()
            self.stepped.advance(1)
            self.stepped.broker.turns.committed(batch, None)
        elif outcome == "fail":
            self.stepped.commit(StoreFull("no space left"))
        elif outcome == "crash after it":
            self.stepped.writer.apply()
            self.stepped = self.stepped.reopen()
        elif outcome == "crash before it":
            self.stepped = self.stepped.reopen()

    def cancel(self) -> None:
        schedule = self.stepped.broker.schedule
        self.listed |= {scheduled.id: int(scheduled.message_id[3:]) for scheduled in schedule.browse().messages}
        if self.listed:
            id = next(iter(self.listed))
            self.cancelled.add(self.listed.pop(id))
            with suppress(UnknownMessage):  # it is sent for the last time, or was
                schedule.cancel(id)

    def note_stored(self, batch: WriteBatch) -> None:
        known = {stored.id: stored for stored in self.stepped.store.destinations()}
        known |= {id: stored for id, stored in batch.destinations.items() if stored is not None}
        for lane in [stored.lanes[0] for stored in known.values() if stored.kind == KIND]:
            if lane in batch.lanes:
                self.stored.update([int(record.body) for record in batch.lanes[lane].appends])

    def arrived(self) -> Counter[int]:
        """How often each message is in the queue, as the store has it."""
        lanes = [lane for stored in self.stepped.store.destinations() if stored.name == "q" for lane in stored.lanes]
        pages = [self.stepped.store.page(lane, 1, 1 << 30, 1 << 20).messages for lane in lanes]
        return Counter([int(message.body) for page in pages for message in page])

    def check_nothing_is_early(self) -> None:
        now = self.stepped.clock.now_ms()
        for number, count in self.arrived().items():
            start, timing = self.asked[number]
            first = start + (timing.delay or timing.period)
            times = [first + repeat * timing.period for repeat in range(timing.repeat + 1)]
            assert count <= len([time for time in times if time <= now])

    def settle(self) -> None:
        """Let everything happen that is still to happen."""
        for _ in range(40):
            while self.stepped.is_turn_wanted or self.stepped.writer.batch is not None:
                self.stepped.turn()
                if self.stepped.writer.batch is not None:
                    self.end_commit("commit")
            self.stepped.advance(0.25)


@pytest.mark.slow
@settings(max_examples=500)
@given(STEPS)
def test_each_message_is_sent_at_each_of_its_times_once(steps: list[Step]) -> None:
    history = History()
    for step in steps:
        history.do(step)
        history.check_nothing_is_early()
    history.settle()
    arrived = history.arrived()
    for number, (_, timing) in enumerate(history.asked):
        sends = timing.repeat + 1 if number in history.stored else 0
        assert arrived[number] <= sends
        assert arrived[number] == sends or number in history.cancelled
    schedule = history.stepped.broker.schedule
    assert (schedule.depth, schedule.bytes, history.stepped.store.marks("schedule/")) == (0, 0, [])
