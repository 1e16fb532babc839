"""A client joins a group, for the first time or again: what it says it still has is its own, the rest comes again."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, NamedTuple

from quire.broker.streams.groups.group_definition import Order
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.claims import check_handed, in_flight, its_own
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import RETRIES, AckMode, Grip, Key, Membership, Remembered, written
from tests.simulation.streams.setup import GroupSetup

if TYPE_CHECKING:
    from tests.simulation.streams.client import StreamClient
    from tests.simulation.streams.world import StreamWorld

Claim = Literal["none", "some", "all", "*"]


class Wish(NamedTuple):
    """What a client wants to be.

    Attributes:
        group: in which group; empty for a reader.
        member: under which name; empty for none.
        ack: how it acknowledges.
        prefetch: how many messages it may have.
        timeout: how long it may have one, in seconds; 0 for what the policy says.
        claim: what it says it has still.
        order: what order it relies on; None if it does not say.
        color: which messages it wants; empty for all.
        start: where a new group begins.
        events: whether it wants to be told what happens.
    """

    group: str
    member: str = ""
    ack: AckMode = "client-individual"
    prefetch: int = 100
    timeout: float = 0
    claim: Claim = "none"
    order: Order | None = None
    color: str = ""
    start: Literal["earliest", "latest"] = "earliest"
    events: bool = False

    @property
    def is_static(self) -> bool:
        """Whether it is awaited when its connection is lost."""
        return bool(self.group and self.member)

    def headers(self, claims: Collection[Key]) -> dict[str, str]:
        """The headers of its SUBSCRIBE frame."""
        headers = {
            "destination": "/stream/s", "id": "0", "ack": self.ack, "prefetch-count": str(self.prefetch),
            "start": self.start, "group": self.group, "member": self.member, "order": self.order or "",
            "consume-timeout": f"{self.timeout:g}s" if self.timeout else "", "events": "true" if self.events else "",
            "selector": f"color = '{self.color}'" if self.color else "",
        }  # fmt: skip
        headers["held"] = "*" if self.claim == "*" else ",".join([written(key) for key in sorted(claims)])
        return {name: value for name, value in headers.items() if value}


def join(world: "StreamWorld", client: "StreamClient", wish: Wish) -> None:
    """A client becomes a member, unless it is one."""
    consumption = world.groups.get(wish.group) if wish.group else None
    id = wish.member or f"{client.connection.connection.peer}/0"
    known = consumption.members.get(id) if consumption else None
    busy = known is not None and known.client is not None and known.client.in_transaction
    if client.is_subscribed or client.is_stuck or client.in_transaction or busy:
        return
    if known is not None and known.client is not None:
        known.client.listen()
    claims = _claims(world, consumption, wish, id, known)
    group = world.stream.groups.get(wish.group)
    served = group.coordinator.epochs(id) if group is not None and id in group.members else {}
    headers, reads_fail = wish.headers(claims), world.store.reads_fail
    world.note(f"{client.name} joins {headers}")
    client.connection.frame("SUBSCRIBE", headers)
    if client.is_gone:
        return
    client.is_subscribed = True
    with world.points.muted():
        # What cannot be read is not handed over; it comes again.
        _enter(world, client, wish, id, claims, served, is_strict=not reads_fail)


def _claims(
    world: "StreamWorld", consumption: Consumption | None, wish: Wish, id: str, known: Membership | None
) -> dict[Key, Remembered]:
    """What it says that it has; of ``*``, what it had as long as the broker was there."""
    if consumption is None or not wish.is_static or wish.claim == "none":
        return {}
    if wish.claim == "*":
        return {} if known is None else {k: Remembered(g.ack, g.work.record) for k, g in known.grips.items()}
    remembered = sorted(world.memory(consumption, id).items())
    return dict(remembered[:: 1 if wish.claim == "all" else 2])


def _enter(
    world: "StreamWorld", client: "StreamClient", wish: Wish, id: str, claims: dict[Key, Remembered],
    served: dict[int, int], *, is_strict: bool,
) -> None:  # fmt: skip
    """The model learns of a member, and what it has is compared with what it should have."""
    world.look_at_groups()
    consumption = world.groups[wish.group] if wish.group else _reader(world, wish)
    group, now = world.group(consumption), world.clock.monotonic()
    member = Membership(
        consumption, id, client, static=wish.is_static, ack=wish.ack, prefetch=wish.prefetch,
        timeout=wish.timeout or world.setup.consume_timeout,
    )  # fmt: skip
    member.served, member.claims = group.coordinator.epochs(id), dict(claims)
    known = consumption.members.get(id)
    kept = {} if known is None else _take_over(world, known, claims, served, is_whole=wish.claim == "*")
    consumption.members[id] = member
    client.consumption, client.membership = consumption, member
    own = its_own(consumption, member, member.served.keys() - served.keys() | ({RETRIES} if known is None else set()))
    has = in_flight(group, member)
    if missing := {*(own if is_strict else ()), *kept}.difference(has):
        raise Broken(Rule.HELD, f"{id} still has {sorted(missing)}, and they are not its own")
    if strange := set(has) - claims.keys():
        raise Broken(Rule.HELD, f"{id} is said to have {sorted(strange)}, and does not say so")
    for key in has:
        work = check_handed(consumption, group, member, key)
        member.take(Grip(work, member, key, claims[key].ack, now))
    member.claims = {key: claim for key, claim in claims.items() if key[0] not in (*member.served, RETRIES)}
    memory = world.memory(consumption, id)
    for key in memory.keys() - claims.keys():
        del memory[key]


def _take_over(
    world: "StreamWorld", known: Membership, claims: dict[Key, Remembered], served: dict[int, int], *, is_whole: bool
) -> dict[Key, Grip]:
    """What a member had on its old connection and has still; the rest comes back."""
    kept = {key: g for key, g in known.grips.items() if key in claims and (key[0] in served or key[0] == RETRIES)}
    busy = {key[0] for key in claims}  # it was at work on what it says that it has: the rest had only been waiting
    now, now_ms = world.clock.monotonic(), world.right.now_ms()
    back = [grip for key, grip in known.grips.items() if key not in kept]
    for lost in (True, False):
        some = [grip for grip in back if (grip.key[0] not in busy and not is_whole) is lost]
        known.consumption.give_back(some, now, now_ms, lost=lost)
    for grip in kept.values():
        known.drop(grip)
    if known.client is not None:
        known.client.consumption = known.client.membership = None
    return kept


def _reader(world: "StreamWorld", wish: Wish) -> Consumption:
    group = world.stepped.broker.groups.readers[-1]
    of = GroupSetup(group.name, color=wish.color, start=wish.start)
    begin = [part.finished.base + 1 for part in group.partitions]
    world.add_group(Consumption(of, world.setup, world.log, world.moments, begin, is_stored=False))
    return world.groups[group.name]
