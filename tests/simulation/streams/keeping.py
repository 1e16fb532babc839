"""Retention, as it should be: a record goes when it is due, and not while somebody needs it."""

from typing import NamedTuple

from quire.broker.streams.stream import Stream
from tests.simulation.jumping_clock import RightClock
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.log import Record, StreamLog
from tests.simulation.streams.setup import StreamSetup
from tests.simulation.streams.work import Place

LATE = 3000
"""How many milliseconds a record may stay that is due, when nobody needs it."""


class Pinned(NamedTuple):
    """A pin.

    Attributes:
        first: the first offset that it is about.
        places: what it keeps.
        until: when it ends, in milliseconds since the epoch.
        moment: when it was set.
        before: what the name had pinned before.
    """

    first: int
    places: set[tuple[int, int]]
    until: int
    moment: int
    before: "Pinned | None"


class Keeping:
    """Sees that retention keeps what it has to keep."""

    def __init__(self, setup: StreamSetup, clock: RightClock) -> None:
        self.pins: dict[str, Pinned] = {}
        self._setup = setup
        self._clock = clock
        self._due: set[tuple[int, int]] = set()

    def pin(self, name: str, stream: Stream, log: StreamLog, first: int, seconds: float, moment: int) -> None:
        """Everything from an offset on is to stay for a time, in all partitions.

        What is being removed already is not kept.
        """
        leaving = [partition.gone for partition in stream.partitions]
        places = {
            record.place for records in log.records for record in records.values()
            if record.offset >= first and record.offset not in leaving[record.partition]
        }  # fmt: skip
        until = self._clock.now_ms() + round(seconds * 1000)
        self.pins[name] = Pinned(first, places, until, moment, self.pins.get(name))

    def commit_failed(self, stream: Stream, durable: int) -> None:
        """A commit failed: the pins that it would have set are as they were before."""
        for name, pin in list(self.pins.items()):
            known = stream.pins.by_name.get(name)
            was: Pinned | None = pin
            while was is not None and was.moment > durable and (known is None or known.until != was.until):
                was = was.before
            if was is None:
                del self.pins[name]
            else:
                self.pins[name] = was

    def crash(self, stream: Stream, durable: int) -> None:
        """The broker starts again: pins that were durable are there."""
        for name, pin in list(self.pins.items()):
            known = stream.pins.by_name.get(name)
            if known is None or known.until != pin.until or pin.first not in known.offsets.values():
                if pin.moment <= durable and pin.until > self._clock.now_ms():
                    raise Broken(Rule.RETENTION, f"the pin {name} is gone")
                del self.pins[name]

    def check(self, log: StreamLog, went: list[Record], groups: list[Consumption]) -> None:
        """Were records to go?"""
        size = sum([record.size for records in log.records for record in records.values()])
        size += sum([record.size for record in went])
        if self._is_too_much(size):  # what was due once and had to stay goes later
            self._due.update([record.place for known in log.records for record in known.values()])
            self._due.update([record.place for record in went])
        for record in went:
            if not (self._is_old(record, 0) or record.place in self._due or self._is_done(record, groups)):
                raise Broken(Rule.RETENTION, f"{record} is gone, and was not due")
            self._check_needless(record, groups)

    def _is_old(self, record: Record, late: int) -> bool:
        limit = round(self._setup.retention_time * 1000)
        return limit >= 0 and self._clock.now_ms() - self._clock.right_ms(record.time_ms) >= limit + late

    def _is_too_much(self, size: int) -> bool:
        return 0 < self._setup.retention_bytes < size

    def _is_done(self, record: Record, groups: list[Consumption]) -> bool:
        stored = [group for group in groups if group.is_stored]
        done = [not group.is_about(record) or not group.work(record).is_open for group in stored]
        return self._setup.retention_groups_done and bool(stored) and all(done)

    def _check_needless(self, record: Record, groups: list[Consumption]) -> None:
        now = self._clock.now_ms()
        for name, pin in self.pins.items():
            if record.place in pin.places and pin.until > now:
                raise Broken(Rule.RETENTION, f"{record} is gone, and was pinned by {name}")
        for group in groups:
            work = group.work(record)
            if work.holder is not None:
                raise Broken(Rule.RETENTION, f"{record} is gone, and {work.holder.member} of {group} has it")
            if work.may_be_open and all([state.place is Place.RETRY for state in work.possible]):
                raise Broken(Rule.RETENTION, f"{record} is gone, and a retry of {group} needs it")

    def late(self, log: StreamLog) -> list[Record]:
        """What should be gone, when nobody has needed anything for a while."""
        if self._clock.wrong.was_set:  # what has a wrong time goes with what comes after it
            return []
        if any([pin.until > self._clock.now_ms() - LATE for pin in self.pins.values()]):
            return []
        left = [record for records in log.records for record in records.values()]
        if self._is_too_much(sum([record.size for record in left])):
            return left
        return [record for record in left if self._is_old(record, LATE)]
