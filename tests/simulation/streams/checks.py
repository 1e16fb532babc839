"""What must hold of a broker with a stream at any time, or at rest."""

from typing import TYPE_CHECKING

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_definition import Order
from tests.simulation.checks import GREATEST, check_answered
from tests.simulation.rules import Broken, Rule
from tests.simulation.small_steps import HOLES
from tests.simulation.streams.claims import in_flight
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import RETRIES, Membership
from tests.simulation.streams.truth import Truth
from tests.simulation.streams.work import Place, Work

if TYPE_CHECKING:
    from tests.simulation.streams.world import StreamWorld


def check_memory(world: "StreamWorld") -> None:
    """At any time: no more is resident than the limits allow, what members have, and one message for each lane."""
    broker, lanes, held = world.stepped.broker, len(world.stepped.broker.queues), 0
    for group in [*world.stream.groups.values(), *broker.groups.readers]:
        for source in [*group.partitions, *([group.retries] if group.retries else [])]:
            lanes += 1
            in_hands = source.in_flight * GREATEST
            held += in_hands
            if source.memory.used > max(source.memory.limit, in_hands) + GREATEST:
                raise Broken(Rule.MEMORY, f"{group.name} has {source.memory.used} bytes resident of one lane")
    if broker.core.memory.used > max(broker.core.memory.limit, held) + GREATEST * lanes:
        raise Broken(
            Rule.MEMORY, f"{broker.core.memory.used} bytes are resident, {broker.core.memory.limit} are allowed"
        )


def check_counts(world: "StreamWorld", truths: dict[str, Truth]) -> None:
    """At rest: what is counted is what there is."""
    broker, stream = world.stepped.broker, world.stream
    records = [record for records in world.log.records for record in records.values()]
    for consumption in world.groups.values():
        group = world.group(consumption)
        if consumption.is_stored:
            _check_lag(world, group, truths[consumption.name])
        else:
            _check_reader(consumption, group)
    for partition, known in zip(stream.partitions, world.log.records, strict=False):
        if (partition.count, partition.bytes) != (len(known), sum([record.size for record in known.values()])):
            raise Broken(Rule.COUNT, f"partition {partition.index} counts {partition.count} of {len(known)} records")
    counted = sum([queue.bytes for queue in broker.queues.values()]) + sum([record.size for record in records])
    if broker.core.stored_bytes != counted:
        raise Broken(Rule.COUNT, f"the broker counts {broker.core.stored_bytes} bytes, there are {counted}")


def _check_lag(world: "StreamWorld", group: Group, truth: Truth) -> None:
    """A group's lag is what it has not finished; and without members it keeps nothing in memory."""
    for part, finished, records in zip(group.partitions, truth.finished, world.log.records, strict=False):
        lag = len([offset for offset in records if offset not in finished])
        if (part.lag, part.depth) != (lag, lag):
            text = f"{group.name} has a lag of {part.lag} and counts {part.depth} in partition {part.partition.index}"
            raise Broken(Rule.COUNT, f"{text}, it is {lag}")
        if not part.subscriptions and part.memory.used:
            raise Broken(Rule.MEMORY, f"{group.name} has no members, and {part.memory.used} bytes are resident")
    if group.retries is not None and not truth.is_purging:
        retries = [world.log.at(*place) for place, links in truth.links.items() for _ in links]
        size = sum([record.size for record in retries if record is not None])
        if (group.retries.depth, group.retries.bytes) != (len(retries), size):
            text = f"{group.name} counts {group.retries.depth} retries of {group.retries.bytes} bytes"
            raise Broken(Rule.COUNT, f"{text}, there are {len(retries)} of {size}")
        if not group.retries.subscriptions and group.retries.memory.used:
            raise Broken(Rule.MEMORY, f"{group.name} has no members, and retries are resident")


def _check_reader(consumption: Consumption, group: Group) -> None:
    for part in group.partitions:
        for work in consumption.works(part.partition.index):
            if work.is_open and work.record.offset in part.finished:
                raise Broken(Rule.LOST, f"{work.record} is finished for {consumption}, and nobody has settled it")
            if not work.may_be_open and work.record.offset not in part.finished:
                raise Broken(Rule.AGAIN, f"{work.record} is not finished for {consumption}, and it was settled")


def check_hands(world: "StreamWorld") -> None:
    """At rest: members have what the broker thinks they have."""
    for consumption in world.groups.values():
        group = world.group(consumption)
        if strange := group.members.keys() - consumption.members.keys():
            raise Broken(Rule.HANDS, f"{strange} are members of {consumption}, and should not")
        for member in consumption.members.values():
            table = set(in_flight(group, member))
            if table != set(member.grips):
                raise Broken(Rule.HANDS, f"{member} has {sorted(member.grips)}, for the broker {sorted(table)}")


def check_going_on(world: "StreamWorld") -> None:
    """At rest: everybody has got what could be given."""
    broker = world.stepped.broker
    if broker.core.store_error is not None:
        return  # it is tried again after a time
    check_answered(world.stepped, world.clients.values())
    for consumption in world.groups.values():
        for member in consumption.members.values():
            is_there = member.client is not None and member.client.connection.session.writable
            if is_there and len(member.free) < member.prefetch:
                _check_member(world, consumption, member)


def _check_member(world: "StreamWorld", consumption: Consumption, member: Membership) -> None:
    """A member with credit has got what waits for it."""
    group = world.group(consumption)
    for partition in member.served:
        part = group.partitions[partition]
        room = world.setup.max_in_flight
        if consumption.is_shared:
            share = -(-room // len(part.subscriptions))
            room = min(room, share + len(consumption.in_hands(partition)) - len(member.of(partition)))
        is_full = part.memory.used and part.memory.available() < GREATEST
        if part.fault is not None or is_full or len(consumption.in_hands(partition)) >= room:
            continue
        ready = _ready(world, consumption, partition)
        if part.finished.holes >= HOLES:
            ready = []
        if ready:
            raise Broken(Rule.STALL, f"{member} of {consumption} has credit, and {ready[0].record} waits for it")
    if group.retries is None or len(member.of(RETRIES)) >= max(member.prefetch // 5, 1):
        return
    source, now = group.retries, world.right.now_ms()
    is_full = source.memory.used and source.memory.available() < GREATEST
    if consumption.is_purging or source.fault is not None or is_full or source.in_flight >= world.setup.max_in_flight:
        return
    for work in consumption.known():
        [*states] = work.possible
        waits = work.holder is None and all([s.place is Place.RETRY and s.not_before < now for s in states])
        if waits and not work.record.is_gone:
            raise Broken(Rule.STALL, f"{member} of {consumption} has credit, and the retry of {work.record} waits")


def _ready(world: "StreamWorld", consumption: Consumption, partition: int) -> list[Work]:
    """The messages of a partition that a member could be given now, whose turn it is."""
    now = world.right.now_ms()
    works = [work for work in consumption.works(partition) if not work.record.is_leaving]
    works = [work for work in works if all([s.place is Place.WAITING for s in work.possible])]
    if consumption.of.order is Order.ORDERLY:
        works = [] if consumption.in_hands(partition) else works[:1]
    elif consumption.of.order is Order.KEY_ORDERED:
        busy = {grip.work.record.sent.draft.key for grip in consumption.in_hands(partition)} - {""}
        first: dict[str, Work] = {}
        for work in works:
            key = work.record.sent.draft.key
            first.setdefault(key or work.record.sent.name, work)
        works = [work for key, work in first.items() if key not in busy]
    return [w for w in works if w.holder is None and all([s.not_before < now for s in w.possible])]
