"""Acknowledgements of what a member does not have: which of them count."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quire.broker.streams.groups.group import Group
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import RETRIES, Key, Membership
from tests.simulation.streams.log import StreamLog
from tests.simulation.streams.work import Place, State, Work


class Strays:
    """Says what must become of them, and sees that it does."""

    def __init__(self, log: StreamLog, find: Callable[[Consumption], Group]) -> None:
        self._log = log
        self._find = find

    @contextmanager
    def expected(
        self, consumption: Consumption, member: Membership, key: Key, ack: str, *, reject: bool
    ) -> Iterator[None]:
        """Something is acknowledged or rejected that the member does not have.

        Late, it counts if nobody has the message and it would be delivered again. Stale, it does not, and fenced
        neither: of an assignment that has ended.
        """
        group = self._find(consumption)
        child = group.members[member.id].children.get(key[0])
        is_fenced = child is None or not child.is_meant(int(ack.split(".")[2].partition("-")[0]), key[1])
        before = (group.late, group.stale, group.fenced)
        yield
        counted = tuple([now - then for now, then in zip((group.late, group.stale, group.fenced), before, strict=True)])
        if member.client is None or member.client.is_gone:
            return  # the store could not be read: the client was told
        if is_fenced or reject:
            wanted = (0, 0, int(is_fenced))
            if counted != wanted:
                raise Broken(Rule.ACKNOWLEDGED, f"{ack} is late, stale, fenced {counted}, it should be {wanted}")
            return
        work = self._work(consumption, key)
        may_count = _counts(key)
        if counted == (1, 0, 0):
            if consumption.has_crashed and work is not None:  # it may have been delivered before the crash
                may_count = _is_open
            if work is None or work.holder is not None or not work.narrow(may_count):
                raise Broken(Rule.ACKNOWLEDGED, f"{ack} counts, and should not")
            consumption.finish(work)
        elif counted != (0, 1, 0):
            raise Broken(Rule.ACKNOWLEDGED, f"{ack} is late, stale, fenced {counted}")
        elif work is not None and work.holder is None and not work.narrow(lambda state: not may_count(state)):
            raise Broken(Rule.ACKNOWLEDGED, f"{ack} does not count, and should: {work.record} is {set(work.possible)}")

    def _work(self, consumption: Consumption, key: Key) -> Work | None:
        lane, sequence = key
        if lane == RETRIES:
            return consumption.retries.get(sequence)
        record = self._log.at(lane, sequence)
        return None if record is None or record.is_leaving else consumption.work(record)


def _is_open(state: State) -> bool:
    return state.is_open


def _counts(key: Key) -> Callable[[State], bool]:
    """Whether the message of a key can be settled in a state."""
    if key[0] == RETRIES:
        return lambda state: state.place is Place.RETRY
    return lambda state: state.is_open and state.returns > 0
