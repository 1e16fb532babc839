"""The operator's door to queues. Between two steps of a large operation the caller lets the open commit end."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, TypeVar

from quire.broker.broker import Broker
from quire.broker.dead_letter import ORIGIN, redriven
from quire.broker.queues.browsing import BrowsedMessage, described, read
from quire.broker.queues.lane_dispatch import LaneDispatch
from quire.broker.queues.queue import Queue
from quire.broker.routing.route import route_of
from quire.broker.streams.groups.group import Group
from quire.broker.topics.topic import Topic
from quire.destination import Destination, DestinationKind, checked, written
from quire.errors import (
    DestinationExists,
    DestinationInUse,
    InvalidArgument,
    InvalidDestination,
    ProducerHeld,
    QuireError,
    UnknownDestination,
    UnknownGroup,
)
from quire.management.blocked import PAUSED_AT
from quire.management.confirmation import Confirmation
from quire.management.described import Status, doc
from quire.management.draft import Draft
from quire.management.group_status import GroupPage, group_page
from quire.management.message_transfer import (
    BUDGET,
    STEP,
    STEP_BYTES,
    Choice,
    MessageTransfer,
    Placed,
    matches,
)
from quire.management.queue_status import QueueStatus, QueueStatusReader
from quire.message import Message, unescape
from quire.selectors import selector
from quire.units import parse_number

MAX_PAGE = 1000
"""How many entries one page may have."""

ALL = Choice()

T = TypeVar("T")
S = TypeVar("S")


class BrowsePage(Status, frozen=True):
    """A part of a queue, or of a durable subscription."""

    messages: Annotated[list[BrowsedMessage], doc("In order.")]
    next: Annotated[str | None, doc("The after of the next page; null at the end.")]


class Management:
    """Looks at a broker's queues and changes them. All names may raise ``UnknownDestination``."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.reader = QueueStatusReader(broker)  # tells the status of queues

    def confirm(self, done: Callable[[QuireError | None], None]) -> None:
        """Call ``done`` when the open commit is durable, or with its error: then its messages are refused."""
        waiting = Confirmation(done)
        self.broker.core.sent(waiting)
        self.broker.core.confirm(waiting, [b""])

    # Look.

    def queues(self, after: str = "") -> Iterator[QueueStatus]:
        """The queues behind a name, by name; each is looked at when it is asked for."""
        return listed(self.broker, DestinationKind.QUEUE, self.broker.queues, after, self.reader.status)

    def queue(self, name: str) -> QueueStatus:
        return self.reader.status(self.broker.destinations.existing_queue(name))

    def browse(self, name: str, after: str | None = None, limit: int = 100, wanted: str | None = None) -> BrowsePage:
        """A page of a queue's messages, including those in flight; shorter for large messages or a selector."""
        return self.browse_source(self.broker.destinations.existing_queue(name), after, limit, wanted)

    def browse_source(self, queue: LaneDispatch, after: str | None, limit: int, wanted: str | None) -> BrowsePage:
        """As ``browse``, of a queue or a durable subscription."""
        check_limit(limit)
        first = parse_number(after or "0")
        if first is None:
            raise InvalidArgument(f"after is {str(after)[:60]!r}: give the next of an earlier page", argument="after")
        chooser = None if wanted is None else selector(wanted)
        messages, following = read(self.broker.core, queue, first, STEP_BYTES, STEP if chooser else limit)
        if chooser is not None:
            clock, found = self.broker.core.clock, list[Message]()
            end = clock.monotonic() + BUDGET
            for index, message in enumerate(messages):
                if len(found) == limit or (index and clock.monotonic() >= end):
                    following = message.sequence
                    break
                if matches(chooser, queue, message):
                    found.append(message)
            messages = found
        return BrowsePage(described(queue, messages), None if following is None else str(following))

    # Change.

    def create(self, name: str) -> QueueStatus:
        if name in self.broker.queues:
            raise DestinationExists(f"the queue {name!r} already exists", name=name)
        return self.reader.status(self.broker.queue(name))

    def pause(self, name: str) -> QueueStatus:
        """Stop a queue's deliveries, also over a restart; producers go on. A paused one stays as it is."""
        queue = self.broker.destinations.existing_queue(name)
        if not queue.paused:
            self._set_paused(queue, {"paused": True, PAUSED_AT: self.broker.core.clock.now_ms()})
        return self.reader.status(queue)

    def resume(self, name: str) -> QueueStatus:
        """Let a queue's deliveries go on."""
        queue = self.broker.destinations.existing_queue(name)
        if queue.paused:
            self._set_paused(queue, {})
            queue.wake()
        return self.reader.status(queue)

    def _set_paused(self, queue: Queue, pause: dict[str, object]) -> None:
        kept = {name: value for name, value in queue.stored.settings.items() if name not in ("paused", PAUSED_AT)}
        queue.paused = bool(pause)
        queue.stored = queue.stored._replace(settings=kept | pause)
        self.broker.core.change_destination(queue.stored.id, queue.stored)

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Purge a queue in steps, and then delete it."""
        queue = self.broker.destinations.existing_queue(name)
        self._dismiss(queue, force)
        yield from self.purge(name)
        if self.broker.queues.get(name) is queue:
            self._dismiss(queue, force)
            rest = queue.depth
            self.broker.destinations.delete_queue(queue)
            yield rest

    def _dismiss(self, queue: Queue, force: bool) -> None:
        name = queue.destination.name
        if queue.subscriptions and not force:
            count = len(queue.subscriptions)
            raise DestinationInUse(f"the queue {name!r} has consumers: {count}", name=name, consumers=count)
        dismiss_consumers(queue, f"the queue {name!r} was deleted")

    # Message groups.

    def groups(self, name: str, after: str = "", limit: int = MAX_PAGE) -> GroupPage:
        """A page of a queue's message groups, by name."""
        check_limit(limit)
        return group_page(self.broker.destinations.existing_queue(name), after, limit)

    def close_group(self, name: str, group: str) -> None:
        """Take a message group from its owner; messages in flight stay there, so two consumers may have some."""
        queue = self.broker.destinations.existing_queue(name)
        if queue.dispatcher.groups.owner(group) is None:
            raise UnknownGroup(f"no consumer of {name!r} has the group {group[:100]!r}", queue=name, group=group[:100])
        queue.dispatcher.groups.close(group)
        queue.wake()

    # Messages.

    def send(
        self, name: str, draft: Draft, count: int = 1, kind: DestinationKind = DestinationKind.QUEUE
    ) -> Iterator[list[str]]:
        """Send a message some times, in steps of message ids. If a limit is reached, what earlier steps sent stays."""
        broker = self.broker
        headers = draft.send_headers(checked(kind, name), broker.core.settings.stomp)
        step = max(1, min(STEP, STEP_BYTES // (len(draft.body) + 1)))
        for sent in range(0, count, step):
            self._check_room(name, draft.persistent)
            route = route_of(broker.routing, headers)
            stamp = b"\ntimestamp:%d\n" % broker.core.clock.now_ms()
            ids = [b"%d" % broker.core.next_message_id() for _ in range(min(step, count - sent))]
            for id in ids:
                content = b"".join((broker.core.id_prefix, id, stamp, route.lines, draft.body))
                route.target.send(content, route.expiration, route.priority, route.persistent)
            prefix = unescape(broker.core.id_prefix.removeprefix(b"message-id:")).decode()
            yield [prefix + id.decode() for id in ids]

    def _check_room(self, name: str, persistent: bool) -> None:
        broker = self.broker
        if persistent and broker.core.store_error is not None:
            raise broker.core.store_error
        if cause := broker.core.hold_cause(stored=persistent):
            raise ProducerHeld(
                f"the broker accepts no messages for {name}: {cause}", cause=str(cause), destination=name
            )

    def purge(self, name: str, choice: Choice = ALL) -> MessageTransfer:
        """Remove messages that are not in flight, in steps. Without a choice no content is read."""
        return MessageTransfer(self.broker, self.broker.destinations.existing_queue(name), choice)

    def move(self, name: str, to: str, choice: Choice = ALL) -> MessageTransfer:
        """Move messages that are not in flight, oldest first, in steps; ``to`` is a queue's name or ``topic://NAME``."""
        return self._transfer(name, to, choice, copies=False)

    def copy(self, name: str, to: str, choice: Choice = ALL) -> MessageTransfer:
        """As ``move``, but the messages stay in their queue as well; those in flight are copied too."""
        return self._transfer(name, to, choice, copies=True)

    def _transfer(self, name: str, to: str, choice: Choice, *, copies: bool) -> MessageTransfer:
        source, destination = self.broker.destinations.existing_queue(name), written(to)
        if destination == source.destination:
            raise InvalidArgument(f"the messages are in {to!r} already", argument="to")

        def place(message: Message) -> Placed:
            return self.broker.target(_header(destination)), message.content

        return MessageTransfer(self.broker, source, choice, place, copies=copies)

    def redrive(self, name: str, choice: Choice = ALL, to: str | None = None) -> MessageTransfer:
        """Send dead letters back where they came from, or elsewhere, oldest first, in steps. Other messages stay."""
        source, destination = self.broker.destinations.existing_queue(name), None if to is None else written(to)
        if destination == source.destination:
            raise InvalidArgument(f"the messages are in {to!r} already", argument="to")

        def place(message: Message) -> Placed | None:
            origin = message.headers().get(ORIGIN)
            try:
                if origin is None:
                    return None
                target = self.broker.target(origin if destination is None else _header(destination))
            except (InvalidDestination, UnknownDestination):  # a client wrote its header, or it is out of date
                return None
            return None if target is source else (target, redriven(message.content))

        return MessageTransfer(self.broker, source, choice, place)


def listed(
    broker: Broker, kind: DestinationKind, known: Mapping[str, T], after: str, status: Callable[[T], S]
) -> Iterator[S]:
    """The destinations of a kind behind a name; each is looked at when it is asked for, if it is still there."""
    for name in broker.destinations.names(kind, after):
        if found := known.get(name):
            yield status(found)


def dismiss_consumers(source: LaneDispatch | Topic, text: str) -> None:
    """Disconnect all consumers of a queue, topic or durable subscription, and say why."""
    for session in list(dict.fromkeys([subscription.session for subscription in source.subscriptions])):
        session.fail(UnknownDestination(text, name=source.destination.name))
    for subscription in list(source.subscriptions):
        subscription.leave_now()


def dismiss_members(group: Group, error: QuireError) -> None:
    """Disconnect all members of a consumer group, and say why; none is awaited."""
    for member in list(group.members.values()):
        member.session.fail(error)
        group.leave(member, str(error))


def check_limit(limit: int) -> None:
    """Refuse a size of a page that is out of range."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidArgument(f"limit is {limit}: 1 to {MAX_PAGE}", argument="limit")


def _header(destination: Destination) -> str:
    return f"/{destination.kind}/{destination.name}"
