"""What members say that they still have: it is in their hands again, without a delivery."""

from collections.abc import Collection

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.retries import RetryMessage
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import RETRIES, Grip, Key, Membership, written
from tests.simulation.streams.work import Place, Work


def in_flight(group: Group, member: Membership) -> list[Key]:
    """What a member has, as the broker knows it, in the order in which it was given that."""
    known = group.members.get(member.id)
    if known is None:
        return []

    def rank(key: Key) -> int:
        return sum([len(sequences) for _, sequences in known.up_to(known.children[key[0]], key[1])])

    return sorted([(lane, seq) for lane, child in known.children.items() for seq in child.in_flight], key=rank)


def its_own(consumption: Consumption, member: Membership, lanes: Collection[int]) -> dict[Key, Work]:
    """What a member must be given of what it says it has: what is open, and with nobody."""
    own: dict[Key, Work] = {}
    for key, (_, record) in member.claims.items():
        work, place = consumption.work(record), Place.RETRY if key[0] == RETRIES else Place.WAITING
        is_there = not (record.is_gone or record.is_leaving) and key[0] in lanes
        if record.partition in consumption.moved or (key[0] == RETRIES and consumption.is_purging):
            continue  # it may be of before
        if is_there and work.holder is None and all([state.place is place for state in work.possible]):
            own[key] = work
    return own


def hand_over(consumption: Consumption, group: Group, member: Membership, lanes: Collection[int], now: float) -> None:
    """A member is given partitions: what it says that it still has of them is in its hands."""
    own, has = its_own(consumption, member, lanes), in_flight(group, member)
    if missing := own.keys() - set(has):
        raise Broken(Rule.HELD, f"{member} still has {sorted(missing)}, and they are not its own")
    for key in has:
        if key in own:
            member.take(Grip(own[key], member, key, member.claims[key].ack, now))
    member.claims = {key: claim for key, claim in member.claims.items() if key[0] not in lanes}


def check_handed(consumption: Consumption, group: Group, member: Membership, key: Key) -> Work:
    """A member has something in its hands that is not known to be its own. May it have it?"""
    lane, sequence = key
    place = key
    if lane == RETRIES:
        message = group.members[member.id].children[RETRIES].in_flight[sequence]
        assert isinstance(message, RetryMessage)
        place = (group.stream.stored.lanes.index(message.origin_lane), message.origin_sequence)
    record = consumption.log.at(*place)
    if record is None:
        raise Broken(Rule.HELD, f"{written(key)} is handed to {member}, and its record is gone")
    work = consumption.work(record)
    if work.holder is not None or not work.may_be_open:
        raise Broken(Rule.HANDS, f"{record} is handed to {member}; {work.holder} has it, it is {set(work.possible)}")
    return work
