"""The delivery ledger: a stream that says what becomes of the messages of those destinations whose policy asks for it.

What is true once a commit is done is written in that commit. So the ledger says that a message is stored, or done with,
exactly if it is; a crash can only take dispatches from it whose messages come again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quire.broker.core.commit import Owner, Part
from quire.broker.core.core import Core
from quire.broker.core.destination_ledger import DestinationLedger
from quire.broker.core.tracing import Tracer
from quire.broker.destinations import Destinations
from quire.broker.ledger.traced_destination import TracedDestination
from quire.destination import Destination
from quire.ledger_block import STREAM, Run, encode_block

if TYPE_CHECKING:
    from quire.broker.streams.partition import Partition

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
        """Whether the policy of a destination asks for the ledger, and it is not the ledger itself."""
        return self._core.settings.policies.of(destination).ledger and destination.name != STREAM

    def now_ms(self) -> int:
        """The time, in milliseconds since the epoch."""
        return self._core.clock.now_ms()

    def note(self, run: Run) -> None:
        """Something happened that is written with the next commit."""
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
        """The stream's one partition; it is made on first use."""
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
