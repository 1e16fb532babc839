"""Where a message goes that is sent: from the text of a destination to a target."""

from collections.abc import Iterable

from quire.broker.core.core import Core
from quire.broker.core.services import Target
from quire.broker.destinations import Destinations
from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.routing.client_ids import ClientIds
from quire.broker.routing.composite import CompositeTarget, ForwardingTarget, ForwardTarget
from quire.broker.routing.temporary import Temporaries
from quire.broker.routing.time_stamping import TimeStampingTarget
from quire.broker.routing.virtual_topics import VirtualTopics, VirtualTopicTarget
from quire.broker.scheduling.schedule import Schedule, ScheduledSend
from quire.broker.scheduling.timing import Timing
from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.message import Message
from quire.selectors import Selector, selector
from quire.settings import Composite, Forward

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
        temporaries: the temporary destinations.
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
        """Where a message goes that is sent to a destination, as a destination header says it.

        Queues and topics are made if they are not there.
        """
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
        return targets[0] if len(targets) == 1 else CompositeTarget(targets, destination)

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

    def reached(self, destinations: Iterable[Destination]) -> set[Destination]:
        """Where a message comes that is sent to some destinations: there, and where these pass it on now."""
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
        """What takes messages for a queue or a topic.

        Args:
            above: the composites and virtual topics on the way to it: one that is reached again passes nothing on.
        """
        composite = None if destination in above else self._composites.get(destination)
        target = self._plain(destination, above) if composite is None else self._forwarding(composite, above)
        policy = self._core.settings.policies.of(destination)
        if TimeStampingTarget.is_asked_for(policy):
            return TimeStampingTarget(target, policy, self._core.clock)
        return target

    def _plain(self, destination: Destination, above: tuple[Destination, ...]) -> Target:
        """A queue; a stream; a topic, with the queues it feeds if it is virtual."""
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
            forwards.append(ForwardTarget(target, _selector_of(forward)))
        own = None if composite.forward_only else self._plain(destination, above)
        return ForwardingTarget(own, forwards, f"/{destination.kind}/{destination.name}")


def _destination_of(forward: Forward) -> Destination:
    kind, name = split_prefix(forward.destination)
    return Destination(kind or DestinationKind.QUEUE, name)


def _selector_of(forward: Forward) -> Selector | None:
    return selector(forward.selector) if forward.selector.strip() else None
