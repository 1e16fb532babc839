"""Where a message goes that is sent: from the text of a destination to a target.

A send may go to several destinations at once: all copies are in the same commit, or none is (``Composite``). What is
sent to a virtual topic goes to its subscribers, and to every queue that is named after it: ``VirtualTopic.Orders``
feeds the queues ``Consumer.NAME.VirtualTopic.Orders``. Each queue keeps a copy of its own for the consumers that share
it. A queue is fed from the moment it is there; subscribing to it makes it. (ActiveMQ's ``VirtualTopic`` interceptor.)

By policy, messages without a time to live get one, and none is longer than the policy allows.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

from quire.broker.admission import SizeLimit, size_limit
from quire.broker.core.core import Core, Target
from quire.broker.dead_letter import ORIGIN
from quire.broker.destinations import Destinations
from quire.broker.routing.addresses import Address, Scope, VirtualNames, read_destination
from quire.broker.routing.temporary import ClientIds, Temporaries
from quire.broker.schedule import Schedule, ScheduledSend, Timing
from quire.clock import Clock
from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.message import Message, with_headers
from quire.selectors import Selector, selector
from quire.settings import Composite, Forward, Policy
from quire.settings.keys import VirtualSettings


class FanOut(ABC):
    """A target that stands for several; what it passes on becomes durable together, for it is in one commit."""

    @abstractmethod
    def targets(self) -> "Sequence[Target]":
        """All targets that a message may go to."""

    @abstractmethod
    def copies(
        self, content: bytes, expiration: int, priority: int, persistent: bool
    ) -> "Iterator[tuple[Target, bytes]]":
        """Where a message goes, and with which content."""

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        for target, copy in self.copies(content, expiration, priority, persistent):
            target.send(copy, expiration, priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        for target, copy in self.copies(content, expiration, priority, persistent):
            target.transfer(copy, expiration, priority, persistent)

    def expect_groups(self) -> None:
        for target in self.targets():
            target.expect_groups()


class CompositeTarget(FanOut):
    """A composite destination that a client wrote, ``/queue/a,/topic/b``, or one of the settings (``[[composites]]``).

    Args:
        own: the destination itself; None if it only forwards.
        forwards: where a copy goes, and of which messages; None for all.
        origin: what the messages were sent to: a header of each copy, as in ActiveMQ.
    """

    def __init__(self, own: Target | None, forwards: Sequence[tuple[Target, Selector | None]], origin: str) -> None:
        self._own = own
        self._forwards = forwards
        self._selects = any([selector is not None for _, selector in forwards])
        self._origin = {ORIGIN: origin}

    def targets(self) -> Sequence[Target]:
        own = [self._own] if self._own is not None else []
        return [*own, *[target for target, _ in self._forwards]]

    def copies(
        self, content: bytes, expiration: int, priority: int, persistent: bool
    ) -> Iterator[tuple[Target, bytes]]:
        if self._own is not None:
            yield self._own, content
        matching = [target for target, _ in self._forwards]
        if self._selects:
            message = Message(0, content, expiration, priority, persistent)
            matching = [target for target, selector in self._forwards if selector is None or selector.matches(message)]
        if matching:
            copy = with_headers(content, self._origin)
            for target in matching:
                yield target, copy


class VirtualTopics(VirtualNames):
    """Which topics are virtual, and which queues they feed (section ``virtual`` of the settings)."""

    def __init__(self, settings: VirtualSettings, destinations: Destinations) -> None:
        self._destinations = destinations
        super().__init__(settings)
        self._queues: dict[str, dict[str, None]] | None = None

    def queues(self, topic: str) -> list[Destination]:
        if self._queues is None:
            self._queues = {}
            for name in self._destinations.queues:
                self._note(Destination(DestinationKind.QUEUE, name))
            self._destinations.watch(self, self._note)
        known = self._queues.get(topic, {})
        for name in [name for name in known if name not in self._destinations.queues]:
            del known[name]
        return [Destination(DestinationKind.QUEUE, name) for name in known]

    def _note(self, destination: Destination) -> None:
        if self._queues is None or destination.kind is not DestinationKind.QUEUE:
            return
        if (topic := self.topic_of(destination.name)) is not None:
            self._queues.setdefault(topic, {})[destination.name] = None


class VirtualTopicTarget(FanOut):
    """A virtual topic that messages are sent to."""

    def __init__(
        self, destinations: Destinations, topics: VirtualTopics, name: str, own: "Target",
        target_of: "Callable[[Destination], Target]",
    ) -> None:  # fmt: skip
        self._destinations = destinations
        self._topics = topics
        self._name = name
        self._own = own
        self._target_of = target_of
        self._origin = {ORIGIN: f"/topic/{name}"}
        self._queues: list[Target] = []
        self._grouped = False
        self._version = -1

    def targets(self) -> "Sequence[Target]":
        if self._version != self._destinations.version:
            self._queues = [self._target_of(queue) for queue in self._topics.queues(self._name)]
            self._version = self._destinations.version
            if self._grouped:
                for queue in self._queues:
                    queue.expect_groups()
        return [self._own, *self._queues]

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here; queues that come later are told too."""
        self._grouped = True
        super().expect_groups()

    def copies(
        self, content: bytes, expiration: int, priority: int, persistent: bool
    ) -> "Iterator[tuple[Target, bytes]]":
        own, *queues = self.targets()
        yield own, content
        if queues:
            copy = with_headers(content, self._origin)
            for queue in queues:
                yield queue, copy


class TimeStampingTarget:
    """A target whose policy changes when messages expire (ActiveMQ's ``TimeStampingBrokerPlugin``).

    Dead letters and what an operator moves do not come through here: their expiration stays.
    """

    def __init__(self, target: "Target", policy: Policy, clock: Clock) -> None:
        self._target = target
        self._override_ms = round(policy.zero_expiration_override * 1000)
        self._ceiling_ms = round(policy.ttl_ceiling * 1000)
        self._future_only = policy.future_only
        self._clock = clock

    @staticmethod
    def is_asked_for(policy: Policy) -> bool:
        return bool(policy.zero_expiration_override or policy.ttl_ceiling)

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        self._target.send(content, self._stamped(expiration), priority, persistent)

    def transfer(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        self._target.transfer(content, self._stamped(expiration), priority, persistent)

    def expect_groups(self) -> None:
        self._target.expect_groups()

    def _stamped(self, expiration: int) -> int:
        now = self._clock.now_ms()
        lives = expiration - now if expiration else self._override_ms
        if self._ceiling_ms:
            lives = min(lives, self._ceiling_ms)
        wanted = now + lives
        if lives <= 0 or wanted == expiration or (self._future_only and wanted < expiration):
            return expiration
        return wanted


GROUPED = b"\nJMSXGroupID:"
"""How the header line begins that says that a message is one of a group."""

SCHEDULED = b"\nAMQ_SCHEDULED_"
"""How the header lines begin that say that a message is sent later."""


MAX_TARGETS = 20_000
"""How many targets are remembered, by the text of their destination."""

MAX_TEXTS = 2 << 20
"""How many characters these texts may have together."""


class Routing:
    """Finds targets.

    Attributes:
        client_ids: who is connected under which client id.
        virtual_topics: which topics are virtual, and which queues they feed.

    Raises:
        InvalidSelector: a composite of the settings has a selector that cannot be read.
    """

    def __init__(self, core: Core, destinations: Destinations, schedule: Schedule) -> None:
        self._core = core
        self._destinations = destinations
        self._schedule = schedule
        self._composites = {composite.destination: composite for composite in core.settings.composites}
        for composite in core.settings.composites:
            for forward in composite.forward_to:
                _selector_of(forward)
        self.virtual_topics = VirtualTopics(core.settings.virtual, destinations)
        self._targets: dict[str, Target] = {}
        self._texts = 0
        self._version = -1
        self.temporaries = Temporaries(core)
        self.client_ids = ClientIds()

    def target(self, destination: str) -> Target:
        """Where a message goes, as a destination header says it. Queues and topics are made if they are not there."""
        target = self.known(destination)
        if target is None:
            if len(self._targets) >= MAX_TARGETS or self._texts + len(destination) > MAX_TEXTS:
                self._forget()
            target = self._find(destination)
            self._targets[destination] = target
            self._texts += len(destination)
        return target

    def known(self, destination: str) -> Target | None:
        """As ``target``, if it is remembered; None if it has to be found."""
        if self._version != self._destinations.version:
            self._forget()
            self._version = self._destinations.version
        return self._targets.get(destination)

    def _forget(self) -> None:
        self._targets.clear()
        self._texts = 0

    def _find(self, destination: str) -> Target:
        addresses, _ = read_destination(destination)
        for address in addresses:
            if address.scope is Scope.COMMON:
                checked(address.kind, address.name)
        targets = [self._target_at(address) for address in addresses]
        if len(targets) == 1:
            return targets[0]
        return CompositeTarget(None, [(target, None) for target in targets], destination)

    def target_of(self, destination: str, content: bytes) -> Target:
        """Where a message goes, by what its own headers say too: the schedule comes first, groups are made known."""
        end = content.index(b"\n\n")
        timing = Timing.of(Message(0, content).headers()) if content.find(SCHEDULED, 0, end) >= 0 else None
        return self.scheduled(destination, timing, grouped=content.find(GROUPED, 0, end) >= 0)

    def scheduled(self, destination: str, timing: Timing | None, *, grouped: bool) -> Target:
        """As ``target_of``, with what the headers say: when it is sent (None for at once), whether it is of a group."""
        target = self.target(destination)
        if grouped:
            target.expect_groups()
        if timing is None:
            return target
        return ScheduledSend(self._schedule, destination, timing.delay, timing.period, timing.repeat, timing.cron)

    def size_limit(self, destinations: Iterable[Destination | Address]) -> SizeLimit | None:
        """How large a message may be, by the policies of all that it comes to; None for no limit."""
        policies = self._core.settings.policies
        if not policies.limit_sizes:
            return None
        common = [each for each in destinations if isinstance(each, Destination) or each.scope is Scope.COMMON]
        return size_limit(policies, self.reached([Destination(each.kind, each.name) for each in common]))

    def reached(self, destinations: Iterable[Destination]) -> set[Destination]:
        found: set[Destination] = set()
        waiting = list(destinations)
        while waiting:
            destination = waiting.pop()
            if destination in found:
                continue
            found.add(destination)
            composite = self._composites.get(destination)
            if composite is not None:
                waiting += [_destination_of(forward) for forward in composite.forward_to]
            if destination.kind is DestinationKind.TOPIC:
                waiting += self.virtual_topics.queues(destination.name)
        return found

    def _target_at(self, address: Address) -> Target:
        if address.scope is not Scope.COMMON:
            return self.temporaries.target(address)
        return self._target(Destination(address.kind, address.name), ())

    def _target(self, destination: Destination, above: tuple[Destination, ...]) -> Target:
        """``above`` are the composites and virtual topics on the way: one that is reached again passes nothing on."""
        composite = None if destination in above else self._composites.get(destination)
        target = self._plain(destination, above) if composite is None else self._forwarding(composite, above)
        policy = self._core.settings.policies.of(destination)
        if TimeStampingTarget.is_asked_for(policy):
            return TimeStampingTarget(target, policy, self._core.clock)
        return target

    def _plain(self, destination: Destination, above: tuple[Destination, ...]) -> Target:
        name = destination.name
        if destination.kind is DestinationKind.QUEUE:
            return self._destinations.queue(name)
        if destination.kind is DestinationKind.STREAM:
            return self._destinations.stream(name)
        topic: Target = self._destinations.topic(name)
        if destination in above or not self.virtual_topics.is_virtual(name):
            return topic
        way = (*above, destination)
        return VirtualTopicTarget(
            self._destinations, self.virtual_topics, name, topic, lambda queue: self._target(queue, way)
        )

    def _forwarding(self, composite: Composite, above: tuple[Destination, ...]) -> Target:
        destination = composite.destination
        forwards = []
        for forward in composite.forward_to:
            target = self._target(_destination_of(forward), (*above, destination))
            forwards.append((target, _selector_of(forward)))
        own = None if composite.forward_only else self._plain(destination, above)
        return CompositeTarget(own, forwards, f"/{destination.kind}/{destination.name}")


def _destination_of(forward: Forward) -> Destination:
    kind, name = split_prefix(forward.destination)
    return Destination(kind or DestinationKind.QUEUE, name)


def _selector_of(forward: Forward) -> Selector | None:
    return selector(forward.selector) if forward.selector.strip() else None
