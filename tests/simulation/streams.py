"""The world of streams: a broker with one stream, its groups, and the clients that send and consume."""

from collections.abc import Callable, Collection, Sized
from random import Random
from typing import Literal, NamedTuple

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.group_definition import Order
from quire.broker.streams.groups.groups import PartitionChange, reset, shift
from quire.broker.streams.groups.retries import level_ms
from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.stream import Stream
from quire.errors import BrokerStopping, StoreError
from quire.testing.stepped import Frame, SteppedClient
from tests.simulation.client import Broken, Note, Outcome, Rule, SimulatedClient
from tests.simulation.history import CONSUMERS, PRODUCERS, CommonStep, Fail, Generator, Step, Turn, Weights
from tests.simulation.life import GREATEST, HOLES, Life, check_answered, check_links
from tests.simulation.stream_model import (
    RETRIES,
    AckMode,
    Consumption,
    Draft,
    Grip,
    GroupSetup,
    Keeping,
    Key,
    Lookout,
    Membership,
    Moments,
    Place,
    Record,
    Remembered,
    State,
    States,
    Strays,
    StreamLog,
    StreamSent,
    StreamSetup,
    Truth,
    Work,
    check_handed,
    in_flight,
    its_own,
    truths,
    written,
)


class Acknowledged(NamedTuple):
    """A message that was acknowledged in a transaction."""

    consumption: Consumption  # the group
    work: Work  # the message
    before: States  # where it stood


class StreamClient(SimulatedClient):
    def __init__(self, name: str, connection: SteppedClient, world: "StreamWorld") -> None:
        super().__init__(name, connection, world.note)
        self.consumption: Consumption | None = None
        self.membership: Membership | None = None
        self.past: list[tuple[Key, str]] = []
        self.is_subscribed = False
        self._world = world
        self._held: list[Grip] = []

    # It hears.

    def _take_messages(self) -> None:
        for frame in self.connection.take("MESSAGE"):
            if "event" in frame.headers:
                self.note(f"{self.name} is told: {frame.headers}")
            elif self.membership is not None:
                self._take(self.membership, frame)

    def _take(self, member: Membership, frame: Frame) -> None:
        assert self.consumption is not None
        again = ", again" if "redelivered" in frame.headers else ""
        name = frame.body[: frame.body.index(b";")].decode()
        self.note(f"{self.name} gets {name} ({frame.headers['ack']}){again}")
        grip = self._world.lookout(self.consumption).deliver(
            member, frame, self._world.clock.monotonic(), self._world.right.now_ms()
        )
        self.past.append((grip.key, grip.ack))
        if member.ack != "auto":
            memory = self._world.memory(self.consumption, member.id)
            memory[grip.key] = Remembered(grip.ack, grip.work.record)

    # It sends.

    def send(self, draft: Draft, *, receipt: bool) -> None:
        if self.is_stuck:
            return
        log = self._world.log
        sent = StreamSent(f"{self.name}-{len(log.sent) + 1}", draft, len(self._world.stream.partitions))
        log.sent[sent.name] = sent
        headers = {"destination": "/stream/s", **draft.headers()}
        if self._outcome is not None:
            sent.outcome = self._outcome
            headers["transaction"] = "t"
        elif receipt:
            headers |= self.receipt(lambda: setattr(sent, "receipted", True))
        self.note(f"{self.name} sends {sent}, {draft.size} bytes, {headers}")
        self.connection.frame("SEND", headers, f"{sent};".encode() + b"x" * draft.size)
        if self.connection.session.held:  # it is sent when there is room
            sent.partitions = 0

    def receipt(self, confirmed: Callable[[], None]) -> dict[str, str]:
        """Ask for a receipt: when it comes, everything that had happened up to now is durable."""
        moments, moment = self._world.moments, self._world.moments.now

        def came() -> None:
            moments.confirm(moment)
            confirmed()

        return super().receipt(came)

    # It settles.

    @property
    def in_flight(self) -> Sized:
        return self.membership.grips if self.membership else ()

    @property
    def free(self) -> Sized:
        return self.membership.free if self.membership else ()

    @property
    def is_auto(self) -> bool:
        return self.membership is not None and self.membership.ack == "auto"

    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        covered = self._pick(pick)
        if not covered or self.consumption is None:
            return
        self.note(f"{self.name} acknowledges {covered}")
        if not self._holds(covered, acknowledged=True):
            for grip in covered:
                self._settle(grip)
                self.consumption.finish(grip.work)
        self._frame("ACK", covered[-1].ack, {}, receipt=receipt)

    def reject(self, pick: int, headers: dict[str, str], delay_ms: int | None, *, letter: bool, receipt: bool) -> None:
        covered = self._pick(pick)
        if not covered or self.consumption is None:
            return
        self.note(f"{self.name} rejects {covered} {headers}")
        if self._holds(covered, acknowledged=False):
            headers = {}
        else:
            for grip in covered:
                self._settle(grip)
                if letter:
                    self.consumption.dead_letter(grip.work)
                else:
                    self.consumption.fail(grip.work, self._world.right.now_ms(), delay_ms)
        self._frame("NACK", covered[-1].ack, headers, receipt=receipt)

    def extend(self, pick: int, seconds: float) -> None:
        covered = self._pick(pick)
        if covered and not self.in_transaction:
            self.note(f"{self.name} extends {covered} by {seconds:g} s")
            for grip in covered:
                grip.extend(self._world.clock.monotonic() + seconds)
            self._frame("NACK", covered[-1].ack, {"extend": str(round(seconds * 1000))}, receipt=False)

    def _pick(self, pick: int) -> list[Grip]:
        member = self.membership
        if member is None or self.is_stuck or not member.free:
            return []
        return member.covered(member.free[pick % len(member.free)])

    def _holds(self, covered: list[Grip], *, acknowledged: bool) -> bool:
        """Whether there is a transaction, which keeps this until its end."""
        if self._outcome is not None:
            self._held += covered
            for grip in covered:
                grip.transacted = acknowledged
        return self._outcome is not None

    def _settle(self, grip: Grip) -> None:
        grip.member.drop(grip)
        self._world.memory(grip.member.consumption, grip.member.id).pop(grip.key, None)

    def _frame(self, command: str, ack: str, headers: dict[str, str], *, receipt: bool) -> None:
        if self._outcome is not None:
            headers = {"transaction": "t"}
        elif receipt:
            headers = headers | self.receipt(lambda: None)
        self.connection.frame(command, {"id": ack, **headers})

    def stray(self, pick: int, *, reject: bool) -> None:
        """Acknowledge or reject again, or late, what it was given once and does not have."""
        if self.is_stuck or self.membership is None or self.consumption is None or self.in_transaction:
            return
        past = [(key, ack) for key, ack in self.past if key not in self.membership.grips]
        if past:
            key, ack = past[pick % len(past)]
            self.note(f"{self.name} {'rejects' if reject else 'acknowledges'} {ack}, which it does not have")
            with self._world.strays.expected(self.consumption, self.membership, key, ack, reject=reject):
                self._frame("NACK" if reject else "ACK", ack, {}, receipt=False)

    # Transactions.

    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        held, self._held = self._held, []
        done = [done for grip in held if (done := self._end_of(grip, outcome, commit=commit)) is not None]
        self._world.commits.append((self._world.stepped.broker.core.open_commit_number, done))
        act()

    def _end_of(self, grip: Grip, outcome: Outcome, *, commit: bool) -> Acknowledged | None:
        """A transaction ends in which a message was settled.

        If it was taken from the member meanwhile, the end of the transaction has nothing to do with it; only a retry
        that nobody has counts as acknowledged too.
        """
        consumption, work, before = grip.member.consumption, grip.work, grip.work.possible
        is_acknowledged = commit and grip.transacted is True
        if grip.member.grips.get(grip.key) is grip:
            self._settle(grip)
            if not is_acknowledged:
                consumption.fail(work, self._world.right.now_ms())
        else:
            is_waiting = work.holder is None and all([state.place is Place.RETRY for state in work.possible])
            if not is_waiting or grip.key[0] != RETRIES:
                return None
        if not is_acknowledged:
            return None
        work.outcome = outcome
        consumption.finish(work)
        return Acknowledged(consumption, work, before)

    # It goes.

    def _unsubscribe(self) -> None:
        if self.membership is not None and not self.in_transaction:
            self.connection.frame("UNSUBSCRIBE", {"id": "0"})
            self.leave_group(lost=False, for_good=True)
            self.is_subscribed = False

    def closed(self, *, lost: bool = True) -> None:
        self.forget()
        self._held = []
        self.leave_group(lost=lost, for_good=False)

    def leave_group(self, *, lost: bool, for_good: bool) -> None:
        """It is no member any more, or not connected any more."""
        consumption, member = self.consumption, self.membership
        self.consumption = self.membership = None
        if consumption is None or member is None or consumption.members.get(member.id) is not member:
            return
        now = self._world.clock.monotonic()
        for grip in member.grips.values():
            if grip.transacted is not None:  # the leases of these were extended, a second at a time
                grip.transacted = None
                grip.latest = max(grip.latest, now + 1.0)
        if member.static and not for_good:
            member.client = None
            member.served = {}  # it may have changed before: what it is now, the next look tells
            member.grace_end = now + self._world.setup.grace
        else:
            consumption.give_back(member.grips.values(), now, self._world.right.now_ms(), lost=lost)
            del consumption.members[member.id]


Claim = Literal["none", "some", "all", "*"]


class Join(Step, frozen=True):
    """A client becomes a member of a group, or a reader, unless it is one."""

    client: str
    group: str = ""  # in which group; empty for a reader
    member: str = ""  # under which name; empty for none
    ack: AckMode = "client-individual"
    prefetch: int = 100  # how many messages it may have
    timeout: float = 0  # how long it may have one, in seconds; 0 for what the policy says
    claim: Claim = "none"  # what it says it has still, if it was a member before
    says_order: bool = False  # whether it says what order it relies on
    events: bool = False  # whether it wants to be told what happens

    def act(self, world: "StreamWorld") -> None:
        if (of := world.setup.group(self.group) if self.group else GroupSetup("")) is not None:
            join(world, world.client(self.client), self, of)

    @property
    def is_static(self) -> bool:
        """Whether it is awaited when its connection is lost."""
        return bool(self.group and self.member)

    @property
    def held(self) -> Claim:
        """What is acknowledged by being sent is not held."""
        return "none" if self.ack == "auto" else self.claim

    def headers(self, of: GroupSetup, claims: Collection[Key], *, is_new: bool) -> dict[str, str]:
        headers = {
            "destination": "/stream/s", "id": "0", "ack": self.ack, "prefetch-count": str(self.prefetch),
            "start": of.start, "group": self.group, "member": self.member,
            "order": of.order if self.group and (self.says_order or is_new) else "",
            "consume-timeout": f"{self.timeout:g}s" if self.timeout else "", "events": "true" if self.events else "",
            "selector": f"color = '{of.color}'" if of.color else "",
        }  # fmt: skip
        headers["held"] = "*" if self.held == "*" else ",".join([written(key) for key in sorted(claims)])
        return {name: value for name, value in headers.items() if value}


def join(world: "StreamWorld", client: "StreamClient", wish: Join, of: GroupSetup) -> None:
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
    headers, reads_fail = wish.headers(of, claims, is_new=group is None), world.store.reads_fail
    world.note(f"{client.name} joins {headers}")
    client.connection.frame("SUBSCRIBE", headers)
    if client.is_gone:
        return
    client.is_subscribed = True
    with world.points.muted():
        # What cannot be read is not handed over; it comes again.
        _enter(world, client, wish, of, id, claims, served, is_strict=not reads_fail)


def _claims(
    world: "StreamWorld", consumption: Consumption | None, wish: Join, id: str, known: Membership | None
) -> dict[Key, Remembered]:
    """What it says that it has; of ``*``, what it had as long as the broker was there."""
    if consumption is None or not wish.is_static or wish.held == "none":
        return {}
    if wish.held == "*":
        return {} if known is None else {k: Remembered(g.ack, g.work.record) for k, g in known.grips.items()}
    remembered = sorted(world.memory(consumption, id).items())
    return dict(remembered[:: 1 if wish.held == "all" else 2])


def _enter(
    world: "StreamWorld", client: "StreamClient", wish: Join, of: GroupSetup, id: str, claims: dict[Key, Remembered],
    served: dict[int, int], *, is_strict: bool,
) -> None:  # fmt: skip
    """The model learns of a member, and what it has is compared with what it should have."""
    world.look_at_groups()
    consumption = world.groups[wish.group] if wish.group else _reader(world, of)
    group, now = world.group(consumption), world.clock.monotonic()
    member = Membership(
        consumption, id, client, static=wish.is_static, ack=wish.ack, prefetch=wish.prefetch,
        timeout=wish.timeout or world.setup.consume_timeout,
    )  # fmt: skip
    member.served, member.claims = group.coordinator.epochs(id), dict(claims)
    known = consumption.members.get(id)
    kept = {} if known is None else _take_over(world, known, claims, served, is_whole=wish.held == "*")
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


def _reader(world: "StreamWorld", of: GroupSetup) -> Consumption:
    group = world.stepped.broker.groups.readers[-1]
    of = GroupSetup(group.name, color=of.color, start=of.start)
    begin = [part.finished.base + 1 for part in group.partitions]
    world.add_group(Consumption(of, world.setup, world.log, world.moments, begin, is_stored=False))
    return world.groups[group.name]


To = Literal["earliest", "latest", "offset", "shift"]


def move(world: "StreamWorld", consumption: Consumption, to: To, value: int, partition: int | None) -> None:
    group = world.group(consumption)
    told = _changes(group, to, value, partition, dry_run=True)
    done = _changes(group, to, value, partition, dry_run=False)
    if told != done:
        raise Broken(Rule.MOVED, f"{consumption} was to be moved by {told}, and was by {done}")
    places = {change.partition: change.to_offset for change in done}
    world.note(f"{consumption} is moved to {places}")
    with world.points.muted():
        world.look_at_log()
        for change in done:
            _check(world, consumption, change)
        consumption.move(places)
        world.lookout(consumption).moved(places)
        for _, acknowledged in world.commits:  # whether they fail or not is of no concern any more
            acknowledged[:] = [
                a for a in acknowledged if a.consumption is not consumption or not _is_of(a.work.record, places)
            ]


def _is_of(record: Record, places: dict[int, int]) -> bool:
    return record.partition in places


def _changes(group: Group, to: To, value: int, partition: int | None, *, dry_run: bool) -> list[PartitionChange]:
    if to == "shift":
        return shift(group, value, partition, dry_run=dry_run)
    return reset(group, Start(StartKind(to), value if to == "offset" else 0), partition, dry_run=dry_run)


def _check(world: "StreamWorld", consumption: Consumption, change: PartitionChange) -> None:
    """What is told is exact, as far as it is known."""
    here = [record for record in world.log.records[change.partition].values() if not record.is_leaving]
    works = [consumption.work(record) for record in here if consumption.is_about(record)]
    is_durable = consumption.moved_at <= world.moments.durable  # else some of it is forgotten, and still in the store
    if consumption.of.color or not is_durable or any([len(work.possible) > 1 for work in works]):
        return
    states = {work.record.offset: state for work in works for state in work.possible}
    waiting = {offset for offset, state in states.items() if state.place is Place.WAITING}
    again = len([r for r in here if r.offset >= change.to_offset and r.offset not in waiting])
    skipped = len([offset for offset in waiting if offset < change.to_offset])
    retries = len([state for state in states.values() if _is_retried(state)])
    counted = (change.again, change.skipped, change.in_flight, change.retries_dropped)
    if counted != (again, skipped, len(consumption.in_hands(change.partition)), retries):
        raise Broken(Rule.MOVED, f"{change} should say again {again}, skipped {skipped}, retries {retries}")


def _is_retried(state: State) -> bool:
    return state.place is Place.RETRY or (state.place is Place.WAITING and state.failures > 0)


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


ROUNDS = 60
"""In so many rounds of taking everything there is, and of waiting a second, everything is finished."""


class StreamWorld(Life[StreamClient]):
    def __init__(self, setup: StreamSetup, note: Note = lambda text: None) -> None:
        super().__init__(setup.settings(), note)
        self.setup = setup
        self.log = StreamLog()
        self.moments = Moments()
        self.groups: dict[str, Consumption] = {}
        self.life = 0
        self.commits: list[tuple[int, list[Acknowledged]]] = []
        self.strays = Strays(self.log, self.group)
        self.keeping = Keeping(setup, self.right)
        self._lookouts: dict[str, Lookout] = {}
        self._memories: dict[tuple[str, str], dict[Key, Remembered]] = {}
        with self.points.muted():
            self.stepped.broker.stream("s")
            self.stepped.run()
            self.log.look(self.store, self.stream)

    @property
    def stream(self) -> Stream:
        return self.stepped.broker.destinations.streams["s"]

    def group(self, consumption: Consumption) -> Group:
        if consumption.is_stored:
            return self.stream.groups[consumption.name]
        return next(reader for reader in self.stepped.broker.groups.readers if reader.name == consumption.name)

    def _start(self) -> None:
        self.clock.set(0.0)  # a broker believes the clock with which it starts, for pins and retention too
        super()._start()

    def lookout(self, consumption: Consumption) -> Lookout:
        return self._lookouts[consumption.name]

    # What members remember, connected or not.

    def memory(self, consumption: Consumption, id: str) -> dict[Key, Remembered]:
        """What a member has not settled, as far as it knows, and the ids to acknowledge that by."""
        return self._memories.setdefault((consumption.name, id), {})

    # A step.

    def observe(self) -> None:
        with self.points.muted():
            self.look_at_log()
            self.look_at_groups()
            for client in [client for client in self.clients.values() if client.is_gone]:
                client.listen()
                client.closed()
            self.clients = {name: client for name, client in self.clients.items() if not client.is_gone}
            now, now_ms = self.clock.monotonic(), self.right.now_ms()
            timeout = min(self.setup.revoke_timeout, self.setup.consume_timeout)
            for name in list(self.groups):
                consumption, lookout = self.groups[name], self._lookouts[name]
                if consumption.is_stored or consumption.members:
                    lookout.look(self.group(consumption), now, now_ms, timeout)
                    lookout.check_owners(self.group(consumption))
            for client in self.clients.values():
                client.listen()
            for lookout in self._lookouts.values():
                lookout.check_order()
            self._forget_readers()
            check_memory(self)
        self.commits = [
            (number, done) for number, done in self.commits if number > self.stepped.broker.core.commits_done
        ]

    def look_at_log(self) -> None:
        went = self.log.look(self.store, self.stream)
        self.keeping.check(self.log, went, list(self.groups.values()))

    def look_at_groups(self) -> None:
        for name, group in self.stream.groups.items():
            if name not in self.groups:
                of = self.setup.group(name)
                assert of is not None
                begin = [part.finished.base + 1 for part in group.partitions]
                self._check_begin(of, begin)
                self.add_group(Consumption(of, self.setup, self.log, self.moments, begin))

    def add_group(self, consumption: Consumption) -> None:
        consumption.has_crashed = self.life > 0
        self.groups[consumption.name] = consumption
        self._lookouts[consumption.name] = Lookout(consumption, self.log)

    def _check_begin(self, of: GroupSetup, begin: list[int]) -> None:
        for first, known in zip(begin, self.log.records, strict=False):
            records = [offset for offset, record in known.items() if not record.is_leaving]
            if of.start == "earliest" and any([offset < first for offset in records]):
                raise Broken(Rule.UNWANTED, f"{of.name} begins at {first}, there are {records}")
            if of.start == "latest" and any([offset >= first for offset in records]):
                raise Broken(Rule.UNWANTED, f"{of.name} begins at {first}, {records} were there before")

    def _forget_readers(self) -> None:
        self.groups = {name: c for name, c in self.groups.items() if c.is_stored or c.members}

    # What steps do.

    def _new_client(self, name: str, connection: SteppedClient) -> StreamClient:
        return StreamClient(name, connection, self)

    def end_commit(self, *, fails: bool) -> None:
        done = self.stepped.broker.core.commits_done
        super().end_commit(fails=fails)
        if fails and self.stepped.broker.core.commits_done > done:
            for number, acknowledged in self.commits:
                if number > done:
                    self._restore(acknowledged)
            self.commits = []
            self.keeping.commit_failed(self.stream, self.moments.durable)

    def _restore(self, acknowledged: list[Acknowledged]) -> None:
        for consumption, work, before in acknowledged:
            states = [consumption.returned(state, failed=False) for state in before]
            work.change(self.moments.next(), lambda _, states=states: states)  # type: ignore[misc]
            work.outcome = None

    # At rest.

    def check_rest(self, *, verify: bool) -> None:
        broker = self.stepped.broker
        if broker.core.store_error is None:
            self.moments.confirm(self.moments.now)
            found = truths(self.store)
            for consumption in self.groups.values():
                if consumption.is_stored:
                    self._audit(consumption, found[consumption.name])
            check_counts(self, found)
            check_hands(self)
            check_going_on(self)
        if verify:
            check_links(self.store)

    def _audit(self, consumption: Consumption, truth: Truth) -> None:
        """The store has what became of each message."""
        consumption.is_purging = truth.is_purging
        for record in self._records(consumption):
            state = truth.state_of(record)
            work = consumption.work(record)
            if state not in work.possible:
                raise Broken(Rule.STORED, f"{record} is {state} for {consumption}, and should be {set(work.possible)}")
            work.is_in(state, self.moments.now)
        truth.check_nothing_else({record.place for records in self.log.records for record in records.values()})

    def _records(self, consumption: Consumption) -> list[Record]:
        return [work.record for p in range(len(self.log.records)) for work in consumption.works(p)]

    # Crashes.

    def stop(self) -> None:
        """The broker stops cleanly, and is started again."""
        self.note("the broker stops")
        self.store.mend()  # a broker that cannot read its store does not stop cleanly
        self.stepped.run()
        self.observe()
        for client in self.clients.values():
            client.closed(lost=False)
        for stepped_client in self.stepped.clients:
            stepped_client.session.stop(BrokerStopping("the broker stops"))
        self.stepped.broker.stop()
        self.stepped.run()
        if self.stepped.broker.core.store_error is None:
            self.moments.confirm(self.moments.now)
        with self.points.muted():
            self.died()
        self.restart()

    def died(self) -> None:
        self.look_at_log()
        super().died()
        for lookout in self._lookouts.values():
            lookout.check_order()

    def started(self) -> None:
        """A new broker is there: everything is as it was at some moment since the last durable one."""
        self.life += 1
        self.commits = []
        if "s" not in self.stepped.broker.destinations.streams:
            raise Broken(Rule.LOST, "the stream is gone")
        self.look_at_log()
        self.log.crash()
        self.keeping.crash(self.stream, self.moments.durable)
        found = truths(self.store)
        for name, consumption in list(self.groups.items()):
            consumption.crash()
            self._lookouts[name].crash(self.moments.durable)
            if consumption.is_stored and name in found:
                self._resume(consumption, found[name])
            else:
                del self.groups[name]
                if consumption.is_stored and consumption.created <= self.moments.durable:
                    raise Broken(Rule.LOST, f"the group {name} is gone")
        self.moments.confirm(self.moments.now)
        self.look_at_groups()
        self._await_members()

    def _resume(self, consumption: Consumption, truth: Truth) -> None:
        for record in self._records(consumption):
            work, state = consumption.work(record), truth.state_of(record)
            allowed = work.after_crash(self.moments.durable)
            if state not in allowed:
                rule = Rule.ATTEMPTS
                if not any([other.is_open for other in allowed]):
                    rule = Rule.AGAIN
                elif state.place is Place.DONE:
                    rule = Rule.LOST
                raise Broken(rule, f"after a crash {record} is {state} for {consumption}, it was {set(allowed)}")
            if work.outcome is not None:
                work.outcome.decide(state.place is Place.DONE, f"{record} is {state} for {consumption}")
                work.outcome = None
            work.is_in(state, self.moments.now)
        consumption.resumed()
        consumption.is_purging = truth.is_purging

    def _await_members(self) -> None:
        for consumption in self.groups.values():
            for status in self.group(consumption).coordinator.members:
                consumption.await_member(status.id, status.partitions, self.clock.monotonic() + self.setup.grace)

    # The end.

    def _take_everything(self, is_done: Callable[[], bool]) -> None:
        """Let all members acknowledge all they get, until there is nothing more, or only what waits for its time."""
        for _ in range(ROUNDS):
            while any([client.settle_all() for client in self.clients.values()]):
                self.rest_now()
            if is_done():
                return
            self.do(lambda world: world.stepped.advance(1.0))
            self.rest_now()
        raise Broken(Rule.STALL, f"after {ROUNDS} s there is something left: {self._left()}")

    def _left(self) -> list[str]:
        return [
            f"{work.record} for {c}" for c in self.groups.values() for p in range(len(self.log.records))
            for work in c.works(p) if work.may_be_open
        ]  # fmt: skip

    def _drain(self) -> None:
        for name, consumption in self.groups.items():
            client = self.client(f"drain-{name}")
            join(self, client, Join(client.name, name, says_order=True), consumption.of)
            self.rest_now()
        self._take_everything(lambda: not self._left())
        self._everybody_leaves()
        self.log.check_nothing_lost()
        self._leave()

    def _leave(self) -> None:
        """Nobody is there: remove the groups and the stream, and see that nothing remains of them."""
        for _ in range(ROUNDS):  # retention goes in small steps
            if not self.keeping.late(self.log):
                break
            self.do(lambda world: world.stepped.advance(1.0))
            self.rest_now()
        broker = self.stepped.broker
        with self.points.muted():
            check_links(self.store)
            if late := self.keeping.late(self.log):
                raise Broken(Rule.RETENTION, f"{late} are due and not gone")
            if broker.core.memory.used or broker.core.transaction_bytes or broker.core.flow.holds:
                raise Broken(Rule.MEMORY, f"nobody is there, and {broker.core.memory.used} bytes are resident")
            for group in list(self.stream.groups.values()):
                broker.groups.delete(group)
            broker.destinations.delete_stream(self.stream)
            self.stepped.run()
            kinds = [stored for stored in self.store.destinations() if stored.kind != "queue"]
            marks = [key for prefix in ("group/", "stream/") for key, _ in self.store.marks(prefix)]
            if kinds or marks:
                raise Broken(Rule.LEFT, f"the stream is deleted, and there are {kinds} and {marks}")
            counted = sum([queue.bytes for queue in broker.queues.values()])
            if broker.core.stored_bytes != counted:
                raise Broken(Rule.COUNT, f"the broker counts {broker.core.stored_bytes} bytes, its queues {counted}")


MOST_PARTITIONS = 5
"""The stream gets no more partitions than this."""


class Send(Step, frozen=True):
    """A client sends messages, and connects before if it has to."""

    client: str
    size: int = 0  # how long each body is, in bytes
    count: int = 1
    partition: int = -1  # which partition it names; -1 for none
    key: str = ""  # their partition key; empty for none
    color: str = ""  # a header that groups may select by
    receipt: bool = False

    def act(self, world: StreamWorld) -> None:
        partition = self.partition if self.partition < len(world.stream.partitions) else -1
        for _ in range(self.count):
            draft = Draft(self.size, partition, self.key, self.color)
            world.client(self.client).send(draft, receipt=self.receipt)


class Settle(Step, frozen=True):
    client: str
    pick: int = 0  # which of the messages in its hands, counted around
    count: int = 1  # how many times
    receipt: bool = False

    def act(self, world: StreamWorld) -> None:
        if client := world.clients.get(self.client):
            for _ in range(self.count):
                client.acknowledge(self.pick, receipt=self.receipt)


class Reject(Step, frozen=True):
    client: str
    pick: int = 0  # which of the messages in its hands, counted around
    delay: float = -1  # how long the next delivery has to wait, in seconds; -1 for what the policy says
    level: int = 0  # the level of that delay; 0 for none, -1 for a dead letter
    receipt: bool = False

    def act(self, world: StreamWorld) -> None:
        headers: dict[str, str] = {}
        delay_ms = None
        if self.level:
            headers["delay-level"] = str(self.level)
            delay_ms = level_ms(self.level) if self.level > 0 else None
        elif self.delay >= 0:
            delay_ms = round(self.delay * 1000)
            headers["redelivery-delay"] = str(delay_ms)
        if client := world.clients.get(self.client):
            client.reject(self.pick, headers, delay_ms, letter=self.level < 0, receipt=self.receipt)


class Extend(Step, frozen=True):
    """A member extends the leases on what it has."""

    client: str
    pick: int = 0  # which of the messages in its hands, counted around
    seconds: float = 1.0  # the lease ends so many seconds from now

    def act(self, world: StreamWorld) -> None:
        if client := world.clients.get(self.client):
            client.extend(self.pick, self.seconds)


class Stray(Step, frozen=True):
    """A member acknowledges what it had once and does not have: again, late, or in vain."""

    client: str
    pick: int = 0  # which of all that it had, counted around
    reject: bool = False

    def act(self, world: StreamWorld) -> None:
        if client := world.clients.get(self.client):
            client.stray(self.pick, reject=self.reject)


class Grow(Step, frozen=True):
    def act(self, world: StreamWorld) -> None:
        count = len(world.stream.partitions) + 1
        if count <= MOST_PARTITIONS:
            world.note(f"the stream has {count} partitions")
            world.stepped.broker.destinations.add_partitions(world.stream, count)
            world.moments.next()


class Pin(Step, frozen=True):
    """Somebody pins records of all partitions, instead of what he had pinned."""

    first: int = 1  # from which offset on
    seconds: float = 5.0  # for how long

    def act(self, world: StreamWorld) -> None:
        world.note(f"everything from {self.first} on is pinned for {self.seconds:g} s")
        offsets = {partition.index: self.first for partition in world.stream.partitions}
        world.stream.pins.set("reader", offsets, round(self.seconds * 1000))
        world.keeping.pin("reader", world.stream, world.log, self.first, self.seconds, world.moments.next())


class Move(Step, frozen=True):
    group: str
    to: To = "earliest"
    value: int = 1  # the offset, or by how many offsets it is shifted
    partition: int = -1  # the only partition that this is about; -1 for all
    fails: int = 0  # which of the reads that it takes fails; 0 for none

    def act(self, world: StreamWorld) -> None:
        consumption = world.groups.get(self.group)
        if consumption is not None and self.partition < len(world.stream.partitions):
            if self.fails:
                world.store.fail_reads(self.fails)
            try:
                move(world, consumption, self.to, self.value, None if self.partition < 0 else self.partition)
            except StoreError as error:
                world.note(f"it cannot be moved: {error}")


class Stop(Step, frozen=True):
    def act(self, world: StreamWorld) -> None:
        world.stop()


AnyStep = Send | Join | Settle | Reject | Extend | Stray | Grow | Pin | Move | Stop | CommonStep


NAMES = ("", "m0", "m1")
"""Under which names clients join; the first is none."""


class StreamGenerator(Generator):
    FEATURES = (
        "crashes", "failures", "rejections", "departures", "transactions", "slow-readers", "names", "keys",
        "partitions", "selectors", "strays", "leases", "retention", "two-groups", "readers", "stops", "tight", "moves",
    )  # fmt: skip
    CHANCE = 0.4
    JUMPING = 4
    WAITS = (0.1, 0.6, 1.1, 3.0, 7.0)

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._groups: tuple[str, ...] = ("g",)

    def _weights(self) -> Weights:
        return {
            self._send: 18, self._join: 8, self._settle: 16, self._wait: 5,
            Turn: 14, self._finish: 9, self._run: 8,
            self._reject: 5 * self._has("rejections"), self._extend: 2 * self._has("leases"),
            self._stray: 4 * self._has("strays"),
            self._begin: 2 * self._has("transactions"), self._end: 4 * self._has("transactions"),
            self._leave: 4 * self._has("departures"), self._read: 2 * self._has("slow-readers"),
            self._fail: 2 * self._has("failures"), self._crash: 2 * self._has("crashes"), Stop: self._has("stops"),
            Grow: self._has("partitions"), self._pin: self._has("retention"), self._move: 2 * self._has("moves"),
        }  # fmt: skip

    def _setup(self) -> StreamSetup:
        choice = self._random.choice
        tight, keeps = self._has("tight"), not self._has("retention")
        retries: tuple[Literal["relocated", "in-place"], ...] = ("relocated", "relocated", "in-place")
        strategies: tuple[Literal["averagely", "averagely-by-circle", "consistent-hash", "sticky", "shared"], ...]
        strategies = ("averagely", "averagely", "averagely-by-circle", "consistent-hash", "sticky", "shared")
        setup = StreamSetup(
            memory_limit=choice((1, 2500, 5000, 10_000)) if tight else 10**6,
            store_limit=choice((10**9, 10_000)) if tight else 10**9,
            partitions=choice((1, 1, 2, 3)),
            retention_time=-1.0 if keeps else choice((-1.0, 2.0, 8.0)),
            retention_bytes=0 if keeps else choice((0, 1000, 3000)),
            retention_groups_done=not keeps and choice((False, True)),
            max_in_flight=choice((1, 2, 5, 2000)) if tight else 2000,
            max_in_flight_bytes=choice((1, 2000, 10**6)) if tight else 10**6,
            consume_timeout=choice((1.0, 2.5, 30.0)) if self._has("leases") else 30.0,
            retry=choice(retries),
            retry_maximum=choice((0, 1, 3, 16)),
            retry_delays=choice(((1.0, 2.0), (0.5,), (0.0, 1.0))),
            strategy=choice(strategies),
            revoke_timeout=choice((0.3, 2.0)),
            groups=tuple([self._group(name) for name in ("g", "h")[: 1 + self._has("two-groups")]]),
        )
        self._groups = tuple([group.name for group in setup.groups])
        return setup

    def _group(self, name: str) -> GroupSetup:
        choice = self._random.choice
        starts: tuple[Literal["earliest", "latest"], ...] = ("earliest", "earliest", "latest")
        return GroupSetup(
            name,
            order=choice((Order.CONCURRENT, Order.CONCURRENT, Order.ORDERLY, Order.KEY_ORDERED)),
            color=choice(("", "red")) if self._has("selectors") else "",
            start=choice(starts),
        )

    # Clients.

    def _send(self) -> Step:
        random = self._random
        return Send(
            client=random.choice(PRODUCERS) if random.random() < 0.9 else random.choice(CONSUMERS),
            size=random.choice((0, 10, 200, 900)),
            count=random.choice((1, 1, 2, 4)),
            partition=random.choice((-1, 0, 1)),
            key=random.choice(("", "j", "k")) if self._has("keys") else "",
            color=random.choice(("", "red", "blue")) if self._has("selectors") else "",
            receipt=random.random() < 0.5,
        )

    def _join(self) -> Step:
        random = self._random
        acks: tuple[AckMode, ...] = ("client-individual", "client-individual", "client", "auto")
        claims: tuple[Literal["none", "some", "all", "*"], ...] = ("none", "some", "all", "*")
        return Join(
            client=random.choice(CONSUMERS),
            group="" if self._has("readers") and random.random() < 0.2 else random.choice(self._groups),
            member=random.choice(NAMES) if self._has("names") else "",
            ack=random.choice(acks),
            prefetch=random.choice((1, 2, 5, 100)),
            timeout=random.choice((0, 1.0, 3.0)) if self._has("leases") else 0,
            claim=random.choice(claims),
            says_order=random.random() < 0.3,
            events=random.random() < 0.3,
        )

    def _settle(self) -> Step:
        random = self._random
        return Settle(
            client=random.choice(CONSUMERS),
            pick=random.choice((0, 0, 0, 1, 2, 7)),
            count=random.choice((1, 1, 2, 5)),
            receipt=random.random() < 0.5,
        )

    def _reject(self) -> Step:
        random = self._random
        return Reject(
            client=random.choice(CONSUMERS),
            pick=random.choice((0, 0, 1, 2)),
            delay=random.choice((-1, -1, 0, 0.5, 3.0)),
            level=random.choice((0, 0, 0, 1, -1)),
            receipt=random.random() < 0.5,
        )

    def _extend(self) -> Step:
        return Extend(self._random.choice(CONSUMERS), self._random.choice((0, 1, 2)), self._random.choice((1.0, 4.0)))

    def _stray(self) -> Step:
        return Stray(self._random.choice(CONSUMERS), self._random.randint(0, 9), reject=self._random.random() < 0.2)

    def _pin(self) -> Step:
        return Pin(self._random.choice((1, 3, 8)), self._random.choice((1.0, 5.0)))

    def _move(self) -> Step:
        choice = self._random.choice
        tos: tuple[To, ...] = ("earliest", "latest", "offset", "shift")
        fails = self._random.choice((0, *range(4, 16))) if self._has("failures") else 0
        return Move(choice(self._groups), choice(tos), choice((-2, 1, 2, 5)), choice((-1, -1, 0, 1)), fails)

    def _fail(self) -> Step:
        at, times = self._random.choice((1, 1, 2, 3, 5, 8)), self._random.choice((1, 1, 1, 2, 10))
        return Fail("read", at=at, times=times)
