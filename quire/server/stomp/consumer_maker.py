"""Makes the consumers that SUBSCRIBE frames ask for."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from quire.broker.core.shared_prefetch import ChildSubscription
from quire.broker.core.subscription import Subscription
from quire.broker.queues.departure import Departure
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.queues.queue_browser import Browser
from quire.broker.routing.addresses import Address, Scope
from quire.broker.routing.wildcard import WildcardSubscription
from quire.broker.streams.groups.group_definition import Mode
from quire.broker.streams.groups.group_member import GroupMember, MemberSubscription
from quire.broker.streams.offsets import Start, StartKind
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidDestination, InvalidHeader, LimitExceeded, QuireError
from quire.message import header_lines
from quire.protocols.stomp.encoder import content_for
from quire.protocols.stomp.versions import Version
from quire.server.stomp.stomp_member import StompMember
from quire.server.stomp.stomp_membership import MembershipRequest
from quire.server.stomp.stomp_subscribe import SubscribeRequest
from quire.settings import Policy

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.topics.topic import Topic
    from quire.server.stomp.stomp_session import StompSession

MAX_CONSUMERS = 10_000
"""How many destinations all subscriptions of a connection may consume, those that wildcards match included."""


class ConsumerMaker:
    """Makes consumers for one session, and numbers them.

    Args:
        broker: the core.
        session: the session.
        subscriptions: where they are entered, by number.
        members: gives the members of groups among them, and the readers.
    """

    def __init__(
        self, broker: "Broker", session: "StompSession", subscriptions: dict[int, Subscription],
        members: Callable[[], list[GroupMember]],
    ) -> None:  # fmt: skip
        self._broker = broker
        self._session = session
        self._subscriptions = subscriptions
        self._members = members
        self._next_number = 0

    def consumer(self, request: SubscribeRequest) -> Subscription:
        """A consumer of one queue, topic or durable subscription.

        Raises:
            InvalidDestination: it has no valid name, or is a temporary destination of another connection.
            InvalidHeader: a durable subscription needs a client id.
            LimitExceeded: there are too many.
        """
        address = request.addresses[0]
        if address.scope is not Scope.COMMON:
            return self._of_temporary(request, address)
        if address.kind is DestinationKind.QUEUE:
            return self._of_queue(request, self._broker.queue(address.name), str(address))
        if request.durable is not None:
            return self._of_durable(request, request.durable, address)
        return self._of_topic(request, self._broker.topic(address.name), str(address))

    def wildcard(self, request: SubscribeRequest) -> WildcardSubscription:
        """A consumer of all destinations that match.

        Raises:
            InvalidDestination: a pattern is none, or names a temporary destination.
            LimitExceeded: more of them match than a connection may consume.
        """
        for address in request.addresses:
            if address.scope is not Scope.COMMON:
                raise InvalidDestination(
                    f"{str(address)[:100]!r} is a temporary destination: subscribe to it alone",
                    destination=str(address)[:100],
                )

        def make(destination: Destination, parent: WildcardSubscription) -> ChildSubscription:
            written = str(Address(destination.kind, destination.name))
            child: Subscription
            if destination.kind is DestinationKind.QUEUE:
                child = self._of_queue(request, self._broker.queue(destination.name), written, parent)
            else:
                child = self._of_topic(request, self._broker.topic(destination.name), written, parent)
            assert isinstance(child, ChildSubscription)
            return child

        whole = WildcardSubscription(
            self._broker.core, self._broker.destinations, request.addresses, self._prefetch(request), make,
            self._session.fail,
        )  # fmt: skip
        try:
            whole.start()
        except QuireError:
            self.end_wildcard(whole, "it could not be subscribed to everything", lost=False)
            raise
        return whole

    def end_wildcard(self, whole: WildcardSubscription, cause: str, *, lost: bool) -> None:
        """A consumer of all destinations that match goes; its parts are entered no more."""
        for child in whole.children.values():
            del self._subscriptions[child.number]
        whole.end(cause, self._tell_gone, lost=lost)

    def member(self, request: SubscribeRequest, wish: MembershipRequest) -> GroupMember:
        """A member of a consumer group, or a reader of a stream.

        Raises:
            InvalidDestination: the stream has no valid name.
            InvalidHeader: the group has none.
            GroupMismatch: the group is another one.
            LimitExceeded: the connection would consume too much if it were given all partitions.
        """
        stream, groups = self._broker.stream(request.addresses[0].name), self._broker.groups
        members = self._members()
        parts = sum([len(member.group.partitions) + 1 - len(member.children) for member in members])
        self._check_count(parts + len(stream.partitions) + 1)
        name, mode = wish.group, wish.mode
        if name is not None and mode is Mode.BROADCASTING:  # each member is a group of its own
            name = None if wish.member is None else f"{name}/{wish.member}"
        if name is None:
            group = groups.reader(stream, wish.start or Start(StartKind.LATEST), request.selector)
        else:
            group = groups.open(stream, name, start=wish.start, order=wish.order, mode=mode, selector=request.selector)
        written = str(request.addresses[0])
        port = StompMember(
            self._session, request.id, written, named=request.named, events=wish.events, number=self._next,
            entered=self._entered_part, gone=self._part_gone,
        )  # fmt: skip
        member = GroupMember(
            group, self._session, wish.member or f"{self._session.name}/{request.id}", port,
            static=wish.member is not None and name is not None, ack=request.ack, room=wish.room,
            prefetch=stream.policy.stream_prefetch if request.prefetch is None else request.prefetch,
            consume_timeout=wish.consume_timeout, wanted=wish.partitions, held=wish.held,
        )  # fmt: skip
        group.join(member)
        return member

    def _part_gone(self, child: MemberSubscription) -> None:
        del self._subscriptions[child.number]

    def _entered_part(self, child: MemberSubscription) -> None:
        self._subscriptions[child.number] = child

    def browser(self, request: SubscribeRequest, marker: Callable[[Subscription, bytes], bytes]) -> Subscription:
        """A browser of a queue.

        Args:
            request: what the client asks for.
            marker: makes the frame that ends the browse, of the subscription and header lines.

        Raises:
            InvalidDestination: it has no valid name, or is a temporary queue.
            LimitExceeded: there are too many.
        """
        address = request.addresses[0]
        if address.scope is not Scope.COMMON:
            raise InvalidDestination(
                f"{str(address)[:100]!r} is a temporary queue: it cannot be browsed", destination=str(address)[:100]
            )
        queue = self._broker.queue(address.name)
        policy = queue.policy
        prefetch = policy.queue_browser_prefetch if request.prefetch is None else request.prefetch

        def ended(damaged: int) -> None:
            headers = b"browser:end\n" + (b"damaged:%d\n" % damaged if damaged else b"")
            self._session.write(marker(browser.subscription, headers))

        browser = Browser(
            queue, self._session, id=request.id, number=self._number(), ack=request.ack, prefetch=prefetch,
            selector=request.selector, ended=ended,
        )  # fmt: skip
        subscription = self._entered(browser.subscription, request, str(address))
        self._broker.core.after_commit(browser.begin)  # by then everything is in the queue that was sent before
        return subscription

    def remove_durable(self, name: str) -> None:
        """Remove a durable subscription of this client, with what waits for it.

        Raises:
            InvalidHeader: the client has no client id.
            UnknownSubscription: there is none of that name.
            DestinationInUse: somebody consumes it.
        """
        self._broker.durables.remove(self._client_id(), name)

    def end(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """A consumer goes: it is entered no more. What it has of a queue comes back in steps."""
        del self._subscriptions[subscription.number]
        source, gone = subscription.source, partial(self._tell_gone, subscription)
        if isinstance(source, LaneDispatch):
            Departure(self._broker.core, source, subscription, cause, gone, lost=lost).begin()
        else:
            source.remove(subscription, cause, lost=lost)
            gone()

    def _tell_gone(self, subscription: Subscription) -> None:
        if not isinstance(subscription.source, Browser):
            destinations, destination = self._broker.destinations, subscription.source.destination
            named = destinations.queues if destination.kind is DestinationKind.QUEUE else destinations.topics
            left = named.get(destination.name)
            self._broker.advisories.consumer_stopped(subscription, len(left.subscriptions) if left else 0)

    # One consumer.

    def _of_queue(
        self, request: SubscribeRequest, queue: LaneDispatch, written: str, parent: WildcardSubscription | None = None
    ) -> Subscription:
        kind = Subscription if parent is None else ChildSubscription
        subscription = kind(
            self._session, queue, id=request.id, number=self._number(), ack=request.ack,
            prefetch=queue.policy.queue_prefetch if request.prefetch is None else request.prefetch,
            priority=request.priority, exclusive=request.exclusive, selector=request.selector,
        )  # fmt: skip
        self._entered(subscription, request, written, parent)
        queue.add(subscription)
        self._broker.advisories.consumer_started(subscription, len(queue.subscriptions))
        return subscription

    def _of_topic(
        self, request: SubscribeRequest, topic: "Topic", written: str, parent: WildcardSubscription | None = None
    ) -> Subscription:
        subscription = topic.subscribe(
            self._session, id=request.id, number=self._number(), ack=request.ack,
            prefetch=topic.policy.topic_prefetch if request.prefetch is None else request.prefetch,
            selector=request.selector, no_local=request.no_local, priority=request.priority,
            retroactive=request.retroactive, maximum_pending=request.maximum_pending,
            kind=Subscription if parent is None else ChildSubscription,
        )  # fmt: skip
        self._entered(subscription, request, written, parent)
        self._broker.advisories.consumer_started(subscription, len(topic.subscriptions))
        return subscription

    def _of_durable(self, request: SubscribeRequest, name: str, address: Address) -> Subscription:
        topic = self._broker.topic(address.name)
        subscription = self._broker.durables.subscribe(
            self._client_id(), name, topic, self._session, id=request.id, number=self._number(), ack=request.ack,
            prefetch=topic.policy.durable_topic_prefetch if request.prefetch is None else request.prefetch,
            selector=request.selector, no_local=request.no_local, priority=request.priority,
            retroactive=request.retroactive,
        )  # fmt: skip
        self._entered(subscription, request, str(address))
        self._broker.advisories.consumer_started(subscription, len(topic.subscriptions))
        return subscription

    def _of_temporary(self, request: SubscribeRequest, address: Address) -> Subscription:
        remote = self._session.temporaries.remote(address)
        own = self._session.temporaries.own(remote)
        if own is None:
            raise InvalidDestination(
                f"{str(address)[:100]!r} belongs to another connection: only that one may consume it",
                destination=str(address)[:100],
            )
        temporaries = self._broker.routing.temporaries
        if own.kind is DestinationKind.QUEUE:
            return self._of_queue(request, temporaries.queues[remote.name], str(own))
        return self._of_topic(request, temporaries.topics[remote.name], str(own))

    def _client_id(self) -> str:
        if self._session.client_id is None:
            text = "a durable subscription belongs to a client: send the header client-id with CONNECT"
            raise InvalidHeader(text, header="client-id")
        return self._session.client_id

    def _prefetch(self, request: SubscribeRequest) -> int:
        """The prefetch of a subscription to several destinations: of the policy for the first one, or its pattern."""
        if request.prefetch is not None:
            return request.prefetch
        kind, name, _ = request.addresses[0]
        policy: Policy = self._broker.core.settings.policies.of(Destination(kind, name))
        return policy.queue_prefetch if kind is DestinationKind.QUEUE else policy.topic_prefetch

    def _number(self) -> int:
        self._check_count(1)
        return self._next()

    def _check_count(self, more: int) -> None:
        if len(self._subscriptions) + more > MAX_CONSUMERS:
            what = "those that wildcards match and the partitions of streams included"
            raise LimitExceeded(f"a connection may consume {MAX_CONSUMERS} destinations, {what}", limit=MAX_CONSUMERS)

    def _next(self) -> int:
        self._next_number += 1
        return self._next_number - 1

    def _entered(
        self, subscription: Subscription, request: SubscribeRequest, written: str,
        parent: WildcardSubscription | None = None,
    ) -> Subscription:  # fmt: skip
        """Enter a consumer, with what all its MESSAGE frames begin with; in 1.2 up to the sequence in ``ack``."""
        version = self._session.version
        headers = {"subscription": request.id} if request.named else {}
        headers["destination"] = written
        prefix = content_for(b"MESSAGE\n" + header_lines(headers) + b"\n\n", version)[:-2]
        subscription.prefix = prefix + b"ack:" if version is Version.V1_2 else prefix
        if isinstance(subscription, ChildSubscription) and parent is not None:
            subscription.parent = parent
        self._subscriptions[subscription.number] = subscription
        return subscription
