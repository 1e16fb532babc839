"""A coordinator with a group that believes nothing: it checks every call against what it was told before."""

from dataclasses import replace

import msgspec

from quire.broker.streams.groups.rebalance import Coordinator, RebalanceSettings, StoredMembership, Strategy
from quire.clock import ManualClock
from quire.scheduler import Scheduler


class CheckingGroup:
    coordinator: Coordinator  # whose calls these are

    def __init__(self) -> None:
        self.can_share = False  # whether a partition may have several owners
        self.owners: dict[int, dict[str, int]] = {}  # who owns which partition with which epoch, by what it was told
        self.revoking: set[tuple[str, int]] = set()  # who is to finish with which partition
        self.busy: set[tuple[str, int]] = set()  # who has messages of which partition in flight
        self.highest: dict[int, int] = {}  # the highest epoch that each partition was assigned with
        self.said: list[str] = []  # the calls since the last look, ``changed`` left out
        self.stored: list[bytes] = []  # what this life of the broker has stored, the newest last

    def assign(self, member_id: str, partition: int, epoch: int) -> None:
        self.said.append(f"assign {member_id} {partition}")
        owners = self.owners.setdefault(partition, {})
        assert member_id not in owners
        assert self.can_share or not owners, f"{partition} has an owner: {owners}"
        assert self.is_connected(member_id)
        assert epoch == self.coordinator.epoch
        assert epoch > self.highest.get(partition, 0) or (self.can_share and epoch == self.highest[partition])
        owners[member_id] = self.highest[partition] = epoch

    def revoke(self, member_id: str, partition: int) -> bool:
        self.said.append(f"revoke {member_id} {partition}")
        assert member_id in self.owners[partition]
        assert (member_id, partition) not in self.revoking
        assert self.is_connected(member_id)
        if (member_id, partition) in self.busy:
            self.revoking.add((member_id, partition))
            return False
        del self.owners[partition][member_id]
        return True

    def take_away(self, member_id: str, partition: int) -> None:
        self.said.append(f"take away {member_id} {partition}")
        del self.owners[partition][member_id]
        self.revoking.discard((member_id, partition))
        self.busy.discard((member_id, partition))

    def changed(self) -> None:
        self.stored.append(msgspec.msgpack.encode(self.coordinator.stored()))

    def is_connected(self, member_id: str) -> bool:
        return any(member.connected for member in self.coordinator.members if member.id == member_id)

    def take(self) -> list[str]:
        said, self.said = self.said, []
        return said


class Rig:
    """A coordinator, its group and its time."""

    def __init__(self, partitions: int = 4, settings: RebalanceSettings | None = None) -> None:
        self.clock = ManualClock()  # the time
        self.settings = settings or RebalanceSettings()  # as given, unless a test changes them for the next restart
        self.group = CheckingGroup()
        self.partitions = partitions  # how many the stream has
        self.found: list[bytes] = []  # what this life of the broker found in the store; empty if nothing
        self.start()

    def start(self) -> None:
        self.scheduler = Scheduler(self.clock)
        self.group.can_share = self.settings.strategy is Strategy.SHARED
        self.coordinator = Coordinator(self.clock, self.scheduler, self.settings, self.partitions, self.group)
        self.group.coordinator = self.coordinator

    def restart(self, lost_commits: int = 0) -> None:
        """The broker dies, and comes back with what was stored; the newest commits may be missing, but not all."""
        stored = self.group.stored[: max(1, len(self.group.stored) - lost_commits)]
        self.found, self.group.stored = stored[-1:] or self.found, []
        self.start()
        self.group.owners.clear()
        self.group.revoking.clear()
        self.group.busy.clear()
        for stored_bytes in self.found:
            self.coordinator.restore(msgspec.msgpack.decode(stored_bytes, type=StoredMembership))
        for member in self.coordinator.members:
            for partition, epoch in member.partitions.items():
                self.group.owners.setdefault(partition, {})[member.id] = epoch

    def use(self, strategy: Strategy) -> None:
        """Another strategy counts from now on, over restarts too."""
        self.settings = replace(self.settings, strategy=strategy)
        self.coordinator.set_strategy(strategy)

    def join(self, *ids: str, static: bool = False) -> None:
        for id in ids:
            self.coordinator.join(id, static=static)

    def gather(self, *ids: str, static: bool = False) -> None:
        """Members join, and everything comes to rest; nobody remembers what was said."""
        self.join(*ids, static=static)
        self.advance(self.settings.debounce)
        assert self.coordinator.is_settled
        self.group.take()

    def advance(self, seconds: float) -> None:
        goal = self.clock.monotonic() + seconds
        while (deadline := self.scheduler.next_deadline()) is not None and deadline <= goal:
            self.clock.advance(max(0.0, deadline - self.clock.monotonic()))
            self.scheduler.run_due()
        self.clock.advance(goal - self.clock.monotonic())

    def drained(self, id: str, partition: int) -> None:
        self.group.busy.discard((id, partition))
        if (id, partition) in self.group.revoking:
            self.group.revoking.discard((id, partition))
            del self.group.owners[partition][id]
        self.coordinator.drained(id, partition)

    @property
    def owners(self) -> str:
        """The owners of all partitions in order, ``-`` for none; ids are letters here, and nothing is shared."""
        return "".join(["".join(self.coordinator.owners(number)) or "-" for number in range(self.partitions)])

    def check(self) -> None:
        """The coordinator says what it told its group."""
        for partition in range(self.partitions):
            owners = self.group.owners.get(partition, {})
            assert set(self.coordinator.owners(partition)) == owners.keys()
            assert self.group.can_share or len(owners) <= 1
        for member in self.coordinator.members:
            own = {p: owners[member.id] for p, owners in self.group.owners.items() if member.id in owners}
            revoking = {partition for id, partition in self.group.revoking if id == member.id}
            assert member.partitions == {p: epoch for p, epoch in own.items() if p not in revoking}
            assert set(member.revoking) == revoking
            assert self.coordinator.epochs(member.id) == member.partitions
