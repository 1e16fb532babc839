"""The consumers of a session at one broker: what ``subscribe`` makes, for each kind.

A consumer has *parts*, subscriptions of the core: one of a queue, a topic, a durable subscription or a browser; one for
each destination of a pattern or a list; one for each partition that a member of a group is assigned.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, cast

from quire.broker.advisories import PREFIX
from quire.broker.broker import Broker
from quire.broker.core.shared_prefetch import ChildSubscription, SharedPrefetch
from quire.broker.core.subscription import Session, Subscription
from quire.broker.pull import Pull
from quire.broker.queues.browsing import Browsed, Browser
from quire.broker.queues.queue import Departure, LaneDispatch, Queue
from quire.broker.routing.addresses import Address, Scope
from quire.broker.routing.temporary import TemporaryQueue, TemporaryTopic
from quire.broker.routing.wildcard import WildcardSubscription
from quire.broker.streams.groups.group import Group, GroupMember, GroupPartition, MemberSubscription
from quire.broker.streams.groups.group_definition import Mode
from quire.broker.streams.groups.retries import RetryQueue
from quire.broker.streams.partition import Start, StartKind
from quire.broker.streams.stream import Stream, StreamBrowser
from quire.broker.topics.topic import DurableSubscription, Topic, TopicSubscription
from quire.broker.transactions.transaction import RolledBack
from quire.destination import Destination, DestinationKind
from quire.destination_pattern import Pattern
from quire.errors import InvalidArgument, InvalidDestination, InvalidHeader, LimitExceeded, QuireError
from quire.message import Message
from quire.sessions.base import (
    UNKNOWN,
    Consumer,
    ConsumerKind,
    Door,
    Membership,
    Part,
    Seen,
    SubscribeSpec,
    Token,
)
from quire.sessions.rights import Guard
from quire.sessions.transactions import LocalTransactions
from quire.settings import Policies

MAX_PARTS = 10_000
"""How many destinations a session may consume, those that wildcards match and the partitions of streams included."""

MAX_SELECTORS = 100_000
"""How many characters the selectors of a session may have together: each takes up to 200 bytes of memory."""

PART_BITS = 20
"""A browser of a stream names a message by its offset and, in so many low bits, its partition."""


class LocalConsumer(ABC):
    """A consumer. There is a class for each kind.

    Attributes:
        only_part: its part, if it can never have another one.
        whole: what its parts share a prefetch in; None if it has one part.
        had_before: what the client says that its application had of it before a failover, in that order: sequences, or
            with several parts pairs of a part and a sequence.
    """

    only_part: Subscription | None = None
    whole: SharedPrefetch | None = None
    pulling: Pull | None = None
    not_rejectable = ""

    def __init__(self, session: "ConsumingSession", spec: SubscribeSpec) -> None:
        self.spec = spec
        self.had_before: dict[Any, None] = {}
        self._session = session
        self._broker: Broker = session.broker

    @property
    @abstractmethod
    def parts(self) -> Sequence[Part]: ...

    @abstractmethod
    def start(self, token: Token) -> bool:
        """Subscribe, or raise and have no part; whether the token comes later: when it is subscribed to all."""

    @property
    def is_unstored(self) -> bool:
        """Whether it has made a durable subscription or a group that is not stored yet."""
        return False

    @abstractmethod
    def wake(self) -> None:
        """It may be given messages: the door takes deliveries again, or it has credit."""

    @abstractmethod
    def set_prefetch(self, prefetch: int) -> None: ...

    @abstractmethod
    def leave(self, cause: str, *, lost: bool, seen: Seen = UNKNOWN, awaited: bool = False) -> None:
        """It goes.

        Args:
            lost: whether the oldest message that it has counts as a failed delivery.
            awaited: whether a member with a name is awaited.
        """

    def pull(self, count: int, wait_ms: int) -> None:
        """Ask for messages; the last time it did is forgotten. With a count of 0 that is all."""
        self.end_pull()
        if count == 0:
            self._session.door.pull_ended(self, 0)
        else:
            puller: Any = self.only_part or self.whole
            self.pulling = Pull(self._broker.core, puller, count, wait_ms, self._pull_ended)

    def _pull_ended(self, left: int) -> None:
        self.pulling = None
        self._session.door.pull_ended(self, left)

    def end_pull(self) -> None:
        """A pull is to bring nothing more, and to say nothing."""
        if self.pulling is not None:
            self.pulling.cancel()
            self.pulling = None

    # Its parts.

    def _of_queue(self, queue: LaneDispatch, kind: Callable[..., Subscription] = Subscription) -> Subscription:
        spec = self.spec
        part = kind(
            self._session, queue, id=spec.id, number=self._session.next_number(), ack=spec.ack,
            prefetch=queue.policy.queue_prefetch if spec.prefetch is None else spec.prefetch,
            priority=spec.priority, exclusive=spec.exclusive, selector=spec.selector,
        )  # fmt: skip
        self._enter(part)
        queue.add(part)
        self._broker.advisories.consumer_started(part, queue.consumer_count)
        return part

    def _of_topic(self, topic: Topic, kind: Callable[..., Subscription] = Subscription) -> Subscription:
        spec = self.spec
        part = topic.subscribe(
            self._session, id=spec.id, number=self._session.next_number(), ack=spec.ack,
            prefetch=topic.policy.topic_prefetch if spec.prefetch is None else spec.prefetch,
            selector=spec.selector, no_local=spec.no_local, priority=spec.priority, retroactive=spec.retroactive,
            maximum_pending=spec.maximum_pending, kind=kind,
        )  # fmt: skip
        self._enter(part)
        self._broker.advisories.consumer_started(part, topic.consumer_count)
        return part

    def _of_durable(
        self, name: str, topic: Topic, kind: Callable[..., Subscription] = Subscription
    ) -> Subscription:  # fmt: skip
        spec = self.spec
        part = self._broker.durables.subscribe(
            self._session.required_client_id, name, topic, self._session, id=spec.id,
            number=self._session.next_number(), ack=spec.ack, selector=spec.selector, no_local=spec.no_local,
            priority=spec.priority, retroactive=spec.retroactive, kind=kind,
            prefetch=topic.policy.durable_topic_prefetch if spec.prefetch is None else spec.prefetch,
        )  # fmt: skip
        self._enter(part)
        self._broker.advisories.consumer_started(part, topic.consumer_count)
        return part

    def _enter(self, part: Subscription) -> None:
        part.consumer = self
        self._session.enter(part)

    def _own_temporary(self, address: Address) -> TemporaryQueue | TemporaryTopic:
        if address not in self._session.temporaries:
            text = f"{str(address)[:100]!r} belongs to another connection: only that one may consume it"
            raise InvalidDestination(text, destination=str(address)[:100])
        return self._broker.routing.temporaries.find(address)

    def _tell_gone(self, part: Subscription) -> None:
        destinations, destination = self._broker.destinations, part.destination
        named: Any = destinations.queues if destination.kind is DestinationKind.QUEUE else destinations.topics
        left = named.get(destination.name)
        self._broker.advisories.consumer_stopped(part, left.consumer_count if left else 0)


class SingleConsumer(LocalConsumer):
    """A consumer of one queue, topic, durable subscription or temporary destination."""

    _part: Subscription

    @property
    def parts(self) -> Sequence[Part]:
        return [self._part]

    def start(self, token: Token) -> bool:
        self._part = self._subscribed(self.spec.addresses[0])
        return False

    def _enter(self, part: Subscription) -> None:
        self.only_part = self._part = part
        super()._enter(part)

    def _subscribed(self, address: Address) -> Subscription:
        broker, name = self._broker, self.spec.name
        if address.scope is not Scope.COMMON:
            source = self._own_temporary(address)
            return self._of_topic(source) if isinstance(source, Topic) else self._of_queue(source)
        if address.kind is DestinationKind.QUEUE:
            return self._of_queue(broker.queue(address.name))
        topic = broker.topic(address.name)
        return self._of_topic(topic) if name is None else self._of_durable(name, topic)

    @property
    def is_unstored(self) -> bool:
        source = self._part.source
        return isinstance(source, DurableSubscription) and not source.has_been_stored

    def wake(self) -> None:
        self._part.source.wake()

    def set_prefetch(self, prefetch: int) -> None:
        self._part.prefetch = prefetch
        if prefetch:
            self.end_pull()
        self.wake()

    def leave(self, cause: str, *, lost: bool, seen: Seen = UNKNOWN, awaited: bool = False) -> None:
        """It goes. What it has of a queue or a durable subscription comes back in steps."""
        self.end_pull()
        part, source = self._part, self._part.source
        self._session.remove(part)
        if isinstance(source, LaneDispatch):
            self._release_unseen(part, seen)
            gone = partial(self._tell_gone, part)
            Departure(self._broker.core, source, part, cause, gone, lost=lost).begin()
        else:
            source.remove(part, cause, lost=lost)
            self._tell_gone(part)

    def _release_unseen(self, part: Subscription, seen: Seen) -> None:
        """What the application has not seen comes back as if it had not been given out.

        If the last one that it has seen is not in flight, it was acknowledged, and none of these was seen (ActiveMQ).
        If it was acknowledged alone, earlier ones may have been seen.
        """
        if not seen.is_known:
            return
        sequences, last = list(part.in_flight), seen.last
        if last is not None and last in part.in_flight:
            count = sequences.index(last) + 1
        elif seen.is_alone and last is not None:
            count = max([place for place, sequence in enumerate(sequences, 1) if sequence < last], default=0)
        else:
            count = 0
        if unseen := sequences[count:]:
            part.source.give_back(part.take(unseen))


class BrowsingConsumer(SingleConsumer):
    """A browser of a queue or a stream: it is shown messages and takes none."""

    not_rejectable = "a browser's messages cannot be rejected: they are still in their queue"

    def _subscribed(self, address: Address) -> Subscription:
        browser = self._browser(address)
        self._enter(browser.subscription)
        self._broker.core.after_commit(browser.begin)  # by then everything is there that was sent before
        return browser.subscription

    def _browser(self, address: Address) -> Browsed:
        spec, session = self.spec, self._session
        if address.kind is DestinationKind.STREAM:
            stream = self._broker.stream(address.name)
            return StreamBrowser(
                stream, session, _named, id=spec.id, number=session.next_number(), selector=spec.selector,
                prefetch=stream.policy.stream_prefetch if spec.prefetch is None else spec.prefetch,
                ended=self._has_shown_all,
            )  # fmt: skip
        common = address.scope is Scope.COMMON
        queue = self._broker.queue(address.name) if common else self._own_temporary(address)
        assert isinstance(queue, Queue)
        return Browser(
            queue, session, id=spec.id, number=session.next_number(), ack=spec.ack, selector=spec.selector,
            prefetch=queue.policy.queue_browser_prefetch if spec.prefetch is None else spec.prefetch,
            ended=self._has_shown_all,
        )  # fmt: skip

    def _has_shown_all(self, damaged: int) -> None:
        self._session.door.browse_ended(self, damaged)

    def _tell_gone(self, part: Subscription) -> None:
        """It was no consumer of the queue."""


def _named(offset: int, partition: int) -> int:
    return offset << PART_BITS | partition


def refuse_temporary(spec: SubscribeSpec) -> None:
    temporary = next((address for address in spec.addresses if address.scope is not Scope.COMMON), None)
    if temporary is not None:
        text = f"{str(temporary)[:100]!r} is a temporary destination: subscribe to it alone"
        raise InvalidDestination(text, destination=str(temporary)[:100])


def first_of(spec: SubscribeSpec) -> Destination:
    return Destination(spec.addresses[0].kind, spec.addresses[0].name)


def prefetch_of(spec: SubscribeSpec, policies: Policies) -> int:
    """What a client asks for, or the policy says for the first destination or its pattern."""
    if spec.prefetch is not None:
        return spec.prefetch
    policy = policies.of(first_of(spec))
    if spec.kind is ConsumerKind.BROWSER:
        return policy.queue_browser_prefetch
    return policy.queue_prefetch if spec.addresses[0].kind is DestinationKind.QUEUE else policy.topic_prefetch


class PatternConsumer(LocalConsumer):
    """A consumer of all destinations that match patterns, or of a list."""

    whole: WildcardSubscription
    _token: Token = None  # while its client waits until it is subscribed to everything

    @property
    def parts(self) -> Sequence[Part]:
        """One for each destination."""
        return list(self.whole.children.values())

    def start(self, token: Token) -> bool:
        spec, session = self.spec, self._session
        refuse_temporary(spec)
        if spec.name is not None:
            self._broker.durable_patterns.keep(
                session.required_client_id, spec.name, spec.addresses[0].name, no_local=spec.no_local,
                selector=None if spec.selector is None else spec.selector.text, owner=session.user,
            )  # fmt: skip
        self.whole = WildcardSubscription(
            self._broker.core, self._broker.destinations, spec.addresses,
            prefetch_of(spec, self._broker.core.settings.policies), self._made, self._failed, session.guard.may_read,
        )  # fmt: skip
        try:
            self.whole.start()
        except QuireError:
            self.leave("it could not be subscribed to everything", lost=False)
            raise
        if not self.whole.when_started(self._started):
            return False
        self._token = token
        return True

    @property
    def is_unstored(self) -> bool:
        """Whether it is of durable subscriptions: their names are stored with the open commit at the latest."""
        return self.spec.name is not None

    def _started(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._session.subscribed(self, token)

    def _failed(self, error: QuireError) -> None:
        """It cannot be subscribed to one of them. If its client still waits for it, there is none."""
        token, self._token = self._token, None
        if token is not None:
            self._session.drop(self, str(error))
        self._session.door.failed(token, error)

    def _made(self, destination: Destination, _: WildcardSubscription) -> ChildSubscription:
        broker, name = self._broker, self.spec.name
        if destination.kind is DestinationKind.QUEUE:
            made = self._of_queue(broker.queue(destination.name), self._child)
        elif name is not None:
            child = broker.durable_patterns.child(name, destination.name)
            made = self._of_durable(child, broker.topic(destination.name), self._child)
        else:
            made = self._of_topic(broker.topic(destination.name), self._child)
        assert isinstance(made, ChildSubscription)
        return made

    def _child(self, *arguments: Any, **named: Any) -> ChildSubscription:
        child = ChildSubscription(*arguments, **named)
        child.parent = self.whole
        return child

    def wake(self) -> None:
        self.whole.wake()

    def recheck(self) -> None:
        self.whole.look_again()

    def set_prefetch(self, prefetch: int) -> None:
        self.whole.prefetch = prefetch
        self.wake()

    def pull(self, count: int, wait_ms: int) -> None:
        text = "a consumer of several destinations cannot pull: give it a prefetch of 1 or more"
        raise InvalidArgument(text, argument="prefetch")

    def leave(self, cause: str, *, lost: bool, seen: Seen = UNKNOWN, awaited: bool = False) -> None:
        """It goes: its parts are entered no more, and go in steps."""
        token, self._token = self._token, None
        self._session.confirm(token)  # its client has asked for it, and does not wait for more of it
        for child in self.whole.children.values():
            self._session.remove(child)
            if seen.is_known and seen.last is None and isinstance(child.source, LaneDispatch):  # of its lane alone
                child.source.give_back(child.take(list(child.in_flight)))
        self.whole.end(cause, self._tell_gone, lost=lost)


class MemberConsumer(LocalConsumer):
    """A member of a group, or a reader, which is a group of its own: what it needs of its session (``MemberPort``)."""

    whole: GroupMember

    @property
    def parts(self) -> Sequence[Part]:
        """One for each partition that it is assigned, and one for the retries."""
        return [*self.whole.children.values()]

    def start(self, token: Token) -> bool:
        spec, session, broker = self.spec, self._session, self._broker
        wish = spec.membership or Membership(None)
        stream = broker.stream(spec.addresses[0].name)
        session.check_members(len(stream.partitions))
        name = wish.group
        if name is not None and wish.mode is Mode.BROADCASTING:  # each member is a group of its own
            name = None if wish.member is None else f"{name}/{wish.member}"
        group = self._group(stream, name, wish)
        self.whole = GroupMember(
            group, session, wish.member or f"{session.name}/{spec.id}", self,
            static=wish.member is not None and name is not None, ack=spec.ack, room=wish.room,
            prefetch=stream.policy.stream_prefetch if spec.prefetch is None else spec.prefetch,
            consume_timeout=wish.consume_timeout, wanted=wish.partitions, held=wish.held, owner=session.user,
        )  # fmt: skip
        group.join(self.whole)
        return False

    def _group(self, stream: Stream, name: str | None, wish: Membership) -> Group:
        groups, selector = self._broker.groups, self.spec.selector
        if name is None:
            return groups.reader(stream, wish.start or Start(StartKind.LATEST), selector)
        return groups.open(stream, name, start=wish.start, order=wish.order, mode=wish.mode, selector=selector)

    @property
    def is_unstored(self) -> bool:
        return self.whole.group.is_unstored

    @property
    def promised(self) -> int:
        """How many parts more it may be given."""
        return len(self.whole.group.partitions) + 1 - len(self.whole.children)

    # The group calls these.

    def make(
        self, member: GroupMember, source: GroupPartition | RetryQueue, partition: int, epoch: int
    ) -> MemberSubscription:  # fmt: skip
        part = MemberSubscription(
            self._session, source, id=self.spec.id, number=self._session.take_number(), ack=member.ack,
            prefetch=member.prefetch,
        )  # fmt: skip
        part.attach(member, partition, epoch)
        part.grant(member.granted(partition))
        self._enter(part)
        return part

    def gone(self, child: MemberSubscription) -> None:
        self._session.remove(child)

    def tell(self, event: str, headers: dict[str, str]) -> None:
        membership = self.spec.membership
        if membership is not None and membership.events and self._session.writable:
            self._session.tell(self, event, headers)

    # Credit, and its end.

    def wake(self) -> None:
        self.whole.wake()

    def set_prefetch(self, prefetch: int) -> None:
        self.end_pull()
        self.whole.prefetch = prefetch
        for child in self.whole.children.values():
            child.prefetch = prefetch
        self.wake()

    def leave(self, cause: str, *, lost: bool, seen: Seen = UNKNOWN, awaited: bool = False) -> None:
        """It goes. One with a name is awaited if its connection ends."""
        self.end_pull()
        self._release_unseen(seen)
        if awaited:
            self.whole.group.connection_lost(self.whole, cause, lost=lost)
        else:
            self.whole.group.leave(self.whole, cause)

    def _release_unseen(self, seen: Seen) -> None:
        """As that of a single consumer, over all parts."""
        part, last = seen.part, seen.last
        if not seen.is_known or (last is not None and part not in self.whole.children.values()):
            return
        is_there = last is not None and part is not None and last in part.in_flight
        given = self.whole.up_to(cast(Subscription, part), cast(int, last)) if is_there else []
        counts = {child: len(sequences) for child, sequences in given}
        for child in list(self.whole.children.values()):
            if unseen := [*child.in_flight][counts.get(child, 0) :]:
                child.source.give_back(child.take(unseen))


def check_own_durable(session: "ConsumingSession", client_id: str, name: str) -> None:
    """See that a durable subscription, if it is there, is the client's own; else it is answered as unknown."""
    broker = session.broker
    durable, pattern = broker.durables.find(client_id, name), broker.durable_patterns.find(client_id, name)
    if durable is not None:
        session.guard.check_durable(durable.definition.owner, durable.topic.destination, name)
    if pattern is not None:
        session.guard.check_durable(pattern.owner, Destination(DestinationKind.TOPIC, pattern.pattern), name)


def consumer_of(session: "ConsumingSession", spec: SubscribeSpec) -> LocalConsumer:
    first, is_list = spec.addresses[0], len(spec.addresses) > 1
    is_single = not is_list and not Pattern(first.name).is_wildcard
    kinds = {address.kind for address in spec.addresses}
    wrong = ""
    if DestinationKind.STREAM in kinds and not is_single:
        wrong = "a stream is consumed alone, by its name"
    elif spec.kind is ConsumerKind.BROWSER and (DestinationKind.TOPIC in kinds or not is_single):
        wrong = "a browser shows one queue, or one stream"
    elif spec.kind is ConsumerKind.DURABLE and (kinds != {DestinationKind.TOPIC} or is_list):
        wrong = "a durable subscription is to one topic, or to one pattern of topics"
    if wrong:
        raise InvalidArgument(wrong, argument="destination")
    if spec.kind is ConsumerKind.BROWSER:
        return BrowsingConsumer(session, spec)
    if first.kind is DestinationKind.STREAM:
        return MemberConsumer(session, spec)
    return SingleConsumer(session, spec) if is_single else PatternConsumer(session, spec)


STEP = 100
"""How many advisories a consumer is told at once."""

_TEMPORARY = {"TempQueue": DestinationKind.QUEUE, "TempTopic": DestinationKind.TOPIC}
_KINDS = {"Queue": DestinationKind.QUEUE, "Topic": DestinationKind.TOPIC}
_WITH_PRODUCERS = {**_KINDS, "Stream": DestinationKind.STREAM}


def replay_advisories(broker: Broker, part: Subscription) -> None:
    """Tell a new consumer of advisories what is there already, as ActiveMQ does, in steps.

    A client of ActiveMQ must know every temporary destination: one that it does not know counts as deleted.
    """
    source, topic = part.source, part.destination
    if not (isinstance(source, TopicSubscription) and topic.name.startswith(PREFIX)):
        return
    contents = _known_to_advisories(broker, topic.name.removeprefix(PREFIX))

    def step() -> bool:
        some = list(islice(contents, STEP))
        if some and source.subscriptions:
            broker.advisories.replay(source, some)
        return len(some) == STEP and bool(source.subscriptions)

    if step():
        broker.core.steps.add(step, "what a consumer of advisories is told at first", stores=False)


def _known_to_advisories(broker: Broker, name: str) -> Iterator[bytes]:
    advisories = broker.advisories
    event, _, rest = name.partition(".")
    if event in _TEMPORARY:
        for destination in broker.routing.temporaries.all(_TEMPORARY[event]):
            yield advisories.destination_content("created", destination)
    elif event in _KINDS:
        for found in list(broker.destinations.names(_KINDS[event])):
            yield advisories.destination_content("created", Destination(_KINDS[event], found))
    elif event == "Connection":
        yield from advisories.connections()
    elif event == "Producer":
        kind, _, found = rest.partition(".")
        if kind in _WITH_PRODUCERS:
            yield from advisories.producers(Destination(_WITH_PRODUCERS[kind], found))
    elif event == "Consumer":
        kind, _, found = rest.partition(".")
        named: Mapping[str, Any] = broker.destinations.queues if kind == "Queue" else broker.destinations.topics
        source = named.get(found)
        consumers = [] if source is None else list(source.subscriptions)
        for consumer in consumers:
            yield advisories.consumer_content("started", consumer, len(consumers))


class ConsumingSession(Session):
    """What a session has, as its consumers, its settling and the services see it."""

    def __init__(self, broker: Broker, guard: Guard, door: Door, numbers: Iterator[int]) -> None:
        self.name = door.name
        self.user = guard.access.principal.name
        self.writable = True
        self.client_id: str | None = None
        self.broker = broker
        self.guard = guard
        self.door = door
        self.parts: dict[int, Subscription] = {}
        self.temporaries: dict[Address, None] = {}
        self.producers: dict[str, Destination] = {}
        self.rolled_back = RolledBack()
        self.transactions = LocalTransactions(broker, self, guard, self.rolled_back)
        self._core = broker.core
        self._numbers = numbers
        self._consumers: dict[LocalConsumer, int] = {}  # and how long their selectors are
        self._receipts: list[Token] = []
        self._takes_input = False
        self._events: list[Callable[[], None]] | None = None  # while a consumer is made, what it is to be told

    @property
    def required_client_id(self) -> str:
        if not self.client_id:
            raise InvalidHeader("a durable subscription belongs to a client: set a client id", header="client-id")
        return self.client_id

    def _confirm_gathered(self) -> None:
        if self._receipts:
            tokens = self._receipts[:]
            self._receipts.clear()
            self._core.confirm(self, tokens)

    def confirm(self, token: Token) -> None:
        if token is not None:
            self._receipts.append(token)
            if not self._takes_input:
                self._confirm_gathered()

    # Consumers.

    def subscribe(self, spec: SubscribeSpec, token: Token = None) -> Consumer:
        length = 0 if spec.selector is None else len(spec.selector.text)
        if sum(self._consumers.values()) + length > MAX_SELECTORS:
            text = f"the selectors of a connection may have {MAX_SELECTORS} characters together"
            raise LimitExceeded(text, limit=MAX_SELECTORS)
        consumer = consumer_of(self, spec)
        self.guard.check_subscribe(spec.addresses)
        if spec.name is not None:
            check_own_durable(self, self.required_client_id, spec.name)
        self._consumers[consumer] = length
        self._events = []
        try:
            comes_later = consumer.start(token)
            events = self._events
        except QuireError:
            del self._consumers[consumer]
            raise
        finally:
            self._events = None
        if token is not None and not comes_later:
            self.subscribed(consumer, token)
        for tell in events:
            tell()
        if spec.replay:
            for part in consumer.parts:
                replay_advisories(self.broker, self.parts[part.number])
        return consumer

    def subscribed(self, consumer: LocalConsumer, token: Token) -> None:
        """A consumer is subscribed to everything: its client hears so, of a new name when that is stored."""
        if consumer.is_unstored:
            self.confirm(token)
        else:
            self.door.confirmed([token])

    def tell(self, consumer: LocalConsumer, event: str, headers: dict[str, str]) -> None:
        """Something has happened to a member; that its client hears behind the token of its consumer."""
        call = partial(self.door.event, consumer, event, headers)
        if self._events is None:
            call()
        else:
            self._events.append(call)

    def unsubscribe(self, consumer: Consumer, seen: Seen = UNKNOWN, token: Token = None) -> bool:
        assert isinstance(consumer, LocalConsumer)
        self.drop(consumer, "the consumer unsubscribed", seen=seen)
        self.confirm(token)
        return True

    def drop(
        self, consumer: LocalConsumer, cause: str, *, lost: bool = False, seen: Seen = UNKNOWN, awaited: bool = False
    ) -> None:
        if self._consumers.pop(consumer, None) is not None:
            self.rolled_back.forget({self.parts[part.number] for part in consumer.parts})
            consumer.leave(cause, lost=lost, seen=seen, awaited=awaited)

    def credit(self, consumer: Consumer, prefetch: int) -> None:
        assert isinstance(consumer, LocalConsumer)
        if consumer in self._consumers:
            consumer.set_prefetch(prefetch)

    def pull(self, consumer: Consumer, count: int, wait_ms: int) -> None:
        assert isinstance(consumer, LocalConsumer)
        if consumer in self._consumers:
            consumer.pull(count, wait_ms)

    def drained(self) -> None:
        self.writable = True
        for consumer in self._consumers:
            consumer.wake()
        self._core.ask_turn()

    def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
        consumer: LocalConsumer = subscription.consumer
        if consumer.whole is not None:
            consumer.whole.given(subscription, messages)
        self.door.deliver(subscription, messages, first)
        if consumer.pulling is not None:
            consumer.pulling.came()

    def end_consumer(self, subscription: Subscription, error: QuireError) -> None:
        consumer: LocalConsumer = subscription.consumer
        if consumer in self._consumers:
            self.drop(consumer, str(error), lost=consumer.spec.loss_counts, awaited=True)
            self.door.consumer_ended(consumer, error)

    # Their parts.

    def next_number(self) -> int:
        """A number for one more part; ``LimitExceeded`` if there may be no more."""
        self._check_room(1)
        return self.take_number()

    def take_number(self) -> int:
        """As ``next_number``, for what there is room for."""
        return next(self._numbers)

    def check_members(self, partitions: int) -> None:
        """See that a member of a stream with so many partitions may come: it may be given all of them, and retries."""
        members = [each for each in self._consumers if isinstance(each, MemberConsumer) and each.whole is not None]
        self._check_room(sum([member.promised for member in members]) + partitions + 1)

    def _check_room(self, more: int) -> None:
        if len(self.parts) + more > MAX_PARTS:
            what = "those that wildcards match and the partitions of streams included"
            raise LimitExceeded(f"a connection may consume {MAX_PARTS} destinations, {what}", limit=MAX_PARTS)

    def enter(self, part: Subscription) -> None:
        self.parts[part.number] = part
        self.door.part_added(part)

    def remove(self, part: Subscription) -> None:
        del self.parts[part.number]
        self.door.part_gone(part)
