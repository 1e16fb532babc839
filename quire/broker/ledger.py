"""The delivery ledger: a stream that says what becomes of the messages of those destinations whose policy asks for it.

What is true once a commit is done is written in that commit. So the ledger says that a message is stored, or done with,
exactly if it is; a crash can only take dispatches from it whose messages come again.

Tracing hears what the ledger hears, and passes it on (``TracedDestination``). Nothing is added where messages go: a
broker that is not traced has no such object. One call looks at a limited number of messages, and a limited number of
deliveries is known; the tracer limits spans by time.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from quire.broker.core.core import Core, Owner, Part, Span, Tracer
from quire.broker.core.destination_ledger import DestinationLedger, LedgerLane
from quire.broker.core.subscription import Session, Subscription
from quire.broker.destinations import Destinations
from quire.destination import Destination
from quire.ledger_block import STREAM, Run, encode_block
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.streams.partition import Partition


LOOKED_AT = 1000
"""So many messages of one call are looked at: about a millisecond."""

DELIVERIES = 1000
"""Of so many messages in flight the spans are kept; that of the oldest ends when there are more."""

SHORTEST = 55
"""The length of a ``traceparent``: a version, a trace, a span, flags."""

_SAMPLED = frozenset("13579bdf")


class TracedDestination(DestinationLedger):
    def __init__(
        self, ledger: LedgerLane, destination: str, inner: DestinationLedger | None, tracer: Tracer,
        after_commit: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        super().__init__(ledger, destination)
        self._inner = inner
        self._tracer = tracer
        self._after_commit = after_commit
        self._since = 0  # when the first message of the open commit came
        self._deliveries: dict[tuple[int, Subscription], Span] = {}
        self._consumers: dict[int, list[Subscription]] = {}  # those that have a message, by its sequence

    # Messages come.

    def sent(self, sender: Session | None) -> None:
        self._since = self._since or self._tracer.now()
        if self._inner is not None:
            self._inner.sent(sender)

    def committing(self, messages: list[Message]) -> list[Run]:
        since, self._since = self._since or self._tracer.now(), 0
        spans = self._spans("send", messages, since) + self._spans("commit", messages)
        self._end_after_commit(spans)
        return [] if self._inner is None else self._inner.committing(messages)

    # They go.

    def dispatched(self, subscription: Subscription, messages: list[Message]) -> None:
        for message in messages[:LOOKED_AT]:
            if span := self._span("deliver", message):
                self._deliveries[message.sequence, subscription] = span
                self._consumers.setdefault(message.sequence, []).append(subscription)
        while len(self._deliveries) > DELIVERIES:
            sequence, oldest = next(iter(self._deliveries))
            self._end_delivery(sequence, oldest)
        if self._inner is not None:
            self._inner.dispatched(subscription, messages)

    def acknowledged(self, messages: list[Message], subscription: Subscription | None = None) -> None:
        """A consumer is done with messages; that lasts until it is stored."""
        self._end_deliveries(messages, subscription)
        self._end_after_commit(self._spans("acknowledge", messages))
        if self._inner is not None:
            self._inner.acknowledged(messages, subscription)

    def came_back(self, messages: list[Message]) -> None:
        self._end_deliveries(messages, None, "returned")
        if self._inner is not None:
            self._inner.came_back(messages)

    def returned(self, messages: list[Message]) -> None:
        self._end_deliveries(messages, None, "returned")
        if self._inner is not None:
            self._inner.returned(messages)

    def ended(self, messages: list[Message], reason: str) -> None:
        self._end_deliveries(messages, None, reason)
        self._end_after_commit(self._spans("expire" if reason == "expired" else "dead-letter", messages))
        if self._inner is not None:
            self._inner.ended(messages, reason)

    def removed(self, messages: list[Message]) -> None:
        self._end_deliveries(messages, None, "removed")
        if self._inner is not None:
            self._inner.removed(messages)

    # Spans.

    def _span(self, operation: str, message: Message, since: int | None = None) -> Span | None:
        parent = message.header(b"traceparent")
        if parent is None or len(parent) < SHORTEST or parent[-1] not in _SAMPLED:
            return None
        return self._tracer.span(operation, self._destination, parent, message.id, since)

    def _spans(self, operation: str, messages: list[Message], since: int | None = None) -> list[Span]:
        found = [self._span(operation, message, since) for message in messages[:LOOKED_AT]]
        return [span for span in found if span is not None]

    def _end_after_commit(self, spans: list[Span]) -> None:
        if not spans:
            return

        def end() -> None:
            for span in spans:
                span.end()

        self._after_commit(end)

    def _end_deliveries(self, messages: list[Message], subscription: Subscription | None, error: str = "") -> None:
        if not self._deliveries:
            return
        for message in messages:
            for consumer in self._consumers.get(message.sequence, [])[:]:
                if subscription is None or consumer is subscription:
                    self._end_delivery(message.sequence, consumer, error)

    def _end_delivery(self, sequence: int, consumer: Subscription, error: str = "") -> None:
        self._deliveries.pop((sequence, consumer)).end(error)
        consumers = self._consumers[sequence]
        consumers.remove(consumer)
        if not consumers:
            del self._consumers[sequence]


PATIENCE = 1.0
"""After so many seconds events are written that no commit took along."""


class Ledger:
    """The ledger of a broker.

    Attributes:
        is_asked_for: whether the policy of any destination, or a tracer, asked for it: else nothing is told.
    """

    def __init__(self, core: Core, destinations: Destinations, tracer: Tracer | None = None) -> None:
        self._core = core
        self._tracer = tracer
        self._destinations = destinations
        self._noted: list[Run] = []
        self.is_asked_for = False
        self._is_waiting = False
        self._partition: Partition | None = None

    def of(self, destination: Destination, *, subscriber: str = "", lane: int = 0) -> DestinationLedger | None:
        """What is to be told of a destination; None if neither its policy nor a tracer asks for it."""
        inner: DestinationLedger | None = None
        if self.is_kept(destination):
            self.is_asked_for = True
            inner = DestinationLedger(self, str(destination), subscriber, lane)
        if self._tracer is None or destination.name == STREAM:
            return inner
        self.is_asked_for = True
        return TracedDestination(self, str(destination), inner, self._tracer, self._core.after_commit)

    def is_kept(self, destination: Destination) -> bool:
        return self._core.settings.policies.of(destination).ledger and destination.name != STREAM

    def now_ms(self) -> int:
        return self._core.clock.now_ms()

    def note(self, run: Run) -> None:
        self._noted.append(run)
        if not self._is_waiting:
            self._is_waiting = True
            self._core.scheduler.call_later(PATIENCE, self._write_soon)

    def _write_soon(self) -> None:
        self._is_waiting = False
        if self._noted:
            self._core.hurry()

    def write(self, parts: Mapping[Owner, Part]) -> None:
        """The open commit ends: add a block that says what it will have done, and what happened since the last one."""
        committed: list[Run] = []
        for owner, part in parts.items():
            if owner.ledger is not None and part.appends:
                committed += owner.ledger.committing(part.appends)
        if committed:
            self._lane.send(self._content(committed))
        if self._noted:  # what happened has happened, whatever becomes of this commit
            noted, self._noted = self._noted, []
            self._lane.transfer(self._content(noted))

    @property
    def _lane(self) -> "Partition":
        streams = self._destinations.streams
        if self._partition is None or STREAM not in streams:
            with self._core.limits.own_work():
                stream = streams.get(STREAM) or self._destinations.create_stream(STREAM, 1)
            self._partition = stream.partitions[0]
        return self._partition

    def _content(self, runs: list[Run]) -> bytes:
        core = self._core
        stamp = b"\ntimestamp:%d\ncontent-type:application/vnd.quire.ledger\n\n" % core.clock.now_ms()
        return b"".join((core.id_prefix, b"%d" % core.next_message_id(), stamp, encode_block(runs)))
