"""A local transaction: sends and acknowledgements that become durable together, over all their destinations.

It belongs to one session. What it promises about order stands in ``docs/transactions.md``.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from quire.broker.core.services import Target
from quire.broker.core.subscription import Source, Subscription
from quire.broker.producer_ids import ProducerIds
from quire.broker.streams.groups.group_member import MemberSubscription
from quire.broker.transactions.transaction_services import TransactionServices
from quire.broker.transactions.waiting_messages import RUN, find_waiting, put_back, settle_waiting, take_waiting
from quire.errors import TransactionTimedOut, TransactionTooLarge
from quire.message import Message


class Sending(Protocol):
    """How a message is sent, as a session understood it: a STOMP ``Route`` say.

    Attributes, all as ``HeldSend`` has them, and ``target``: what takes the message.
    """

    @property
    def destination(self) -> str: ...
    @property
    def target(self) -> "Target": ...
    @property
    def expiration(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def persistent(self) -> bool: ...
    @property
    def producer(self) -> str | None: ...
    @property
    def producer_sequence(self) -> int: ...


class HeldSend(NamedTuple):
    """A message that waits for the commit of its transaction.

    Attributes:
        destination: where it goes, as a destination header says it.
        content: header lines and body.
        expiration: milliseconds since the epoch; 0 for never.
        priority: 0 to 9.
        persistent: whether it must survive the broker.
        producer: the id of a producer that numbers its sends, or None.
        producer_sequence: the number.
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
    """Before any of some sends is made: read what must be known of the producers that number theirs.

    Raises:
        StoreError: it cannot be read.
    """
    for send in sends:
        if send.producer is not None:
            producers.sequence(send.producer)


class Transaction:
    """One transaction, from its begin to its commit or rollback.

    Attributes:
        sends: what was sent in it, in order.
        size: the sizes of these messages.
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
        """Whether nothing was done in it."""
        return not self.sends and not self._acknowledgements

    @property
    def has_stream_acknowledgements(self) -> bool:
        """Whether messages of streams were acknowledged in it: they cannot be hidden until an outcome is known."""
        return any([isinstance(subscription, MemberSubscription) for subscription in self._held])

    # Work in it.

    def send(self, sending: Sending, content: bytes) -> None:
        """Hold a message back until the commit.

        Raises:
            TransactionTooLarge: it would have more than the settings allow, or all open transactions together would.
        """
        self.check_open()
        self._check_count(1)
        self._check_size(len(content))
        self.sends.append(
            HeldSend(
                sending.destination, content, sending.expiration, sending.priority, sending.persistent,
                sending.producer, sending.producer_sequence,
            )
        )  # fmt: skip
        self._targets.append((sending.target, self._services.destinations.version))
        self.size += len(content)
        self._core.charge_transaction(len(content))

    def acknowledge(self, subscription: "Subscription", sequences: list[int]) -> None:
        """Hold acknowledgements back until the commit; meanwhile they take no credit, if the policy says so.

        Raises:
            TransactionTooLarge: it would have more of them than the settings allow.
        """
        self._hold(subscription, sequences, acknowledged=True)

    def reject(self, subscription: "Subscription", sequences: list[int]) -> None:
        """Hold rejections back until the commit. Raises what ``acknowledge`` does."""
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
        """See that it can go on."""
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

        Raises:
            InvalidDestination: a destination cannot be sent to any more. Nothing is done, the transaction is open.
            StoreError: what it needs of the store cannot be read. Nothing is done either.
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
        """It was open for too long: roll it back. Later use of it is an error."""
        self._has_timed_out = True
        self.roll_back("the transaction was open for too long")

    # The pieces of its end, for two-phase transactions too.

    def gather(self) -> bool:
        """Before ``commit``: find some of what was acknowledged and is not in flight any more, and hide it.

        Its consumer has left, or it was rolled back before. It counts too if it still waits in its queue. If it was
        given out again, it is not settled twice.

        Returns:
            Whether there is more.

        Raises:
            StoreError: it cannot be read.
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
        """Find all of it at once. Raises what ``gather`` does."""
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
        """Take what was acknowledged, and is in flight, out of the in-flight tables."""
        for subscription, held in self._held.items():
            messages = subscription.take([sequence for sequence, acknowledged in held.items() if acknowledged])
            if messages:
                yield subscription.source, messages

    def take_late(self) -> "list[tuple[Source, list[Message]]]":
        """Take what was acknowledged, and was found by ``gather``; it is hidden."""
        taken, self._taken = self._taken, {}
        return list(taken.items())

    def give_back_rejected(self) -> None:
        """Take back what was rejected."""
        for subscription, held in self._held.items():
            messages = subscription.take([sequence for sequence, acknowledged in held.items() if not acknowledged])
            if messages:
                cause = "rejected by the consumer"
                subscription.source.redeliver(messages, len(messages), cause, at_once=False)

    def close(self) -> None:
        """It is over: nothing of it is held any more."""
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
