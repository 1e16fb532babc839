"""The operator's door to the broker: look at queues, create, delete, pause, purge, browse, move, redrive, send.

What touches many messages is a generator of steps. A step puts a bounded amount of work into the open commit and yields
how many messages it was about; its caller lets that commit end before it asks for the next step. So a million messages
never hold the event loop, and never make one commit long. All steps together end at the message that was last when they
began.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from quire.broker.broker import Broker
from quire.broker.browsing import BrowsedMessage, described, entries, read
from quire.broker.confirmation import Confirmation
from quire.broker.dead_letter import ORIGIN, redriven
from quire.broker.flow import HoldCause
from quire.broker.queue import Queue
from quire.broker.queue_status import PAUSED_AT, QueueStatus, QueueStatusReader
from quire.broker.routing import queue_name
from quire.broker.stomp_route import Route
from quire.destination import queue as queue_destination
from quire.errors import (
    DestinationExists,
    DestinationInUse,
    InvalidArgument,
    InvalidDestination,
    InvalidHeader,
    LimitExceeded,
    ProducerHeld,
    QuireError,
    UnknownDestination,
    UnknownMessage,
)
from quire.message import Message, header_lines, unescape
from quire.protocols.stomp.frames import Head
from quire.settings.keys import StompSettings

STEP = 1000
"""How many messages one step is about, at the most."""

STEP_BYTES = 2 << 20
"""How many bytes of messages one step reads or writes, if it is about more than one message."""

MAX_PAGE = 1000
"""How many messages one page of a browse may have."""

_SENT_IN_STOMP_ONLY = ("destination", "message-id", "timestamp", "transaction", "receipt", "producer-id")

Chooser = Callable[[Message], "tuple[Queue, bytes] | None"]
"""Where a message goes, and with which content; None if it stays."""


@dataclass(frozen=True, slots=True)
class BrowsePage:
    """A part of a queue.

    Attributes:
        messages: in order.
        next: what to ask for the next page with; null at the end of the queue.
    """

    messages: list[BrowsedMessage]
    next: str | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that is to be sent.

    Attributes:
        body: its body.
        headers: headers of its own, unescaped.
        priority: 0 to 9.
        expiration: when it expires, in milliseconds since the epoch; 0 for never.
        persistent: whether it must survive the broker.
    """

    body: bytes
    headers: Mapping[str, str]
    priority: int = 4
    expiration: int = 0
    persistent: bool = True


class Management:
    """Looks at a broker's queues and changes them. All names may raise ``UnknownDestination``.

    Args:
        broker: the broker.

    Attributes:
        reader: tells the status of queues.
    """

    def __init__(self, broker: Broker) -> None:
        self.reader = QueueStatusReader(broker)
        self._broker = broker

    def confirm(self, done: Callable[[QuireError | None], None]) -> None:
        """Be told what becomes of everything that is in the open commit.

        Args:
            done: called with None when it is durable, or with the error of its commit. Messages of a failed commit are
                refused; all other changes are tried again until they succeed.
        """
        waiting = Confirmation(done)
        self._broker.sent(waiting)
        self._broker.confirm(waiting, [b""])

    # Look.

    def queues(self) -> list[QueueStatus]:
        """All queues, by name."""
        return [self.reader.status(queue) for _, queue in sorted(self._broker.queues.items())]

    def queue(self, name: str) -> QueueStatus:
        """One queue."""
        return self.reader.status(self._broker.existing_queue(name))

    def browse(self, name: str, after: str | None = None, limit: int = 100) -> BrowsePage:
        """A page of a queue's messages, those in flight included. Nothing about the queue changes.

        Args:
            name: the queue's name.
            after: what the page before gave as ``next``.
            limit: how many messages at the most, 1 to 1000. There are fewer when they are large.

        Raises:
            InvalidArgument: ``after`` is no such thing, or ``limit`` is out of range.
            StoreCorrupt: the page's first message is damaged.
        """
        if not 1 <= limit <= MAX_PAGE:
            raise InvalidArgument(f"limit is {limit}: 1 to {MAX_PAGE}", argument="limit")
        if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 20):
            raise InvalidArgument(f"after is {after[:60]!r}: give what a page before had as next", argument="after")
        queue = self._broker.existing_queue(name)
        messages, following = read(self._broker, queue, int(after or 0), STEP_BYTES, limit)
        return BrowsePage(described(queue, messages), None if following is None else str(following))

    # Change.

    def create(self, name: str) -> QueueStatus:
        """Make a queue.

        Raises:
            DestinationExists: it is there.
            InvalidDestination: it cannot be a name.
        """
        if name in self._broker.queues:
            raise DestinationExists(f"there is a queue {name!r} already", name=name)
        return self.reader.status(self._broker.queue(name))

    def pause(self, name: str) -> QueueStatus:
        """Stop a queue's deliveries, also over a restart; producers go on. A paused one stays as it is."""
        queue = self._broker.existing_queue(name)
        if not queue.paused:
            self._set_paused(queue, {"paused": True, PAUSED_AT: self._broker.clock.now_ms()})
        return self.reader.status(queue)

    def resume(self, name: str) -> QueueStatus:
        """Let a queue's deliveries go on."""
        queue = self._broker.existing_queue(name)
        if queue.paused:
            self._set_paused(queue, {})
            queue.wake()
        return self.reader.status(queue)

    def _set_paused(self, queue: Queue, pause: dict[str, object]) -> None:
        kept = {name: value for name, value in queue.stored.settings.items() if name not in ("paused", PAUSED_AT)}
        queue.paused = bool(pause)
        queue.stored = queue.stored._replace(settings=kept | pause)
        self._broker.change_destination(queue.stored.id, queue.stored)

    def purge(self, name: str) -> Iterator[int]:
        """Remove all messages that are not in flight, in steps. No body is read."""
        queue = self._broker.existing_queue(name)
        start, last = 0, queue.last
        while start <= last and self._is_there(queue):
            found = entries(self._broker, queue, start, STEP)
            if not found:
                return
            start = found[-1].sequence + 1
            yield len(self._take_out(queue, [message for message in found if message.sequence <= last]))

    def delete(self, name: str, *, force: bool = False) -> Iterator[int]:
        """Purge a queue in steps, and then delete it.

        Args:
            name: its name.
            force: disconnect its consumers first.

        Raises:
            DestinationInUse: it has consumers, or one came while it was purged.
        """
        queue = self._broker.existing_queue(name)
        self._dismiss_consumers(queue, force)
        yield from self.purge(name)
        if self._is_there(queue):
            self._dismiss_consumers(queue, force)
            rest = queue.depth
            self._broker.destinations.delete_queue(queue)
            yield rest

    def _dismiss_consumers(self, queue: Queue, force: bool) -> None:
        name = queue.destination.name
        if queue.subscriptions and not force:
            count = len(queue.subscriptions)
            raise DestinationInUse(f"the queue {name!r} has consumers: {count}", name=name, consumers=count)
        for session in list(dict.fromkeys([subscription.session for subscription in queue.subscriptions])):
            session.fail(UnknownDestination(f"the queue {name!r} was deleted", name=name))

    # Send.

    def send(self, name: str, draft: Draft, count: int = 1) -> Iterator[list[str]]:
        """Send a message some times, in steps of message ids.

        Args:
            name: the queue; it is created if it is not there.
            draft: the message.
            count: how often.

        Raises:
            InvalidDestination: it cannot be a name.
            InvalidHeader: a header cannot be sent.
            LimitExceeded: headers or body are larger than STOMP clients may send.
            ProducerHeld: a limit is reached; what earlier steps sent is in the queue.
            StoreError: the store takes no writes.
        """
        broker = self._broker
        head = _head(name, draft, broker.settings.stomp)
        step = max(1, min(STEP, STEP_BYTES // (len(draft.body) + 1)))
        for sent in range(0, count, step):
            self._check_room(name, draft.persistent)
            queue = broker.queue(name)
            if "JMSXGroupID" in draft.headers:
                queue.expect_groups()
            route = Route(queue, head)
            stamp = b"\ntimestamp:%d\n" % broker.clock.now_ms()
            ids = [b"%d" % broker.next_message_id() for _ in range(min(step, count - sent))]
            for id in ids:
                content = b"".join((broker.id_prefix, id, stamp, route.lines, draft.body))
                queue.send(content, route.expiration, route.priority, route.persistent)
            prefix = unescape(broker.id_prefix.removeprefix(b"message-id:")).decode()
            yield [prefix + id.decode() for id in ids]

    def _check_room(self, name: str, persistent: bool) -> None:
        broker = self._broker
        if persistent and broker.store_error is not None:
            raise broker.store_error
        cause = HoldCause.STORE if persistent else HoldCause.SPOOL
        if broker.is_over(cause):
            raise ProducerHeld(f"no room to send to {name}: {cause}", cause=str(cause), destination=name)

    # Move.

    def move(self, name: str, to: str, *, ids: Sequence[str] = (), limit: int | None = None) -> Iterator[int]:
        """Move messages that are not in flight to another queue, oldest first, in steps.

        A step is atomic: its messages are in the one queue or in the other, whatever happens.

        Args:
            name: where they are.
            to: where they go; it is created if it is not there.
            ids: only these, message ids or sequences; all if there are none.
            limit: how many at the most.

        Raises:
            InvalidArgument: both are the same queue.
            UnknownMessage: some of ``ids`` were not found or are in flight; the others were moved.
        """
        if name == to:
            raise InvalidArgument(f"{name!r} cannot be moved to itself", argument="to")
        source, missing = self._broker.existing_queue(name), set(ids)
        queue_destination(to)

        def chosen(message: Message) -> tuple[Queue, bytes] | None:
            names = {message.id, str(message.sequence)}
            if ids and not missing & names:
                return None
            missing.difference_update(names)
            return self._broker.queue(to), message.content

        moved = 0
        for step in self._transfer(source, chosen, limit, lambda: bool(ids) and not missing):
            moved += step
            yield step
        if ids and moved < min(len(set(ids)), limit or len(ids)):
            text = f"{moved} of {len(set(ids))} messages were moved; the others are not in {name!r}, or in flight"
            raise UnknownMessage(text, moved=moved, missing=sorted(missing))

    def redrive(self, name: str, limit: int | None = None) -> Iterator[int]:
        """Send dead letters back to the queues they came from, oldest first, in steps. Other messages stay.

        Args:
            name: the queue they are in.
            limit: how many at the most.
        """
        source = self._broker.existing_queue(name)

        def origin(message: Message) -> tuple[Queue, bytes] | None:
            try:
                target = self._broker.queue(queue_name(message.headers().get(ORIGIN, "")))
            except InvalidDestination:  # not a dead letter, or its header was written by somebody else
                return None
            return None if target is source else (target, redriven(message.content))

        yield from self._transfer(source, origin, limit, lambda: False)

    def _transfer(
        self, source: Queue, choose: Chooser, limit: int | None, is_done: Callable[[], bool]
    ) -> Iterator[int]:
        """Read a step of messages, choose some, and put them elsewhere with the commit that removes them here."""
        following: int | None = 0
        last, left = source.last, limit
        while following is not None and left != 0 and not is_done() and self._is_there(source):
            messages, following = read(self._broker, source, following, STEP_BYTES, STEP)
            busy = source.in_flight_sequences()
            chosen: dict[int, tuple[Queue, bytes]] = {}
            free: list[Message] = []
            for message in messages:
                if message.sequence > last or len(free) == left:
                    following = None
                    break
                if message.sequence not in busy and (target := choose(message)):
                    chosen[message.sequence] = target
                    free.append(message)
            leaving = self._take_out(source, free)
            for message in leaving:
                queue, content = chosen[message.sequence]
                queue.bring(content, message.expiration, message.priority, message.persistent)
            left = None if left is None else left - len(leaving)
            yield len(leaving)

    def _take_out(self, queue: Queue, messages: list[Message]) -> list[Message]:
        """Remove those of some messages that nobody else has or removes."""
        free = set(queue.take_out([message.sequence for message in messages]))
        leaving = [message for message in messages if message.sequence in free]
        queue.removed(leaving)
        return leaving

    def _is_there(self, queue: Queue) -> bool:
        return self._broker.queues.get(queue.destination.name) is queue


def _head(name: str, draft: Draft, limits: StompSettings) -> Head:
    """The head that a STOMP client would have sent with a message, checked as the decoder does."""
    lines = header_lines(dict(draft.headers)).split(b"\n")[:-1]
    if len(lines) > limits.max_headers:
        raise LimitExceeded(f"{len(lines)} headers, the limit is {limits.max_headers}", limit=limits.max_headers)
    if max([len(line) for line in lines], default=0) > limits.max_line:
        raise LimitExceeded(f"a header is longer than {limits.max_line} bytes", limit=limits.max_line)
    if len(draft.body) > limits.max_body:
        raise LimitExceeded(f"the body has {len(draft.body)} bytes", limit=limits.max_body)
    for header, value in draft.headers.items():
        if not header or "\0" in header + value or header in _SENT_IN_STOMP_ONLY:
            raise InvalidHeader(f"{header[:60]!r} is no header that can be sent this way", header=header[:60])
    fields = {**draft.headers, "destination": f"/queue/{name}", "content-length": str(len(draft.body))}
    if draft.priority != 4 or "priority" in fields:
        fields["priority"] = str(draft.priority)
    if draft.expiration or "expires" in fields:
        fields["expires"] = str(draft.expiration)
    if not draft.persistent or "persistent" in fields:
        fields["persistent"] = str(draft.persistent).lower()
    return Head(b"SEND", tuple(fields.items()))
