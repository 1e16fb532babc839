"""What a group has made of the stream, as a plain model: where each message stands, and in whose hands it is."""

from collections.abc import Iterable

from quire.broker.streams.groups.group_definition import Order
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.hands import RETRIES, Grip, Key, Membership, written
from tests.simulation.streams.log import Record, StreamLog
from tests.simulation.streams.moments import Moments
from tests.simulation.streams.setup import GroupSetup, StreamSetup
from tests.simulation.streams.work import PASSED, UNTOUCHED, Place, State, Work

SUSPENDED = 1000
"""How long a partition pauses that is consumed in order, in milliseconds."""


class Consumption:
    """One group."""

    def __init__(
        self, of: GroupSetup, setup: StreamSetup, log: StreamLog, moments: Moments, begin: list[int],
        *, is_stored: bool = True,
    ) -> None:  # fmt: skip
        self.name = of.name
        self.of = of
        self.begin = begin
        self.is_stored = is_stored
        self.created = moments.next()
        self.members: dict[str, Membership] = {}
        self.is_shared = setup.strategy == "shared"
        self.excluded = {r.place for records in log.records for r in records.values() if r.is_leaving}
        self.has_crashed = False
        self.moved: set[int] = set()
        self.moved_at = 0
        self.is_purging = False
        self._setup = setup
        self.log = log
        self.moments = moments
        self._works: dict[tuple[int, int], Work] = {}
        self._places: dict[int, int] = {}
        self.retries: dict[int, Work] = {}

    def __repr__(self) -> str:
        return self.name

    @property
    def relocates(self) -> bool:
        """Whether a message that failed goes to the retry lane."""
        return self.is_stored and self.of.order is Order.CONCURRENT and self._setup.retry == "relocated"

    @property
    def most_in_hands(self) -> int:
        """How many messages of a partition members may have, all together."""
        return 1 if self.of.order is Order.ORDERLY else self._setup.max_in_flight

    # Its messages.

    def is_about(self, record: Record) -> bool:
        """Whether it is to get a message: it comes after its begin, and its selector matches."""
        begin = self.begin[record.partition] if record.partition < len(self.begin) else 1
        is_there = record.offset >= begin and record.place not in self.excluded
        return is_there and self.of.color in ("", record.sent.draft.color)

    def work(self, record: Record) -> Work:
        """Where a message stands."""
        if record.place not in self._works:
            # What was sent before the group was moved, and stored after it, may be before its place or not.
            is_unclear = record.offset < self._places.get(record.partition, 0)
            self._works[record.place] = Work(record, UNTOUCHED | PASSED if is_unclear else UNTOUCHED)
        return self._works[record.place]

    def works(self, partition: int) -> list[Work]:
        """The messages of a partition that it is about and that are there, in order."""
        return [self.work(record) for record in self.log.records[partition].values() if self.is_about(record)]

    def known(self) -> Iterable[Work]:
        """All messages that it ever had to do with."""
        return self._works.values()

    def in_hands(self, partition: int) -> list[Grip]:
        """What members have of a partition, or of the retries."""
        return [grip for member in self.members.values() for grip in member.of(partition)]

    def crash(self) -> None:
        """The broker starts again: nobody is a member, nothing is in hands."""
        self.has_crashed = True
        self.members.clear()
        self.retries.clear()
        self.moved.clear()
        for work in self._works.values():
            work.holder = None

    def resumed(self) -> None:
        """It is known where each message stands after a crash."""
        self._places.clear()

    def await_member(self, id: str, served: dict[int, int], grace_end: float) -> None:
        """The broker awaits a member that it had before it was started again."""
        member = Membership(self, id, None, static=True, ack="client-individual", prefetch=0, timeout=0)
        member.served, member.grace_end = dict(served), grace_end
        self.members[id] = member

    # What becomes of one.

    def finish(self, work: Work) -> None:
        """A member is done with it."""
        work.change(self.moments.next(), lambda state: [state.done()])

    def dead_letter(self, work: Work) -> None:
        """A member wants it to be a dead letter."""
        work.change(self.moments.next(), lambda state: [state.done(letters=1)])

    def fail(self, work: Work, now_ms: int, delay_ms: int | None = None) -> None:
        """A delivery failed: it was rejected, or its lease has ended."""
        work.change(self.moments.next(), lambda state: [self.failed(state, now_ms, delay_ms)])

    def give_back(self, grips: Iterable[Grip], now: float, now_ms: int, *, lost: bool) -> None:
        """Messages are taken from a member, because it goes, or because the leases on them have ended."""
        grips = list(grips)
        oldest = {grip.key[0]: grip for grip in reversed(grips)}
        unclear = {grip.key[0] for grip in grips if grip.is_up(now)}
        for grip in grips:
            options = (True, False) if lost and grip.key[0] in unclear else (lost and grip is oldest[grip.key[0]],)
            self.take(grip, now_ms, lease=grip.is_up(now), gone=options)

    def take(self, grip: Grip, now_ms: int, *, lease: bool, gone: tuple[bool, ...]) -> None:
        """A message is taken from a member."""

        def become(state: State) -> list[State]:
            ended = [self.failed(state, now_ms, None)] if lease else []
            return ended + [self.returned(state, failed=failed) for failed in gone]

        grip.member.drop(grip)
        grip.work.change(self.moments.next(), become)

    def failed(self, state: State, now_ms: int, delay_ms: int | None) -> State:
        """What a state becomes when a delivery fails and the next one has to wait."""
        failures = state.failures + 1
        if self._is_too_often(failures):
            return state.done(letters=int(self.is_stored))
        delay = self._delay_ms(failures) if delay_ms is None else delay_ms
        moves = self.relocates and state.place is Place.WAITING
        place = Place.RETRY if moves else state.place
        return State(place, state.returns + 1, failures, now_ms + delay if delay or moves else 0, state.letters)

    def returned(self, state: State, *, failed: bool) -> State:
        """What a state becomes when it comes back at once."""
        failures = state.failures + failed
        if self._is_too_often(failures):
            return state.done(letters=int(self.is_stored))
        return State(state.place, state.returns + 1, failures, 0, state.letters)

    def _is_too_often(self, failures: int) -> bool:
        return self.of.order is not Order.ORDERLY and failures > self._setup.retry_maximum

    def _delay_ms(self, failures: int) -> int:
        if self.of.order is Order.ORDERLY:
            return SUSPENDED
        delays = self._setup.retry_delays
        return round(delays[min(failures, len(delays)) - 1] * 1000)

    def move(self, places: dict[int, int]) -> None:
        """An operator has it go on from elsewhere. What members have is taken from them, and has not failed."""
        for member in self.members.values():
            for grip in [grip for grip in member.grips.values() if grip.work.record.partition in places]:
                member.drop(grip)
            member.served = {p: epoch for p, epoch in member.served.items() if p not in places}
        self.begin += [1] * (len(self.log.records) - len(self.begin))
        for partition, place in places.items():
            for record in self.log.records[partition].values():
                if not self.is_about(record) and self.of.color in ("", record.sent.draft.color):
                    self._works[record.place] = Work(record, PASSED)
                work = self.work(record)
                new = Place.WAITING if record.offset >= place else Place.DONE
                work.change(self.moments.next(), lambda state, new=new: [State(new, letters=state.letters)])  # type: ignore[misc]
                work.outcome, work.written = None, 0
            self._places[partition] = max(place, self.begin[partition], self._places.get(partition, 0))
            self.begin[partition] = 1
        self.excluded = {place for place in self.excluded if place[0] not in places}
        self.moved |= places.keys()
        self.moved_at = self.moments.now
        self.is_purging = True

    # It is given out.

    def deliver(self, work: Work, key: Key, now_ms: int, count: int) -> None:
        """A message was written to a member. May it have been?"""
        record = work.record
        if not self.is_about(record):
            raise Broken(Rule.UNWANTED, f"{record} came to {self}, which does not want it")
        if record.is_leaving:
            raise Broken(Rule.RETENTION, f"{record} came to {self}, and is being removed")
        if not work.narrow(lambda state: state.is_open):
            raise Broken(Rule.AGAIN, f"{record} came to {self} again, and is finished")
        place = Place.RETRY if key[0] == RETRIES else Place.WAITING
        if not work.narrow(lambda state: state.place is place):
            raise Broken(Rule.ROUTE, f"{record} came to {self} as {written(key)}, and is in {set(work.possible)}")
        if work.holder is not None:
            raise Broken(Rule.HANDS, f"{record} came to {self}, and {work.holder.member} has it")
        if not work.narrow(lambda state: state.not_before <= now_ms):
            raise Broken(Rule.DELAY, f"{record} came to {self}, too early: {set(work.possible)}")
        self._check_count(work, count)
        if key[0] == RETRIES:
            self.retries[key[1]] = work
        work.written += 1

    def _check_count(self, work: Work, count: int) -> None:
        record = work.record
        if work.written and not count and self.is_stored:
            raise Broken(Rule.FLAG, f"{record} came to {self} without a flag, it was written before")
        if count and not work.written and not self.has_crashed:
            raise Broken(Rule.FLAG, f"{record} came to {self} with a flag, it was never written before")
        holds = (lambda s: s.returns == 0) if not count else (lambda s: max(s.returns, 1) + 1 == count)
        if not work.narrow(holds):
            raise Broken(Rule.ATTEMPTS, f"{record} came to {self} with the count {count}, it is {set(work.possible)}")

    def check_order(self, work: Work, *, is_done: bool) -> None:
        """A message came in this step: nothing that has to come before it is open still."""
        if self.of.order is Order.CONCURRENT:
            return
        record = work.record
        key = None if self.of.order is Order.ORDERLY else record.sent.draft.key
        if key == "":
            return
        for other in self.works(record.partition):
            is_before = other.record.offset < record.offset
            if other is work or other.record.is_leaving or key not in (None, other.record.sent.draft.key):
                continue
            if is_before and other.is_open:
                raise Broken(Rule.ORDER, f"{record} came to {self}, and {other.record} is not finished")
            if other.holder is not None and not is_done:
                raise Broken(Rule.ORDER, f"{record} came to {self}, and {other.record} is in hands")
