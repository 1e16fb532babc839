"""Any history of a consumer group: no partition has two owners, none is forgotten, who is awaited keeps what it has."""

import math
from collections import Counter

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quire.broker.streams.groups.rebalance import RebalanceSettings, Strategy
from tests.unit.broker.streams.coordinator_rig import Rig

ROOMS = ("r", "s", "t")
NAMES = "abcdef"
"""The first three are those of static members."""

LIMIT = 8
"""So many partitions at the most."""

PARTITIONS = st.sets(st.integers(0, LIMIT), max_size=3)
INDEX = st.integers(0, 50)
HAS_OWNER = [strategy for strategy in Strategy if strategy is not Strategy.SHARED]
SECONDS = st.sampled_from([0.1, 0.4, 0.5, 1.0, 3.0, 6.0, 10.0, 30.0])


class CoordinatorMachine(RuleBasedStateMachine):
    """One group: its members, their messages in flight, the broker's restarts.

    The group checks every call by itself: see ``CheckingGroup``.
    """

    @initialize(strategy=st.sampled_from(Strategy), partitions=st.integers(1, 6))
    def begin(self, strategy: Strategy, partitions: int) -> None:
        self.rig = Rig(partitions, RebalanceSettings(strategy=strategy, partition_rooms=("r", "s")))
        self.group = self.rig.group
        self.wanted: dict[str, set[int]] = {}
        self.epoch = 0

    @property
    def connected(self) -> list[str]:
        return [member.id for member in self.rig.coordinator.members if member.connected]

    @property
    def known(self) -> list[str]:
        return [member.id for member in self.rig.coordinator.members]

    # Members.

    @rule(id=st.sampled_from(NAMES), room=st.sampled_from(["", *ROOMS]), wanted=PARTITIONS, held=PARTITIONS)
    def join(self, id: str, room: str, wanted: set[int], held: set[int]) -> None:
        static = id in NAMES[:3]
        if id in self.connected and not static:
            return
        is_back, before = id in self.known, self.rig.coordinator.epochs(id)
        free = {p for p in held if p < self.rig.partitions and not self.rig.coordinator.owners(p)}
        self.wanted[id] = wanted
        self.group.take()
        self.rig.coordinator.join(id, static=static, room=room, wanted=sorted(wanted), held=held)
        said = self.group.take()
        assert {f"assign {id} {partition}" for partition in free} <= set(said)
        if is_back:
            after = self.rig.coordinator.epochs(id)
            assert before.items() <= after.items()
            assert after.keys() - before.keys() <= held
            assert all(call.startswith(f"assign {id}") for call in said)

    @precondition(lambda self: self.known)
    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        id = self.known[index % len(self.known)]
        self.rig.coordinator.leave(id)
        assert id not in self.known
        assert all(id not in owners for owners in self.group.owners.values())

    @precondition(lambda self: self.connected)
    @rule(index=INDEX)
    def lose(self, index: int) -> None:
        id = self.connected[index % len(self.connected)]
        self.group.take()
        self.rig.coordinator.lost(id)
        assert (id in self.known) == (id in NAMES[:3])
        assert id not in self.known or self.group.take() == []

    @rule(index=INDEX)
    def deliver(self, index: int) -> None:
        """A member gets a message of a partition that it serves."""
        served = [(member.id, p) for member in self.rig.coordinator.members for p in member.partitions]
        if served:
            self.group.busy.add(served[index % len(served)])

    @precondition(lambda self: self.group.busy)
    @rule(index=INDEX)
    def drain(self, index: int) -> None:
        """A member has nothing of a partition in flight any more, whether that is being revoked or not."""
        busy = sorted(self.group.busy)
        self.rig.drained(*busy[index % len(busy)])

    # Time, restarts, operators.

    @rule(seconds=SECONDS)
    def let_time_go_by(self, seconds: float) -> None:
        self.rig.advance(seconds)

    @rule(lost_commits=st.sampled_from([0, 0, 1, 2]))
    def restart(self, lost_commits: int) -> None:
        before = [(m.id, m.partitions) for m in self.rig.coordinator.members if m.static]
        self.rig.restart(lost_commits)
        if not lost_commits:
            assert [(member.id, member.partitions) for member in self.rig.coordinator.members] == before

    @precondition(lambda self: self.rig.partitions < LIMIT)
    @rule()
    def add_partition(self) -> None:
        self.rig.partitions += 1
        self.rig.coordinator.set_partitions(self.rig.partitions)

    @precondition(lambda self: self.rig.settings.strategy is not Strategy.SHARED)
    @rule(strategy=st.sampled_from(HAS_OWNER))
    def change_strategy(self, strategy: Strategy) -> None:
        self.rig.use(strategy)

    # At rest.

    @rule()
    def come_to_rest(self) -> None:
        """Everybody drains what is asked of them, and nobody is awaited any more."""
        for _ in range(4):
            for id, partition in sorted(self.group.busy):
                self.rig.drained(id, partition)
            self.rig.advance(10)
        assert self.rig.coordinator.is_settled
        assert self.known == self.connected
        epoch = self.rig.coordinator.epoch
        self.group.take()
        self.rig.advance(100)
        assert (self.group.take(), self.rig.coordinator.epoch) == ([], epoch)
        if self.connected:
            self.check_shares()

    def check_shares(self) -> None:
        """The partitions are dealt out as the strategy promises."""
        partitions, members = self.rig.partitions, self.connected
        owners = [self.rig.coordinator.owners(partition) for partition in range(partitions)]
        loads = Counter(dict.fromkeys(members, 0))
        loads.update([id for ids in owners for id in ids])
        match self.rig.settings.strategy:
            case Strategy.SHARED:
                assert all(sorted(ids) == members for ids in owners)
            case Strategy.BY_CONFIGURATION:
                named = [[id for id in members if partition in self.wanted[id]] for partition in range(partitions)]
                assert [list(ids) for ids in owners] == [ids[:1] for ids in named]
            case Strategy.MACHINE_ROOM_NEARBY:
                self.check_rooms(owners)
            case Strategy.CONSISTENT_HASH:
                assert all(len(ids) == 1 for ids in owners)
                assert max(loads.values()) <= math.ceil(1.25 * partitions / len(members))
            case _:
                assert all(len(ids) == 1 for ids in owners)
                assert max(loads.values()) - min(loads.values()) <= 1

    def check_rooms(self, owners: list[tuple[str, ...]]) -> None:
        room_of = {member.id: member.room for member in self.rig.coordinator.members}
        for partition, ids in enumerate(owners):
            room = ROOMS[partition % 2]
            assert len(ids) == 1
            assert room_of[ids[0]] == room or room not in room_of.values()

    # Always.

    @invariant()
    def the_coordinator_is_of_one_mind_with_its_group(self) -> None:
        self.rig.check()

    @invariant()
    def epochs_never_go_down(self) -> None:
        assert self.rig.coordinator.epoch >= self.epoch
        self.epoch = self.rig.coordinator.epoch


TestCoordinatorMachine = pytest.mark.slow(CoordinatorMachine.TestCase)
# One mistake shows in many ways. To make a short history of each would take longer than a test may.
TestCoordinatorMachine.settings = hypothesis_settings(
    max_examples=100, stateful_step_count=40, report_multiple_bugs=False
)
