"""The door of bulk writers: write, stage, commit and discard rows; the producers that number their writes."""

from collections.abc import Callable, Iterator

from quire.broker.admission import check_room
from quire.broker.bulk.row_reader import Columns, RowReader
from quire.broker.bulk.rows import Row, send, target_of
from quire.management.queues import Management
from quire.management.tables import Table
from quire.resources import ProducerStatus, Status

STEP = 500  # how many rows are read in one step

Rows = list[Row]


class StageEntry(Status, frozen=True):
    """Some staged rows. ``decided`` ones are committed and on their way to their destinations."""

    stage: str
    producer: str
    rows: int
    bytes: int
    age_seconds: float
    decided: bool


class StageList(Status, frozen=True):
    """All staged rows, in the order of staging, and their bytes in the store."""

    bytes: int
    stages: list[StageEntry]


class BulkManagement:
    """Writes and stages rows. All methods that store rows raise ``ProducerHeld`` when a limit is reached."""

    def __init__(self, management: Management) -> None:
        self._broker = management.broker

    @property
    def is_full(self) -> bool:
        """Whether the open commit is large: as transports do, a writer waits for it before it adds rows."""
        return self._broker.core.is_full

    def rows(self, columns: Columns, sender: str = "") -> Iterator[Rows]:
        """Read rows, in steps; their destinations are created if they do not exist.

        Args:
            sender: who hands them in (``Accounts.remembered``); empty if there are no users.
        """
        broker = self._broker
        check_room(broker.core, stored=True)
        limits = broker.core.settings.stomp
        yield from RowReader(limits, broker.destinations, broker.routing, columns, sender).steps(STEP)

    def write(self, rows: Rows, producer: str | None, sequence: int | None) -> bool:
        """Send rows in the open commit; false for a numbered write that the broker has accepted before."""
        broker = self._broker
        check_room(broker.core, stored=True)
        targets = [target_of(broker.routing, row) for row in rows]
        is_new = producer is None or sequence is None or broker.producers.take(producer, sequence)
        if is_new:
            send(broker.core, rows, targets)
        return is_new

    def stage(self, producer: str, rows: Rows) -> str:
        """Stage rows in the open commit; returns the id of the stage."""
        return self._broker.staged.stage(producer, rows)

    def commit(self, producer: str, sequence: int, stages: list[str]) -> int | None:
        return self._broker.staged.commit(producer, sequence, stages)

    def when_sent(self, producer: str, done: Callable[[], None]) -> None:
        """Call ``done`` when all committed rows of a producer are durable in their destinations."""
        self._broker.staged.when_sent(producer, done)

    def discard(self, producer: str, stages: list[str] | None) -> int:
        """Discard stages of a producer, or all of them; returns how many rows that was."""
        return self._broker.staged.discard(producer, stages)

    def stages(self) -> StageList:
        staged, now = self._broker.staged, self._broker.core.clock.now_ms()
        entries = [
            StageEntry(
                id, each.producer, each.rows, each.bytes, max(now - each.staged_at, 0) / 1000, staged.is_decided(id)
            )
            for id, each in staged.stages.items()
        ]
        return StageList(staged.bytes, entries)

    def producers(self) -> Table[str]:
        """The ids of the producers that number their sends."""
        known = self._broker.producers
        return Table(known.ids, str, {"last_sent": known.last_sent}, {}, is_ordered=True)

    def producer(self, id: str) -> ProducerStatus:
        return self._broker.producers.status(id)

    def forget_producer(self, id: str) -> None:
        """Forget a producer; it may raise ``UnknownProducer``."""
        self._broker.producers.forget(id)
