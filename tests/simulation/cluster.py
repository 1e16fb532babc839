"""The world of a cluster: its database, its processes, the network between them, and their clients."""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

from quire.clock import ManualClock
from quire.cluster.cluster_map import FRONT, Peer, Pin, PinRow
from quire.destination import queue as queue_destination
from quire.settings import Settings
from quire.testing.stepped import Frame
from tests.simulation.client import (
    AckMode,
    Broken,
    Note,
    Outcome,
    QueueClient,
    QueueMessage,
    Rule,
    Subscription,
    header_of,
    name_of,
)
from tests.simulation.history import (
    CONSUMERS,
    PRODUCERS,
    Begin,
    Crash,
    End,
    Generator,
    Leave,
    Read,
    Run,
    Settle,
    Setup,
    Step,
    Weights,
)
from tests.simulation.life import BrokerCrash, CrashingStore, CrashPoints, check_links
from tests.simulation.queues import check_counts, check_memory
from tests.simulation.shard_process import EntryClient, Network, ShardDatabase, ShardProcess, ShardStore, State
from tests.unit.broker.harness import settings

QUEUES = ("s.d", "s.g", "s.a", "s.b")
"""The queues that clients send to. Of two shards each has two of them; of three the first has two."""

ALL_QUEUES = "s.>"
"""What a consumer of all of them subscribes to: it is subscribed at every shard."""

TOPIC = "/topic/s.t"
"""The topic that clients send to."""

DURABLE = "d0"
"""The client that has a durable subscription to the topic. Its name is its client id, so one connection has it."""

ATTEMPTS = 1000
"""So often a message may fail: dead letters are for the world of queues."""


class ClusterSetup(Setup, frozen=True, tag_field="world", tag="cluster"):
    shards: int = 2  # how many shards there are, 2 or 3
    gathers: bool = False  # whether what a client sends is read in the next turn of its process, all at once
    packet: int = 1 << 16  # how many bytes of a link come at once at the most
    memory_limit: int = 10**6  # bytes that all queues of a shard together keep in memory
    store_limit: int = 10**9  # bytes of messages in the store of a shard before producers are held
    numbered: tuple[str, ...] = ()  # the producers that number their sends

    def settings(self) -> Settings:
        return settings(
            memory={"limit": self.memory_limit},
            store={"limit": self.store_limit},
            producer={"hold_limit": 5.0},
            policy={"maximum_redeliveries": ATTEMPTS},
        )


class Delivery(NamedTuple):
    """A delivery of a message, in the order in which owners make them."""

    number: int  # the how-manieth of all deliveries it is
    epoch: int  # of the owner


class ClusterSent(QueueMessage):
    __slots__ = ("ending", "fresh", "gone", "is_kept", "seen", "settled", "settler", "size")

    settler: "ClusterClient"  # who has settled it

    def __init__(self, producer: str, number: int, queue: str, size: int, *, is_kept: bool) -> None:
        super().__init__(producer, number, queue)
        self.size = size  # how many bytes its body has beside its name
        self.is_kept = is_kept  # whether it must be delivered, if it was confirmed
        self.seen: list[Delivery] = []  # its deliveries
        self.fresh: Delivery | None = None  # the delivery that said that there was none before
        self.settled: Delivery | None = None  # the last delivery that its consumer was done with
        self.gone: Delivery | None = None  # the same, and the consumer knows that the broker knows
        self.ending: Outcome | None = None  # the transaction of that, until it is clear that it was not done

    @property
    def body(self) -> bytes:
        return b"x" * self.size

    @property
    def is_settled(self) -> bool:
        return self.settled is not None and (self.ending is None or self.ending.done is not False)


class ClusterPromises:
    def __init__(self) -> None:
        # Whether the topic has a durable subscription; None if it may have one, and its client does not know yet.
        self.kept: bool | None = False
        self.sent: dict[str, ClusterSent] = {}  # all messages, by name
        self._numbers: Counter[str] = Counter()
        self._given: dict[tuple[str, str], deque[Delivery]] = {}  # on their way, by connection and message id
        self._deliveries = count(1)
        self._doubts: list[tuple[str, ClusterClient]] = []

    def send(self, producer: str, queue: str, size: int) -> ClusterSent:
        self._numbers[producer] += 1
        is_kept = queue != TOPIC or self.kept is True
        sent = ClusterSent(producer, self._numbers[producer], queue, size, is_kept=is_kept)
        self.sent[sent.name] = sent
        return sent

    def may_keep(self) -> None:
        self.kept = self.kept or None

    def keeps(self) -> None:
        self.kept = True

    def gave(self, epoch: int, connection: str, message_id: str) -> None:
        """An owner gives a message to a client. It is on its way there; if it is lost, so is all that follows it."""
        given = self._given.setdefault((connection, message_id), deque())
        given.append(Delivery(next(self._deliveries), epoch))

    def deliver(self, connection: str, frame: Frame) -> tuple[ClusterSent, Delivery]:
        """A message has come to a client. May it have been given out?"""
        sent = self.sent[name_of(frame)]
        delivery = self._given[connection, frame.headers["message-id"]].popleft()
        if frame.headers["destination"] != header_of(sent.queue):
            raise Broken(Rule.ROUTE, f"{sent} came out of {frame.headers['destination']}, it was sent to {sent.queue}")
        sent.came_as(frame.headers["message-id"])
        self._check_flag(sent, delivery, frame)
        if sent.outcome is not None:
            sent.outcome.decide(True, f"{sent} came out of {sent.queue}")
        if sent.settled is not None and delivery > sent.settled:
            self._came_again(sent, delivery)
        return sent, delivery

    def _check_flag(self, sent: ClusterSent, delivery: Delivery, frame: Frame) -> None:
        before = [seen for seen in sent.seen if seen < delivery]
        if frame.headers.get("redelivered") != "true":
            if before:
                raise Broken(Rule.FLAG, f"{sent} came without a flag as {delivery}, and before as {before[-1]}")
            sent.fresh = delivery
        elif int(frame.headers["JMSXDeliveryCount"]) <= len([seen for seen in before if seen.epoch == delivery.epoch]):
            text = f"{sent} says it is delivered {frame.headers['JMSXDeliveryCount']} times, but before as {before}"
            raise Broken(Rule.FLAG, text)
        if sent.fresh is not None and delivery < sent.fresh:
            raise Broken(Rule.FLAG, f"{sent} came as {delivery}, and later without a flag as {sent.fresh}")
        sent.seen.append(delivery)

    def _came_again(self, sent: ClusterSent, delivery: Delivery) -> None:
        """A message was given out after a delivery that was settled: so its owner did not hear of that."""
        if sent.ending is not None:
            sent.ending.decide(False, f"{sent} came again as {delivery}")
        self._check_gone(sent)
        self._doubts.append((f"{sent} came as {delivery}, it was settled as {sent.settled}", sent.settler))
        sent.settled = sent.ending = None

    def settle(self, sent: ClusterSent, delivery: Delivery, ending: Outcome | None, settler: "ClusterClient") -> None:
        """A consumer is done with a message, or is so if its transaction is done."""
        if later := [seen for seen in sent.seen if seen > delivery]:
            self._doubts.append((f"{sent} was settled as {delivery}, it came as {later[0]}", settler))
        elif sent.settled is None or sent.settled < delivery:
            sent.settled, sent.ending, sent.settler = delivery, ending, settler

    def confirm(self, sent: ClusterSent, delivery: Delivery) -> None:
        """A consumer knows that the owner knows that it is done with a message."""
        sent.gone = max(sent.gone or delivery, delivery)
        self._check_gone(sent)

    def _check_gone(self, sent: ClusterSent) -> None:
        if sent.gone is not None and (later := [seen for seen in sent.seen if seen > sent.gone]):
            raise Broken(Rule.AGAIN, f"{sent} came as {later[0]}, its acknowledgement was confirmed for {sent.gone}")

    def resolve_doubts(self) -> None:
        """All clients know by now if they have lost their connections: who has not was right in what it settled."""
        for text, settler in self._doubts:
            if not settler.is_gone:
                raise Broken(Rule.AGAIN, text)
        self._doubts.clear()

    def check_nothing_lost(self) -> None:
        """When everything is consumed: was somebody done with every message that was confirmed?"""
        for sent in self.sent.values():
            if sent.is_kept and sent.confirmed and not sent.is_settled:
                seen = "delivered, given back, and never again" if sent.seen else "never delivered"
                raise Broken(Rule.LOST, f"{sent} was confirmed and {seen}")


MOST = 2.9
"""So many times its prefetch a consumer of several shards may have: what one of them leaves another may give."""


class InFlight(NamedTuple):
    frame: Frame
    delivery: Delivery


class ClusterSubscribed(Subscription[ClusterSent, InFlight]):
    def __init__(self, queue: str, ack: AckMode, prefetch: int, shards: int) -> None:
        super().__init__(queue, ack, int(MOST * max(prefetch, shards)) if queue == ALL_QUEUES else prefetch)
        self.headers = {"activemq.prefetchSize": str(prefetch)}
        self._newest: dict[tuple[str, str], ClusterSent] = {}

    def got(self, sent: ClusterSent, frame: Frame, delivery: Delivery) -> None:
        if self.queue not in (ALL_QUEUES, sent.queue):
            raise Broken(Rule.ROUTE, f"{sent} came to a consumer of {self.queue}, it was sent to {sent.queue}")
        if frame.headers.get("redelivered") != "true":
            self._check_order(sent)
        self.in_flight.pop(sent, None)  # it was rejected, say, and came again
        self.in_flight[sent] = InFlight(frame, delivery)

    def _check_order(self, sent: ClusterSent) -> None:
        """What comes for the first time is in the order in which one producer has sent it to one queue."""
        key = (sent.producer, sent.queue)
        newest = self._newest.setdefault(key, sent)
        if newest.number > sent.number:
            raise Broken(Rule.ORDER, f"{sent} came after {newest}")
        self._newest[key] = sent


class ClusterClient(QueueClient[ClusterSent, ClusterSubscribed]):
    """A client of a cluster, from one connection to its end."""

    connection: EntryClient

    def __init__(
        self, name: str, connection: EntryClient, promises: ClusterPromises, note: Note,
        unconfirmed: dict[ClusterSent, None] | None,
    ) -> None:  # fmt: skip
        super().__init__(name, connection, note, unconfirmed)
        self._is_leaving = False
        self._said: list[ClusterSent] = []  # and nothing confirms it but the receipt of DISCONNECT
        self._settled_ones: list[dict[ClusterSent, Delivery]] = []  # the same
        self._subscriptions = 0  # old ones have other ids: what they still get is on its way
        self._promises = promises
        # Of one that numbers its sends all connections are one producer.
        self._producer = name if unconfirmed is not None else connection.connection.peer
        for sent in unconfirmed or ():
            self._send(sent, receipt=True)

    @property
    def is_stuck(self) -> bool:
        return self.is_gone or self._is_leaving or bool(self.connection.connection.paused)

    # It hears.

    def read(self, *, on: bool) -> None:
        if not self.is_gone:
            self.note(f"{self.name} reads {'on' if on else 'no more'}")
            self.connection.reads(on=on)

    def _take_messages(self) -> None:
        for frame in self.connection.take("MESSAGE"):
            sent, delivery = self._promises.deliver(self.connection.connection.peer, frame)
            self.note(f"{self.name} gets {sent} as {tuple(delivery)}")
            if self.subscribed is not None and frame.headers["subscription"] == str(self._subscriptions):
                self.subscribed.got(sent, frame, delivery)
                self.subscribed.check_credit()

    # It sends.

    def send(self, queue: str, size: int, *, receipt: bool) -> None:
        if not self.is_stuck:
            sent = self._promises.send(self._producer, queue, size)
            if not (receipt or self.in_transaction or self._unconfirmed is not None):
                self._said.append(sent)
            self._send_new(sent, receipt=receipt)

    # It consumes.

    def subscribe(self, subscribed: ClusterSubscribed) -> None:
        self.note(f"{self.name} subscribes to {subscribed.queue}, {subscribed.ack}, {subscribed.headers}")
        self.subscribed = subscribed
        self._subscriptions += 1
        headers = {"destination": header_of(subscribed.queue), "id": str(self._subscriptions), "ack": subscribed.ack}
        if subscribed.queue == TOPIC:
            headers |= {"activemq.subscriptionName": "s", **self.receipt(self._promises.keeps)}
            self._promises.may_keep()
        self.connection.frame("SUBSCRIBE", headers | subscribed.headers)

    def settle(self, pick: int, *, reject: bool, receipt: bool) -> None:
        """Acknowledge or reject what is in flight; acknowledge it in the open transaction if there is one."""
        subscribed = self.subscribed
        if subscribed is None or self.is_stuck or not subscribed.free:
            return
        covered = subscribed.covered(pick)
        frame = subscribed.in_flight[covered[-1]].frame
        if self._outcome is not None:
            self.note(f"{self.name} acknowledges {covered} in its transaction")
            subscribed.held |= dict.fromkeys(covered, False)
            self.connection.ack(frame, {"transaction": "t"})
            return
        self.note(f"{self.name} {'rejects' if reject else 'acknowledges'} {covered}")
        settled = {sent: subscribed.in_flight.pop(sent).delivery for sent in covered}
        if reject:
            self.connection.nack(frame)
            return
        self._settled(settled, None)
        self._settled_ones.append(settled)
        self.connection.ack(frame, self.receipt(lambda: self._confirm(settled)) if receipt else {})

    def _settled(self, settled: dict[ClusterSent, Delivery], ending: Outcome | None) -> None:
        for sent, delivery in settled.items():
            self._promises.settle(sent, delivery, ending, self)

    def _confirm(self, settled: dict[ClusterSent, Delivery]) -> None:
        for sent, delivery in settled.items():
            self._promises.confirm(sent, delivery)

    # Transactions.

    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        subscribed = self.subscribed
        if subscribed is not None:
            held, subscribed.held = subscribed.held, {}
            settled = {sent: subscribed.in_flight.pop(sent).delivery for sent in held}
            if commit:
                self._settled(settled, outcome)
        act()

    # It goes.

    def leave(self, how: str) -> None:
        """Go: ``vanish``, ``disconnect`` and wait for the receipt, or ``unsubscribe`` and stay connected."""
        if how != "disconnect":
            super().leave(how)
            return
        self.listen()
        if self.is_stuck or self._is_leaving:
            return
        self.end(commit=False)
        self.note(f"{self.name} leaves: disconnect")
        self._is_leaving = True
        self.connection.frame("DISCONNECT", self.receipt(self._left))

    def _left(self) -> None:
        """Everything that it has said is done."""
        for sent in self._said:
            sent.receipted = True
        for settled in self._settled_ones:
            self._confirm(settled)

    def _unsubscribe(self) -> None:
        if self.subscribed is not None:
            self.end(commit=False)
            self.connection.frame("UNSUBSCRIBE", {"id": str(self._subscriptions)})
            self.subscribed = None

    def closed(self, *, lost: bool = True) -> None:
        self.forget()


def check_commits(databases: Iterable[ShardDatabase]) -> None:
    """At any time: each commit was made by the owner of that time."""
    for shard, database in enumerate(databases):
        for commit in database.commits:
            if commit.epoch != commit.owner:
                raise Broken(Rule.FENCED, f"{commit.epoch} commits to shard {shard} in epoch {commit.owner}")
        database.commits.clear()


def check_answered(clients: Iterable[ClusterClient]) -> None:
    """Long after the last fault: every receipt has come."""
    for client in clients:
        if client.receipts:
            raise Broken(Rule.STALL, f"{client.name} waits for {list(client.receipts)}")


def check_consumed(owners: Iterable[ShardProcess], clients: Iterable[ClusterClient]) -> None:
    """Long after the last fault, when consumers have settled what they had: they have got all there was."""
    queues = {client.subscribed.queue for client in clients if client.subscribed}
    for owner in owners:
        for name, queue in owner.stepped.broker.queues.items():
            if queue.depth and queues & {name, ALL_QUEUES}:
                raise Broken(Rule.STALL, f"{queue.depth} messages wait in {name}, which has a consumer")
        for durable in owner.stepped.broker.durables:
            if durable.depth and TOPIC in queues:
                raise Broken(Rule.STALL, f"{durable.depth} messages wait for the durable subscription, which is in use")


def check_places(owners: Iterable[ShardProcess]) -> None:
    """Long after the last fault: clients look for each queue where it is."""
    for owner in owners:
        for name in owner.stepped.broker.queues:
            shard = owner.stepped.cluster_map.shard_of(queue_destination(name))
            if shard != owner.shard:
                raise Broken(Rule.PLACE, f"{name} is at shard {owner.shard}, clients look for it at shard {shard}")


def check_empty(owner: ShardProcess) -> None:
    """At the end, when everything is consumed: nothing is left anywhere."""
    core = owner.stepped.broker.core
    clients = [session for session in owner.stepped.sessions.values() if not session.is_closed]
    left = {
        "stored": owner.store.size(), "counted": core.stored_bytes, "resident": core.memory.used,
        "transacted": core.transaction_bytes, "held": len(core.flow.holds), "clients": len(clients),
        "branches": len(owner.stepped.broker.xa.spanning), "decisions": len(owner.stepped.shared.decisions.open),
    }  # fmt: skip
    if any(left.values()):
        raise Broken(Rule.LEFT, f"everything is consumed, and something is left at shard {owner.shard}: {left}")


PASSES = 1000
"""A cluster that has not come to rest after so many passes over all processes never will."""

TICK = 0.5
"""How often processes look at their timers and at the map, in seconds."""

LONG_TICK = 1.0
"""The same while nothing fails any more."""

LONG = 14.0
"""In so many seconds without faults whatever waits for a time has come: leases, links, producers that are held."""


class ClusterWorld:
    def __init__(self, setup: ClusterSetup, note: Note = lambda text: None) -> None:
        self.setup = setup
        self.note = note
        self.clock = ManualClock()
        self.points = CrashPoints()
        self.promises = ClusterPromises()
        self.network = Network(setup.packet)
        self.databases = [ShardDatabase(self.clock) for _ in range(setup.shards)]
        self.clients: dict[str, ClusterClient] = {}
        self._processes: dict[int, ShardProcess] = {}  # by shard, the one that took it last
        self._replaced: list[ShardProcess] = []  # stopped ones that do not know that they are not owners any more
        self._rows: dict[int, Peer] = {}
        self._pins: dict[str, Pin] = {}  # what the database of the cluster says
        self._seen_pins: dict[str, Pin] = {}  # what it said when brokers looked at it last
        self._strays: list[str] = []
        self._started = self._connected = 0
        self._written = False
        self._unconfirmed: dict[str, dict[ClusterSent, None]] = {name: {} for name in setup.numbered}
        self._keep_started()
        self._tell_all()

    # A step.

    def do(self, act: Callable[[Any], None]) -> None:
        act(self)
        self._keep_started()
        self.observe()

    def observe(self) -> None:
        for shard, process in self._processes.items():
            if process.is_dead and process.is_leaving:
                self._rows.pop(shard, None)
        for client in self.clients.values():
            client.listen()
            if client.is_gone:
                client.closed()
        self.clients = {name: client for name, client in self.clients.items() if not client.is_gone}
        check_commits(self.databases)
        if self._strays:
            raise Broken(Rule.OWNER, self._strays[0])

    # Processes.

    @property
    def processes(self) -> list[ShardProcess]:
        known = [*self._processes.values(), *self._replaced]
        return [process for process in known if not process.is_dead]

    def process(self, shard: int) -> ShardProcess | None:
        """The process that took a shard last, if it has not ended; ``FRONT`` for the one without a shard."""
        process = self._processes.get(shard)
        return None if process is None or process.is_dead else process

    def processes_of(self, shard: int) -> list[ShardProcess]:
        """All that have a shard, or had it and may not know that they have it no more."""
        return [process for process in self.processes if process.shard == shard]

    def _keep_started(self) -> None:
        for shard, database in enumerate(self.databases):
            if database.is_free:
                self._start(shard)
        if self.process(FRONT) is None:
            self._start(FRONT)

    def _start(self, shard: int) -> None:
        self._started += 1
        address = f"process-{self._started}:1"
        store = CrashingStore(self.points) if shard == FRONT else ShardStore(self.databases[shard], self.points)
        if shard != FRONT and not store.try_lock(address):
            return
        try:
            process = ShardProcess(
                address, shard, self.setup.shards, self.setup.settings(), self.clock, store, self.points, self.network,
                self._crash, partial(self._gave, shard), self._published,
            )  # fmt: skip
        except BrokerCrash:
            self.note(f"{address} crashes while it begins with shard {shard}")
            return
        self.note(f"{address} has {f'shard {shard}, epoch {process.epoch}' if shard != FRONT else 'no shard'}")
        if (before := self.process(shard)) is not None:
            self._replaced.append(before)
        self._processes[shard] = process
        if shard != FRONT:
            self._rows[shard] = Peer(address, process.epoch)
        self.tell(process)

    def _gave(self, shard: int, epoch: int, connection: str, message_id: str) -> None:
        """A process gives a message to a client; one that is not the owner is found out at the end of the step."""
        if shard != FRONT and epoch != self.databases[shard].epoch:
            self._strays.append(f"{message_id} of shard {shard} was given out by epoch {epoch}")
        self.promises.gave(epoch, connection, message_id)

    def tell(self, process: ShardProcess) -> None:
        process.act(lambda: process.stepped.cluster_map.update(dict(self._rows), self._seen_pins))

    def _tell_all(self) -> None:
        self._seen_pins = dict(self._pins)
        for process in self.processes:
            self.tell(process)

    # Pins.

    def pin(self, queue: str, shard: int, pick: int) -> None:
        """An operator has a queue be at a shard: one of the processes that believe to have it is asked."""
        destination = queue_destination(queue)
        owners = [process for process in self.processes if process.has(destination)]
        if owners and (owner := owners[pick % len(owners)]).shard != shard:
            self.note(f"{owner} is asked to give {queue} to shard {shard}")
            owner.pin(destination, shard, lambda error: self.note(f"{owner} gives {queue}: {error or 'done'}"))

    def _published(self, row: PinRow) -> None:
        """The database of the cluster is told of a pin; processes see it when they look at it."""
        known = self._pins.get(row.key)
        if known is None or known.version < row.version:
            self._pins[row.key] = Pin(row.shard, row.version)

    # Faults.

    def stop(self, shard: int) -> None:
        """A process does nothing any more, and is there."""
        if (process := self.process(shard)) is not None and process.is_running:
            self.note(f"{process} is stopped")
            process.state = State.STOPPED

    def go_on(self, shard: int) -> None:
        """What was stopped goes on: the owner of a shard, and those that were its owners. Their writers are first."""
        for process in self.processes_of(shard):
            if process.state is State.STOPPED:
                self.note(f"{process} goes on")
                process.state = State.RUNNING
                if process in self._replaced:
                    process.finish(fails=False)

    def kill(self, shard: int, *, written: bool, silently: bool) -> None:
        if (process := self.process(shard)) is not None:
            self._written = written
            self._crash(process, silently=silently)

    def plan_crash(self, at: int, *, written: bool) -> None:
        """Have the process crash that makes one of the next calls of a store, or the first one now."""
        self._written = written
        self.points.arm(at)
        if at == 0:
            self.kill(0, written=written, silently=False)

    def _crash(self, process: ShardProcess, *, silently: bool = False) -> None:
        self.note(f"{process} crashes")
        if self._written and process.stepped.writer.batch is not None:
            self.note("the commit under way is made, unless the shard has another owner")
            process.write()
        process.end(silently=silently)

    # Clients.

    def client(self, name: str, entry: int = 0) -> ClusterClient:
        client = self.clients.get(name)
        if client is not None and client.is_gone:
            client.listen()
            client.closed()
            client = None
        if client is None:
            process = self._entry(entry)
            self._connected += 1
            self.note(f"{name} connects to {process}")
            client_id = DURABLE if name == DURABLE else None
            connection = process.connect(f"{name}.{self._connected}", client_id, gathers=self.setup.gathers)
            client = self.clients[name] = ClusterClient(
                name, connection, self.promises, self.note, self._unconfirmed.get(name)
            )
        return client

    def _entry(self, pick: int) -> ShardProcess:
        open_ones = [process for process in self.processes if not process.is_leaving]
        if not open_ones:
            with self.points.muted():
                self._start(FRONT)
            return self._processes[FRONT]
        return open_ones[pick % len(open_ones)]

    def subscribed(self, queue: str, ack: AckMode = "client", prefetch: int = 100) -> ClusterSubscribed:
        return ClusterSubscribed(queue, ack, prefetch, self.setup.shards)

    # Time and rest.

    def wait(self, seconds: float, *, delivering: bool = True, tick: float = TICK) -> None:
        for _ in range(round(seconds / tick)):
            if delivering:
                self._run()
            self.clock.advance(tick)
            for process in self.processes:
                process.tick()
            self._keep_started()
            self._tell_all()
            self.observe()

    def _run(self) -> None:
        for _ in range(PASSES):
            for process in self.processes:
                try:
                    process.run()
                except RuntimeError as error:
                    raise Broken(Rule.REST, str(error)) from error
            if not self.network.deliver():
                return
            while self.network.deliver():
                pass
        raise Broken(Rule.REST, "the processes always have something to tell each other")

    def rest(self, *, verify: bool) -> None:
        self._run()
        self.observe()
        with self.points.muted():
            for process in self._owners():
                check_memory(process.stepped)
                if process.is_running:
                    check_counts(process.stepped)
                if verify:
                    check_links(process.store)

    def rest_now(self) -> None:
        self.do(lambda world: world.rest(verify=False))

    # The end.

    def settle_down(self) -> None:
        self.note("settling down")
        self.points.arm(0)
        for shard in (*range(self.setup.shards), FRONT):
            self.go_on(shard)
        for client in self.clients.values():
            client.read(on=True)
        self.pass_time()
        while any([client.settle_all() for client in self.clients.values()]):
            self.rest_now()
        check_answered(self.clients.values())
        check_consumed(self._owners(), self.clients.values())
        check_places(self._owners())
        self.promises.resolve_doubts()
        for name, unconfirmed in self._unconfirmed.items():
            if unconfirmed:
                self.client(name)
        self.rest_now()
        for client in list(self.clients.values()):
            client.leave("disconnect")
        self._drain()

    def _consume_all(self, name: str, destination: str) -> None:
        client = self.client(name)
        client.subscribe(self.subscribed(destination))
        self.rest_now()
        while client.settle_all():
            self.rest_now()
        client.leave("disconnect")
        self.rest_now()

    def pass_time(self) -> None:
        self.do(lambda world: world.wait(LONG, tick=LONG_TICK))
        self.rest_now()

    def _owners(self) -> list[ShardProcess]:
        processes = [self.process(shard) for shard in range(self.setup.shards)]
        return [process for process in processes if process is not None]

    def _drain(self) -> None:
        """Consume everything, by one consumer of all queues and the durable one, until nothing is left."""
        self.pass_time()
        if len(self._owners()) < self.setup.shards:
            raise Broken(Rule.STALL, "a shard has no owner")
        self._consume_all("drain", ALL_QUEUES)
        if self.promises.kept is not False:
            self._consume_all(DURABLE, TOPIC)
        self.promises.check_nothing_lost()
        with self.points.muted():
            for process in self._owners():
                check_links(process.store)
                check_empty(process)


class Send(Step, frozen=True):
    """A client sends messages, and connects before if it has to."""

    client: str
    queue: str
    size: int = 0  # how long each body is, in bytes
    count: int = 1
    receipt: bool = False
    entry: int = 0  # to which process it connects, counted around

    def act(self, world: ClusterWorld) -> None:
        for _ in range(self.count):
            world.client(self.client, self.entry).send(self.queue, self.size, receipt=self.receipt)


class Subscribe(Step, frozen=True):
    client: str
    queue: str  # to which queue, or to all of them
    ack: AckMode = "client-individual"
    prefetch: int = 100  # how many messages it may have in flight
    entry: int = 0  # to which process it connects, counted around

    def act(self, world: ClusterWorld) -> None:
        client = world.client(self.client, self.entry)
        if client.subscribed is None and not client.is_stuck:
            client.subscribe(world.subscribed(self.queue, self.ack, self.prefetch))


class OfProcess(Step, frozen=True):
    """A step of the process of a shard."""

    shard: int = 0  # of which; -1 for the process without a shard


class Turn(OfProcess, frozen=True):
    def act(self, world: ClusterWorld) -> None:
        if process := world.process(self.shard):
            process.turn()


class Write(OfProcess, frozen=True):
    """The database carries out the commit of a process, which does not hear of it yet; it may be stopped."""

    def act(self, world: ClusterWorld) -> None:
        """Write."""
        for process in world.processes_of(self.shard):
            process.write()


class Finish(OfProcess, frozen=True):
    fails: bool = False  # whether the database has no space for it

    def act(self, world: ClusterWorld) -> None:
        for process in world.processes_of(self.shard):
            process.finish(fails=self.fails)


class Deliver(Step, frozen=True):
    """Packets come from one process to another."""

    pick: int = 0  # on which connection, counted around
    count: int = 1

    def act(self, world: ClusterWorld) -> None:
        for _ in range(self.count):
            world.network.deliver(self.pick)


class Cut(Step, frozen=True):
    pick: int = 0  # which, counted around
    kept: int = 0  # how many packets that are under way come yet, in each direction

    def act(self, world: ClusterWorld) -> None:
        if world.network.cut(self.pick, self.kept):
            world.note("a connection between processes breaks")


class Wait(Step, frozen=True):
    """Time goes by. Processes look at their timers and at the map, and what stands by takes shards that it can take."""

    seconds: float
    quiet: bool = False  # whether nothing comes from one process to another meanwhile, and no commit ends

    def act(self, world: ClusterWorld) -> None:
        world.note(f"{self.seconds} s go by")
        world.wait(self.seconds, delivering=not self.quiet)


class Stop(OfProcess, frozen=True):
    def act(self, world: ClusterWorld) -> None:
        world.stop(self.shard)


class Continue(OfProcess, frozen=True):
    def act(self, world: ClusterWorld) -> None:
        world.go_on(self.shard)


class Kill(OfProcess, frozen=True):
    """A process ends without a word."""

    written: bool = False  # whether its commit under way is made, though nobody hears of it
    silently: bool = False  # whether its machine is gone too: its connections do not end

    def act(self, world: ClusterWorld) -> None:
        world.kill(self.shard, written=self.written, silently=self.silently)


class Move(OfProcess, frozen=True):
    """The owner of a shard is asked to end, so that another process has it."""

    def act(self, world: ClusterWorld) -> None:
        if process := world.process(self.shard):
            world.note(f"{process} is asked to end")
            process.leave()


class Place(Step, frozen=True):
    """An operator has a queue be at a shard, where its name says or elsewhere; refused if there is such a queue."""

    queue: str
    shard: int = 0
    pick: int = 0  # which of the processes is asked that believe to have it, counted around

    def act(self, world: ClusterWorld) -> None:
        world.pin(self.queue, self.shard, self.pick)


AnyStep = (
    Send | Subscribe | Settle | Turn | Write | Finish | Deliver | Cut | Wait | Stop | Continue | Kill | Move | Place
    | Run | Crash | Begin | End | Leave | Read
)  # fmt: skip


class ClusterGenerator(Generator):
    FEATURES = (
        "crashes", "stops", "moves", "cuts", "failures", "rejections", "departures", "transactions", "slow-readers",
        "several-consumers", "spread", "silence", "places", "durable",
    )  # fmt: skip
    CHANCE = 0.5
    WAITS = (0.5, 1.0, 2.0)

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._shards = random.choice((2, 2, 3))
        if not self._has("several-consumers"):
            self._consumers = CONSUMERS[:1]
        if self._has("durable"):
            self._consumers += (DURABLE,)
        clients = (*PRODUCERS, *self._consumers)
        self._homes = {client: random.choice((QUEUES[:2], QUEUES[2:3], QUEUES[-1:])) for client in clients}

    def _weights(self) -> Weights:
        return {
            self._send: 20, self._subscribe: 6, self._settle: 18, self._wait: 3,
            self._turn: 14, self._finish: 12, self._write: 2, self._deliver: 20, self._run: 6,
            self._begin: 3 * self._has("transactions"), self._end: 4 * self._has("transactions"),
            self._leave: 4 * self._has("departures"), self._read: 3 * self._has("slow-readers"),
            self._kill: 2 * self._has("crashes"), self._crash: 2 * self._has("crashes"),
            self._stop: 3 * self._has("stops"), self._continue: 3 * self._has("stops"),
            self._move: 2 * self._has("moves"), self._cut: 2 * self._has("cuts"), self._place: 4 * self._has("places"),
        }  # fmt: skip

    def _setup(self) -> ClusterSetup:
        choice, random = self._random.choice, self._random
        # What is known of those that number their sends is known at the shard where these came.
        numbering = 0.0 if self._has("places") else 0.3
        return ClusterSetup(
            shards=self._shards,
            gathers=random.random() < 0.5,
            packet=choice((1 << 16, 1 << 16, 100)),
            memory_limit=choice((2500, 10_000, 1_000_000)),
            store_limit=choice((10**9, 10**9, 10_000)),
            numbered=tuple([name for name in PRODUCERS if random.random() < numbering]),
        )

    def _shard(self) -> int:
        return self._random.randrange(self._shards)

    def _any_process(self) -> int:
        return self._random.randrange(-1, self._shards)

    def _queue(self, client: str) -> str:
        """Where a client sends to, or what it consumes. Many transactions are about one shard, many about several."""
        random = self._random
        if client == DURABLE:
            return TOPIC
        stays = self._has("transactions") and random.random() < 0.6
        return random.choice(self._homes[client] if stays else (*QUEUES, QUEUES[0]))

    def _entry(self) -> int:
        return self._random.randrange(self._shards + 1)

    # Clients.

    def _send(self) -> Step:
        random = self._random
        consumes = random.random() < (0.3 if self._has("spread") else 0.1)
        client = random.choice(self._consumers if consumes else PRODUCERS)
        return Send(
            client=client,
            queue=TOPIC if self._has("durable") and random.random() < 0.2 else self._queue(client),
            size=random.choice((0, 10, 200, 900)),
            count=random.choice((1, 1, 1, 2, 5)),
            receipt=random.random() < 0.6,
            entry=self._entry(),
        )

    def _subscribe(self) -> Step:
        random = self._random
        acks: tuple[AckMode, ...] = ("client-individual", "client")
        client = random.choice(self._consumers)
        spread = self._has("spread") and client != DURABLE and random.random() < 0.5
        return Subscribe(
            client=client,
            queue=ALL_QUEUES if spread else self._queue(client),
            ack=random.choice(acks),
            prefetch=random.choice((1, 2, 5, 100)),
            entry=self._entry(),
        )

    # Processes.

    def _turn(self) -> Step:
        return Turn(self._any_process())

    def _finish(self) -> Step:
        return Finish(self._shard(), fails=self._has("failures") and self._random.random() < 0.2)

    def _write(self) -> Step:
        return Write(self._shard())

    def _deliver(self) -> Step:
        return Deliver(pick=self._random.randrange(8), count=self._random.choice((1, 1, 2, 5)))

    def _wait(self) -> Step:
        waits = (*self.WAITS, 4.0) if self._has("crashes") or self._has("stops") else self.WAITS
        return Wait(self._random.choice(waits), quiet=self._has("silence") and self._random.random() < 0.3)

    def _stop(self) -> Step:
        return Stop(self._any_process())

    def _continue(self) -> Step:
        return Continue(self._any_process())

    def _kill(self) -> Step:
        random = self._random
        written, silently = random.random() < 0.5, self._has("silence") and random.random() < 0.3
        return Kill(self._any_process(), written=written, silently=silently)

    def _crash(self) -> Step:
        return Crash(at=self._random.choice((1, 2, 3, 5, 10, 20)), written=self._random.random() < 0.5)

    def _move(self) -> Step:
        return Move(self._shard())

    def _place(self) -> Step:
        return Place(self._random.choice(QUEUES), self._shard(), self._random.randrange(2))

    def _cut(self) -> Step:
        return Cut(pick=self._random.randrange(6), kept=self._random.choice((0, 0, 1, 3)))
