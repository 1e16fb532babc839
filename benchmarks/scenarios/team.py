"""Consumers that come and go, and work on each message for a while before they acknowledge it."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.scenarios.group_log import GroupLog
from benchmarks.stomp_client import Consumer, Message
from quire.cli.perf.load import Pace
from quire.clock import SystemClock


@dataclass
class Worker:
    """A consumer.

    Attributes:
        consumer: its connection.
        number: the number of the connection: one that comes back is another one.
        work: how long it works on a message, in seconds.
        held: what it has not acknowledged, in the order it came, with when it came.
    """

    consumer: Consumer
    number: int
    work: float
    held: deque[tuple[float, Message]] = field(default_factory=deque)


class Team:
    """Some consumers of numbered messages that belong to groups, in turn.

    Args:
        log: watches them.
        pace: how fast they acknowledge, all together.

    Attributes:
        workers: those that are there, by name.
        connections: how many there were.
        acknowledged: how many messages they have acknowledged.
    """

    def __init__(self, log: GroupLog, pace: Pace) -> None:
        self.log = log
        self.workers: dict[str, Worker] = {}
        self.connections = self.acknowledged = 0
        self._pace = pace
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
        """Some consumers receive what has come, and acknowledge what they have worked on; whether anything happened."""
        received, before = False, self.acknowledged
        for name in names:
            worker = self.workers[name]
            for message in worker.consumer.receive(0):
                received = True
                self.received(name, worker, message)
            self._acknowledge(worker, self._due(worker))
        return received or self.acknowledged > before

    def received(self, name: str, worker: Worker, message: Message) -> None:
        """A message has come."""
        self.log.delivered(worker.number, message.number, message.is_redelivered)
        worker.held.append((self._clock.monotonic(), message))

    def _due(self, worker: Worker) -> list[Message]:
        """What a consumer has worked on long enough; it is not held any more."""
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
