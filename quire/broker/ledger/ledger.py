"""The delivery ledger: a stream that says what becomes of the messages of those destinations whose policy asks for it.

What is true once a commit is done is written in that commit. So the ledger says that a message is stored, or done with,
exactly if it is; a crash can only take dispatches from it whose messages come again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quire.broker.commit import Owner, Part
from quire.broker.ledger.destination_ledger import DestinationLedger
from quire.destination import Destination
from quire.ledger_block import STREAM, Run, encode_block

if TYPE_CHECKING:
    from quire.broker.broker import Broker
    from quire.broker.streams.partition import Partition

PATIENCE = 1.0
"""After so many seconds events are written that no commit took along."""


class Ledger:
    """The ledger of a broker.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._noted: list[Run] = []
        self._is_asked_for = False
        self._is_waiting = False
        self._partition: Partition | None = None

    def of(self, destination: Destination, *, subscriber: str = "", lane: int = 0) -> DestinationLedger | None:
        """What is to be told of a destination; None if its policy does not ask for it, or it is the ledger itself.

        Args:
            destination: the destination.
            subscriber: the durable subscription or consumer group it is about.
            lane: the partition of a stream.
        """
        if not self._broker.settings.policies.of(destination).ledger or destination.name == STREAM:
            return None
        self._is_asked_for = True
        return DestinationLedger(self, str(destination), subscriber, lane)

    def now_ms(self) -> int:
        """The time, in milliseconds since the epoch."""
        return self._broker.clock.now_ms()

    def note(self, run: Run) -> None:
        """Something happened that is written with the next commit."""
        self._noted.append(run)
        if not self._is_waiting:
            self._is_waiting = True
            self._broker.scheduler.call_later(PATIENCE, self._write_soon)

    def _write_soon(self) -> None:
        self._is_waiting = False
        if self._noted:
            self._broker.hurry()

    def write(self, parts: Mapping[Owner, Part]) -> None:
        """The open commit ends: add a block that says what it will have done, and what happened since the last one.

        Args:
            parts: what the commit has.
        """
        committed: list[Run] = []
        for owner, part in parts.items() if self._is_asked_for else ():
            if owner.ledger is not None and part.appends:
                committed += owner.ledger.committing(part.appends)
        if committed:
            self._lane.send(self._content(committed))
        if self._noted:  # what happened has happened, whatever becomes of this commit
            noted, self._noted = self._noted, []
            self._lane.bring(self._content(noted))

    @property
    def _lane(self) -> "Partition":
        """The stream's one partition; it is made on first use."""
        streams = self._broker.destinations.streams
        if self._partition is None or STREAM not in streams:
            with self._broker.limits.own_work():
                stream = streams.get(STREAM) or self._broker.destinations.create_stream(STREAM, 1)
            self._partition = stream.partitions[0]
        return self._partition

    def _content(self, runs: list[Run]) -> bytes:
        broker = self._broker
        stamp = b"\ntimestamp:%d\ncontent-type:application/vnd.quire.ledger\n\n" % broker.clock.now_ms()
        return b"".join((broker.id_prefix, b"%d" % broker.next_message_id(), stamp, encode_block(runs)))
