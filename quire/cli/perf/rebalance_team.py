"""The members of a group that come and go, and what they see."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from quire.cli.perf.group_log import GroupLog
from quire.cli.perf.load import Target
from quire.cli.perf.rebalance_log import OwnerLog
from quire.cli.perf.stream_member import StreamMember, StreamMessage
from quire.clock import SystemClock

LONGEST_WORK = 0.02
"""How long a member works on a message at the most before it acknowledges it, in seconds."""


@dataclass
class _Worker:
    """A member.

    Attributes:
        member: its connection.
        number: the number of the connection: one that comes back is another one.
        work: how long it works on a message, in seconds.
        held: what it has not acknowledged, in the order it came, with when it came.
    """

    member: StreamMember
    number: int
    work: float
    held: deque[tuple[float, StreamMessage]] = field(default_factory=deque)


class Team:
    """Some members of one group. Messages are numbered: message n is in partition n % partitions.

    Args:
        target: the broker.
        stream: the stream's name.
        group: the group's name.
        messages: how many are sent.
        partitions: how many the stream has.
        dice: decides how long members work.

    Attributes:
        log: what it has got.
        owners: who has had which partition.
        open_leases: how many messages those had that died: not acknowledged, or not confirmed to be.
        revocations: how often a partition was taken from one of them.
        connections: how many there were.
    """

    def __init__(
        self, target: Target, stream: str, group: str, messages: int, partitions: int, dice: random.Random
    ) -> None:
        self.log = GroupLog(messages, partitions)
        self.owners = OwnerLog(partitions)
        self.open_leases = self.revocations = self.connections = 0
        self._target, self._stream, self._group = target, stream, group
        self._clock = SystemClock()
        self._dice = dice
        self._workers: dict[str, _Worker] = {}

    @property
    def names(self) -> list[str]:
        """The members that are there."""
        return list(self._workers)

    def come(self, name: str, headers: str = "") -> None:
        """Somebody comes.

        Args:
            name: what it is called here.
            headers: more of its SUBSCRIBE frame, each with its newline.
        """
        member = StreamMember(self._target, self._stream, self._group, f"events:true\n{headers}")
        self._workers[name] = _Worker(member, self.connections, self._dice.uniform(0, LONGEST_WORK))
        self.connections += 1

    def leave(self, name: str, *, politely: bool) -> None:
        """Somebody acknowledges what it has, until that is confirmed, and goes.

        Args:
            name: who.
            politely: whether it says goodbye, or only closes its connection.
        """
        worker = self._workers.pop(name)
        for _, message in worker.held:
            self.log.acknowledged(worker.number, message.number)
        worker.member.settle([message for _, message in worker.held])
        self.log.left(worker.number, politely=True)
        if politely:
            worker.member.disconnect()
        else:
            worker.member.close()

    def die(self, name: str) -> None:
        """Somebody is gone with all it had."""
        worker = self._workers.pop(name)
        self.open_leases += len(worker.held) + worker.member.unconfirmed
        self.log.left(worker.number, politely=False)
        worker.member.close()

    def serve(self) -> bool:
        """Each member receives what has come, and acknowledges what it has worked on long enough.

        Returns:
            Whether anything happened.
        """
        moved = False
        for name, worker in self._workers.items():
            for message in worker.member.receive(0):
                moved = True
                self._received(name, worker, message)
            due = list(self._due(worker))
            for message in due:
                self.log.acknowledged(worker.number, message.number)
            worker.member.acknowledge(due)
            moved = moved or bool(due)
        return moved

    def _received(self, name: str, worker: _Worker, message: StreamMessage) -> None:
        if message.event:
            self.revocations += message.event == "revoked"
            return
        self.log.delivered(worker.number, message.number, message.is_redelivered)
        self.owners.delivered(name, message.place[0], message.epoch)
        worker.held.append((self._clock.monotonic(), message))

    def _due(self, worker: _Worker) -> Iterator[StreamMessage]:
        """What a member has worked on long enough; it is not held any more."""
        until = self._clock.monotonic() - worker.work
        while worker.held and worker.held[0][0] <= until:
            yield worker.held.popleft()[1]
