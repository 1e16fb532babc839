"""Watches the hands of members: who is given what, and that nothing is taken from them without a cause."""

from collections.abc import Collection

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_definition import Order
from quire.testing.stepped import Frame
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.claims import hand_over, in_flight
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import EPSILON, FOREVER, RETRIES, Grip, Key, Membership
from tests.simulation.streams.log import StreamLog
from tests.simulation.streams.work import Work

RETRY_SHARE = 5
"""Of so many messages that a member may have, one may be a retry."""

SLACK = 0.3
"""How many seconds after its time a lease ends at the latest: three ticks."""


class Lookout:
    """Watches one group."""

    def __init__(self, consumption: Consumption, log: StreamLog) -> None:
        self._consumption = consumption
        self._log = log
        self._owners: dict[tuple[int, int], tuple[str, int]] = {}
        self._highest: dict[int, int] = {}
        self._newest: dict[tuple[str, int], int] = {}
        self._came: list[tuple[Work, bool]] = []

    def crash(self, durable: int) -> None:
        """The broker starts again: what it knows of owners may be older."""
        self._owners = {epoch: owner for epoch, owner in self._owners.items() if owner[1] <= durable}
        self._highest.clear()
        self._newest.clear()

    def moved(self, partitions: Collection[int]) -> None:
        """An operator has moved the group: in some partitions it begins anew."""
        self._newest = {place: offset for place, offset in self._newest.items() if place[1] not in partitions}

    # What is taken.

    def look(self, group: Group, now: float, now_ms: int, revoke_timeout: float) -> None:
        """See what members have lost since the last look, and why."""
        for member in list(self._consumption.members.values()):
            table = in_flight(group, member)
            ended = [grip for key, grip in member.grips.items() if key not in table]
            if ended:
                self._lose(member, ended, now, now_ms)
            for grip in member.grips.values():
                if grip.transacted is None and grip.latest + SLACK < now:
                    raise Broken(Rule.LEASE, f"{member} has {grip} still, its lease ended at {grip.latest:g}")
            self._look_at_assignment(group, member, now, revoke_timeout)

    def _lose(self, member: Membership, ended: list[Grip], now: float, now_ms: int) -> None:
        """What a member has lost comes back, or waits for its next delivery, by what ended its time."""
        consumption, oldest = self._consumption, {grip.key[0]: grip for grip in reversed(ended)}
        unclear = {grip.key[0] for grip in ended if grip.is_up(now)}
        for grip in ended:
            lane = grip.key[0]
            is_gone = min(member.grace_end, member.revoked.get(lane, FOREVER)) <= now + EPSILON
            if not is_gone and not grip.is_up(now):
                text = f"{grip} was taken from {member} at {now:g}, its lease ends at {grip.deadline:g}"
                raise Broken(Rule.LEASE, text)
            options = (True, False) if lane in unclear else (grip is oldest[lane],)
            consumption.take(grip, now_ms, lease=grip.is_up(now), gone=options if is_gone else ())

    def _look_at_assignment(self, group: Group, member: Membership, now: float, revoke_timeout: float) -> None:
        """See which partitions a member has, and that an awaited one keeps them."""
        status = next((status for status in group.coordinator.members if status.id == member.id), None)
        if status is None:
            if member.grace_end > now + EPSILON:
                raise Broken(Rule.GRACE, f"{member} is not a member of {group.name} any more")
            del self._consumption.members[member.id]
            return
        if member.client is None and member.grace_end + SLACK < now:
            raise Broken(Rule.GRACE, f"{member} is awaited still, until {member.grace_end:g}")
        if member.client is None and not member.served.items() <= status.partitions.items():
            raise Broken(Rule.GRACE, f"{member} is away and had {member.served}, and has {status.partitions}")
        known_member = group.members.get(member.id)
        begun = status.partitions if member.client is None or known_member is None else known_member.children
        served, member.served = member.served, {p: e for p, e in status.partitions.items() if p in begun}
        if new := {lane for lane in member.served if served.get(lane) != member.served[lane]}:
            hand_over(self._consumption, group, member, new, now)
        known, member.revoked = member.revoked, {}
        for partition in status.revoking:
            member.revoked[partition] = known.get(partition, now + revoke_timeout)

    def check_owners(self, group: Group) -> None:
        """No partition has two owners."""
        for partition in range(len(group.partitions)):
            owners = group.coordinator.owners(partition)
            if len(owners) > 1 and not self._consumption.is_shared:
                raise Broken(Rule.OWNER, f"partition {partition} of {group.name} has the owners {owners}")
            served = [member.id for member in group.members.values() if partition in member.children]
            if len(served) > 1 and not self._consumption.is_shared:
                raise Broken(Rule.OWNER, f"partition {partition} of {group.name} is still at {served}")

    # What is given.

    def deliver(self, member: Membership, frame: Frame, now: float, now_ms: int) -> Grip:
        """A message was written to a member."""
        name = frame.body[: frame.body.index(b";")].decode()
        sequence, lane, rest = frame.headers["ack"].split(".")
        key = (RETRIES if lane == "r" else int(lane), int(sequence))
        record = self._log.at(int(frame.headers["partition"]), int(frame.headers["offset"]))
        if record is None or record.sent.name != name:
            raise Broken(Rule.ROUTE, f"{name} came as {frame.headers['ack']}, where {record} is")
        if lane != "r":
            self._check_epoch(member, key[0], int(rest.partition("-")[0]))
        count = int(frame.headers.get("JMSXDeliveryCount", "0"))
        work = self._consumption.work(record)
        self._consumption.deliver(work, key, now_ms, count)
        if not count and self._consumption.of.order is not Order.KEY_ORDERED:
            self._check_fresh(member, key)
        grip = Grip(work, member, key, frame.headers["ack"], now)
        self._came.append((work, member.ack == "auto"))
        if member.ack == "auto":
            self._consumption.finish(work)
        else:
            member.take(grip)
            self._check_credit(member, key[0])
        return grip

    def check_order(self) -> None:
        """All that came in this step is known: was it in order?"""
        came, self._came = self._came, []
        for work, is_done in came:
            self._consumption.check_order(work, is_done=is_done)

    def _check_epoch(self, member: Membership, partition: int, epoch: int) -> None:
        if self._consumption.is_shared:
            return
        owner, _ = self._owners.setdefault((partition, epoch), (member.id, self._consumption.moments.next()))
        if owner != member.id:
            text = f"partition {partition} goes to {owner} and to {member} in epoch {epoch}"
            raise Broken(Rule.OWNER, text)
        newest = self._highest.get(partition, 0)
        if epoch < newest:
            raise Broken(Rule.OWNER, f"partition {partition} goes to {member} in epoch {epoch}, after {newest}")
        self._highest[partition] = epoch

    def _check_fresh(self, member: Membership, key: Key) -> None:
        """What comes for the first time comes in order."""
        partition, offset = key
        place = (member.id if self._consumption.is_shared else "", partition)
        if offset < self._newest.get(place, 0):
            raise Broken(Rule.ORDER, f"{offset} of partition {partition} came after {self._newest[place]}")
        self._newest[place] = offset

    def _check_credit(self, member: Membership, lane: int) -> None:
        if len(member.free) > member.prefetch:
            raise Broken(Rule.CREDIT, f"{member} has {list(member.grips.values())}, its prefetch is {member.prefetch}")
        if lane == RETRIES and len(member.of(RETRIES)) > max(member.prefetch // RETRY_SHARE, 1):
            raise Broken(Rule.CREDIT, f"{member} has {member.of(RETRIES)}, its prefetch is {member.prefetch}")
        if len(self._consumption.in_hands(lane)) > self._consumption.most_in_hands:
            raise Broken(Rule.CREDIT, f"members have {self._consumption.in_hands(lane)} of one lane")
