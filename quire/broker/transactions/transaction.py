"""A local transaction: sends and acknowledgements that become durable together, over all their destinations.

It belongs to one session. What it promises about order stands in ``docs/transactions.md``. One that is open for too
long keeps messages from other consumers: it is rolled back.

Clients exist that roll back and then acknowledge the same delivery. Such a late acknowledgement is no error
(``RolledBack``). It settles the message if that still waits in its queue. If it was given out again, the
acknowledgement of that delivery counts. A late rejection says nothing new: the rollback was one.

Messages that a prepared transaction has acknowledged are hidden until its outcome is known: they count in the depth,
take no memory but their sequences, and no cursor admits them (``HiddenMessages``).
"""

import logging
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, Self

from quire.broker.core.core import Core, Target
from quire.broker.core.subscription import AckMode, Source, Subscription
from quire.broker.destinations import Destinations
from quire.broker.producer_ids import ProducerIds
from quire.broker.queues.queue import LaneDispatch
from quire.broker.routing.routing import Routing
from quire.broker.streams.groups.group import MemberSubscription
from quire.broker.topics.durables import Durables
from quire.cursors.lane import QueueLane
from quire.errors import LimitExceeded, TransactionTimedOut, TransactionTooLarge
from quire.logs import event
from quire.message import Message
from quire.store.base import Delivery


class TransactionTimeouts:
    """The open transactions in the order they began, and one timer for the oldest.

    A timer for each would stay in the scheduler's heap long after its transaction ended.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._max_age = core.settings.transaction.max_age
        self._deadlines: dict[Transaction, float] = {}
        self._is_armed = False

    def add(self, transaction: "Transaction") -> None:
        if self._max_age:
            self._deadlines[transaction] = self._core.clock.monotonic() + self._max_age
            self._arm()

    def discard(self, transaction: "Transaction") -> None:
        self._deadlines.pop(transaction, None)

    def _arm(self) -> None:
        if self._deadlines and not self._is_armed:
            self._is_armed = True
            delay = next(iter(self._deadlines.values())) - self._core.clock.monotonic()
            self._core.scheduler.call_later(delay, self._look)

    def _look(self) -> None:
        self._is_armed = False
        now = self._core.clock.monotonic()
        late = [transaction for transaction, deadline in self._deadlines.items() if deadline <= now]
        for transaction in late:
            transaction.time_out()
        if late:
            text = (
                f"{len(late)} transactions were open for more than {self._max_age:g} s, and the broker rolls them back"
            )
            event("transaction.timed_out", text, logging.WARNING, transactions=len(late), seconds=self._max_age)
        self._arm()


MAX_TRANSACTIONS = 1000
"""How many local transactions, and how many XA branches that are not prepared, a connection may have open."""


class TransactionServices(NamedTuple):
    core: Core
    destinations: Destinations
    durables: Durables
    routing: Routing
    producers: ProducerIds
    timeouts: TransactionTimeouts


def check_room(open: int) -> None:
    if open >= MAX_TRANSACTIONS:
        raise LimitExceeded(f"{MAX_TRANSACTIONS} transactions are open, which is the limit", limit=MAX_TRANSACTIONS)


class HiddenMessages:
    """The hidden messages of one transaction in one queue."""

    def __init__(self, queue: LaneDispatch, messages: list[Message]) -> None:
        self.queue = queue
        self._messages = messages

    @classmethod
    def take(cls, queue: LaneDispatch, messages: list[Message]) -> Self:
        for message in messages:
            queue.lane_of(message).cursor.set_aside(message)
        queue.groups.settled(messages)
        hidden = cls(queue, [_without_content(message) for message in messages])
        hidden._exclude()
        queue.wake()
        return hidden

    @classmethod
    def find(cls, queue: LaneDispatch, sequences_by_lane: dict[int, list[int]]) -> Self:
        messages = []
        for lane in queue.lanes:
            messages += _find(lane, sequences_by_lane.get(lane.id, []))
        hidden = cls(queue, messages)
        hidden._exclude()
        return hidden

    def sequences_by_lane(self) -> dict[int, list[int]]:
        """What ``find`` finds again after a restart: the persistent ones."""
        persistent = [message for message in self._messages if message.persistent]
        owned = {lane.id: [message.sequence for message in self._own(lane, persistent)] for lane in self.queue.lanes}
        return {lane: sequences for lane, sequences in owned.items() if sequences}

    def _exclude(self) -> None:
        for lane in self.queue.lanes:
            lane.cursor.exclude([message.sequence for message in self._own(lane, self._messages)])

    def remove(self) -> None:
        if not self.queue.is_deleted:
            self.queue.settle_hidden(self._messages)

    def note_return(self, cause: str) -> None:
        """They are going to come back: store that with the open commit. Then ``show`` them."""
        if not self.queue.is_deleted:
            for message in self._messages:
                message.deliveries += 1
                self.queue.note_delivery(message, Delivery(message.deliveries, message.failures, 0, cause))

    def show(self) -> None:
        if not self.queue.is_deleted:
            self.queue.redelivered += len(self._messages)
            self.queue.show(self._messages)

    def _own(self, lane: QueueLane, messages: list[Message]) -> list[Message]:
        return messages if len(self.queue.lanes) == 1 else lane.own(messages)


def _without_content(message: Message) -> Message:
    hidden = Message(message.sequence, b"", message.expiration, message.priority, message.persistent)
    hidden.size, hidden.stored = message.size, message.stored
    hidden.deliveries, hidden.failures = message.deliveries, message.failures
    return hidden


def _find(lane: QueueLane, sequences: list[int]) -> list[Message]:
    found = []
    for sequence in sequences:
        links, states = lane.reader.links(lane.id, sequence, 1), lane.reader.deliveries(lane.id, sequence, 1)
        if links and links[0].sequence == sequence:
            message = Message(sequence, b"", priority=lane.priority)
            message.size = links[0].size
            if states and states[0][0] == sequence:
                message.deliveries, message.failures = states[0][1].deliveries, states[0][1].failures
            found.append(message)
    return found


RUN = 1000
"""So many messages are looked for at once."""


def find_waiting(source: Source, sequences: list[int]) -> list[Message]:
    if not isinstance(source, LaneDispatch):
        return []
    sequences = [sequence for sequence in sequences if sequence <= source.last]
    found = _unstored(source, sequences)
    wanted = set(sequences).difference([message.sequence for message in found])
    for lane in source.lanes:
        found += lane.without_contents(sorted(wanted))
    return found


def _unstored(queue: LaneDispatch, sequences: list[int]) -> list[Message]:
    if not sequences:
        return []
    found: list[Message] = []
    wanted, start = set(sequences), sequences[0]
    while start <= sequences[-1] and (run := queue.unstored_from(start, RUN, in_flight=False)):
        found += [message for message in run if message.sequence in wanted]
        start = run[-1].sequence + 1
    return found


def take_waiting(source: Source, found: list[Message]) -> list[Message]:
    """Hide messages: they are taken out of where they wait, until ``settle_waiting`` or ``put_back``."""
    if not found or not isinstance(source, LaneDispatch):
        return []
    there = {message.sequence: message for message in found}
    taken = [there[sequence] for sequence in source.hide(list(there))]
    for message in taken:
        if not message.stored:
            source.lane_of(message).cursor.hold([message])
    return taken


def settle_waiting(source: Source, taken: list[Message]) -> bool:
    """Remove what ``take_waiting`` gave, as if it were acknowledged in flight; False if its queue was deleted."""
    if not isinstance(source, LaneDispatch) or source.is_deleted:
        return False
    source.settle_hidden([message for message in taken if message.stored])
    source.acknowledge([message for message in taken if not message.stored])
    return True


def put_back(source: Source, taken: list[Message]) -> None:
    if isinstance(source, LaneDispatch) and not source.is_deleted:
        source.show(taken)


class HeldSend(NamedTuple):
    """A message that waits for the commit of its transaction.

    Attributes:
        destination: where it goes, as a destination header says it.
        content: header lines and body.
        producer: the id of a producer that numbers its sends, or None.
    """

    destination: str
    content: bytes
    expiration: int
    priority: int
    persistent: bool
    producer: str | None = None
    producer_sequence: int = 0

    def is_new(self, producers: ProducerIds) -> bool:
        """Whether it was not sent before, as far as its producer numbers its sends; it counts as sent from now on."""
        return self.producer is None or producers.take(self.producer, self.producer_sequence)


def know_producers(producers: ProducerIds, sends: list[HeldSend]) -> None:
    """Before any of some sends is made: read what must be known of the producers that number theirs."""
    for send in sends:
        if send.producer is not None:
            producers.sequence(send.producer)


class Transaction:
    """One transaction, from its begin to its commit or rollback.

    Attributes:
        settled: after the commit, what was acknowledged, with where it was: what to restore if the store refuses.
    """

    def __init__(self, services: TransactionServices) -> None:
        self._services = services
        self._core = services.core
        self._targets: list[tuple[Target, int]] = []  # of the sends, and the version of the destinations then
        self._held: dict[Subscription, dict[int, bool]] = {}  # by sequence: acknowledged, or else rejected
        self._late: deque[tuple[Source, list[int]]] = deque()  # acknowledged and not in flight; to be looked for
        self._taken: dict[Source, list[Message]] = {}  # what of it waited in its queue; it is hidden there
        self._acknowledgements = 0
        self._has_timed_out = False
        self.sends: list[HeldSend] = []
        self.size = 0
        self.settled: list[tuple[Source, list[Message]]] = []
        services.timeouts.add(self)

    @property
    def is_empty(self) -> bool:
        return not self.sends and not self._acknowledgements

    @property
    def has_stream_acknowledgements(self) -> bool:
        return any([isinstance(subscription, MemberSubscription) for subscription in self._held])

    # Work in it.

    def send(self, target: Target, send: HeldSend) -> None:
        self.check_open()
        self._check_count(1)
        self._check_size(len(send.content))
        self.sends.append(send)
        self._targets.append((target, self._services.destinations.version))
        self.size += len(send.content)
        self._core.charge_transaction(len(send.content))

    def acknowledge(self, subscription: "Subscription", sequences: list[int]) -> None:
        """Hold acknowledgements back until the commit; meanwhile they take no credit, if the policy says so."""
        self._hold(subscription, sequences, acknowledged=True)

    def reject(self, subscription: "Subscription", sequences: list[int]) -> None:
        self._hold(subscription, sequences, acknowledged=False)

    def _hold(self, subscription: "Subscription", sequences: list[int], *, acknowledged: bool) -> None:
        self.check_open()
        held = self._held.get(subscription, {})
        new = {sequence: acknowledged for sequence in sequences if sequence not in held}
        self._check_count(len(new))
        self._held.setdefault(subscription, held).update(new)
        self._acknowledgements += len(new)
        if subscription.source.policy.use_prefetch_extension:
            subscription.extend([sequence for sequence in new if sequence in subscription.in_flight])

    def check_open(self) -> None:
        if self._has_timed_out:
            seconds = self._core.settings.transaction.max_age
            raise TransactionTimedOut(
                f"the transaction was open for more than {seconds:g} s, and the broker rolled it back", seconds=seconds
            )

    def _check_count(self, more: int) -> None:
        limit = self._core.settings.transaction.max_messages
        if len(self.sends) + self._acknowledgements + more > limit:
            text = f"a transaction sends and acknowledges {limit} messages at most (transaction.max_messages)"
            raise TransactionTooLarge(text, limit=limit)

    def _check_size(self, more: int) -> None:
        memory = self._core.settings.memory.limit
        limit = self._core.settings.transaction.max_size or memory
        if self.size + more > limit:
            text = f"a transaction sends {limit} bytes of messages at most (transaction.max_size)"
            raise TransactionTooLarge(text, limit=limit)
        if self._core.transaction_bytes + more > memory:
            text = f"all open transactions together hold {memory} bytes of messages at most (memory.limit)"
            raise TransactionTooLarge(text, limit=memory)

    # Its end.

    def commit(self) -> None:
        """Do everything in the open commit: sends in their order, then acknowledgements, then rejections.

        If a destination cannot be sent to any more, or the store cannot be read, nothing is done: it is open still.
        """
        self.check_open()
        core, producers = self._core, self._services.producers
        targets = self._find_targets()
        self.gather_all()
        know_producers(producers, self.sends)
        for target, send in zip(targets, self.sends, strict=True):
            if send.is_new(producers):
                target.send(send.content, send.expiration, send.priority, send.persistent)
        for source, messages in self.take_acknowledged():
            source.acknowledge(messages)
            self.settled.append((source, messages))
        for source, messages in self.take_late():
            if settle_waiting(source, messages):
                self.settled.append((source, messages))
        self.give_back_rejected()
        self.close()
        core.list_transaction(self)

    def _find_targets(self) -> "list[Target]":
        """What takes the sends now, all of it before the first send. Destinations may have come and gone since."""
        routing, now = self._services.routing, self._services.destinations.version
        return [
            target if version == now else routing.target_of(send.destination, send.content)
            for send, (target, version) in zip(self.sends, self._targets, strict=True)
        ]

    def roll_back(self, cause: str = "the transaction was rolled back") -> dict["Subscription", list[int]]:
        """Undo everything: what was acknowledged or rejected in it has failed and is delivered again by the policy."""
        came_back = {}
        for subscription, held in self._held.items():
            messages = subscription.take(list(held))
            if messages:
                subscription.source.redeliver(messages, len(messages), cause, at_once=False)
                came_back[subscription] = [message.sequence for message in messages]
        self.close()
        return came_back

    def abandon(self) -> None:
        """Forget everything; what was acknowledged or rejected in it is in flight as before.

        For a client that is gone, whose consumers give everything back, and for one that delivers again by itself.
        """
        for subscription, held in self._held.items():
            subscription.unextend(held)
        self.close()

    def time_out(self) -> None:
        self._has_timed_out = True
        self.roll_back("the transaction was open for too long")

    # The pieces of its end, for two-phase transactions too.

    def gather(self) -> bool:
        """Before ``commit``: find some of what was acknowledged and is not in flight any more, and hide it.

        Its consumer has left, or it was rolled back before. It counts too if it still waits in its queue. If it was
        given out again, it is not settled twice. Whether there is more to find.
        """
        if not self._late:
            self._list_late()
        looked = 0
        while self._late and looked + len(self._late[0][1]) <= RUN:
            source, sequences = self._late[0]
            looked += len(sequences)
            if taken := take_waiting(source, find_waiting(source, sequences)):
                self._taken.setdefault(source, []).extend(taken)
            self._late.popleft()
        return bool(self._late)

    def gather_all(self) -> None:
        while self.gather():
            pass

    def _list_late(self) -> None:
        for subscription, held in self._held.items():
            if held.keys() <= subscription.in_flight.keys():
                continue
            late = sorted([s for s in held.keys() - subscription.in_flight.keys() if held[s]])
            for sequence in late:
                del held[sequence]
            runs = [late[start : start + RUN] for start in range(0, len(late), RUN)]
            self._late.extend([(subscription.source, run) for run in runs])

    def take_acknowledged(self) -> "Iterator[tuple[Source, list[Message]]]":
        for subscription, held in self._held.items():
            messages = subscription.take([sequence for sequence, acknowledged in held.items() if acknowledged])
            if messages:
                yield subscription.source, messages

    def take_late(self) -> "list[tuple[Source, list[Message]]]":
        taken, self._taken = self._taken, {}
        return list(taken.items())

    def give_back_rejected(self) -> None:
        for subscription, held in self._held.items():
            messages = subscription.take([sequence for sequence, acknowledged in held.items() if not acknowledged])
            if messages:
                cause = "rejected by the consumer"
                subscription.source.redeliver(messages, len(messages), cause, at_once=False)

    def close(self) -> None:
        self._services.timeouts.discard(self)
        self._core.charge_transaction(-self.size)
        if self._core.flow.holds:  # what it held may be the room that a producer waits for
            self._core.ask_turn()
        self.size = self._acknowledgements = 0
        self.sends, self._targets = [], []
        self._held = {}
        self._late.clear()
        for source, messages in self.take_late():
            put_back(source, messages)


LIMIT = 1000
"""Of so many messages a late acknowledgement is known; of the oldest of more it is an error, as any unknown one."""


class RolledBack:
    """The messages that came back last, in the order they did."""

    def __init__(self) -> None:
        self._known: dict[tuple[Subscription, int], None] = {}

    def note(self, came_back: dict[Subscription, list[int]]) -> None:
        for subscription, sequences in came_back.items():
            for sequence in sequences:
                self._known.pop((subscription, sequence), None)
                self._known[subscription, sequence] = None
        for oldest in list(islice(self._known, max(0, len(self._known) - LIMIT))):
            del self._known[oldest]

    def covered(self, subscription: Subscription, sequence: int) -> list[int]:
        """What a late acknowledgement is about: a message, or in ``client`` mode all that came back up to it.

        Nothing if the message did not come back, or too long ago.
        """
        if (subscription, sequence) not in self._known:
            return []
        if subscription.ack is not AckMode.CLIENT:
            return [sequence]
        own = [known for owner, known in self._known if owner is subscription]
        return own[: own.index(sequence) + 1]

    def settle(self, subscription: Subscription, sequences: list[int]) -> None:
        """Settle those of some messages that came back and still wait; later, if they cannot be read now."""
        late = sorted([sequence for sequence in sequences if (subscription, sequence) in self._known])
        found = find_waiting(subscription.source, late)
        for sequence in late:
            del self._known[subscription, sequence]
        if messages := take_waiting(subscription.source, found):
            settle_waiting(subscription.source, messages)

    def forget(self, subscriptions: set[Subscription]) -> None:
        self._known = {key: None for key in self._known if key[0] not in subscriptions}
