"""A queue: what comes in, who gets it, what comes back.

Read it in the order of a message's life: ``send``, ``fill`` (into the commit), ``committed``, ``dispatch``,
``acknowledge`` (into a later commit), and ``take_back`` for what is not acknowledged.
"""

import heapq
import logging
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING

from quire.broker.commit import Commit, QueuePart
from quire.broker.dead_letter import send_dead_letters
from quire.broker.dispatch_mark import DispatchMark
from quire.broker.round_robin import RoundRobin
from quire.broker.subscription import AckMode, Subscription
from quire.cursors.memory_usage import MemoryUsage
from quire.cursors.queue_cursor import QueueCursor
from quire.destination import Destination, DestinationKind
from quire.errors import StoreError
from quire.logs import event
from quire.message import Message
from quire.store.base import Delivery, StoredDestination

if TYPE_CHECKING:
    from quire.broker.broker import Broker

SLICE = 64
"""How many messages a consumer is given before the next one has its turn to be looked at."""


class Queue:
    """One queue.

    Args:
        broker: the broker it belongs to.
        stored: the destination as the store has it.

    Attributes:
        destination: its address.
        lane: its lane's id.
        memory: its node of the memory tree.
        depth: how many messages it has, those in flight included; exact.
        bytes: their sizes.
        subscriptions: its consumers, in the order they came.
        paused: whether dispatch is stopped by an operator.
        fault: why the store cannot give its next message; None while it can.
        fault_since: since when, on the monotonic clock.
    """

    def __init__(self, broker: "Broker", stored: StoredDestination) -> None:
        self._broker = broker
        self.stored = stored
        self.destination = Destination(DestinationKind(stored.kind), stored.name)
        self.lane = stored.lanes[0]
        self.paused = bool(stored.settings.get("paused"))
        state = broker.store.lane_state(self.lane)
        self.memory = MemoryUsage(broker.settings.memory.queue_limit, broker.memory)
        self.cursor = QueueCursor(
            broker.store, broker.spool, self.lane, self.memory, broker.clock, state.next_sequence - 1
        )
        # The mark is written ahead: what comes in from now on was not delivered before the crash.
        self.cursor.redelivered_to = min(state.dispatch_mark, state.next_sequence - 1)
        self.depth, self.bytes = state.count, state.bytes
        self.subscriptions: list[Subscription] = []
        self.fault: StoreError | None = None
        self.fault_since = 0.0
        self.enqueued = self.dequeued = self.dispatched = self.redelivered = self.expired = self.dead_lettered = 0
        self._next_sequence = state.next_sequence
        self._returned: deque[Message] = deque()
        self._round_robin = RoundRobin(self.subscriptions)
        self._settles_with = 0
        self._mark = DispatchMark(state.dispatch_mark)
        self._open = QueuePart(self)

    # A message comes in.

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message. It is in the queue when the open commit is done.

        Args:
            content: header lines and body (``quire.message``).
            expiration: milliseconds since the epoch; 0 for never.
            priority: 0 to 9.
            persistent: whether it must survive the broker.
        """
        message = Message(self._next_sequence, content, expiration, priority, persistent)
        self._next_sequence += 1
        part = self._open
        part.appends.append(message)
        if not persistent:
            part.mixed = True
            message.stored = not self.cursor.keep(message)
        self._broker.open_bytes += message.size
        if not part.listed:
            self._broker.list_part(part)

    def bring(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """As ``send``, for what another queue gives up in this commit. If it fails, both are in the next one."""
        self.send(content, expiration, priority, persistent)
        self._open.brought.append(self._open.appends[-1])

    def fill(self, commit: Commit) -> None:
        """Put what has gathered into a commit."""
        part, self._open = self._open, QueuePart(self)
        commit.parts.append(part)
        if (mark := self._mark.take()) is not None:
            part.dispatch_mark = mark
        part.write(commit.batch, self._broker.spool)

    def committed(self, part: QueuePart) -> None:
        """A commit is done: what it brought can be dispatched."""
        if part.dispatch_mark is not None:
            self._mark.stored = part.dispatch_mark
        self.cursor.excluded -= part.excluded
        if part.appends:
            self.depth += len(part.appends)
            self.enqueued += len(part.appends)
            size = sum([message.size for message in part.appends])
            self.bytes += size
            self._broker.stored_bytes += size
            self.cursor.committed(part.appends)
        self.wake()

    def commit_failed(self, part: QueuePart, restored: set[int]) -> None:
        """A commit failed: what was sent in it is refused, the rest is put into the next commit.

        Args:
            part: this queue's part of it.
            restored: ``id`` of the messages whose removal is not to be tried again.
        """
        kept = [message for message in part.appends if not message.stored]
        self.cursor.release(kept)
        spooled = [message for message in part.appends if message.stored and not message.persistent]
        following = self._open
        following.removals = [m for m in part.removals if id(m) not in restored] + spooled + following.removals
        following.deliveries = {**part.deliveries, **following.deliveries}
        following.excluded |= part.excluded
        for message in part.brought:
            self.bring(message.content, message.expiration, message.priority, message.persistent)
        self._mark.failed()
        if self._settles_with == self._broker.commits_done:
            self._settles_with = self._broker.open_commit_number
        self._broker.list_part(following)

    # It goes out.

    def wake(self) -> None:
        """Dispatch at the end of this turn, if there may be something to dispatch."""
        if self.subscriptions:
            self._broker.ready[self] = None
            self._broker.ask_turn()

    def dispatch(self) -> None:
        """Give messages to consumers; a message that cannot be read stops this queue and no other."""
        if self.paused or self._settles_with > self._broker.commits_done:
            return
        try:
            self._dispatch()
            self.fault = None
        except StoreError as fault:
            self._report(fault)

    def _dispatch(self) -> None:
        """Returned messages first, then the window; page in when it runs empty."""
        while ready := self._round_robin.ready():
            run = self._next_run(SLICE * len(ready), min([s.credit for s in ready]) * len(ready))
            if not run:
                return
            for subscription, share in self._round_robin.deal(run, ready):
                self._deliver(subscription, share)

    def _deliver(self, subscription: Subscription, messages: list[Message]) -> None:
        self.dispatched += len(messages)
        if subscription.ack is AckMode.AUTO:
            subscription.session.deliver(subscription, messages)
            self.acknowledge(messages)
            return
        subscription.in_flight.update([(message.sequence, message) for message in messages])
        subscription.session.deliver(subscription, messages)

    def _report(self, fault: StoreError) -> None:
        """The next message cannot be read: dispatch stands before it, and says so once."""
        if self.fault is None:
            text = f"queue {self.destination.name}: {fault} {fault.entry.advice}"
            event("queue.damaged", text, logging.ERROR, queue=self.destination.name, **fault.data)
            self.fault_since = self._broker.clock.monotonic()
        self.fault = fault

    def _next_run(self, *limits: int) -> list[Message]:
        """The next messages in order, up to the dispatch mark, expired ones taken out."""
        source = self._returned or self.cursor.window
        if not source and self._page_in():
            source = self.cursor.window
        popleft = source.popleft
        run = [popleft() for _ in range(min(len(source), *limits))]
        if run and self._mark.reach(run[-1].sequence):
            self._broker.list_part(self._open)
            self._broker.hurry()
        while run and run[-1].sequence > self._mark.stored:
            source.appendleft(run.pop())
        if any([message.expiration for message in run]):
            run = self._without_expired(run)
        return run

    def _page_in(self) -> bool:
        if self.cursor.page_in():
            return True
        if self.cursor.blocked_since is not None:
            self.memory.wait(self._memory_released)
        return False

    def _memory_released(self) -> bool:
        self.dispatch()
        return self.cursor.blocked_since is None

    def _without_expired(self, run: list[Message]) -> list[Message]:
        now = self._broker.clock.now_ms()
        expired = [message for message in run if message.expiration and message.expiration <= now]
        if not expired:
            return run
        self.bury(expired, "expired", "expired before it could be delivered")
        self.wake()
        return [message for message in run if not message.expiration or message.expiration > now]

    # It is settled.

    def acknowledge(self, messages: list[Message]) -> None:
        """Remove messages that consumers are done with. They are gone when the open commit is done."""
        self.dequeued += len(messages)
        self._remove(messages)
        self.cursor.release(messages)

    def _remove(self, messages: list[Message]) -> None:
        size = sum([message.size for message in messages])
        self.depth -= len(messages)
        self.bytes -= size
        self._broker.stored_bytes -= size
        part = self._open
        part.removals += messages
        if not part.listed:
            self._broker.list_part(part)
        self.wake()

    def bury(self, messages: list[Message], reason: str, cause: str) -> None:
        """Remove resident messages that cannot be delivered; they become dead letters by policy, in the same commit.

        Args:
            messages: in no consumer's in-flight table any more, their memory still reserved.
            reason: ``expired`` or ``failed``.
            cause: for the dead letter's header.
        """
        self._remove(messages)
        self.cursor.release(messages)
        send_dead_letters(self._broker, self, messages, reason, cause)

    @property
    def is_dead_letter_queue(self) -> bool:
        """Whether this is where dead letters go; a message that fails here stays here."""
        return self.destination.name == self._broker.settings.queue.dead_letter_queue

    # Or it comes back.

    def take_back(self, messages: list[Message], failed: int, cause: str) -> None:
        """Take messages back that a consumer did not acknowledge; they go out again before later ones, flagged.

        Args:
            messages: out of the in-flight table, in the order they were given out.
            failed: how many of the first of them count as failed deliveries.
            cause: why they came back.
        """
        self.redelivered += len(messages)
        maximum = self._broker.settings.queue.maximum_redeliveries
        poison = []
        for index, message in enumerate(messages):
            message.redelivered = True
            message.deliveries += 1
            message.failures += index < failed
            if message.failures > maximum and not self.is_dead_letter_queue:
                poison.append(message)
            elif message.stored:
                states = self._open.deliveries if message.persistent else self._open.spool_deliveries
                states[message.sequence] = Delivery(message.deliveries, message.failures, 0, cause)
        if poison:
            text = f"delivery failed {poison[0].failures} times, the maximum is {maximum}: {cause}"
            self.bury(poison, "failed", text)
            messages = [message for message in messages if message not in poison]
        returned = sorted(messages, key=attrgetter("sequence"))
        self._returned = deque(heapq.merge(returned, self._returned, key=attrgetter("sequence")))
        self._broker.list_part(self._open)
        self.wake()

    def restore(self, messages: list[Message]) -> None:
        """Put messages back whose acknowledgement was in a transaction that could not be committed."""
        size = sum([message.size for message in messages])
        self.depth += len(messages)
        self.bytes += size
        self._broker.stored_bytes += size
        self.cursor.hold(messages)
        for message in messages:
            message.stored = message.persistent  # the spool has given them up already
        self.take_back(messages, 0, "the transaction of its acknowledgement failed")
        if self._settles_with >= self._broker.commits_done:  # the last consumer left meanwhile: begin at the head
            self._rest()
            if self.subscriptions:
                self.cursor.activate()

    # Consumers come and go.

    def add(self, subscription: Subscription) -> None:
        """A consumer comes."""
        self.subscriptions.append(subscription)
        self.cursor.activate()
        self.wake()

    def remove(self, subscription: Subscription, cause: str, *, lost: bool) -> None:
        """A consumer goes; what it had in flight comes back.

        Args:
            subscription: which.
            cause: why it goes.
            lost: whether it vanished. Then the oldest message it had counts as a failed delivery: it is the one that
                was being worked on. The others were only waiting.
        """
        self.subscriptions.remove(subscription)
        messages = list(subscription.in_flight.values())
        subscription.in_flight.clear()
        if messages:
            self.take_back(messages, 1 if lost else 0, cause)
        if not self.subscriptions:
            self._rest()

    def _rest(self) -> None:
        """The last consumer is gone: give the memory back, and begin at the head with the next one.

        What was acknowledged or came back is known to the store when the open commit is done; until then nothing is
        dispatched, for a read would not see it.
        """
        self.memory.stop_waiting(self._memory_released)
        self._broker.ready.pop(self, None)
        in_flight, self._returned = list(self._returned), deque()
        self.cursor.reset(in_flight)
        self._settles_with = self._broker.open_commit_number
        self._broker.list_part(self._open)
        self._broker.hurry()

    # Somebody else takes messages out: expiry, purge, move.

    def take_out(self, sequences: list[int]) -> list[int]:
        """Begin to remove messages that are not in flight, without touching the cursor.

        Args:
            sequences: which.

        Returns:
            Those of them that may be removed; the others are in flight, or are being removed already. The caller ends
            with ``removed``.
        """
        parts = (self._open, *self._broker.parts_of(self))
        leaving = {message.sequence for part in parts for message in part.removals}
        busy = self.in_flight_sequences() | self.cursor.excluded | leaving
        free = {sequence for sequence in sequences if sequence <= self.cursor.last and sequence not in busy}
        self._returned_discard(free)
        self.cursor.discard(free)
        self._open.excluded |= free
        self._broker.list_part(self._open)
        return sorted(free)

    def removed(self, messages: list[Message]) -> None:
        """Remove messages that ``take_out`` gave, whose memory is released or was never reserved."""
        self._remove(messages)

    def unstored(self) -> list[Message]:
        """The messages that are nowhere but in memory, in order: non-persistent ones that found room."""
        in_flight = [message for s in self.subscriptions for message in s.in_flight.values()]
        found = [m for m in (*in_flight, *self._returned, *self.cursor.resident()) if not m.stored]
        return sorted(found, key=attrgetter("sequence"))

    def _returned_discard(self, sequences: set[int]) -> None:
        gone = [message for message in self._returned if message.sequence in sequences]
        if gone:
            self._returned = deque([m for m in self._returned if m.sequence not in sequences])
            self.cursor.release(gone)

    def in_flight_sequences(self) -> set[int]:
        """The sequences of all messages that consumers have."""
        return {sequence for s in self.subscriptions for sequence in s.in_flight}

    @property
    def in_flight(self) -> int:
        """How many messages consumers have."""
        return sum([len(s.in_flight) for s in self.subscriptions])

    def stop(self) -> None:
        """Before a clean stop, with no consumers left: nothing was delivered that the delivery states do not tell.

        Only messages that were flagged by an earlier crash, and are still here, keep the mark.
        """
        head = self._broker.store.lane_state(self.lane).head
        crashed = self.cursor.redelivered_to
        self._open.dispatch_mark = crashed if 0 < head <= crashed else 0
        self._broker.list_part(self._open)
