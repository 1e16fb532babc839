"""What has come of numbered messages: to one consumer, to groups and their owners, to a team that comes and goes."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.stomp_client import Consumer, Message
from quire.cli.perf.load import Pace
from quire.clock import SystemClock


class NumberLog:
    """Which of the messages 0 to n - 1 have come, and how."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self._seen = bytearray(messages)
        self.received = self.out_of_order = self.redelivered = self.duplicates = self.unflagged_duplicates = 0

    @property
    def missing(self) -> int:
        return self.messages - self.received

    def count(self, number: int, redelivered: bool) -> bool:
        """Count a delivery; whether it is the message's first."""
        self.redelivered += redelivered
        if self._seen[number]:
            self.duplicates += redelivered
            self.unflagged_duplicates += not redelivered
            return False
        self._seen[number] = 1
        self.received += 1
        return True


class DeliveryLog(NumberLog):
    """Watches deliveries of messages that one producer sent in the order of their numbers, to one consumer at a time.

    What comes after a later message is out of order: on the same connection, or as a first delivery on any.
    """

    def __init__(self, messages: int) -> None:
        super().__init__(messages)
        self._highest = self._last = -1

    def connected(self) -> None:
        """The consumer has connected anew: what came back may come again, before what is later."""
        self._last = -1

    def delivered(self, number: int, redelivered: bool) -> None:
        is_first = self.count(number, redelivered)
        self.out_of_order += number <= self._last or (is_first and number < self._highest)
        self._last = number
        self._highest = max(self._highest, number)


class GroupLog(NumberLog):
    """Watches deliveries of messages that one producer sent in the order of their numbers, to several consumers.

    Message n is number n // groups of the group n % groups; what is not the message of its group that was due is out of
    order. The log hears of acknowledgements and departures before the broker does, and of deliveries after it: so no
    two of them can pass each other. A consumer that comes back is another consumer.
    """

    def __init__(self, messages: int, groups: int) -> None:
        super().__init__(messages)
        self._groups = [_Group() for _ in range(groups)]
        self.at_two_consumers = 0  # deliveries while another consumer had unacknowledged messages of the group

    @property
    def every_group_goes_on(self) -> bool:
        return max([group.due for group in self._groups]) < self.messages // len(self._groups)

    def delivered(self, consumer: int, number: int, redelivered: bool) -> None:
        index, name = divmod(number, len(self._groups))
        group = self._groups[name]
        self.at_two_consumers += group.held > 0 and group.consumer != consumer
        self.out_of_order += not group.earliest <= index <= group.due
        self.count(number, redelivered)
        group.delivered(consumer, index)

    def acknowledged(self, consumer: int, number: int) -> None:
        index, name = divmod(number, len(self._groups))
        self._groups[name].acknowledged(consumer, index)

    def left(self, consumer: int, *, confirmed: bool) -> None:
        """A consumer is about to leave; what it has not acknowledged is due again.

        What it has acknowledged may be due as well, unless the broker has certainly seen that.
        """
        for group in self._groups:
            group.left(consumer, confirmed)


@dataclass(slots=True)
class _Group:
    consumer: int = -1  # who has got its last message
    first: int = 0  # the first message that consumer has got
    held: int = 0  # how many of its messages the consumer has not acknowledged
    settled: int = 0  # how many of its messages were acknowledged
    due: int = 0  # which message must come next
    earliest: int = 0  # from which one on earlier ones may come instead

    def delivered(self, consumer: int, index: int) -> None:
        if consumer != self.consumer:
            self.consumer, self.first, self.held = consumer, index, 0
        self.held += 1
        self.due = self.earliest = index + 1

    def acknowledged(self, consumer: int, index: int) -> None:
        if consumer == self.consumer:
            self.held -= 1
            self.settled = index + 1

    def left(self, consumer: int, confirmed: bool) -> None:
        if consumer == self.consumer:
            self.due = self.settled
            self.earliest = self.due if confirmed else min(self.first, self.due)
            self.consumer, self.held = -1, 0


class OwnerLog:
    """Watches deliveries to the members of a group."""

    def __init__(self, partitions: int) -> None:
        self._owners: list[dict[int, str]] = [{} for _ in range(partitions)]
        self.two_owners = 0
        self.old_epochs = 0  # deliveries of a partition under an earlier epoch than the one before

    @property
    def moves(self) -> int:
        """How often partitions went to another member, or to the same one under another epoch."""
        return sum(max(0, len(owners) - 1) for owners in self._owners)

    def delivered(self, member: str, partition: int, epoch: int) -> None:
        owners = self._owners[partition]
        self.two_owners += owners.setdefault(epoch, member) != member
        self.old_epochs += epoch < max(owners)


@dataclass
class Worker:
    """A consumer."""

    consumer: Consumer  # its connection
    number: int  # the number of the connection: one that comes back is another one
    work: float  # how long it works on a message, in seconds
    held: deque[tuple[float, Message]] = field(default_factory=deque)


class Team:
    """Some consumers of numbered messages that belong to groups, in turn."""

    def __init__(self, log: GroupLog, pace: Pace) -> None:
        self.log = log  # watches them
        self.workers: dict[str, Worker] = {}  # those that are there, by name
        self.connections = self.acknowledged = 0
        self._pace = pace  # how fast they acknowledge, all together
        self._clock = SystemClock()

    def come(self, name: str, consumer: Consumer, work: float) -> None:
        """Add a consumer that works on each message for so many seconds."""
        self.workers[name] = Worker(consumer, self.connections, work)
        self.connections += 1

    def leave(self, name: str, *, settles: bool, politely: bool) -> int:
        """Remove a consumer, which has acknowledged all it has until that is confirmed, or leaves it.

        A polite one says DISCONNECT and waits for the answer; the other only closes its connection.

        Returns:
            How many messages it had: not acknowledged, or not confirmed to be.
        """
        worker = self.workers.pop(name)
        if settles:
            held = [message for _, message in worker.held]
            self._acknowledge(worker, held)
            worker.consumer.confirm()
            worker.held.clear()
        self.log.left(worker.number, confirmed=settles or politely)
        if politely:
            worker.consumer.disconnect()
        else:
            worker.consumer.close()
        return len(worker.held) + worker.consumer.unconfirmed

    def serve(self, names: Iterable[str]) -> bool:
        received, before = False, self.acknowledged
        for name in names:
            worker = self.workers[name]
            for message in worker.consumer.receive(0):
                received = True
                self.received(name, worker, message)
            self._acknowledge(worker, self._due(worker))
        return received or self.acknowledged > before

    def received(self, name: str, worker: Worker, message: Message) -> None:
        self.log.delivered(worker.number, message.number, message.is_redelivered)
        worker.held.append((self._clock.monotonic(), message))

    def _due(self, worker: Worker) -> list[Message]:
        until, due = self._clock.monotonic() - worker.work, []
        for _ in range(self._pace.room(self.acknowledged, len(worker.held))):
            if worker.held[0][0] > until:
                break
            due.append(worker.held.popleft()[1])
        return due

    def _acknowledge(self, worker: Worker, messages: list[Message]) -> None:
        for message in messages:
            self.log.acknowledged(worker.number, message.number)
        worker.consumer.acknowledge(messages, confirmed=True)
        self.acknowledged += len(messages)
