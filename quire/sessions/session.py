"""The session of a client at one broker, and its requests to services by name (``Session.call``).

It is the core's ``Session``: the core delivers to it, confirms, and lets its producer go on; each of these calls goes
on to the door. Nothing here is done for a message: a plain send reaches its target, and a plain acknowledgement its
part, without coming by.

What a new door needs of a service is a row in ``CALLS``: a function of the session and the arguments. It returns the
result, which ``Door.answered`` gets; None if there is none, then the token is confirmed; or an iterator of steps.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

from quire.broker import admission
from quire.broker.broker import Broker
from quire.broker.core.subscription import Confirmation, Subscription
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.schedule import ScheduledSend
from quire.broker.streams.stream import PARTITION, Stream
from quire.broker.transactions.transaction import HeldSend, Transaction
from quire.destination import MAX_NAME, Destination, DestinationKind, is_plain
from quire.destination_pattern import Pattern
from quire.errors import (
    AccessRefused,
    BrokerStopping,
    DestinationInUse,
    InvalidArgument,
    InvalidDestination,
    InvalidHeader,
    LimitExceeded,
    QuireError,
    ShardMoved,
    ShardUnavailable,
    StoreError,
    UnknownSubscription,
)
from quire.management.queues import delete_queue, delete_topic
from quire.sessions.base import (
    PLAIN,
    USUAL,
    Door,
    Handles,
    Leaving,
    LeavingKind,
    Opening,
    Route,
    Sending,
    Settlement,
    SettlementKind,
    Step,
    Token,
    Traits,
    Tx,
    What,
)
from quire.sessions.consumers import ConsumingSession, MemberConsumer, PatternConsumer, check_own_durable
from quire.sessions.rights import Guard
from quire.sessions.settling import Settling


def remove_durable(session: ConsumingSession, client_id: str, name: str, written: str = "") -> None:
    """Remove a durable subscription, to a topic or to a pattern, with what waits for it.

    ``written`` is how the client writes streams, if it consumes a group as a durable subscription; empty if not.
    """
    broker = session.broker
    check_own_durable(session, client_id, name)
    if broker.durable_patterns.find(client_id, name) is not None:
        broker.durable_patterns.remove(client_id, name)
        return
    try:
        broker.durables.remove(client_id, name)
    except UnknownSubscription:
        streams = [group.stream.destination for group in broker.groups.all() if group.name == name]
        of = [stream.name for stream in streams if session.guard.sees(stream)]
        if not of or not written:
            raise
        exact = f"{written}{of[0]}?group={name[:60]}"
        text = f"{name[:60]!r} is a consumer group, which all clients share: to remove it, unsubscribe {exact!r}"
        raise InvalidArgument(text, argument="subscription_name") from None


def remove_group(session: ConsumingSession, stream: str, group: str) -> None:
    session.guard.check_manage(Address(DestinationKind.STREAM, stream))
    session.broker.groups.delete(session.broker.groups.existing(stream, group))


def create(session: ConsumingSession, address: Address) -> None:
    session.guard.check_create(Address(address.kind, address.name))
    _make_known(session, address)


def _make_known(session: ConsumingSession, address: Address) -> None:
    if address.scope is Scope.COMMON and not Pattern(address.name).is_wildcard:
        session.broker.routing.target(str(address))


def delete(session: ConsumingSession, addresses: Sequence[Address]) -> Iterator[int]:
    """Delete queues and topics, in steps. A client that goes meanwhile leaves a queue that has fewer messages."""
    broker = session.broker
    for kind, name, scope in addresses:
        if scope is not Scope.COMMON:
            continue
        session.guard.check_manage(Address(kind, name))
        if kind is DestinationKind.STREAM:
            text = f"the stream {name[:60]!r} is not deleted by a client: `quire stream delete` does that"
            raise InvalidDestination(text, destination=name[:60])
        if kind is DestinationKind.QUEUE and name in broker.destinations.queues:
            yield from delete_queue(broker, name)
        elif kind is DestinationKind.TOPIC and name in broker.destinations.topics:
            yield from delete_topic(broker, name)


def drop_temporary(session: ConsumingSession, address: Address) -> None:
    """Delete a temporary destination of the session's own; nothing happens if it has none of that name."""
    if address not in session.temporaries:
        return
    temporaries = session.broker.routing.temporaries
    subscriptions = temporaries.find(address).subscriptions
    for subscription in list(subscriptions):
        subscription.leave_now()
    if any([subscription.departure is None for subscription in subscriptions]):
        name = address.name[:60]
        raise DestinationInUse(f"{name!r} still has an active subscription", destination=name)
    del session.temporaries[address]
    temporaries.delete(address)


def recover(session: ConsumingSession) -> list[Tx]:
    """The XA branches that are prepared, and the client's own."""
    return session.transactions.recover()


def producer(session: ConsumingSession, id: str, address: Address, came: bool) -> None:
    if not came:
        producer_stopped(session, id)
    elif id not in session.producers:
        destination = Destination(address.kind, address.name)
        session.guard.check_send([address])
        _make_known(session, address)
        session.producers[id] = destination
        session.broker.advisories.producer_started(session, id, destination)


def producer_stopped(session: ConsumingSession, id: str) -> None:
    if (destination := session.producers.pop(id, None)) is not None:
        session.broker.advisories.producer_stopped(session, id, destination)


CALLS: dict[str, Callable[..., Any]] = {
    "create": create, "delete": delete, "drop-temporary": drop_temporary, "producer": producer, "recover": recover,
    "remove-durable": remove_durable, "remove-group": remove_group,
}  # fmt: skip


FIRST_LOOK = 0.005
"""After how many seconds it is looked again whether a client id is free; then each time after twice as long."""

GOODBYE_AGAIN = 0.1
"""After how many seconds a client that leaves while the store fails is looked at again."""

MAX_TEMPORARIES = 1000
"""How many temporary destinations a session may have."""

MAX_WAIT_FOR_ID = 1.0
"""How many seconds a client waits for its client id, while the connection that has it is over, or may be."""

OF_THE_BROKER = frozenset([error.code for error in (BrokerStopping, ShardMoved, ShardUnavailable)])
"""Errors by which a session ends whose client has done nothing."""


class LocalSession(ConsumingSession):
    """One client's session: its door has logged it in. Other sessions of the client may take numbers of parts too."""

    is_awaited = False

    def __init__(self, broker: Broker, guard: Guard, door: Door, numbers: Iterator[int] | None = None) -> None:
        super().__init__(broker, guard, door, numbers or count())
        self.has_left = False
        self._settling = Settling(self)
        self._is_blameless = self._is_announced = self._is_restricted = False
        self._takeover: str | None = None
        self._rules = 0
        self._waits_since: float | None = None  # when its client id was not free, on the monotonic clock
        self._deletion: Iterator[Any] | None = None

    @property
    def subscriptions(self) -> dict[int, Subscription]:
        return self.parts

    @property
    def version(self) -> int:
        return self.broker.destinations.version + self._rules

    @property
    def restricted(self) -> bool:
        return self._is_restricted if self._takes_input else self._core.is_restricted

    @property
    def has_ended(self) -> bool | None:
        """Whether its client has ended the connection, and the session goes on all the same; None if not known."""
        return self.door.has_ended

    @property
    def is_closed(self) -> bool:
        return self.has_left

    # Input, and what is confirmed of it.

    def takes_input(self) -> None:
        self._takes_input = True
        self._is_restricted = self._core.is_restricted
        self._core.takes_sends_of(self)

    def took_input(self, sent: bool) -> None:
        self._takes_input = False
        self._core.takes_sends_of(None)
        if sent:
            self._core.sent(self)
        self._confirm_gathered()

    def answer(self, token: Token, result: Any) -> None:
        """The result of a verb comes back when everything before is durable."""
        if token is not None:
            self._confirm_gathered()
            self._core.confirm(Confirmation(partial(self._answered, token, result)), [])

    def _answered(self, token: Token, result: Any, _: QuireError | None) -> None:
        if not self.has_left:
            self.door.answered(token, result)

    # The client introduces itself.

    def open(self, who: Opening, token: Token = None) -> bool:
        """The client introduces itself; False while its client id may be free soon."""
        ids = self.broker.routing.client_ids
        older = None if who.takeover is None else ids.holder_of_key(who.takeover)
        if older is None and who.claims and who.client_id is not None and self._must_wait_for_id(who.client_id):
            return False
        if isinstance(older, LocalSession) and older is not self:
            if not self.guard.owns(older.user):
                raise AccessRefused("another user has a connection of this id", connection=str(who.takeover)[:60])
            older.taken_over(self.name)
        if who.takeover is not None:
            ids.take_key(who.takeover, self)
            self._takeover = who.takeover
        if who.claims and who.client_id is not None:
            ids.claim(who.client_id, self)
        self.client_id = who.client_id
        if who.announced:
            self._is_announced = True
            self.broker.advisories.connection_started(self, self.client_id)
        if token is not None:
            self.door.confirmed([token])
        return True

    def _must_wait_for_id(self, client_id: str) -> bool:
        """Whether a client id may be free soon: the connection that has it is over, or may be, and not read to its end.

        A client that has lost its connection comes back at once, while the broker has still to read what came before.
        """
        other = self.broker.routing.client_ids.other(client_id, self)
        if other is None or (has_ended := other.has_ended) is False:
            return False
        now = self._core.clock.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        waited = now - self._waits_since
        if waited < MAX_WAIT_FOR_ID:
            self._core.scheduler.call_later(max(waited, FIRST_LOOK), self.resume)
            return True
        if has_ended:
            text = f"the client {client_id[:60]!r} has come back, from {self.name}"
            other.fail(InvalidHeader(text, header="client-id"))
        return False

    def taken_over(self, by: str) -> None:
        """Another connection of the same client is there: this one is its old one, and ends first."""
        self.leave(Leaving(LeavingKind.LOST, "the client has connected again"))
        self.door.ended(BrokerStopping(f"the client has connected again, from {by}"))

    # Sends.

    def route(self, destination: str, traits: Traits = PLAIN) -> Route:
        addresses, _ = read_destination(destination)
        self.guard.check_send(addresses)
        target = self.broker.routing.scheduled(destination, traits.timing, grouped=traits.grouped)
        persistent: bool | None = None
        if len(addresses) == 1 and addresses[0].kind is DestinationKind.STREAM:
            persistent = True
        elif len(addresses) == 1 and addresses[0].scope is Scope.REMOTE:
            persistent = False
        if isinstance(target, Stream) and not traits.by_content:
            target = target.route(_headers(target, traits))
        is_scheduled = isinstance(target, ScheduledSend)
        if isinstance(target, ScheduledSend) and self.guard.sender:
            target.check_room(self.guard.sender)
            target.sender = self.guard.sender
        if (limit := self.broker.routing.size_limit(addresses)) is not None:
            target = admission.LimitedTarget(target, limit)
        return Route(destination, target, self._receipts, persistent, is_plain=not is_scheduled)

    def accept(
        self, route: Route, content: bytes, how: Sending = USUAL, *, tx: Tx | None = None, token: Token = None
    ) -> bool:  # fmt: skip
        core, target = self._core, route.target
        persistent = how.persistent if route.persistent is None else route.persistent
        try:
            transaction = None if tx is None else self.transactions.working(tx)
            if isinstance(target, admission.LimitedTarget):
                target.check(content)
                target = target.target
            if self._is_restricted if self._takes_input else core.is_restricted:
                stored = persistent or isinstance(target, ScheduledSend)
                if admission.must_wait(core, self, route.text, stored=stored, in_transaction=tx is not None):
                    return False
            if transaction is not None:
                if isinstance(target, ScheduledSend):
                    content = target.signed(content)
                held = HeldSend(
                    route.text, content, how.expiration, how.priority, persistent, how.producer or None,
                    how.producer_sequence,
                )  # fmt: skip
                transaction.send(target, held)
            else:
                core.sent(self)  # with a duplicate too: what it repeats may be in a commit that fails
                if not how.producer or self.broker.producers.take(how.producer, how.producer_sequence):
                    target.send(content, how.expiration, how.priority, persistent)
        except QuireError as error:
            self._note_failure(tx, token, error)
            raise
        if token is not None:
            self.confirm(token)
        return True

    def _note_failure(self, tx: Tx | None, token: Token, error: QuireError) -> None:
        """A verb failed. If it has no token, the transaction that it is part of has failed."""
        if tx is not None and token is None:
            self.transactions.failed(tx, error)

    def spoil(self, tx: Tx, error: QuireError) -> None:
        self.transactions.failed(tx, error)

    # Settling, and transactions.

    def settle(self, what: What, how: Settlement, *, tx: Tx | None = None, token: Token = None) -> bool:
        try:
            transaction = None if tx is None else self.transactions.working(tx)
            if isinstance(what, Handles):
                outcomes = self._settling.settle_handles(what, how, tx, transaction)
                if how.kind is not SettlementKind.EXTEND:
                    self.answer(token, outcomes)
                elif token is not None:  # nothing is stored of a lease
                    self.door.answered(token, outcomes)
                return True
            self._settling.settle(what, how, tx, transaction)
        except QuireError as error:
            self._note_failure(tx, token, error)
            raise
        self.confirm(token)
        return True

    def begin(self, tx: Tx, token: Token = None) -> bool:
        self.transactions.begin(tx)
        self.confirm(token)
        return True

    def end(self, tx: Tx, step: Step, token: Token = None) -> bool:
        """Take a transaction a step further; False while what it is about is found, which is much."""
        if self._must_gather(self.transactions.to_gather(tx, step)):
            return False
        result = self.transactions.step(tx, step)
        if result is None:
            self.confirm(token)
        else:
            self.answer(token, result)
        return True

    def spanning(self, tx: Tx, act: Callable[[Transaction], bool]) -> bool:
        """Do something with a transaction as a part of a larger one, over several shards; False as ``end``.

        What does it (``act``) says whether the transaction has ended with that.
        """
        transaction = self.transactions.part(tx)
        if self._must_gather(transaction if transaction.gather() else None):
            return False
        if act(transaction):
            self.transactions.forget(tx)
        return True

    def _must_gather(self, transaction: Transaction | None) -> bool:
        if transaction is not None:
            self._core.steps.add(partial(self._gather, transaction), "a large transaction", stores=False)
        return transaction is not None

    def _gather(self, transaction: Transaction) -> bool:
        if self.has_left:  # and the transaction with it
            return False
        try:
            if transaction.gather():
                return True
        except StoreError:  # the commit, which tries it again, fails as others do
            pass
        self.door.go_on()
        return False

    # Temporary destinations, and services.

    def temporary(self, kind: DestinationKind, name: str = "", token: Token = None) -> Address:
        address = Address(kind, name, Scope.REMOTE)
        if not name or address not in self.temporaries:
            if name and not is_plain(name):
                text = f"{name[:60]!r} is not a name for a temporary destination: up to {MAX_NAME} bytes, all printable"
                raise InvalidDestination(text, destination=name[:60])
            if len(self.temporaries) >= MAX_TEMPORARIES:
                text = f"a connection may have {MAX_TEMPORARIES} temporary destinations"
                raise LimitExceeded(text, limit=MAX_TEMPORARIES)
            address = self.broker.routing.temporaries.create(kind, name)
            self.temporaries[address] = None
        self.confirm(token)
        return address

    def call(self, name: str, arguments: tuple[Any, ...], token: Token = None) -> bool:
        """Ask a service for something; False while it is done in steps."""
        if self._deletion is None:
            result = CALLS[name](self, *arguments)
            if not isinstance(result, Iterator):
                self._done(token, result)
                return True
            self._deletion = result
        try:
            has_more = next(self._deletion, self) is not self
        except BaseException:
            self._deletion = None
            raise
        if has_more:
            self._core.steps.add(self._next_step, f"the call {name}")
            return False
        self._deletion = None
        self._done(token, None)
        return True

    def _done(self, token: Token, result: Any) -> None:
        if result is None:
            self.confirm(token)
        else:
            self.answer(token, result)

    def _next_step(self) -> bool:
        if not self.has_left:
            self.door.go_on()
        return False

    # What the core says.

    def confirmed(self, receipts: list[Token]) -> None:
        self.door.confirmed(receipts)

    def resume(self) -> None:
        """There is room again for what it was held for, or it may be."""
        if not self.has_left:
            self.door.go_on()

    def fail(self, error: QuireError) -> None:
        if not self.has_left:
            self._is_blameless = self._is_blameless or error.code in OF_THE_BROKER
            self.door.ended(error)

    def flush(self) -> None:
        self.door.flush()

    def discard(self) -> None:
        """Write nothing of what has gathered, and end: another broker may have given the same messages to others."""
        self._is_blameless = True
        self.door.discard()

    # Rules change, and its end.

    def recheck(self) -> Iterator[None]:
        """Rules have changed: end what the client may not have any more, a piece at a time."""
        if (error := self.guard.access.ended) is not None:
            self.fail(error)
            return
        self._rules += 1
        for part in list(self.parts.values()):
            if self.has_left:
                return
            if not self.broker.routing.temporaries.has(part.source):
                lost = self.guard.lost_read(part.destination)
                if lost is not None and self.parts.get(part.number) is part:
                    self.end_consumer(part, lost)
            yield
        for consumer in list(self._consumers):
            if isinstance(consumer, PatternConsumer) and not self.has_left:
                consumer.recheck()

    def leave(self, how: Leaving, token: Token = None) -> bool:
        """The client goes; a second time nothing happens."""
        if not self.has_left:
            self.has_left = True
            is_lost = how.kind is LeavingKind.LOST and not self._is_blameless
            self.transactions.leave()
            for consumer in list(self._consumers):
                counts = consumer.spec.loss_counts or isinstance(consumer, MemberConsumer)
                self.drop(consumer, how.cause, lost=is_lost and counts, awaited=True)
            self._leave_services()
        if token is not None:
            self._goodbye(token)
        return True

    def _leave_services(self) -> None:
        broker, ids = self.broker, self.broker.routing.client_ids
        for id in list(self.producers):
            producer_stopped(self, id)
        for address in self.temporaries:
            broker.routing.temporaries.delete(address)
        self.temporaries.clear()
        if self.client_id is not None:
            ids.release(self.client_id, self)
        if self._takeover is not None:
            ids.drop_key(self._takeover, self)
        self._core.flow.forget(self)
        if self._is_announced:
            broker.advisories.connection_stopped(self, self.client_id)

    def _goodbye(self, token: Token) -> None:
        """The token of the last verb comes when everything the client sent is durable; while commits fail, later."""
        self._core.after_commit(partial(self._say_goodbye, token))

    def _say_goodbye(self, token: Token) -> None:
        if self._core.store_error is None:
            self.door.confirmed([token])
        else:
            # Not at once: commits without anything to store end at once, and this would go on without end.
            self._core.scheduler.call_later(GOODBYE_AGAIN, partial(self._goodbye, token))


def _headers(stream: Stream, traits: Traits) -> dict[str, str]:
    said = {stream.policy.partition_key_header: traits.partition_key, PARTITION: traits.partition}
    return {name: value for name, value in said.items() if value is not None}
