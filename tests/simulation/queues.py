"""The world of queues: a broker, its stores, its clients, and a ledger of what was promised to them."""

from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from random import Random
from typing import Any, Literal

from quire.broker.queues.queue import Queue
from quire.message import Message
from quire.settings import Settings
from quire.testing.stepped import Frame, SteppedBroker, SteppedClient
from tests.simulation.client import (
    AckMode,
    Broken,
    Note,
    Outcome,
    QueueClient,
    QueueMessage,
    Rule,
    Subscription,
    name_of,
)
from tests.simulation.history import (
    CONSUMERS,
    PRODUCERS,
    CommonStep,
    Fail,
    Generator,
    Settle,
    Setup,
    Step,
    Turn,
    Weights,
)
from tests.simulation.life import ALL, GREATEST, Life, RightClock, check_answered, check_links
from tests.unit.broker.harness import settings

QUEUES = ("a", "b")
"""The queues that clients send to."""


class QueueSetup(Setup, frozen=True):
    memory_limit: int = 10**6  # bytes that all queues together keep in memory
    queue_limit: int = 0  # bytes that one queue keeps in memory; 0 for no limit of its own
    store_limit: int = 10**9  # bytes of messages in the store before producers are held
    spool_limit: int = 10**9  # bytes of messages in the spool before producers are held
    maximum_redeliveries: int = 6  # how often a message may fail and be delivered again
    redelivery_delay: float = 0  # how many seconds a rejected message waits
    redelivery_at: Literal["in-place", "tail"] = "in-place"  # where it comes back
    blocking_redelivery: bool = False  # whether it holds back later messages meanwhile
    strict_order_dispatch: bool = False  # whether one consumer is filled before the next one
    individual_dead_letters: bool = False  # whether each queue has its own dead letter queue
    prioritized: tuple[str, ...] = ()  # the queues that deliver messages of higher priority first
    numbered: tuple[str, ...] = ()  # the producers that number their sends

    def dead_letters(self, queue: str) -> str:
        return f"ActiveMQ.DLQ.Queue.{queue}" if self.individual_dead_letters else "ActiveMQ.DLQ"

    @property
    def queues(self) -> tuple[str, ...]:
        return (*QUEUES, *dict.fromkeys([self.dead_letters(queue) for queue in QUEUES]))

    def settings(self) -> Settings:
        return settings(
            memory={"limit": self.memory_limit},
            store={"limit": self.store_limit},
            spool={"limit": self.spool_limit},
            producer={"hold_limit": 5.0},
            broker={"expiry_interval": 1.0},
            policy={
                "memory_limit": self.queue_limit,
                "maximum_redeliveries": self.maximum_redeliveries,
                "initial_redelivery_delay": self.redelivery_delay,
                "redelivery_delay": self.redelivery_delay,
                "redelivery_at": self.redelivery_at,
                "blocking_redelivery": self.blocking_redelivery,
                "strict_order_dispatch": self.strict_order_dispatch,
                "dead_letter_strategy": "individual" if self.individual_dead_letters else "shared",
            },
            policies=[{"destination": name, "prioritized_messages": True} for name in self.prioritized],
        )


class Send(Step, frozen=True):
    """A client sends messages, and connects before if it has to."""

    client: str
    queue: str
    size: int = 0  # how long each body is, in bytes
    count: int = 1
    persistent: bool = True  # whether they must survive a crash
    receipt: bool = False
    ttl: float = 0  # in how many seconds they expire; 0 for never
    priority: int = 4  # 0 to 9
    group: str = ""  # their message group; empty for none
    color: str = ""  # a header that consumers may select by

    def act(self, world: "QueueWorld") -> None:
        for _ in range(self.count):
            world.client(self.client).send(self)


class Subscribe(Step, frozen=True):
    """A client subscribes, unless it has a subscription."""

    client: str
    queue: str
    ack: AckMode = "client-individual"
    prefetch: int = 100  # how many messages it may have in flight
    version: str = "1.2"  # the version of STOMP that it speaks, if it connects now
    color: str = ""  # what it selects; empty for everything
    exclusive: bool = False
    priority: int = 0  # consumers with a higher one come first

    def act(self, world: "QueueWorld") -> None:
        client = world.client(self.client, self.version)
        if client.subscribed is None and not client.is_stuck:
            world.subscribe(client, self)


AnyStep = Send | Subscribe | Settle | CommonStep


class Copy:
    """One message in one queue: where it was sent, or where it is a dead letter."""

    __slots__ = (
        "failures", "failures_kept", "failures_most", "gone", "moved", "outcome", "settled_in", "written",
        "written_now",
    )  # fmt: skip

    def __init__(self) -> None:
        self.written = self.written_now = 0
        self.settled_in = -1
        self.gone = self.moved = False
        self.outcome: Outcome | None = None
        self.failures = self.failures_kept = self.failures_most = 0

    @property
    def is_settled(self) -> bool:
        """Whether a consumer was done with it."""
        return self.settled_in >= 0 or (self.outcome is not None and self.outcome.done is not False)

    def crash(self) -> None:
        self.written_now = 0
        self.failures = self.failures_kept


class QueueSent(QueueMessage):
    __slots__ = ("copies", "draft", "epoch", "expiration", "persistent")

    def __init__(self, producer: str, number: int, draft: Send, expiration: int, *, persistent: bool) -> None:
        super().__init__(producer, number, draft.queue)
        self.draft = draft
        self.persistent = persistent
        self.expiration = expiration  # when it may become a dead letter or vanish, in ms since the epoch; 0 for never
        self.epoch = 0  # in which of the broker's lives it was sent last
        self.copies: dict[str, Copy] = {}  # by queue

    @property
    def body(self) -> bytes:
        return b"x" * self.draft.size

    def headers(self) -> dict[str, str]:
        draft = self.draft
        headers = {
            "persistent": "" if self.persistent else "false", "expires": str(self.expiration or ""),
            "priority": str(draft.priority), "JMSXGroupID": draft.group, "color": draft.color,
        }  # fmt: skip
        return {name: value for name, value in headers.items() if value}

    def copy_in(self, queue: str) -> Copy:
        return self.copies.setdefault(queue, Copy())


class Promises:
    def __init__(self, setup: QueueSetup, clock: RightClock) -> None:
        self.epoch = 0
        self.step = 0
        self.sent: dict[str, QueueSent] = {}
        self.back: dict[str, dict[QueueSent, int]] = {}
        self.keeps_place = not setup.redelivery_delay or setup.blocking_redelivery
        self._clock = clock
        self._setup = setup
        self._numbers: Counter[str] = Counter()

    def send(self, producer: str, draft: Send, *, persistent: bool) -> QueueSent:
        self._numbers[producer] += 1
        expiration = self._clock.now_ms() + round(draft.ttl * 1000) if draft.ttl else 0
        sent = QueueSent(producer, self._numbers[producer], draft, expiration, persistent=persistent)
        sent.epoch = self.epoch
        self.sent[sent.name] = sent
        return sent

    def crash(self) -> None:
        self.epoch += 1
        self.back.clear()
        for sent in self.sent.values():
            for copy in sent.copies.values():
                copy.crash()

    # Deliveries.

    def deliver(self, queue: str, frame: Frame) -> QueueSent:
        """A message was written to a consumer of a queue. May it have been?"""
        sent = self.sent[name_of(frame)]
        copy = sent.copy_in(queue)
        self._check_route(sent, queue)
        self._check_settled(sent, copy, queue)
        self._check_flag(sent, copy, frame)
        sent.came_as(frame.headers["message-id"])
        copy.written += 1
        copy.written_now += 1
        self.back.get(queue, {}).pop(sent, None)
        return sent

    def _check_route(self, sent: QueueSent, queue: str) -> None:
        letters = self._setup.dead_letters(sent.queue)
        if queue == letters:
            if not sent.expiration and not self._may_be_dead(sent):
                raise Broken(Rule.FAILED, f"{sent} is a dead letter, too early")
            if self._lives(sent) and not self._may_be_dead(sent):
                raise Broken(Rule.EXPIRED, f"{sent} has expired, too early")
        elif queue != sent.queue:
            raise Broken(Rule.ROUTE, f"{sent} came out of {queue}, it was sent to {sent.queue}")
        elif self._is_over(sent):
            raise Broken(Rule.EXPIRED, f"{sent} came out of {queue}")
        elif letters in sent.copies:
            raise Broken(Rule.AGAIN, f"{sent} came out of {queue}, it is a dead letter already")
        elif sent.copy_in(queue).failures > self._setup.maximum_redeliveries:
            raise Broken(Rule.FAILED, f"{sent} came again, it should be a dead letter")

    def _lives(self, sent: QueueSent) -> bool:
        return sent.expiration > self._clock.now_ms() and not self._clock.wrong.misled

    def _is_over(self, sent: QueueSent) -> bool:
        """Whether a message has expired, and the broker must know."""
        is_known = self._clock.wrong.ahead >= 0 and not self._clock.wrong.misled
        return 0 < sent.expiration <= self._clock.now_ms() and is_known

    def _may_be_dead(self, sent: QueueSent) -> bool:
        return sent.copy_in(sent.queue).failures_most > self._setup.maximum_redeliveries

    def _check_settled(self, sent: QueueSent, copy: Copy, queue: str) -> None:
        if sent.outcome is not None:
            sent.outcome.decide(True, f"{sent} came out of {queue}")
        if copy.gone:
            raise Broken(Rule.AGAIN, f"{sent} came out of {queue} again, its acknowledgement was confirmed")
        if copy.settled_in == self.epoch:
            raise Broken(Rule.AGAIN, f"{sent} came out of {queue} again, its acknowledgement was taken")
        if copy.outcome is not None:
            copy.outcome.decide(False, f"{sent} came out of {queue} again")
            copy.outcome = None

    def _check_flag(self, sent: QueueSent, copy: Copy, frame: Frame) -> None:
        flagged = frame.headers.get("redelivered") == "true"
        if copy.written and not flagged:
            raise Broken(Rule.FLAG, f"{sent} came without a flag, it was written before")
        if flagged and int(frame.headers["JMSXDeliveryCount"]) <= copy.written_now:
            count = frame.headers["JMSXDeliveryCount"]
            raise Broken(Rule.FLAG, f"{sent} says it is delivered {count} times, but it was {copy.written_now + 1}")

    # What comes back.

    def order_of(self, sent: QueueSent) -> tuple[str, str, int]:
        """What a message is in order with: its producer's others of its message group and, by priority, its lane."""
        priority = sent.draft.priority if sent.queue in self._setup.prioritized else 0
        return sent.producer, sent.draft.group, priority

    def gave_back(self, queue: str, sent: QueueSent, *, rejected: bool) -> None:
        """A consumer gave a message back; it has to come again before later ones, if it does not die."""
        dies = queue == sent.queue and self._may_be_dead(sent)
        if rejected and self._setup.redelivery_delay and self._setup.redelivery_at == "tail":
            sent.copy_in(queue).moved = True
        elif not sent.expiration and not dies and (self.keeps_place or not rejected):
            self.back.setdefault(queue, {})[sent] = self.step

    def check_came_before(self, queue: str, color: str, fresh: list[QueueSent]) -> None:
        """A consumer got messages, in this step and for the first time. Did any have to wait for others?"""
        for returned, step in self.back.get(queue, {}).items():
            for later in fresh:
                wants = color in ("", returned.draft.color)
                precedes = returned.number < later.number and self.order_of(returned) == self.order_of(later)
                if step < self.step and wants and precedes:
                    raise Broken(Rule.ORDER, f"{later} came before {returned}, which had come back")

    # The end.

    def check_nothing_lost(self) -> None:
        """When everything is consumed: was everybody done with every message that somebody must have got?"""
        for sent in self.sent.values():
            kept = sent.persistent or (sent.epoch == self.epoch and not sent.expiration)
            if sent.confirmed and kept and not any([copy.is_settled for copy in sent.copies.values()]):
                seen = "delivered, given back, and never again" if sent.copies else "never delivered"
                raise Broken(Rule.LOST, f"{sent} was confirmed and {seen}")


Order = tuple[str, str, int]
"""What a message is in order with."""


class Subscribed(Subscription[QueueSent, Frame]):
    def __init__(self, promises: Promises, of: Subscribe) -> None:
        super().__init__(of.queue, of.ack, of.prefetch)
        self.color = of.color
        self.exclusive = of.exclusive
        self.priority = of.priority
        self.alone = False
        self.number = 0
        self.got_now: dict[QueueSent, bool] = {}
        self._promises = promises
        self._newest: dict[Order, QueueSent] = {}
        self._now: dict[Order, QueueSent] = {}

    def headers(self) -> dict[str, str]:
        headers = {"activemq.prefetchSize": str(self.prefetch)}
        if self.color:
            headers["selector"] = f"color = '{self.color}'"
        if self.exclusive:
            headers["activemq.exclusive"] = "true"
        if self.priority:
            headers["activemq.priority"] = str(self.priority)
        return headers

    def wants(self, color: str) -> bool:
        return self.color in ("", color)

    # What comes.

    def got(self, sent: QueueSent, frame: Frame) -> None:
        if not self.wants(sent.draft.color):
            raise Broken(Rule.SELECTOR, f"{sent} is {sent.draft.color or 'of no color'}, {self.color} is selected")
        is_fresh = frame.headers.get("redelivered") != "true"
        if self.queue == sent.queue:  # dead letters come as messages fail, in no order of their senders
            self._check_order(sent, is_fresh=is_fresh)
        self.got_now[sent] = is_fresh
        if self.ack != "auto":
            self.in_flight[sent] = frame

    def _check_order(self, sent: QueueSent, *, is_fresh: bool) -> None:
        """What comes at once is in order, what comes for the first time is, and all is if nobody else gets anything."""
        copy = sent.copy_in(self.queue)
        if not is_fresh and (copy.moved or not self._promises.keeps_place):
            return
        order = self._promises.order_of(sent)
        self._check_after(sent, self._now, order)
        if is_fresh or self.alone:
            self._check_after(sent, self._newest, order)

    def _check_after(
        self, sent: QueueSent, newest: dict[tuple[str, str, int], QueueSent], order: tuple[str, str, int]
    ) -> None:
        before = newest.get(order, sent)
        if before.number > sent.number:
            raise Broken(Rule.ORDER, f"{sent} came after {before}")
        newest[order] = sent

    def take_fresh(self) -> list[QueueSent]:
        came, self.got_now = self.got_now, {}
        self._now.clear()
        return [sent for sent, is_fresh in came.items() if is_fresh]


class Client(QueueClient[QueueSent, Subscribed]):
    def __init__(
        self, name: str, connection: SteppedClient, promises: Promises, note: Note,
        unconfirmed: dict[QueueSent, None] | None,
    ) -> None:  # fmt: skip
        super().__init__(name, connection, note, unconfirmed)
        self._promises = promises
        for sent in unconfirmed or ():
            sent.epoch = promises.epoch
            self._send(sent, receipt=True)

    # It hears.

    def _take_messages(self) -> None:
        if self.subscribed is not None:
            self._take(self.subscribed)

    def _take(self, subscribed: Subscribed) -> None:
        for frame in self.connection.take("MESSAGE"):
            sent = self._promises.deliver(subscribed.queue, frame)
            self.note(f"{self.name} gets {sent}{', again' if 'redelivered' in frame.headers else ''}")
            subscribed.got(sent, frame)
            if subscribed.ack == "auto":
                sent.copy_in(subscribed.queue).settled_in = self._promises.epoch
        subscribed.check_credit()

    # It sends.

    def send(self, draft: Send) -> None:
        if not self.is_stuck:
            persistent = draft.persistent or self._unconfirmed is not None
            self._send_new(self._promises.send(self.name, draft, persistent=persistent), receipt=draft.receipt)

    # It consumes.

    def subscribe(self, subscribed: Subscribed) -> None:
        headers = subscribed.headers()
        self.note(f"{self.name} subscribes to {subscribed.queue}, {subscribed.ack}, {headers}")
        self.subscribed = subscribed
        self.connection.subscribe(subscribed.queue, subscribed.ack, headers=headers)

    def settle(self, pick: int, *, reject: bool, receipt: bool) -> None:
        """Acknowledge or reject what is in flight, in the open transaction if there is one."""
        subscribed = self.subscribed
        if subscribed is None or self.is_stuck or not subscribed.free:
            return
        covered = subscribed.covered(pick)
        frame = subscribed.in_flight[covered[-1]]
        copies = [sent.copy_in(subscribed.queue) for sent in covered]
        self.note(f"{self.name} {'rejects' if reject else 'acknowledges'} {covered}")
        send = self.connection.nack if reject else self.connection.ack
        if self._outcome is not None:
            subscribed.held |= dict.fromkeys(covered, reject)
            send(frame, {"transaction": "t"})
            return
        headers = {}
        if receipt:
            failures = [copy.failures + 1 if reject else 0 for copy in copies]
            headers = self.receipt(lambda: self._confirm(copies, failures))
        for sent in covered:
            del subscribed.in_flight[sent]
        if reject:
            self._reject(subscribed, covered, lambda: send(frame, headers))
        else:
            send(frame, headers)
            self._acknowledged(copies)

    def _acknowledged(self, copies: list[Copy]) -> None:
        for copy in copies:
            copy.settled_in = self._promises.epoch

    def _confirm(self, copies: list[Copy], failures: list[int]) -> None:
        for copy, count in zip(copies, failures, strict=True):
            if count:
                copy.failures_kept = max(copy.failures_kept, count)
            else:
                copy.gone = True

    def _reject(self, subscribed: Subscribed, messages: list[QueueSent], act: Callable[[], None]) -> None:
        subscribed.alone = False
        copies = [sent.copy_in(subscribed.queue) for sent in messages]
        for copy in copies:
            copy.failures_most += 1
        act()
        for sent, copy in zip(messages, copies, strict=True):
            copy.failures += 1
            self._promises.gave_back(subscribed.queue, sent, rejected=True)

    # Transactions.

    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        """End the transaction by an act. What was acknowledged in an aborted one has failed."""
        subscribed = self.subscribed
        if subscribed is None:
            act()
            return
        held, subscribed.held = subscribed.held, {}
        for sent, rejected in held.items():
            del subscribed.in_flight[sent]
            if commit and not rejected:
                sent.copy_in(subscribed.queue).outcome = outcome
        subscribed.alone = False  # a transaction that fails brings earlier messages back
        self._reject(subscribed, [sent for sent, rejected in held.items() if rejected or not commit], act)

    # It goes.

    def _unsubscribe(self) -> None:
        if self.subscribed is not None:
            self.end(commit=False)
            self.connection.frame("UNSUBSCRIBE", {"id": "0"})
            self._give_back(failed=0)
            self.subscribed = None

    def closed(self, *, lost: bool = True) -> None:
        """Its connection is gone. Without a word: the oldest message in flight counts as failed."""
        self._give_back(failed=int(lost))
        self.forget()

    def _give_back(self, failed: int) -> None:
        if self.subscribed is None:
            return
        in_flight, self.subscribed.in_flight = self.subscribed.in_flight, {}
        for sent in list(in_flight)[:failed]:
            copy = sent.copy_in(self.subscribed.queue)
            copy.failures_most += 1
            copy.failures += 1
        for sent in in_flight:
            self._promises.gave_back(self.subscribed.queue, sent, rejected=False)


class Ownership:
    """Watches what consumers get, and of whom it must be theirs alone."""

    def __init__(self) -> None:
        self._present: dict[str, list[Subscribed]] = {}
        self._groups: dict[tuple[str, str], Subscribed] = {}
        self._subscriptions = 0

    def crash(self) -> None:
        self._present.clear()
        self._groups.clear()

    def came(self, subscribed: Subscribed, *, in_order: bool) -> None:
        present = self._present.setdefault(subscribed.queue, [])
        subscribed.alone = in_order and not present
        present.append(subscribed)
        owner = self._exclusive(subscribed.queue)
        for other in present:
            other.alone = other.alone and (len(present) == 1 or other is owner)

    def observe(self, present: list[Subscribed]) -> None:
        self._present = {queue: [s for s in known if s in present] for queue, known in self._present.items()}
        self._groups = {key: owner for key, owner in self._groups.items() if owner in present}
        for subscribed in present:
            for sent in subscribed.got_now:
                owner = self._exclusive(subscribed.queue)
                if owner not in (None, subscribed):
                    raise Broken(Rule.OWNER, f"{sent} came to another than the exclusive consumer of {sent.queue}")
                if sent.draft.group:
                    self._take(subscribed, sent.draft.group)

    def _take(self, subscribed: Subscribed, group: str) -> None:
        """A consumer got a message of a group. Selectors and exclusive consumers may take a group away."""
        owner = self._groups.get((subscribed.queue, group))
        strict = not any([s.color or s.exclusive for s in self._present[subscribed.queue]])
        if strict and owner not in (None, subscribed):
            raise Broken(Rule.OWNER, f"group {group} of {subscribed.queue} has two consumers")
        self._groups[subscribed.queue, group] = subscribed

    def has_exclusive(self, queue: str) -> bool:
        return self._exclusive(queue) is not None

    def _exclusive(self, queue: str) -> Subscribed | None:
        exclusive = [s for s in self._present.get(queue, ()) if s.exclusive]
        return max(exclusive, key=lambda s: s.priority) if exclusive else None

    def may_have(self, subscribed: Subscribed, message: Message) -> bool:
        """Whether a message that nobody has could be given to a consumer."""
        if self._exclusive(subscribed.queue) not in (None, subscribed):
            return False
        if not subscribed.wants(message.header(b"color") or ""):
            return False
        owner = self._groups.get((subscribed.queue, message.header(b"JMSXGroupID") or ""))
        return owner in (None, subscribed)


def check_memory(stepped: SteppedBroker) -> None:
    """At any time: no more is resident than the limits allow, and one message for each queue and subscription."""
    broker = stepped.broker
    lanes = sum([len(queue.lanes) for queue in broker.queues.values()]) + len(broker.durables)
    most = broker.core.memory.limit + GREATEST * lanes
    if broker.core.memory.peak > most:
        raise Broken(Rule.MEMORY, f"{broker.core.memory.peak} bytes were resident, the most is {most}")
    for name, queue in broker.queues.items():
        most = queue.memory.limit + GREATEST * len(queue.lanes)
        if queue.memory.limit and queue.memory.peak > most:
            raise Broken(Rule.MEMORY, f"{name} had {queue.memory.peak} bytes resident, the most is {most}")


def check_counts(stepped: SteppedBroker) -> None:
    """At rest: what queues count is what there is."""
    broker = stepped.broker
    if broker.core.store_error is not None:
        return  # acknowledgements wait for the store, and are counted already
    for name, queue in broker.queues.items():
        states = [stepped.store.lane_state(lane.id) for lane in queue.lanes]
        spooled = [link for lane in queue.lanes for link in stepped.spool.links(lane.id, 0, ALL)]
        unstored = queue.unstored()
        count = sum([state.count for state in states]) + len(spooled) + len(unstored)
        size = sum([state.bytes for state in states]) + sum([link.size for link in spooled])
        size += sum([message.size for message in unstored])
        if (queue.depth, queue.bytes) != (count, size):
            text = f"{name} counts {queue.depth} messages of {queue.bytes} bytes and has {count} of {size}"
            raise Broken(Rule.COUNT, text)
    counted = sum([queue.bytes for queue in broker.queues.values()])
    counted += sum([topic.bytes for topic in broker.destinations.topics.values()])
    if broker.core.stored_bytes != counted:
        raise Broken(Rule.COUNT, f"the broker counts {broker.core.stored_bytes} bytes, its destinations {counted}")
    resident = sum([source.memory.used for source in [*broker.queues.values(), *broker.durables]])
    if broker.core.memory.used != resident:
        raise Broken(Rule.MEMORY, f"the broker has {broker.core.memory.used} bytes resident, its queues {resident}")


def check_going_on(
    stepped: SteppedBroker, clients: list[Client], ownership: Ownership, right: RightClock
) -> None:  # fmt: skip
    """At rest, without any time going by: everybody has got what could be given."""
    broker = stepped.broker
    if broker.core.store_error is not None:
        return  # it is tried again after a time
    check_answered(stepped, clients)
    for client in clients:
        if client.subscribed and client.subscribed.credit > 0 and client.connection.session.writable:
            waiting = _waiting_for(stepped, client.subscribed, ownership, right)
            if waiting:
                some = ", ".join(waiting[:3])
                raise Broken(Rule.STALL, f"{client.name} has credit, and {some} wait in {client.subscribed.queue}")


def _waiting_for(
    stepped: SteppedBroker, subscribed: Subscribed, ownership: Ownership, right: RightClock
) -> list[str]:  # fmt: skip
    """The messages that a consumer with credit should have got."""
    queue = stepped.queue(subscribed.queue)
    if queue.depth == queue.in_flight or queue.fault is not None:
        return []
    if queue.in_flight and queue.memory.available() < GREATEST:
        return []  # memory is full, and the queue has a part in that
    past, now = min(stepped.clock.now_ms(), right.now_ms()), stepped.broker.core.wall.steady_ms()
    waiting = [
        m for m in _waiting(stepped, queue) if not m.expiration or m.expiration > past or _outlives(m, now, right)
    ]
    delayed = any([message.not_before > now for message in waiting])
    is_exclusive = ownership.has_exclusive(subscribed.queue)
    if delayed and (is_exclusive or queue.policy.blocking_redelivery or queue.policy.strict_order_dispatch):
        return []  # the others wait for them
    ready = []
    stopped: set[str | None] = {None}
    for message in waiting:
        group = message.header(b"JMSXGroupID")
        if message.not_before > now or not ownership.may_have(subscribed, message):
            stopped.add(group)  # the next ones of a group wait for this one
        elif group is None or group not in stopped:
            ready.append(message.body.decode().partition(";")[0])
    return ready


def _outlives(message: Message, steady_ms: int, right: RightClock) -> bool:
    """Whether a delay ends behind the expiration of its message, since the clock was wrong when it began."""
    return right.wrong.was_set and message.not_before > steady_ms


def check_delays(stepped: SteppedBroker) -> None:
    """At any time: no message waits for longer than its delay."""
    now = stepped.broker.core.wall.steady_ms()
    for queue in stepped.broker.queues.values():
        longest = max(queue.policy.initial_redelivery_delay, queue.policy.redelivery_delay)
        for message in _waiting(stepped, queue) if longest else []:
            if (left := (message.not_before - now) / 1000) > longest:
                raise Broken(Rule.LATE, f"{message.body[:10]!r} waits for {left} s yet, its delay is {longest} s")


def _waiting(stepped: SteppedBroker, queue: Queue) -> list[Message]:
    """All messages of a queue that no consumer has, in order."""
    messages = queue.unstored()
    for lane in queue.lanes:
        messages += stepped.store.page(lane.id, 0, ALL, ALL).messages
        messages += stepped.spool.page(lane.id, 0, ALL, ALL).messages
    taken = queue.in_flight_sequences()
    return sorted([m for m in messages if m.sequence not in taken], key=attrgetter("sequence"))


def check_empty(stepped: SteppedBroker) -> None:
    """At the end, when everything is consumed: nothing is left anywhere."""
    broker = stepped.broker
    left = {
        "stored": stepped.store.size(), "counted": broker.core.stored_bytes, "resident": broker.core.memory.used,
        "spooled": stepped.spool.used, "transacted": broker.core.transaction_bytes, "held": len(broker.core.flow.holds),
    }  # fmt: skip
    if any(left.values()):
        raise Broken(Rule.MEMORY, f"everything is consumed, and there is something left: {left}")


class QueueWorld(Life[Client]):
    def __init__(self, setup: QueueSetup, note: Note = lambda text: None) -> None:
        super().__init__(setup.settings(), note)
        self.promises = Promises(setup, self.right)
        self.ownership = Ownership()
        self._setup = setup
        self._unconfirmed: dict[str, dict[QueueSent, None]] = {name: {} for name in setup.numbered}

    def do(self, act: Callable[[Any], None]) -> None:
        self.promises.step += 1
        super().do(act)

    def observe(self) -> None:
        for client in sorted(self.clients.values(), key=lambda client: not client.is_gone):
            client.listen()
            if client.is_gone:  # before the others: they may have got what it had
                client.closed()
        self.clients = {name: client for name, client in self.clients.items() if not client.is_gone}
        present = [client.subscribed for client in self.clients.values() if client.subscribed]
        self.ownership.observe(present)
        for subscribed in present:
            if fresh := subscribed.take_fresh():
                self.promises.check_came_before(subscribed.queue, subscribed.color, fresh)
        check_memory(self.stepped)

    # What steps do.

    def _new_client(self, name: str, connection: SteppedClient) -> Client:
        return Client(name, connection, self.promises, self.note, self._unconfirmed.get(name))

    def subscribe(self, client: Client, of: Subscribe) -> None:
        subscribed = Subscribed(self.promises, of)
        self.ownership.came(subscribed, in_order=self.promises.keeps_place)
        client.subscribe(subscribed)

    def check_rest(self, *, verify: bool) -> None:
        check_counts(self.stepped)
        check_delays(self.stepped)
        check_going_on(self.stepped, list(self.clients.values()), self.ownership, self.right)
        if verify:
            check_links(self.store)

    # Crashes.

    def started(self) -> None:
        self.promises.crash()
        self.ownership.crash()

    # The end.

    def _before_leaving(self) -> None:
        for name, unconfirmed in self._unconfirmed.items():
            if unconfirmed:
                self.client(name)
        self.rest_now()

    def _drain(self) -> None:
        """Consume everything, one queue after the other, until nothing is left."""
        while before := self._depths():
            for queue in self._setup.queues:
                client = self.client("drain")
                self.subscribe(client, Subscribe("drain", queue, "client"))
                self.rest_now()
                while client.settle_all():
                    self.rest_now()
                client.leave("disconnect")
                self.pass_time()
            if before == self._depths():
                raise Broken(Rule.STALL, f"nobody gets anything more of {before}")
        self.promises.check_nothing_lost()
        check_links(self.store)
        check_empty(self.stepped)

    def _depths(self) -> dict[str, int]:
        return {name: queue.depth for name, queue in self.stepped.broker.queues.items() if queue.depth}


class QueueGenerator(Generator):
    FEATURES = (
        "crashes", "failures", "rejections", "departures", "transactions", "expiry", "non-persistent", "slow-readers",
        "several-consumers", "groups", "selectors", "exclusive", "priorities", "delays",
    )  # fmt: skip
    CHANCE = 0.5
    JUMPING = 4
    WAITS = (0.1, 1.0, 3.0)

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self._queues: tuple[str, ...] = QUEUES
        if not self._has("several-consumers"):
            self._consumers = CONSUMERS[:1]

    def _weights(self) -> Weights:
        return {
            self._send: 20, self._subscribe: 6, self._settle: 18, self._wait: 2,
            Turn: 14, self._finish: 10, self._run: 8,
            self._begin: 3 * self._has("transactions"), self._end: 4 * self._has("transactions"),
            self._leave: 4 * self._has("departures"), self._read: 3 * self._has("slow-readers"),
            self._fail: 4 * self._has("failures"), self._crash: 2 * self._has("crashes"),
        }  # fmt: skip

    def _setup(self) -> QueueSetup:
        choice, random = self._random.choice, self._random
        delays = self._has("delays")
        at: tuple[Literal["in-place", "tail"], ...] = ("in-place", "in-place", "tail") if delays else ("in-place",)
        redelivery_at = choice(at)
        setup = QueueSetup(
            memory_limit=choice((1, 2500, 5000, 10_000, 1_000_000)),
            queue_limit=choice((0, 0, 2000)),
            store_limit=choice((10**9, 10**9, 10_000)),
            spool_limit=choice((10**9, 10**9, 5_000)),
            maximum_redeliveries=choice((0, 2, 6)),
            redelivery_delay=choice((0.5, 2.0)) if delays else 0,
            redelivery_at=redelivery_at,
            blocking_redelivery=redelivery_at == "in-place" and random.random() < 0.3,
            strict_order_dispatch=random.random() < 0.1,
            individual_dead_letters=random.random() < 0.2,
            prioritized=choice((("a",), ("b",), QUEUES)) if self._has("priorities") else (),
            numbered=tuple([name for name in PRODUCERS if random.random() < 0.3]),
        )
        self._queues = setup.queues
        return setup

    # Clients.

    def _send(self) -> Step:
        random = self._random
        return Send(
            client=random.choice(PRODUCERS) if random.random() < 0.9 else random.choice(self._consumers),
            queue=random.choice((*QUEUES, QUEUES[0])),
            size=random.choice((0, 10, 200, 900)),
            count=random.choice((1, 1, 1, 2, 5)),
            persistent=not (self._has("non-persistent") and random.random() < 0.4),
            receipt=random.random() < 0.5,
            ttl=random.choice((0.5, 2.0)) if self._has("expiry") and random.random() < 0.2 else 0,
            priority=random.choice((0, 4, 4, 9)) if self._has("priorities") else 4,
            group=random.choice(("", "g", "h")) if self._has("groups") else "",
            color=random.choice(("", "red", "blue")) if self._has("selectors") else "",
        )

    def _subscribe(self) -> Step:
        random = self._random
        acks: tuple[AckMode, ...] = ("client-individual", "client", "auto")
        return Subscribe(
            client=random.choice(self._consumers),
            queue=random.choice((*self._queues, QUEUES[0])),
            ack=random.choice(acks),
            prefetch=random.choice((1, 2, 5, 100)),
            version=random.choice(("1.1", "1.2")),
            color=random.choice(("", "red", "blue")) if self._has("selectors") else "",
            exclusive=self._has("exclusive") and random.random() < 0.4,
            priority=random.choice((0, 0, 3)) if self._has("several-consumers") else 0,
        )

    def _fail(self) -> Step:
        random = self._random
        if random.random() < 0.25:
            return Fail("spool")
        return Fail("read", at=random.choice((1, 1, 2, 3, 5, 8)), times=random.choice((1, 1, 1, 2, 5)))
